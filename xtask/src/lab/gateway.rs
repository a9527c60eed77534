//! The gateways that a plan is sent through: ours, and those of others that install.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::http::Site;
use crate::bench::install;
use crate::bench::path::{Setting, config};
use crate::child::{Child, free_addresses};
use crate::machine;
use crate::{fleet, stream};

/// How long a gateway may take until it answers a first request.
const PATIENCE: Duration = Duration::from_mins(1);

/// Time between two polls of SMG, by default.
const SMG_POLLS: Duration = Duration::from_secs(10);

/// A kind of gateway, as it is started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Envoy, round robin, no health checks.
    Envoy,
    /// This repository's daemon with a policy.
    Ours(&'static str),
    /// A router in Python's package index, with its default policy, `cache_aware`.
    Router(Router),
}

/// Routers that take the same options, for they have one ancestor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Router {
    Sglang,
    Smg,
    Vllm,
}

/// A gateway that answers.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) listen: SocketAddr,
    _process: Process,
}

#[derive(Debug)]
enum Process {
    Own(fleet::Gateway),
    Other(Child),
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::Ours("round_robin"),
        Self::Envoy,
        Self::Router(Router::Sglang),
        Self::Router(Router::Vllm),
        Self::Router(Router::Smg),
        Self::Ours("predicted"),
    ];

    pub(super) fn name(self) -> String {
        match self {
            Self::Envoy => "envoy round robin".to_owned(),
            Self::Ours(policy) => format!("ours {policy}"),
            Self::Router(router) => router.package().replace("==", " "),
        }
    }

    /// The policy of the lab that decides as it does.
    pub(super) fn twin(self) -> &'static str {
        match self {
            Self::Envoy => "round_robin",
            Self::Ours(policy) => policy,
            Self::Router(Router::Sglang) => "cache_aware",
            Self::Router(Router::Smg) => "smg",
            Self::Router(Router::Vllm) => "vllm_router",
        }
    }

    /// How long it is left alone before requests come. SMG polls its engines every 10 s, and the
    /// first time before it knows them all: it is to know them, and to be anywhere between two
    /// polls, as its twin is.
    fn settling(self, run: u64) -> Duration {
        match self {
            Self::Router(Router::Smg) => {
                let share = fastrand::Rng::with_seed(run).f64();
                SMG_POLLS + SMG_POLLS.mul_f64(share)
            }
            _ => Duration::ZERO,
        }
    }

    /// Starts it in front of the engines and waits until it answers.
    pub(super) fn start(self, site: &Site<'_>) -> Result<Running> {
        let (listen, process) = match self {
            Self::Envoy => envoy(site)?,
            Self::Ours(policy) => {
                let config = |listen, admin| daemon_config(listen, admin, policy, site);
                let gateway = site.programs.start_gateway(site.home, config)?;
                (gateway.listen, Process::Own(gateway))
            }
            Self::Router(router) => router.start(site)?,
        };
        wait_answering(listen, site, &process).with_context(|| self.name())?;
        std::thread::sleep(self.settling(site.run));
        let_first_turn_come(listen, site).with_context(|| self.name())?;
        Ok(Running { listen, _process: process })
    }
}

