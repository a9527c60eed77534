//! `cargo xtask bench scrape`: what it costs the gateway to know its endpoints.
//!
//! A hundred endpoints with vLLM's 50 KB metrics page, under a trickle of work
//! and then idle. The page servers count what was fetched, so that a gateway
//! that simply scrapes less cannot look cheap.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::figures;
use super::message::Pacing;
use super::path::{Path, Running};
use super::streams::{self, Streams};
use super::upstream::{Settings, Upstream};

/// Time between two chunks of the one stream that keeps the pool active: far
/// below what would show as CPU.
const TRICKLE: Duration = Duration::from_millis(100);
/// Time for the pool to notice that nothing is in flight.
const COOL_DOWN: Duration = Duration::from_secs(2);
/// Default interval of the gateway under load.
const INTERVAL: Duration = Duration::from_millis(50);
/// Share of one core that scraping may take, in percent.
const GOAL_PERCENT: f64 = 10.0;

/// Measures the CPU cost of scraping the endpoints' metrics.
#[derive(Args, Debug)]
pub(crate) struct Scrape {
    /// Writes the figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Measured seconds, active and idle each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Number of endpoints.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4000))]
    endpoints: u32,
}

#[derive(Debug, Serialize)]
struct Figures {
    endpoints: u32,
    interval_ms: u64,
    /// CPU of the gateway while a request is in flight, percent of one core.
    core_percent: f64,
    /// CPU of the gateway while nothing is in flight, percent of one core.
    idle_core_percent: f64,
}

/// CPU time and pages fetched, at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    cpu: Duration,
    scrapes: u64,
}

/// What a span of time cost.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    core_percent: f64,
    scrapes_per_second: f64,
    micros_per_scrape: f64,
}

/// Runs the bench.
///
/// # Errors
///
/// When the gateway cannot be started, or scrapes far less often than it should.
pub(crate) fn run(options: &Scrape) -> Result<()> {
    let settings = Settings { endpoints: options.endpoints as usize, interval: TRICKLE };
    let upstream = Upstream::start(settings)?;
    let program = Path::Ours.install()?;
    let running = Running::start(Path::Ours, program.as_ref(), upstream.addresses())?;
    let measured = Duration::from_secs(options.seconds);
    let read = || Ok(Reading { cpu: running.cpu()?, scrapes: upstream.scrapes() });

    let streams = Streams {
        targets: &running.targets,
        count: 1,
        pacing: Pacing::Even,
        warm_up: COOL_DOWN,
        measured,
    };
    let outcome = running.explain(streams::run(&streams, read))?;
    let active = span(outcome.before, outcome.after, outcome.elapsed);

    std::thread::sleep(COOL_DOWN);
    let (started, before) = (Instant::now(), read()?);
    std::thread::sleep(measured);
    let idle = span(before, read()?, started.elapsed());

    print(options, &active, &idle);
    let due = f64::from(options.endpoints) / INTERVAL.as_secs_f64();
    if active.scrapes_per_second < 0.8 * due {
        bail!(
            "the gateway scraped {:.0} pages/s where {due:.0} were due",
            active.scrapes_per_second
        );
    }
    let figures = Figures {
        endpoints: options.endpoints,
        interval_ms: INTERVAL.as_millis() as u64,
        core_percent: figures::tenth(active.core_percent),
        idle_core_percent: figures::tenth(idle.core_percent),
    };
    figures::write_json(options.json.as_deref(), &figures)
}

fn span(before: Reading, after: Reading, elapsed: Duration) -> Span {
    let cpu = after.cpu.saturating_sub(before.cpu);
    let scrapes = after.scrapes - before.scrapes;
    Span {
        core_percent: 100.0 * cpu.as_secs_f64() / elapsed.as_secs_f64(),
        scrapes_per_second: scrapes as f64 / elapsed.as_secs_f64(),
        micros_per_scrape: figures::micros_each(cpu, scrapes),
    }
}

fn print(options: &Scrape, active: &Span, idle: &Span) {
    println!("Machine: {}.", figures::machine());
    println!(
        "{} endpoints, a vLLM page of 50 KB each, every {} ms under load:\n",
        options.endpoints,
        INTERVAL.as_millis()
    );
    println!("| pool | % of one core | pages/s | us/page |");
    println!("|---|---|---|---|");
    for (name, span) in [("active", active), ("idle", idle)] {
        println!(
            "| {name} | {:.1} | {:.0} | {:.1} |",
            span.core_percent, span.scrapes_per_second, span.micros_per_scrape
        );
    }
    let reached = active.core_percent;
    println!(
        "\ngoal {}: {reached:.1} % (goal {GOAL_PERCENT} %)",
        figures::verdict(reached, GOAL_PERCENT)
    );
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the expected values are exact")]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_measured_against_wall_time() {
        let before = Reading { cpu: Duration::from_secs(1), scrapes: 100 };
        let after = Reading { cpu: Duration::from_millis(1200), scrapes: 4100 };
        let expected =
            Span { core_percent: 10.0, scrapes_per_second: 2000.0, micros_per_scrape: 50.0 };
        assert_eq!(span(before, after, Duration::from_secs(2)), expected);
    }

    #[test]
    fn an_idle_span_without_scrapes_costs_nothing_per_page() {
        let reading = Reading { cpu: Duration::from_secs(1), scrapes: 100 };
        assert_eq!(span(reading, reading, Duration::from_secs(1)).micros_per_scrape, 0.0);
    }
}
