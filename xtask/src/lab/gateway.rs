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

/// Routers listen before they know their engines: only an answer says that they do. Then
/// as many requests follow as it takes until who takes turns is at the first engine again,
/// as in the lab.
fn wait_answering(listen: SocketAddr, site: &Site<'_>, process: &Process) -> Result<()> {
    let body = format!(
        r#"{{"model":"{}","prompt":" hi","max_tokens":1,"stream":true,"stream_options":{{"include_usage":true}}}}"#,
        site.model
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let started = Instant::now();
    let mut answered = 0;
    while answered < site.engines.len() {
        let answer = runtime.block_on(async {
            let ask = stream::ask(listen, "/v1/completions", &body);
            tokio::time::timeout(PATIENCE, ask).await
        });
        match answer {
            Ok(Ok(_)) => answered += 1,
            Ok(Err(error)) if started.elapsed() > PATIENCE => {
                let log = match process {
                    Process::Own(gateway) => gateway.log_tail(),
                    Process::Other(child) => child.log_tail(),
                };
                return Err(error.context(format!("it does not answer; its log ends:\n{log}")));
            }
            Ok(Err(_)) => std::thread::sleep(Duration::from_millis(100)),
            Err(_) => bail!("it takes a request and never answers"),
        }
    }
    Ok(())
}
