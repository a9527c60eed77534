//! Real client libraries, unchanged, against the daemon.
//!
//! The scripts are in tests/clients, each in its library's own language and run by
//! that language's usual test runner. Versions are pinned there; everything is
//! installed below the target directory.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::runner;
use super::tally::Tally;
use crate::fleet::{Build, Programs};
use crate::machine;

/// Name of the pool's model.
const MODEL: &str = "meta-llama/Llama-3.1-8B-Instruct";
/// Another name for it, known to the gateway only.
const ALIAS: &str = "llama";
/// An adapter that the model servers have loaded.
const ADAPTER: &str = "sql-lora";

/// Installed interpreters and libraries.
#[derive(Debug)]
pub(super) struct Clients {
    python: PathBuf,
    node: PathBuf,
    /// Copy of the scripts beside the libraries for node, which looks for libraries
    /// from where a script is.
    scripts: PathBuf,
    home: PathBuf,
}

impl Clients {
    /// Installs what is missing.
    ///
    /// # Errors
    ///
    /// When an interpreter or a library cannot be had; the error says which.
    pub(super) fn install() -> Result<Self> {
        let home = machine::directory("clients")?;
        let sources = machine::workspace().join("tests/clients");
        machine::require("curl", &["curl"])?;
        let node = machine::require("node", &["nodejs"])?;
        let npm = machine::require("npm", &["nodejs", "npm"])?;
        let requirements = sources.join("requirements.txt");
        let requirements = requirements.to_str().context("the workspace's path is not UTF-8")?;
        let python = machine::python(&home.join("python"), &["--requirement", requirements])?;

        let scripts = machine::directory("clients/scripts")?;
        copy_files(&sources, &scripts)?;
        let mut install = Command::new(npm);
        install.current_dir(&scripts).args(["install", "--no-package-lock"]);
        install.args(["--no-audit", "--no-fund", "--loglevel", "error"]);
        machine::run(&mut install, "cannot install packages of npm")?;
        Ok(Self { python, node, scripts, home })
    }

    /// Runs every script against one gateway in front of two model servers.
    ///
    /// # Errors
    ///
    /// When the servers cannot be started.
    pub(super) fn run(&self, filter: Option<&str>) -> Result<Tally> {
        let programs = Programs::build(Build::Test)?;
        let server = format!("model={MODEL},adapters={ADAPTER},time-scale=20,answer-tokens=8-40");
        let engines = programs.start_engines(&[server.clone(), server], &self.home)?;
        let gateway = programs
            .start_gateway(&self.home, |listen, admin| config(listen, admin, &engines.addresses))?;

        let engine_urls: Vec<String> =
            engines.addresses.iter().map(|address| format!("http://{address}")).collect();
        let prepare = |command: &mut Command| {
            command
                .current_dir(&self.scripts)
                .env("GATEWAY_URL", format!("http://{}", gateway.listen))
                .env("ADMIN_URL", format!("http://{}", gateway.admin))
                .env("ENGINE_URLS", engine_urls.join(","))
                .env("MODEL", MODEL)
                .env("MODEL_ALIAS", ALIAS)
                .env("MODEL_ADAPTER", ADAPTER);
        };
        let mut python = Command::new(&self.python);
        prepare(&mut python);
        // Libraries of npm may have tests in Python.
        python.env("PYTEST_ADDOPTS", "--ignore=node_modules");
        let mut tally = runner::pytest(&mut python, filter)?;
        let mut node = Command::new(&self.node);
        prepare(&mut node);
        tally += runner::node(&mut node, filter, &scripts_of(&self.scripts, ".test.mjs")?)?;
        if tally.failed > 0 {
            eprintln!("the gateway's log ends:\n{}", gateway.log_tail());
        }
        Ok(tally)
    }
}

fn config(listen: SocketAddr, admin: SocketAddr, engines: &[SocketAddr]) -> String {
    let endpoints: Vec<String> = engines.iter().map(|engine| format!("http://{engine}")).collect();
    format!(
        "listen: [\"{listen}\"]
admin: {{ listen: \"{admin}\" }}
auth: none
debugHeaders: true
pools:
- name: llama
  modelName: {MODEL}
  aliases: [{ALIAS}]
  loraAdapters: [{ADAPTER}]
  engineType: vllm
  endpoints: {endpoints:?}
"
    )
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for file in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let file = file?.path();
        if let Some(name) = file.file_name().filter(|_| file.is_file()) {
            fs::copy(&file, to.join(name)).with_context(|| format!("{}", file.display()))?;
        }
    }
    Ok(())
}

fn scripts_of(place: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(place)?.flatten().map(|file| file.path());
    let mut scripts: Vec<_> =
        files.filter(|file| file.to_string_lossy().ends_with(ending)).collect();
    scripts.sort();
    Ok(scripts)
}
