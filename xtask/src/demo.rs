//! `cargo xtask demo`: what the default policy is worth, in a minute and a half.
//!
//! Six simulated model servers, three on H100 and three on A10G, behind the gateway.
//! The same requests arrive at the same moments twice: spread in turn, then by the
//! default policy. Arrivals do not wait for answers, because real users do not know
//! of each other: a policy that falls behind is not spared. The engines are
//! simulated; sockets, HTTP, gateway and clocks are real.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::bench::figures;
use crate::fleet::{self, Build, Engines, Gateway, Programs};
use crate::{ebpf, machine};

mod load;
mod plan;
mod progress;
mod report;

use plan::Plan;
use report::{Report, Run};

/// Name of the model.
const MODEL: &str = "llama-3.1-8b";

/// What each model server is called, and the GPU it simulates.
const SERVERS: [(&str, &str); 6] = [
    ("h100-1", "h100"),
    ("h100-2", "h100"),
    ("h100-3", "h100"),
    ("a10g-1", "a10g"),
    ("a10g-2", "a10g"),
    ("a10g-3", "a10g"),
];

/// The baseline, and the default.
const POLICIES: [&str; 2] = ["round_robin", "predicted"];

/// The same requests on every machine.
const SEED: u64 = 3;

/// Compares the default policy with taking turns, on six simulated model servers.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Ends after the comparison instead of leaving the gateway running.
    #[arg(long)]
    once: bool,
    /// Writes the figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Seconds during which requests arrive, per policy.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
    /// Requests per second; the six servers together keep up with about 20.
    #[arg(long, default_value_t = 16.0)]
    rate: f64,
}

/// What is running while a policy is measured.
struct Site {
    gateway: Gateway,
    engines: Engines,
}

/// Runs the comparison.
///
/// # Errors
///
/// When something cannot be built or started, or the gateway gives wrong answers.
pub(crate) fn run(options: &Demo) -> Result<()> {
    println!("building the gateway and the simulated model servers (release)");
    ebpf::prepare()?;
    let programs = Programs::build(Build::Release)?;
    let plan = Plan::new(MODEL, SEED, options.rate, Duration::from_secs(options.seconds));
    println!("{}\n", introduction(&plan, options.rate));

    let mut report = Report::default();
    let mut last = None;
    for policy in POLICIES {
        // The old site ends before the new one starts: caches are cold again, and no
        // policy shares the processor with the other's leftovers.
        drop(last.take());
        let site = start(&programs, policy)?;
        report.runs.push(measure(&site, policy, &plan)?);
        last = Some(site);
    }
    print!("\n{report}");
    figures::write_json(options.json.as_deref(), &report)?;
    match last {
        Some(site) if !options.once => stay(&site),
        _ => Ok(()),
    }
}

fn introduction(plan: &Plan, rate: f64) -> String {
    format!(
        "6 simulated model servers (8B; 3 x H100, 3 x A10G, real speed by published latency profiles), \
         one gateway.\n{} requests at {rate} per second on average, {} prompt tokens each on average, \
         some with common beginnings; answers are streamed.\nThe same requests at the same moments for \
         each policy; time to first token is measured at the client.",
        plan.arrivals.len(),
        plan.mean_prompt_tokens()
    )
}

fn start(programs: &Programs, policy: &str) -> Result<Site> {
    let home = machine::directory("demo")?;
    let servers = SERVERS.map(|(name, gpu)| format!("name={name},gpu={gpu},size=8b,model={MODEL}"));
    let engines = programs.start_engines(&servers, &home)?;
    let gateway = programs
        .start_gateway(&home, |listen, admin| config(listen, admin, policy, &engines.addresses))?;
    Ok(Site { gateway, engines })
}

/// Everything not written here is the default.
fn config(listen: SocketAddr, admin: SocketAddr, policy: &str, engines: &[SocketAddr]) -> String {
    let endpoints: Vec<String> = engines.iter().map(|engine| format!("http://{engine}")).collect();
    format!(
        "listen: [\"{listen}\"]
admin: {{ listen: \"{admin}\" }}
auth: none
debugHeaders: true
log: {{ access: off }}
pools:
- name: demo
  modelName: {MODEL}
  engineType: vllm
  policy: {policy}
  endpoints: {endpoints:?}
"
    )
}

fn measure(site: &Site, policy: &str, plan: &Plan) -> Result<Run> {
    let outcome = load::run(site.gateway.listen, policy, plan)?;
    let names: BTreeMap<String, &str> = site
        .engines
        .addresses
        .iter()
        .zip(SERVERS)
        .map(|(address, (name, _))| (address.to_string(), name))
        .collect();
    let paths = paths(site.gateway.admin)?;
    let run = Run::new(policy, &outcome, &names, paths);
    run.with_context(|| format!("the gateway's log ends:\n{}", site.gateway.log_tail()))
}

/// How many of the gateway's answers took each path.
fn paths(admin: SocketAddr) -> Result<BTreeMap<String, u64>> {
    let (_, page) = fleet::get(admin, "/metrics")?;
    let answers = page.lines().filter_map(|line| {
        let (labels, count) =
            line.strip_prefix("inference_gateway_answers_total{")?.split_once("} ")?;
        let path = labels.split("path=\"").nth(1)?.split('"').next()?;
        Some((path.to_owned(), count.parse().ok()?))
    });
    Ok(answers.collect())
}

/// Leaves the gateway to the user until Ctrl-C.
fn stay(site: &Site) -> Result<()> {
    let Gateway { listen, admin, .. } = &site.gateway;
    let body = format!(
        r#"{{"model":"{MODEL}","stream":true,"messages":[{{"role":"user","content":"Hello"}}]}}"#
    );
    println!(
        "
The gateway goes on, with policy {}:
  API     http://{listen}/v1
  status  http://{admin}/
  try     curl -N http://{listen}/v1/chat/completions -H 'content-type: application/json' -d '{body}'
  config  {}
Ctrl-C ends it.",
        POLICIES[POLICIES.len() - 1],
        site.gateway.config.display()
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tokio::signal::ctrl_c()).context("cannot wait for Ctrl-C")?;
    println!();
    Ok(())
}
