//! The same scenario through real gateways, in real time.
//!
//! One scenario of the lab, scaled down to a few engines, is sent as HTTP to simulated
//! engines behind each gateway in turn. Beside each result stands what virtual time said
//! of the policy that decides likewise: if the two agree, virtual time may be believed
//! about fleets that fit on no machine.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Parser;
use serde::{Deserialize, Serialize};

use super::gateway::Kind;
use super::send::{Figures, Session, send};
use crate::bench::figures::{median, write_json};
use crate::fleet::{Build, Programs};
use crate::machine;

/// Time to first token of a request without an answer, as in the lab.
const NEVER_MS: f64 = 3_600_000.0;

/// Runs a scenario of the lab through real gateways, in real time.
#[derive(Debug, Parser)]
pub(super) struct Options {
    /// Scenario, one without faults, adapters and several gateways.
    #[arg(default_value = "mixed_8b")]
    scenario: String,
    /// Requests offered, as a share of the fleet's capacity.
    #[arg(long, default_value_t = 0.7)]
    load: f64,
    /// What the arrivals are made from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds during which requests arrive and count, per gateway.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Engines; the scenario's fleet is thinned out to so many.
    #[arg(long, default_value_t = 4)]
    engines: usize,
    /// Only gateways whose name contains one of these, separated by commas.
    #[arg(long, value_delimiter = ',')]
    gateways: Vec<String>,
    /// Writes the figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What a gateway is started with.
pub(super) struct Site<'a> {
    pub(super) programs: &'a Programs,
    pub(super) home: &'a Path,
    pub(super) model: &'a str,
    pub(super) engines: &'a [SocketAddr],
}

impl Site<'_> {
    pub(super) fn urls(&self) -> Vec<String> {
        self.engines.iter().map(|engine| format!("http://{engine}")).collect()
    }
}

/// A scenario, as `lab-plan` prints it.
#[derive(Debug, Deserialize)]
struct Plan {
    model: String,
    engines: Vec<String>,
    sessions: Vec<Session>,
    warm_up_ms: f64,
    end_ms: f64,
    predictions: Vec<Prediction>,
}

#[derive(Debug, Deserialize)]
struct Prediction {
    policy: String,
    #[serde(flatten)]
    figures: Figures,
}

/// A gateway's figures beside those of virtual time. That has several runs: of a policy
/// that draws lots, one run over HTTP can only be expected to lie among them.
#[derive(Debug, Serialize)]
struct Row {
    gateway: String,
    policy: &'static str,
    http: Figures,
    virtual_time: Vec<Figures>,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    rows: Vec<Row>,
    /// Gateways that could not be had here, and why.
    missing: Vec<String>,
}

/// Runs the comparison.
///
/// # Errors
///
/// When our own programs cannot be built or started; others that are missing are listed.
pub(super) fn run(options: &Options) -> Result<()> {
    println!("building the gateway and the simulated model servers (release)");
    let programs = Programs::build(Build::Release)?;
    let plan = plan(options)?;
    println!("{}\n", introduction(options, &plan));
    let mut report = Report::default();
    for kind in Kind::ALL.into_iter().filter(|kind| is_wanted(options, *kind)) {
        match measure(kind, &programs, &plan) {
            Ok(http) => {
                let twins = plan.predictions.iter().filter(|said| said.policy == kind.twin());
                let virtual_time = twins.map(|said| said.figures.clone()).collect();
                let row = Row { gateway: kind.name(), policy: kind.twin(), http, virtual_time };
                println!("{}: P99 {:.0} ms", row.gateway, row.http.ttft_ms.p99);
                report.rows.push(row);
            }
            Err(error) if matches!(kind, Kind::Ours(_)) => return Err(error),
            Err(error) => report.missing.push(format!("{}: {error:#}", kind.name())),
        }
    }
    print!("\n{}", table(&report));
    write_json(options.json.as_deref(), &report)
}

fn is_wanted(options: &Options, kind: Kind) -> bool {
    let (all, name) = (options.gateways.is_empty(), kind.name());
    all || options.gateways.iter().any(|wanted| name.contains(wanted.as_str()))
}

