//! Medians, microseconds, tables: what every bench prints.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::Serialize;

/// The middle value; the mean of the middle two of an even number; zero of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// A quantile of nanoseconds, in microseconds.
pub(crate) fn micros_at(latency: &Histogram<u64>, quantile: f64) -> f64 {
    latency.value_at_quantile(quantile) as f64 / 1e3
}

/// Microseconds each, when `count` things took `total`.
pub(crate) fn micros_each(total: Duration, count: u64) -> f64 {
    if count == 0 { 0.0 } else { total.as_secs_f64() * 1e6 / count as f64 }
}

/// One decimal, for JSON that people also read.
pub(crate) fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// `value` in terms of `base`, as `1.23x`; a dash without a base.
pub(crate) fn ratio(value: f64, base: Option<f64>) -> String {
    match base {
        Some(base) if base > 0.0 => format!("{:.2}x", value / base),
        _ => "-".into(),
    }
}

/// A goal next to what was reached.
pub(crate) fn verdict(reached: f64, goal: f64) -> &'static str {
    if reached <= goal { "met" } else { "missed" }
}

/// Writes `value` as JSON to `file`, if one was asked for.
pub(crate) fn write_json(file: Option<&Path>, value: &impl Serialize) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let text = serde_json::to_string_pretty(value)? + "\n";
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// What ran where: processor, cores, kernel.
pub(crate) fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = name.map_or("unknown processor", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} x {name}, Linux {}", kernel.trim())
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the expected values are exact")]
mod tests {
    use super::*;

    #[test]
    fn a_median_ignores_one_outlier() {
        assert_eq!(median([3.0, 1000.0, 1.0]), 3.0);
        assert_eq!(median([1.0, 2.0]), 1.5);
        assert_eq!(median([]), 0.0);
    }

    #[test]
    fn costs_are_per_thing_done() {
        assert_eq!(micros_each(Duration::from_millis(5), 100), 50.0);
        assert_eq!(micros_each(Duration::from_millis(5), 0), 0.0);
    }

    #[test]
    fn a_ratio_needs_a_base() {
        assert_eq!(ratio(3.0, Some(2.0)), "1.50x");
        assert_eq!(ratio(3.0, None), "-");
        assert_eq!(ratio(3.0, Some(0.0)), "-");
    }

    #[test]
    fn a_goal_is_met_at_its_edge() {
        assert_eq!((verdict(40.0, 40.0), verdict(40.1, 40.0)), ("met", "missed"));
    }
}
