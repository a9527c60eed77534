//! Tables for people: aligned Markdown, which reads as well on a terminal.

use std::fmt::Write as _;

use super::{BASELINES, Group, Spread, Standing};
use crate::lab::outcome::{NEVER_MS, Summary};

/// The group's table.
#[must_use]
pub fn text(group: &Group) -> String {
    let rows: Vec<Vec<String>> = std::iter::once(header())
        .chain(group.standings.iter().map(|standing| cells(group, standing)))
        .collect();
    aligned(&rows)
}

/// `mixed_8b at 85 % of capacity, 10 seeds`.
pub(super) fn title(group: &Group) -> String {
    let seeds = group.standings.iter().map(Standing::seeds).max().unwrap_or(0);
    let plural = if seeds == 1 { "seed" } else { "seeds" };
    format!("{} at {} of capacity, {seeds} {plural}", group.scenario, percent(group.load))
}

pub(super) fn header() -> Vec<String> {
    let mut header = vec!["policy", "P50 ms", "P95 ms", "P99 ms", "P99 from-to"]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    header.extend(BASELINES.iter().map(|name| format!("x {name}")));
    header.extend(["tokens/s", "goodput", "hits", "hot spot"].map(str::to_owned));
    header
}

pub(super) fn cells(group: &Group, standing: &Standing) -> Vec<String> {
    let p99 = |summary: &Summary| summary.ttft_ms.p99;
    let spread = standing.spread(p99);
    let mut cells = vec![
        standing.policy.clone(),
        milliseconds(standing.spread(|summary| summary.ttft_ms.p50).median),
        milliseconds(standing.spread(|summary| summary.ttft_ms.p95).median),
        milliseconds(spread.median),
        from_to(spread),
    ];
    cells.extend(BASELINES.iter().map(|baseline| {
        let ratio = group.ratio(&standing.policy, baseline, p99);
        ratio.map_or_else(|| "-".to_owned(), factor)
    }));
    let tokens = standing.spread(|summary| summary.output_tokens_per_s);
    cells.push(format!("{:.0}", tokens.median));
    cells.extend(shares(standing));
    cells
}

/// Goodput, prefix hits and hot spot factor.
pub(super) fn shares(standing: &Standing) -> [String; 3] {
    let median = |figure: fn(&Summary) -> f64| standing.spread(figure).median;
    [
        format!("{:.1} %", median(|summary| summary.goodput) * 100.0),
        format!("{:.1} %", median(|summary| summary.prefix_hit_rate) * 100.0),
        format!("{:.2}", median(|summary| summary.hot_spot_factor)),
    ]
}

/// A share as whole per cent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Whole milliseconds; `never` for requests without an answer.
pub(super) fn milliseconds(value: f64) -> String {
    if value >= NEVER_MS { "never".to_owned() } else { format!("{value:.0}") }
}

pub(super) fn from_to(spread: Spread) -> String {
    format!("{}-{}", milliseconds(spread.low), milliseconds(spread.high))
}

pub(super) fn factor(ratio: f64) -> String {
    if ratio < 0.095 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

/// Columns of equal width, the first one to the left, numbers to the right.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0).max(3)).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a string cannot fail.
            let _ = match column {
                0 => write!(text, "| {cell:<width$} "),
                _ => write!(text, "| {cell:>width$} "),
            };
        }
        text.push_str("|\n");
        if number == 0 {
            for (column, width) in widths.iter().enumerate() {
                let end = if column == 0 { '-' } else { ':' };
                let _ = write!(text, "|{}{end}", "-".repeat(width + 1));
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::super::{Report, Row};
    use super::*;

    fn rows() -> Vec<Row> {
        vec![
            row("mixed_8b", "round_robin", 0, 40_000.0),
            row("mixed_8b", "round_robin", 1, 44_000.0),
            row("mixed_8b", "predicted", 0, 1_000.0),
            row("mixed_8b", "predicted", 1, NEVER_MS),
            row("mixed_8b", "extension", 0, 2_000.0),
        ]
    }

    #[test]
    fn table_has_medians_spreads_and_ratios() {
        let mut rows = rows();
        rows[3].summary.ttft_ms.p99 = 2_360.0;
        let group = &Report { rows }.groups()[0];
        assert_eq!(title(group), "mixed_8b at 85 % of capacity, 2 seeds");
        let text = text(group);
        let predicted: Vec<&str> = text
            .lines()
            .find(|line| line.contains("predicted"))
            .unwrap()
            .split('|')
            .map(str::trim)
            .collect();
        // P99 1,680 against 42,000; the extension ran seed 0 only, 1,000 against 2,000; nobody
        // clairvoyant ran.
        assert_eq!(predicted[4..9], ["1680", "1000-2360", "0.040", "0.50", "-"]);
        assert_eq!(predicted[9..13], ["1000", "50.0 %", "25.0 %", "1.50"]);
    }

    #[test]
    fn every_line_of_a_table_has_the_same_width() {
        let text = text(&Report { rows: rows() }.groups()[0]);
        let widths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(widths.len(), 5);
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }

    #[test]
    fn unanswered_requests_are_named_not_counted_in_milliseconds() {
        let text = text(&Report { rows: rows() }.groups()[0]);
        assert!(text.contains("1000-never"), "{text}");
    }
}