fn plan(options: &Options) -> Result<Plan> {
    let twins: Vec<&str> = Kind::ALL.into_iter().map(Kind::twin).collect();
    let mut command = Command::new(machine::target()?.join("release/lab-plan"));
    command.arg(&options.scenario).args(["--load", &options.load.to_string()]);
    command.args(["--seed", &options.seed.to_string()]);
    command.args(["--seconds", &options.seconds.to_string()]);
    command.args(["--engines", &options.engines.to_string()]);
    command.args(["--policies", &twins.join(",")]);
    let output = command.output().context("cannot run lab-plan")?;
    if !output.status.success() {
        anyhow::bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("lab-plan printed no plan")
}

fn introduction(options: &Options, plan: &Plan) -> String {
    format!(
        "{} at {:.0} % of capacity: {} simulated engines, {} requests over {} s of real time per \
         gateway, {:.0} s of them warm-up; time to first token is measured at the client.",
        options.scenario,
        options.load * 100.0,
        plan.engines.len(),
        plan.sessions.iter().map(|session| session.turns.len()).sum::<usize>(),
        options.seconds + (plan.warm_up_ms / 1e3) as u64,
        plan.warm_up_ms / 1e3,
    )
}

/// Fresh engines and a fresh gateway: no policy finds another's caches.
fn measure(kind: Kind, programs: &Programs, plan: &Plan) -> Result<Figures> {
    let home = machine::directory("lab/http")?;
    let engines = programs.start_engines(&plan.engines, &home)?;
    let addresses = &engines.addresses;
    let site = Site { programs, home: &home, model: &plan.model, engines: addresses };
    let gateway = kind.start(&site)?;
    let sent = send(gateway.listen, &plan.model, &plan.sessions)?;
    if let Some(failure) = sent.iter().find_map(|sent| sent.result.as_ref().err()) {
        println!("{}: first failure: {failure}", kind.name());
    }
    Ok(Figures::of(&sent, &(plan.warm_up_ms..plan.end_ms), NEVER_MS))
}

/// How far HTTP and virtual time may be apart.
const GOAL: f64 = 0.1;

/// One of a run's figures.
type Figure = fn(&Figures) -> f64;

/// The figures that are compared, with their columns.
const COMPARED: [(&str, Figure); 4] = [
    ("P50 ms", |figures| figures.ttft_ms.p50),
    ("P95 ms", |figures| figures.ttft_ms.p95),
    ("P99 ms", |figures| figures.ttft_ms.p99),
    ("tokens/s", |figures| figures.output_tokens_per_s),
];

/// One figure of a row.
struct Compared {
    http: f64,
    /// Of virtual time: median, least, greatest.
    said: [f64; 3],
}

impl Compared {
    fn of(row: &Row, figure: Figure) -> Self {
        let said = || row.virtual_time.iter().map(figure);
        let low = said().fold(f64::INFINITY, f64::min);
        Self { http: figure(&row.http), said: [median(said()), low, said().fold(0.0, f64::max)] }
    }

    fn difference(&self) -> f64 {
        self.http / self.said[0] - 1.0
    }

    fn is_within_goal(&self) -> bool {
        self.difference().abs() <= GOAL
    }

    fn is_among_runs(&self) -> bool {
        (self.said[1]..=self.said[2]).contains(&self.http)
    }

    /// `HTTP / median of virtual time (difference; least to greatest)`.
    fn cell(&self) -> String {
        let (http, [median, low, high]) = (self.http, self.said);
        let difference = self.difference() * 100.0;
        format!("{http:.0} / {median:.0} ({difference:+.0} %; {low:.0} to {high:.0})")
    }
}

/// A line for each gateway: its figures, how many of them are within the goal, and how many
/// among the runs of virtual time.
fn table(report: &Report) -> String {
    let columns: Vec<&str> = COMPARED.iter().map(|(name, _)| *name).collect();
    let mut text = format!(
        "| gateway | policy in the lab | {} | failed | within 10 % | among the runs |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|\n",
        columns.join(" | ")
    );
    for row in &report.rows {
        let figures = COMPARED.map(|(_, figure)| Compared::of(row, figure));
        let count = |is: fn(&Compared) -> bool| figures.iter().filter(|one| is(one)).count();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} of 4 | {} of 4 |",
            row.gateway,
            row.policy,
            figures.each_ref().map(Compared::cell).join(" | "),
            row.http.failed,
            count(Compared::is_within_goal),
            count(Compared::is_among_runs),
        );
    }
    for missing in &report.missing {
        let _ = writeln!(text, "not measured: {missing}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::send::Percentiles;
    use super::*;

    #[test]
    fn table_says_how_far_http_is_from_virtual_time() {
        let figures = |p99: f64| Figures {
            ttft_ms: Percentiles { p50: 100.0, p95: 200.0, p99 },
            output_tokens_per_s: 50.0,
            failed: 0,
        };
        let row = Row {
            gateway: "ours predicted".to_owned(),
            policy: "predicted",
            http: figures(1150.0),
            virtual_time: [1000.0, 900.0, 1400.0].map(figures).to_vec(),
        };
        let report = Report { rows: vec![row], missing: vec!["smg: no network".to_owned()] };
        let text = table(&report);
        assert!(
            text.contains(
                "| 1150 / 1000 (+15 %; 900 to 1400) | 50 / 50 (+0 %; 50 to 50) | 0 | 3 of 4 | 4 of 4 |"
            ),
            "{text}"
        );
        assert!(text.contains("not measured: smg: no network"));
    }
}
