//! `cargo xtask bench proxy`: what each proxy adds to a request and to a chunk.
//!
//! All paths run side by side in one session. Each cell (body size, connections)
//! is measured on every path before the next cell begins, in rounds whose order
//! of paths rotates, so that noise of the machine hits all alike; the median of
//! the rounds is reported.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use rows::{Body, Figures, RequestRow, StreamRow};

use super::load::{self, Load};
use super::message::Pacing;
use super::path::{Path, Running};
use super::streams::{self, Streams};
use super::upstream::{Settings, Upstream};
use super::{figures, message};

mod report;
mod rows;

const CONCURRENCIES: [usize; 3] = [1, 16, 64];
const STREAMS: usize = 100;
const INTERVAL: Duration = Duration::from_millis(10);
/// Endpoints behind every path.
const ENDPOINTS: usize = 4;
const WARM_UP: Duration = Duration::from_millis(400);

/// Compares the cost of a request and of a streamed chunk through each proxy.
#[derive(Args, Debug)]
pub(crate) struct Proxy {
    /// Writes the figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Measured seconds per cell, path and round.
    #[arg(long, default_value_t = 2.0, value_parser = parse_seconds)]
    seconds: f64,
    /// How often everything is measured; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Which paths to compare; ratios need `direct`.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Path::ALL)]
    paths: Vec<Path>,
    /// Body sizes in KB.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Body::ALL)]
    bodies: Vec<Body>,
    /// Leaves the requests out.
    #[arg(long)]
    no_requests: bool,
    /// Numbers of connections.
    #[arg(long, value_delimiter = ',', default_values_t = CONCURRENCIES)]
    connections: Vec<usize>,
    /// Leaves the streams out.
    #[arg(long)]
    no_streams: bool,
}

/// Runs the bench.
///
/// # Errors
///
/// When a program cannot be installed or started, or any answer is wrong.
pub(crate) fn run(options: &Proxy) -> Result<()> {
    let upstream = Upstream::start(Settings { endpoints: ENDPOINTS, interval: INTERVAL })?;
    let mut running = Vec::new();
    for &path in &options.paths {
        let program = path.install()?;
        running.push(Running::start(path, program.as_ref(), upstream.addresses())?);
        eprintln!(
            "{}: {}",
            path.name(),
            program.map_or_else(|| "no proxy".into(), |program| program.version)
        );
    }
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        rounds.push(measure_round(options, &running)?);
        running.rotate_left(1);
    }
    let figures = Figures::medians(&options.paths, &rounds);
    report::print(&figures, options);
    figures::write_json(options.json.as_deref(), &figures)
}

fn measure_round(options: &Proxy, running: &[Running]) -> Result<Figures> {
    let mut figures = Figures::default();
    for &body in options.bodies.iter().filter(|_| !options.no_requests) {
        for &connections in &options.connections {
            for running in running {
                let row = running.explain(measure_requests(options, running, body, connections))?;
                eprintln!(
                    "  {:>5} KB, c={connections:<3} {:<7} {:>8.0} req/s, {:>6.1} us CPU",
                    body.kilobytes(),
                    row.path,
                    row.rps,
                    row.cpu_us
                );
                figures.requests.push(row);
            }
        }
    }
    for pacing in [Pacing::Even, Pacing::Steps].into_iter().filter(|_| !options.no_streams) {
        for running in running {
            let row = running.explain(measure_streams(options, running, pacing))?;
            eprintln!(
                "  {STREAMS} streams, {:<5} {:<7} {:>6.1} us p50, {:>6.1} us CPU per chunk",
                pacing.name(),
                row.path,
                row.chunk_p50_us,
                row.cpu_us
            );
            figures.streams_of(pacing).push(row);
        }
    }
    Ok(figures)
}

fn measure_requests(
    options: &Proxy,
    running: &Running,
    body: Body,
    connections: usize,
) -> Result<RequestRow> {
    let requests = message::chat_requests(running.targets[0], body.bytes());
    let load = Load {
        targets: &running.targets,
        requests: &requests,
        connections,
        warm_up: WARM_UP,
        measured: Duration::from_secs_f64(options.seconds),
    };
    let outcome = load::run(&load, || running.cpu())?;
    let count = outcome.latency.len();
    if count == 0 {
        bail!("no request was answered in {} s", options.seconds);
    }
    Ok(RequestRow {
        path: running.path.name(),
        body_kb: body,
        concurrency: connections,
        rps: count as f64 / outcome.elapsed.as_secs_f64(),
        p50_us: figures::micros_at(&outcome.latency, 0.5),
        p99_us: figures::micros_at(&outcome.latency, 0.99),
        cpu_us: figures::micros_each(outcome.cpu, count),
    })
}

fn measure_streams(options: &Proxy, running: &Running, pacing: Pacing) -> Result<StreamRow> {
    let streams = Streams {
        targets: &running.targets,
        count: STREAMS,
        pacing,
        warm_up: WARM_UP,
        measured: Duration::from_secs_f64(options.seconds),
    };
    let outcome = streams::run(&streams, || running.cpu())?;
    let count = outcome.latency.len();
    let due = STREAMS as f64 * outcome.elapsed.as_secs_f64() / INTERVAL.as_secs_f64();
    if (count as f64) < 0.95 * due {
        bail!("only {count} of {due:.0} chunks arrived in time");
    }
    Ok(StreamRow {
        path: running.path.name(),
        chunk_p50_us: figures::micros_at(&outcome.latency, 0.5),
        chunk_p99_us: figures::micros_at(&outcome.latency, 0.99),
        cpu_us: figures::micros_each(outcome.after.saturating_sub(outcome.before), count),
    })
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds between 0.05 and 600".into()),
    }
}

#[cfg(test)]
mod tests;