/// Everything not written here is the default.
fn daemon_config(listen: SocketAddr, admin: SocketAddr, policy: &str, site: &Site<'_>) -> String {
    format!(
        "listen: [\"{listen}\"]
admin: {{ listen: \"{admin}\" }}
auth: none
log: {{ access: off }}
pools:
- name: lab
  modelName: {}
  engineType: vllm
  policy: {policy}
  endpoints: {:?}
",
        site.model,
        site.urls()
    )
}

fn envoy(site: &Site<'_>) -> Result<(SocketAddr, Process)> {
    let program = install::envoy()?;
    let addresses = free_addresses(2)?;
    let (listen, admin) = (addresses[0], addresses[1]);
    let file = site.home.join("envoy.yaml");
    let setting = Setting { listen, admin, upstreams: site.engines, pool: "" };
    fs::write(&file, config::envoy(&setting))
        .with_context(|| format!("cannot write {}", file.display()))?;
    let mut command = Command::new(program);
    command.arg("-c").arg(&file);
    command.args(["--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]);
    let child = spawn("envoy", &mut command, site.home, listen)?;
    Ok((listen, child))
}

impl Router {
    /// Pinned, so that two runs compare the same program.
    const fn package(self) -> &'static str {
        match self {
            Self::Sglang => "sglang-router==0.3.2",
            Self::Smg => "smg==1.13.0",
            Self::Vllm => "vllm-router==0.1.17",
        }
    }

    fn start(self, site: &Site<'_>) -> Result<(SocketAddr, Process)> {
        let name = self.package().split("==").next().unwrap_or_default();
        let venv = machine::directory("lab")?.join(name);
        let python = machine::python(&venv, &[self.package()])?;
        let addresses = free_addresses(2)?;
        let (listen, metrics) = (addresses[0], addresses[1]);
        let mut command = match self {
            Self::Sglang => {
                let mut command = Command::new(&python);
                command.args(["-m", "sglang_router.launch_router"]);
                command
            }
            Self::Smg => {
                let mut command = Command::new(program(&python, "smg"));
                command.arg("launch");
                command
            }
            Self::Vllm => Command::new(program(&python, "vllm-router")),
        };
        command.args(["--host", "127.0.0.1", "--prometheus-host", "127.0.0.1"]);
        command.args(["--port", &listen.port().to_string()]);
        command.args(["--prometheus-port", &metrics.port().to_string()]);
        command.args(["--policy", "cache_aware", "--log-level", "error"]);
        command.arg("--worker-urls").args(site.urls());
        // They look for a tokenizer on a hub, and go on without.
        command.env("HF_HUB_OFFLINE", "1");
        Ok((listen, spawn(name, &mut command, site.home, listen)?))
    }
}

fn program(python: &Path, name: &str) -> PathBuf {
    python.with_file_name(name)
}

fn spawn(name: &str, command: &mut Command, home: &Path, listen: SocketAddr) -> Result<Process> {
    let mut child = Child::spawn(name, command, &home.join(format!("{name}.log")))?;
    child.wait_listening(listen, PATIENCE)?;
    Ok(Process::Other(child))
}

/// Routers listen before they know their engines: only an answer says that they do.
fn wait_answering(listen: SocketAddr, site: &Site<'_>, process: &Process) -> Result<()> {
    let started = Instant::now();
    loop {
        match ask(listen, site) {
            Ok(()) => return Ok(()),
            Err(error) if started.elapsed() > PATIENCE => {
                let log = match process {
                    Process::Own(gateway) => gateway.log_tail(),
                    Process::Other(child) => child.log_tail(),
                };
                return Err(error.context(format!("it does not answer; its log ends:\n{log}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Asks until the last engine has answered: whoever takes turns is then at the first one, as in
/// the lab. Others may leave the last engine alone, and are asked no more than that takes.
fn let_first_turn_come(listen: SocketAddr, site: &Site<'_>) -> Result<()> {
    let Some(last) = site.engines.last() else { return Ok(()) };
    let mut answered = answers(*last)?;
    for _ in site.engines {
        ask(listen, site)?;
        let before = std::mem::replace(&mut answered, answers(*last)?);
        if answered > before {
            break;
        }
    }
    Ok(())
}

/// Sends a short request and reads its answer.
fn ask(listen: SocketAddr, site: &Site<'_>) -> Result<()> {
    let body = format!(
        r#"{{"model":"{}","prompt":" hi","max_tokens":1,"stream":true,"stream_options":{{"include_usage":true}}}}"#,
        site.model
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        let ask = stream::ask(listen, "/v1/completions", &body);
        tokio::time::timeout(PATIENCE, ask).await
    });
    answer.context("it takes a request and never answers")??;
    Ok(())
}

/// Requests that an engine has answered so far, as its page says.
fn answers(engine: SocketAddr) -> Result<u64> {
    let (status, page) = fleet::get(engine, "/metrics")?;
    if status != 200 {
        bail!("the engine at {engine} has no page: {status}");
    }
    Ok(successes(&page))
}

fn successes(page: &str) -> u64 {
    let series = page.lines().filter(|line| line.starts_with("vllm:request_success_total{"));
    let values = series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_however_they_ended() {
        let page = "# TYPE vllm:request_success_total counter\n\
                    vllm:request_success_total{engine=\"0\",finished_reason=\"stop\"} 3.0\n\
                    vllm:request_success_total{engine=\"0\",finished_reason=\"length\"} 40.0\n\
                    vllm:request_success_created{engine=\"0\"} 1.7e9\n";
        assert_eq!(successes(page), 43);
    }

    #[test]
    fn smg_meets_requests_at_any_time_between_its_second_poll_and_its_third() {
        let smg = Kind::Router(Router::Smg);
        let settled: Vec<Duration> = (0..3).map(|run| smg.settling(run)).collect();
        assert!(settled.iter().all(|time| (SMG_POLLS..SMG_POLLS * 2).contains(time)));
        assert_ne!(settled[0], settled[1]);
        assert_eq!(Kind::Envoy.settling(1), Duration::ZERO);
    }
}
