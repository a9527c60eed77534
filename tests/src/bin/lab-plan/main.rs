//! Prints a scenario of the lab as a plan for real gateways, with what virtual time
//! says of each policy. `cargo xtask lab --http` runs it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use gateway_core::Time;
use gateway_tests::lab::catalogue::{self, Entry};
use gateway_tests::lab::policy::Contender;
use gateway_tests::lab::scenario::{EngineSpec, Scenario};
use gateway_tests::lab::{self, calibrate, plan::Plan, report::Row, runner};

/// Prints a scenario as a plan of HTTP requests.
#[derive(Debug, Parser)]
struct Args {
    /// Name of the scenario.
    scenario: String,
    /// Requests offered, as a share of the fleet's capacity.
    #[arg(long, default_value_t = 0.85)]
    load: f64,
    /// What the arrivals are made from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds during which requests arrive and count.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seconds before that.
    #[arg(long, default_value_t = 10)]
    warm_up: u64,
    /// Most engines; a larger fleet is thinned out evenly.
    #[arg(long, default_value_t = 8)]
    engines: usize,
    /// Runs per policy. What differs is chance: who is picked among equals, the phase of a
    /// gateway's readings, and milliseconds on the way.
    #[arg(long, default_value_t = 100)]
    runs: u64,
    /// Policies to predict, by name, separated by commas.
    #[arg(long, value_delimiter = ',')]
    policies: Vec<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let entry = catalogue::entries().find(|entry| entry.name == args.scenario);
    let entry = entry.with_context(|| {
        let known: Vec<&str> = catalogue::entries().map(|entry| entry.name).collect();
        format!("unknown scenario `{}`; known: {}", args.scenario, known.join(", "))
    })?;
    let scenario = scaled_down(entry, &args);
    let mut plan = Plan::of(&scenario, args.load, args.seed)?;
    for name in &args.policies {
        let contender = contender(name)?;
        plan.predictions.extend((0..args.runs).map(|seed| Row {
            scenario: scenario.name.clone(),
            policy: name.clone(),
            seed,
            load: args.load,
            summary: runner::run(&by_chance(&scenario, seed), &contender, seed).summary(),
        }));
    }
    println!("{}", serde_json::to_string(&plan)?);
    Ok(())
}

/// The scenario with fewer engines and as many fewer requests. Engines of each kind lie
/// together in a fleet, so every so-manieth is a small fleet of the same mixture.
fn scaled_down(entry: &Entry, args: &Args) -> Scenario {
    let whole = (entry.fleet)();
    let step = whole.len().div_ceil(args.engines.max(1));
    let fleet: Vec<EngineSpec> = whole.iter().step_by(step).cloned().collect();
    let share = fleet.len() as f64 / whole.len() as f64;
    let rate = calibrate::capacity(entry) * share * args.load;
    let (warm_up, length) = (Duration::from_secs(args.warm_up), Duration::from_secs(args.seconds));
    Scenario { fleet, ..entry.scenario(rate, args.seed, warm_up, length) }
}

/// The scenario as it may come to pass on real sockets: arrivals up to 5 ms late, in the order
/// in which they were sent, as one client has it. That does not matter in itself; what a policy
/// makes of such trifles belongs to what it may do.
fn by_chance(scenario: &Scenario, run: u64) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.sessions.sort_by_key(|session| session.start);
    let mut rng = fastrand::Rng::with_seed(run);
    let mut before = Time::ZERO;
    for session in &mut scenario.sessions {
        session.start = before.max(session.start + Duration::from_micros(rng.u64(..5_000)));
        before = session.start;
    }
    scenario
}

fn contender(name: &str) -> Result<Contender> {
    lab::contenders()
        .find(|contender| contender.name == name)
        .with_context(|| format!("unknown policy `{name}`"))
}
