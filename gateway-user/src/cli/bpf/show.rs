//! The report as tables.

use std::fmt::Write as _;

use super::flows::{FlowRow, Flows};
use super::report::{Count, Heartbeat, InKernel, Report};
use super::sk_msg::Streams;
use crate::cli::table::table;

/// The whole report, for people.
pub(super) fn show(report: &Report) -> String {
    let mut rows = vec![row(["NEEDED", "RESULT"])];
    let needs = report.needs.iter();
    rows.extend(needs.map(|need| row([need.name, need.problem.as_deref().unwrap_or("ok")])));
    let mut text = table(&rows);
    let Some(kernel) = &report.kernel else {
        let _ = writeln!(text, "\nno maps of this version at {}", report.maps.display());
        return text;
    };
    let mut rows = vec![row(["PATH", "STATE", "FOUND"])];
    rows.extend(kernel.paths.iter().map(|path| row([path.path, path.state, &path.why])));
    push(&mut text, &rows);
    let mut rows = vec![row(["PROGRAM", "ATTACHED TO"])];
    rows.extend(kernel.hooks.iter().map(|hook| row([&hook.program, &hook.place])));
    push(&mut text, &rows);
    text.push_str(&steering(kernel));
    text.push_str(&flows(&kernel.flows));
    push(&mut text, &counts("COUNTED", &kernel.counts));
    push(&mut text, &counts("NOT MOVED", &kernel.stops));
    text.push_str(&streams(&kernel.sk_msg));
    push(&mut text, &counts("SK_MSG COUNTED", &kernel.sk_msg.counts));
    push(&mut text, &counts("SK_MSG NOT MOVED", &kernel.sk_msg.stops));
    text
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn push(text: &mut String, rows: &[Vec<String>]) {
    text.push('\n');
    text.push_str(&table(rows));
}

fn counts(head: &str, counts: &[Count]) -> Vec<Vec<String>> {
    let mut rows = vec![row([head, "NUMBER"])];
    rows.extend(counts.iter().map(|count| row([count.name, &count.count.to_string()])));
    rows
}

fn steering(kernel: &InKernel) -> String {
    let mut text = format!("\nsteering {}\n", life(&kernel.heartbeat));
    let mut rows = vec![row(["POOL", "ADDRESS", "MODE", "GENERATION", "CANDIDATES"])];
    rows.extend(kernel.pools.iter().map(|pool| {
        let (generation, candidates) = (pool.generation.to_string(), pool.candidates.to_string());
        row([&pool.pool.to_string(), &pool.address, pool.mode, &generation, &candidates])
    }));
    text.push_str(&table(&rows));
    if kernel.endpoints.is_empty() {
        return text;
    }
    let mut rows = vec![row(["ENDPOINT", "POOL", "STATE", "SCORE", "WEIGHT", "PICKS"])];
    rows.extend(kernel.endpoints.iter().map(|endpoint| {
        vec![
            endpoint.address.clone(),
            endpoint.pool.to_string(),
            endpoint.state.to_owned(),
            format!("{:.3}", endpoint.score),
            format!("{:.3}", endpoint.weight),
            endpoint.picks.to_string(),
        ]
    }));
    push(&mut text, &rows);
    text
}

/// Whether the programs act.
fn life(beat: &Heartbeat) -> String {
    let Some(age) = beat.age_seconds else { return "rests".to_owned() };
    let acts = if beat.acts { "acts" } else { "does not act" };
    format!("{acts}: last sign of life of process {} {age:.1} s ago", beat.pid)
}

fn flows(flows: &Flows) -> String {
    let mut text = String::new();
    if flows.shown.is_empty() && flows.more == 0 {
        return text;
    }
    let head = [
        "CLIENT",
        "ENDPOINT",
        "POOL",
        "STATE",
        "CHUNKS",
        "BYTES",
        "AGE MS",
        "IDLE MS",
        "NOT MOVED",
    ];
    let mut rows = vec![row(head)];
    rows.extend(flows.shown.iter().map(flow));
    push(&mut text, &rows);
    if flows.more > 0 {
        let _ = writeln!(text, "and {} more", flows.more);
    }
    text
}

fn flow(flow: &FlowRow) -> Vec<String> {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |n| n.to_string());
    vec![
        flow.client.clone(),
        flow.endpoint.clone(),
        number(flow.pool.map(u64::from)),
        flow.state.name().to_owned(),
        flow.chunks.to_string(),
        flow.bytes.to_string(),
        number(flow.age_ms),
        number(flow.idle_ms),
        flow.stop.to_owned(),
    ]
}

fn streams(streams: &Streams) -> String {
    let mut text = String::new();
    if streams.shown.is_empty() && streams.more == 0 {
        return text;
    }
    let head = ["STREAM", "ENDPOINT'S SOCKET", "ARMED", "CHUNKS", "BYTES", "NOT MOVED"];
    let mut rows = vec![row(head)];
    rows.extend(streams.shown.iter().map(|stream| {
        let armed = if stream.armed { "yes" } else { "no" };
        let (chunks, bytes) = (stream.chunks.to_string(), stream.bytes.to_string());
        row([&stream.stream.to_string(), &stream.socket, armed, &chunks, &bytes, stream.stop])
    }));
    push(&mut text, &rows);
    if streams.more > 0 {
        let _ = writeln!(text, "and {} more", streams.more);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted() {
        let none = Flows { shown: Vec::new(), more: 0 };
        assert_eq!(flows(&none), "");
        let text = flows(&Flows { shown: Vec::new(), more: 7 });
        assert!(text.ends_with("and 7 more\n"), "{text}");
    }

    #[test]
    fn a_silent_daemon_is_said_to_be_silent() {
        let beat = |age_seconds, acts| Heartbeat { age_seconds, pid: 7, acts };
        assert_eq!(life(&beat(None, false)), "rests");
        let text = life(&beat(Some(4.0), false));
        assert_eq!(text, "does not act: last sign of life of process 7 4.0 s ago");
    }
}
