//! The same scenario through real gateways, in real time.
//!
//! One scenario of the lab, scaled down to a few engines, is sent as HTTP to simulated
//! engines behind each gateway in turn. Beside each result stands what virtual time said
//! of the policy that decides likewise: if the two agree, virtual time may be believed
//! about fleets that fit on no machine.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde::{Deserialize, Serialize};

use super::agreement::{Row, table};
use super::gateway::Kind;
use super::send::{Figures, Session, send};
use crate::bench::figures::write_json;
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
    /// Runs of each gateway, all of the same requests; their median is compared.
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Only gateways whose name contains one of these, separated by commas.
    #[arg(long, value_delimiter = ',')]
    gateways: Vec<String>,
    /// Writes the figures to this file as JSON, after each run.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Counts the runs that the file has already, and makes those that are missing. Virtual time
    /// is computed anew.
    #[arg(long, requires = "json")]
    resume: bool,
}

/// What a gateway is started with.
pub(super) struct Site<'a> {
    pub(super) programs: &'a Programs,
    pub(super) home: &'a Path,
    pub(super) model: &'a str,
    pub(super) engines: &'a [SocketAddr],
    /// Number of the run, which decides what is left to chance.
    pub(super) run: u64,
}

impl Site<'_> {
    pub(super) fn urls(&self) -> Vec<String> {
        self.engines.iter().map(|engine| format!("http://{engine}")).collect()
    }
}

/// A scenario, as `lab-plan` prints it.
#[derive(Debug, Deserialize)]
struct Plan {
    scenario: String,
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

/// Which requests are sent: runs of different ones are not compared.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Sent {
    scenario: String,
    load: f64,
    seed: u64,
    seconds: u64,
    engines: usize,
}

#[derive(Debug, Deserialize, Serialize)]
struct Report {
    sent: Sent,
    rows: Vec<Row>,
    /// Gateways that could not be had here, and why.
    missing: Vec<String>,
}

impl Report {
    /// What the file has, or nothing yet.
    fn begin(options: &Options) -> Result<Self> {
        let sent = Sent {
            scenario: options.scenario.clone(),
            load: options.load,
            seed: options.seed,
            seconds: options.seconds,
            engines: options.engines,
        };
        let known = options.json.as_deref().filter(|file| options.resume && file.exists());
        let Some(file) = known else {
            return Ok(Self { sent, rows: Vec::new(), missing: Vec::new() });
        };
        let cannot = || format!("cannot go on from {}", file.display());
        let text = fs::read_to_string(file).with_context(cannot)?;
        let known: Self = serde_json::from_str(&text).with_context(cannot)?;
        if known.sent != sent {
            bail!("{} has runs of other requests: {:?}", file.display(), known.sent);
        }
        Ok(Self { missing: Vec::new(), ..known })
    }

    /// A gateway's row; made if there is none.
    fn row(&mut self, kind: Kind) -> &mut Row {
        let name = kind.name();
        let place = self.rows.iter().position(|row| row.gateway == name);
        let place = place.unwrap_or_else(|| {
            let policy = kind.twin().to_owned();
            self.rows.push(Row { gateway: name, policy, ..Row::default() });
            self.rows.len() - 1
        });
        &mut self.rows[place]
    }
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
    let mut report = Report::begin(options)?;
    let mut wanted: Vec<Kind> =
        Kind::ALL.into_iter().filter(|kind| is_wanted(options, *kind)).collect();
    // Gateways take turns, so that a busy hour of the machine is not one gateway's.
    for run in 0..options.runs {
        for kind in wanted.clone() {
            if report.row(kind).http.len() > run {
                continue;
            }
            match measure(kind, &programs, &plan, run as u64) {
                Ok(figures) => {
                    println!("{}, run {}: {figures}", kind.name(), run + 1);
                    report.row(kind).http.push(figures);
                    write_json(options.json.as_deref(), &report)?;
                }
                Err(error) if matches!(kind, Kind::Ours(_)) => return Err(error),
                Err(error) => {
                    wanted.retain(|other| *other != kind);
                    report.missing.push(format!("{}: {error:#}", kind.name()));
                }
            }
        }
    }
    report.rows.retain(|row| !row.http.is_empty());
    for row in &mut report.rows {
        let said = plan.predictions.iter().filter(|said| said.policy == row.policy);
        row.virtual_time = said.map(|said| said.figures.clone()).collect();
    }
    print!("\n{}", table(&report.rows, &report.missing));
    write_json(options.json.as_deref(), &report)
}

fn is_wanted(options: &Options, kind: Kind) -> bool {
    let (all, name) = (options.gateways.is_empty(), kind.name());
    all || options.gateways.iter().any(|wanted| name.contains(wanted.as_str()))
}

fn plan(options: &Options) -> Result<Plan> {
    let twins: BTreeSet<&str> = Kind::ALL.into_iter().map(Kind::twin).collect();
    let twins: Vec<&str> = twins.into_iter().collect();
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
         gateway and run, {:.0} s of them warm-up; time to first token is measured at the client.",
        options.scenario,
        options.load * 100.0,
        plan.engines.len(),
        plan.sessions.iter().map(|session| session.turns.len()).sum::<usize>(),
        options.seconds + (plan.warm_up_ms / 1e3) as u64,
        plan.warm_up_ms / 1e3,
    )
}

/// Fresh engines and a fresh gateway: no policy finds another's caches.
fn measure(kind: Kind, programs: &Programs, plan: &Plan, run: u64) -> Result<Figures> {
    // One for each scenario, so that two can run side by side.
    let home = machine::directory(&format!("lab/http/{}", plan.scenario))?;
    let engines = programs.start_engines(&plan.engines, &home)?;
    let addresses = &engines.addresses;
    let site = Site { programs, home: &home, model: &plan.model, engines: addresses, run };
    let gateway = kind.start(&site)?;
    let sent = send(gateway.listen, &plan.model, &plan.sessions)?;
    if let Some(failure) = sent.iter().find_map(|sent| sent.result.as_ref().err()) {
        println!("{}: first failure: {failure}", kind.name());
    }
    Ok(Figures::of(&sent, &(plan.warm_up_ms..plan.end_ms), NEVER_MS))
}
