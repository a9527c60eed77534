//! The paths a request can take to the model server: none in between, Envoy,
//! nginx, or this gateway.
//!
//! Each proxy has one worker and the same four upstreams, keeps its connections,
//! and writes no access log. Otherwise they run with their defaults.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::{install, message};
use crate::child::{Child, free_addresses};

pub(crate) mod config;

/// How long a proxy may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A way to the model server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Path {
    Direct,
    Envoy,
    Nginx,
    Ours,
}

impl Path {
    /// Every path, the baseline first.
    pub(crate) const ALL: [Self; 4] = [Self::Direct, Self::Envoy, Self::Nginx, Self::Ours];

    /// Name in tables and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Envoy => "envoy",
            Self::Nginx => "nginx",
            Self::Ours => "ours",
        }
    }

    /// Gets the program of this path; nothing to do for the direct one.
    pub(crate) fn install(self) -> Result<Option<Program>> {
        let (file, flag) = match self {
            Self::Direct => return Ok(None),
            Self::Envoy => (install::envoy()?, "--version"),
            Self::Nginx => (install::nginx()?, "-v"),
            Self::Ours => (install::gateway()?, "--version"),
        };
        let version = install::version(&file, flag);
        Ok(Some(Program { file, version }))
    }

    /// Writes the proxy's configuration to `home`; none on the direct path.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub(crate) fn config_file(
        self,
        home: &std::path::Path,
        setting: &Setting<'_>,
    ) -> Result<Option<PathBuf>> {
        let (name, text) = match self {
            Self::Direct => return Ok(None),
            Self::Envoy => ("envoy.yaml", config::envoy(setting)),
            Self::Nginx => ("nginx.conf", config::nginx(setting)),
            Self::Ours => ("gateway.yaml", config::gateway(setting)),
        };
        let file = home.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Some(file))
    }

    /// Gives `command`, which is the proxy's, its configuration.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub(crate) fn configure(
        self,
        command: &mut Command,
        home: &std::path::Path,
        setting: &Setting<'_>,
    ) -> Result<()> {
        let Some(file) = self.config_file(home, setting)? else { return Ok(()) };
        match self {
            Self::Direct => {}
            Self::Envoy => {
                command.arg("-c").arg(file).args(["--concurrency", "1", "--log-level", "warning"]);
                command.arg("--disable-hot-restart");
            }
            Self::Nginx => {
                command.arg("-p").arg(home).arg("-c").arg(file).args(["-e", "stderr"]);
            }
            Self::Ours => {
                command.args(["run", "--config"]).arg(file);
            }
        }
        Ok(())
    }
}

/// What a proxy is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) upstreams: &'a [SocketAddr],
    /// Further YAML of our own pool, two spaces deep.
    pub(crate) pool: &'a str,
}

/// Directory for a proxy's configuration, log and temporary files; made if missing.
///
/// # Errors
///
/// When it cannot be made.
pub(crate) fn home(path: Path) -> Result<PathBuf> {
    let home = install::directory()?.join(format!("run-{}", path.name()));
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    Ok(home)
}

/// An installed program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) version: String,
}

/// A path ready to carry requests.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) path: Path,
    /// Where clients connect, in turn.
    pub(crate) targets: Vec<SocketAddr>,
    child: Option<Child>,
}

impl Running {
    /// Starts `path` in front of `upstreams` and waits until it listens.
    pub(crate) fn start(
        path: Path,
        program: Option<&Program>,
        upstreams: &[SocketAddr],
    ) -> Result<Self> {
        let Some(program) = program else {
            return Ok(Self { path, targets: upstreams.to_vec(), child: None });
        };
        let addresses = free_addresses(2)?;
        let (listen, admin) = (addresses[0], addresses[1]);
        let home = home(path)?;
        let mut command = Command::new(&program.file);
        path.configure(&mut command, &home, &Setting { listen, admin, upstreams, pool: "" })?;
        let mut child = Child::spawn(path.name(), &mut command, &home.join("log"))?;
        child.wait_listening(listen, PATIENCE)?;
        Ok(Self { path, targets: vec![listen], child: Some(child) })
    }

    /// CPU time the proxy has used; none on the direct path.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.child.as_ref().map_or(Ok(Duration::ZERO), Child::cpu)
    }

    /// The proxy's resident memory in KiB; none on the direct path.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        self.child.as_ref().map_or(Ok(0), Child::resident_kib)
    }

    /// Adds the proxy's own last words to an error.
    pub(crate) fn explain<T>(&self, result: Result<T>) -> Result<T> {
        result.with_context(|| {
            let log = self.child.as_ref().map(Child::log_tail).unwrap_or_default();
            format!(
                "on path {} ({MODEL}); its log ends:\n{log}",
                self.path.name(),
                MODEL = message::MODEL
            )
        })
    }
}
