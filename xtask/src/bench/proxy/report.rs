//! The tables of `bench proxy`: figures, ratios to the direct path, goals.

use super::rows::{Body, Figures, RequestRow, StreamRow};
use super::{INTERVAL, Proxy, STREAMS};
use crate::bench::figures::{machine, ratio, verdict};
use crate::bench::message::EVENT_BYTES;

/// The goals of user space, in microseconds.
const SHORT_REQUEST_CPU: f64 = 40.0;
const SHORT_REQUEST_ADDED: f64 = 150.0;
const LONG_REQUEST_CPU: f64 = 150.0;
const CHUNK_CPU: f64 = 12.0;

/// Prints everything as Markdown.
pub(super) fn print(figures: &Figures, options: &Proxy) {
    println!(
        "\nMachine: {}. Load generator and model server share its cores with the proxy.",
        machine()
    );
    println!("Median of {} rounds of {} s per cell; times in us.", options.rounds, options.seconds);
    if !figures.requests.is_empty() {
        print_requests(figures);
    }
    let streams = format!(
        "{STREAMS} streams, a chunk of {EVENT_BYTES} bytes every {} ms each",
        INTERVAL.as_millis()
    );
    let steps = format!("{streams}, an endpoint's streams together (as engines send)");
    print_streams(&steps, &figures.streams);
    print_streams(&format!("{streams}, evenly spread"), &figures.even_streams);
    print_goals(figures);
}

fn print_requests(figures: &Figures) {
    println!(
        "\n| body KB | connections | path | req/s | to direct | p50 | added p50 | p99 | CPU/req |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for row in &figures.requests {
        let direct = direct(figures, row);
        println!(
            "| {} | {} | {} | {:.0} | {} | {:.1} | {} | {:.1} | {:.1} |",
            row.body_kb.kilobytes(),
            row.concurrency,
            row.path,
            row.rps,
            ratio(row.rps, direct.map(|direct| direct.rps)),
            row.p50_us,
            added(row, direct).map_or("-".into(), |added| format!("{added:.1}")),
            row.p99_us,
            row.cpu_us
        );
    }
}

fn print_streams(heading: &str, rows: &[StreamRow]) {
    if rows.is_empty() {
        return;
    }
    println!("\n{heading}:\n");
    println!("| path | chunk p50 | to direct | chunk p99 | to direct | CPU/chunk |");
    println!("|---|---|---|---|---|---|");
    let direct = rows.iter().find(|row| row.path == "direct");
    for row in rows {
        println!(
            "| {} | {:.1} | {} | {:.1} | {} | {:.1} |",
            row.path,
            row.chunk_p50_us,
            ratio(row.chunk_p50_us, direct.map(|direct| direct.chunk_p50_us)),
            row.chunk_p99_us,
            ratio(row.chunk_p99_us, direct.map(|direct| direct.chunk_p99_us)),
            row.cpu_us
        );
    }
}

/// Says of each goal whether our path meets it, where it was measured.
fn print_goals(figures: &Figures) {
    println!();
    let ours = |body: Body, concurrency: usize| {
        let mut rows = figures.requests.iter().filter(|row| row.path == "ours");
        rows.find(|row| row.body_kb == body && row.concurrency == concurrency)
    };
    // CPU at c=16: with one connection every request also pays for waking an idle core.
    if let Some(row) = ours(Body::Short, 16) {
        goal("CPU of a short request, c=16", row.cpu_us, SHORT_REQUEST_CPU);
    }
    if let Some(row) = ours(Body::Short, 1)
        && let Some(added) = added(row, direct(figures, row))
    {
        goal("added p50 of a short request, c=1", added, SHORT_REQUEST_ADDED);
    }
    if let Some(row) = ours(Body::Long, 16) {
        goal("CPU of a 128 KB prompt, c=16", row.cpu_us, LONG_REQUEST_CPU);
    }
    if let Some(row) = figures.streams.iter().find(|row| row.path == "ours") {
        goal("CPU of a streamed chunk", row.cpu_us, CHUNK_CPU);
    }
}

fn goal(what: &str, reached: f64, goal: f64) {
    println!("goal {}: {what} {reached:.1} us (goal {goal} us)", verdict(reached, goal));
}

/// The same cell on the direct path.
fn direct<'a>(figures: &'a Figures, row: &RequestRow) -> Option<&'a RequestRow> {
    let mut rows = figures.requests.iter().filter(|other| other.path == "direct");
    rows.find(|other| other.is_same_cell(row))
}

fn added(row: &RequestRow, direct: Option<&RequestRow>) -> Option<f64> {
    Some(row.p50_us - direct?.p50_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(path: &'static str, concurrency: usize, p50_us: f64) -> RequestRow {
        RequestRow {
            path,
            body_kb: Body::Short,
            concurrency,
            rps: 1.0,
            p50_us,
            p99_us: 1.0,
            cpu_us: 1.0,
        }
    }

    #[test]
    fn added_latency_is_taken_against_the_same_cell() {
        let requests = vec![row("direct", 16, 90.0), row("direct", 1, 50.0), row("ours", 1, 120.0)];
        let figures = Figures { requests, ..Figures::default() };
        let ours = &figures.requests[2];
        assert_eq!(added(ours, direct(&figures, ours)), Some(70.0));
    }

    #[test]
    fn nothing_is_added_to_an_unknown_baseline() {
        let figures = Figures { requests: vec![row("ours", 1, 120.0)], ..Figures::default() };
        let ours = &figures.requests[0];
        assert_eq!(added(ours, direct(&figures, ours)), None);
    }
}
