//! The tables of `bench datapath`: figures, ratios to the routed way, goals.

use super::rows::{Figures, Row};
use super::{Datapath, STREAMS, Way};
use crate::bench::figures::{machine, ratio, verdict};
use crate::bench::message::{EVENT_BYTES, Pacing};

/// How busy other programs may keep the machine, in percent.
const MOST_FOREIGN: f64 = 5.0;

/// The goals: how much worse than routed the latency of a spliced chunk may be, ...
const SPLICE_LATENCY: f64 = 1.2;
/// ... how much more CPU it may take, in microseconds, ...
const SPLICE_CPU_ADDED: f64 = 3.0;
/// ... what the daemon may spend on it, ...
const SPLICE_CPU_DAEMON: f64 = 0.5;
/// ... and which share of what a chunk costs Envoy.
const SPLICE_OF_ENVOY: f64 = 1.0 / 7.0;

/// A row in a line, to follow a run by.
pub(super) fn line(row: &Row) -> String {
    format!(
        "{:<8} {:>2} % {:>8.1} us p50 {:>8.1} p99 {:>6.2} us CPU, daemon {:>5.2}; machine {:.0} % busy, {:.0} % with others; {:.1} % of the chunks",
        row.path,
        row.load,
        row.chunk_p50_us,
        row.chunk_p99_us,
        row.cpu_us_total,
        row.cpu_us_daemon,
        row.busy_percent,
        row.foreign_percent,
        row.kept_percent
    )
}

/// Prints everything as Markdown.
pub(super) fn print(figures: &Figures, options: &Datapath) {
    println!("\nMachine: {}. Client, gateway and pod share its cores.", machine());
    let pacing = match options.pacing {
        Pacing::Even => "evenly spread",
        Pacing::Steps => "an endpoint's streams together (as engines send)",
    };
    println!("{STREAMS} streams of {EVENT_BYTES}-byte chunks, {pacing}.");
    println!("Median of {} rounds of {} s per cell; times in us.", options.rounds, options.seconds);
    let mut load = None;
    for row in &figures.rows {
        if load.replace(row.load) != Some(row.load) {
            println!("\nAt the rate that keeps the machine {} % busy on path user:\n", row.load);
            println!(
                "| path | chunk p50 | to routed | p99 | to routed | p999 | CPU/chunk | daemon | machine | kept pace |"
            );
            println!("|---|---|---|---|---|---|---|---|---|---|");
        }
        let routed = figures.row(Way::Routed, row.load);
        println!(
            "| {} | {:.1} | {} | {:.1} | {} | {:.1} | {:.2} | {:.2} | {:.0} % | {:.1} % |",
            row.path,
            row.chunk_p50_us,
            ratio(row.chunk_p50_us, routed.map(|routed| routed.chunk_p50_us)),
            row.chunk_p99_us,
            ratio(row.chunk_p99_us, routed.map(|routed| routed.chunk_p99_us)),
            row.chunk_p999_us,
            row.cpu_us_total,
            row.cpu_us_daemon,
            row.busy_percent,
            row.kept_percent
        );
    }
    println!();
    let foreign = figures.rows.iter().map(|row| row.foreign_percent).fold(0.0, f64::max);
    if foreign > MOST_FOREIGN {
        println!(
            "Other programs kept the machine up to {foreign:.0} % busy: latencies are not to be trusted."
        );
    }
    for goal in goals(figures) {
        println!("{goal}");
    }
}

/// Says of each goal whether it is met, where everything it takes was measured.
fn goals(figures: &Figures) -> Vec<String> {
    let mut goals = Vec::new();
    let mut goal = |what: &str, load: u8, reached: f64, limit: f64| {
        let verdict = verdict(reached, limit);
        goals.push(format!("goal {verdict}: {what} at {load} %: {reached:.2} (goal {limit:.2})"));
    };
    for splice in figures.rows.iter().filter(|row| row.path == Way::Splice.name()) {
        let load = splice.load;
        if let Some(routed) = figures.row(Way::Routed, load) {
            let (p50, p99) = (routed.chunk_p50_us, routed.chunk_p99_us);
            goal("splice p50 to routed", load, splice.chunk_p50_us / p50, SPLICE_LATENCY);
            goal("splice p99 to routed", load, splice.chunk_p99_us / p99, SPLICE_LATENCY);
            let added = splice.cpu_us_total - routed.cpu_us_total;
            goal("splice CPU above routed, us", load, added, SPLICE_CPU_ADDED);
            if let Some(envoy) = figures.row(Way::Envoy, load) {
                let share = added / (envoy.cpu_us_total - routed.cpu_us_total);
                goal("splice CPU above routed to Envoy's", load, share, SPLICE_OF_ENVOY);
            }
        }
        goal("daemon's CPU per spliced chunk, us", load, splice.cpu_us_daemon, SPLICE_CPU_DAEMON);
    }
    for (way, what) in
        [(Way::Connect, "connect p50 to routed"), (Way::SkMsg, "sk_msg p50 to routed")]
    {
        for row in figures.rows.iter().filter(|row| row.path == way.name()) {
            if let Some(routed) = figures.row(Way::Routed, row.load) {
                goal(what, row.load, row.chunk_p50_us / routed.chunk_p50_us, 1.0);
            }
        }
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: Way, p50: f64, cpu: f64, daemon: f64) -> Row {
        Row {
            path: way.name(),
            load: 30,
            chunk_p50_us: p50,
            chunk_p99_us: 2.0 * p50,
            chunk_p999_us: 3.0 * p50,
            cpu_us_total: cpu,
            cpu_us_daemon: daemon,
            busy_percent: 30.0,
            foreign_percent: 0.0,
            kept_percent: 100.0,
        }
    }

    #[test]
    fn goals_are_taken_against_routed_at_the_same_load() {
        let rows = vec![
            row(Way::Routed, 50.0, 20.0, 0.0),
            row(Way::Splice, 65.0, 22.0, 0.2),
            row(Way::Envoy, 300.0, 48.0, 25.0),
        ];
        let goals = goals(&Figures { rows });
        assert_eq!(goals[0], "goal missed: splice p50 to routed at 30 %: 1.30 (goal 1.20)");
        assert_eq!(goals[2], "goal met: splice CPU above routed, us at 30 %: 2.00 (goal 3.00)");
        assert_eq!(
            goals[3],
            "goal met: splice CPU above routed to Envoy's at 30 %: 0.07 (goal 0.14)"
        );
        assert_eq!(
            goals[4],
            "goal met: daemon's CPU per spliced chunk, us at 30 %: 0.20 (goal 0.50)"
        );
    }

    #[test]
    fn what_was_not_measured_has_no_verdict() {
        let rows = vec![row(Way::User, 100.0, 40.0, 15.0), row(Way::Connect, 50.0, 20.0, 0.0)];
        assert_eq!(goals(&Figures { rows }), Vec::<String>::new());
    }
}
