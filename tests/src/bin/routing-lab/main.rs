//! Runs scenarios of the routing lab and reports.
//!
//! Tables go to standard output, rows to a JSON file, and beside it pictures of the first
//! seed and a page with everything. Nothing but the times in the last line depends on the
//! machine: the same arguments give the same rows.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser as _;
use gateway_tests::lab::calibrate::capacity;
use gateway_tests::lab::catalogue::{self, Entry};
use gateway_tests::lab::clairvoyant;
use gateway_tests::lab::contenders;
use gateway_tests::lab::experiment::{Measured, Trial, spread};
use gateway_tests::lab::plot::{self, Curve};
use gateway_tests::lab::policy::Contender;
use gateway_tests::lab::report::{self, Report, Row};

mod args;

use args::Args;

fn main() -> Result<()> {
    let args = Args::parse();
    if args.list {
        list();
        return Ok(());
    }
    let entries = chosen(&args)?;
    let policies = policies(&args)?;
    let mut lab = Lab { args: &args, policies, report: Report::default(), time: Time::default() };
    for entry in entries {
        lab.run(entry)?;
    }
    lab.finish()
}

fn list() {
    for entry in catalogue::entries() {
        println!("{:32} {}", entry.name, entry.about);
    }
    let names: Vec<&str> = contenders().map(|contender| contender.name).collect();
    println!("\npolicies: {}", names.join(", "));
}

fn chosen(args: &Args) -> Result<Vec<&'static Entry>> {
    if args.scenario == "all" {
        return Ok(catalogue::entries().collect());
    }
    let find = |name: &str| {
        let found = catalogue::entries().find(|entry| entry.name == name);
        found.with_context(|| format!("unknown scenario `{name}`; --list names them all"))
    };
    args.scenario.split(',').map(find).collect()
}

fn policies(args: &Args) -> Result<Vec<Contender>> {
    let all: Vec<Contender> = contenders().collect();
    for name in &args.policies {
        if !all.iter().any(|contender| contender.name == name) {
            bail!("unknown policy `{name}`; --list names them all");
        }
    }
    let wanted = |contender: &Contender| {
        args.policies.is_empty() || args.policies.iter().any(|name| name == contender.name)
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// Highest load at which the bound is computed.
const MOST_BOUNDED: f64 = 0.9;

struct Lab<'a> {
    args: &'a Args,
    policies: Vec<Contender>,
    report: Report,
    time: Time,
}

/// Time that passed, virtually and on the cores, bound and peers included.
#[derive(Default)]
struct Time {
    simulated: Duration,
    took: Duration,
}

impl Lab<'_> {
    fn run(&mut self, entry: &'static Entry) -> Result<()> {
        let begun = Instant::now();
        let capacity = capacity(entry);
        println!("{}: {}", entry.name, entry.about);
        println!(
            "capacity {capacity:.1} requests/s, measured in {:.1} s",
            begun.elapsed().as_secs_f64()
        );
        let loads = if self.args.loads.is_empty() { entry.loads } else { &self.args.loads };
        for &load in loads {
            let trial = Trial { entry, load, capacity };
            let policies = self.policies_at(load);
            let measured = trial.measure(&policies, self.args.seeds, self.args.span());
            self.note(&trial, measured);
            if let Some(group) = self.report.groups().last() {
                println!("\n{}", report::text(group));
            }
            if !self.args.no_plots {
                self.draw(&trial, &policies)?;
            }
        }
        Ok(())
    }

    /// The bound is left out where queues grow without end, unless it was asked for: each of
    /// its forecasts runs the whole backlog, and a run takes minutes.
    fn policies_at(&self, load: f64) -> Vec<Contender> {
        let overloaded = load > MOST_BOUNDED && self.args.policies.is_empty();
        let may = |policy: &&Contender| !(overloaded && policy.name == clairvoyant::CONTENDER.name);
        self.policies.iter().filter(may).copied().collect()
    }

    fn note(&mut self, trial: &Trial, measured: Vec<Measured>) {
        for one in measured {
            self.time.simulated += one.simulated;
            self.time.took += one.took;
            self.report.rows.push(Row {
                scenario: trial.entry.name.to_owned(),
                policy: one.policy.to_owned(),
                seed: one.seed,
                load: trial.load,
                summary: one.summary,
            });
        }
    }

    /// Draws the first seed of every policy.
    fn draw(&self, trial: &Trial, policies: &[Contender]) -> Result<()> {
        let runs = spread(policies, |policy| trial.run(policy, 0, self.args.span()));
        let curve = |(policy, run)| Curve { policy, run };
        let names = policies.iter().map(|policy| policy.name);
        let curves: Vec<Curve<'_>> = names.zip(&runs).map(curve).collect();
        let fleet = (trial.entry.fleet)();
        let engines: Vec<String> = fleet.into_iter().map(|spec| spec.profile.name).collect();
        let stem = stem(trial.entry.name, trial.load);
        let title = format!("{} at {:.0} % load", trial.entry.name, trial.load * 100.0);
        for (name, picture) in plot::pictures(&stem, &title, &curves, &engines) {
            write(&self.args.directory().join(name), &picture)?;
        }
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        ensure!(!self.report.rows.is_empty(), "nothing was run; give at least one seed");
        write(&self.args.json, &self.report.json())?;
        let span = self.args.span();
        let about = format!(
            "{} seeds per policy; {} s of arrivals after {} s of warm-up; virtual time.",
            self.args.seeds,
            span.length.as_secs(),
            span.warm_up.as_secs()
        );
        let pictures = |scenario: &str, load: f64| -> Vec<String> {
            let stem = stem(scenario, load);
            let names = ["ttft", "queue", "share"].map(|kind| format!("{stem}-{kind}.svg"));
            names.into_iter().filter(|name| self.args.directory().join(name).exists()).collect()
        };
        let page = report::html(&self.report, &about, pictures);
        write(&self.args.directory().join("index.html"), &page)?;
        println!(
            "{} rows in {}; {:.0} times faster than real time on each core",
            self.report.rows.len(),
            self.args.json.display(),
            self.time.simulated.as_secs_f64() / self.time.took.as_secs_f64()
        );
        Ok(())
    }
}

fn stem(scenario: &str, load: f64) -> String {
    format!("{scenario}-{:.0}", load * 100.0)
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
