//! The data path's tests on other kernels, in virtual machines.
//!
//! Kernels 6.1 and 6.12 are what most clusters run; the tests otherwise see the one kernel of
//! the machine they run on. Debian's cloud kernels are booted by QEMU in software emulation
//! (a nested machine has no other), with a root file system of nothing but the tests'
//! programs. No network card is there, so that nothing can leave it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::tally::Tally;
use crate::{child, machine};
use kernel::Kernel;

mod archive;
mod kernel;
mod root;

/// Debian's names for the newest kernel of a series.
const SERIES: [&str; 2] = ["linux-image-cloud-amd64", "linux-image-6.12-cloud-amd64"];

/// What is run: package and selection of its test programs.
const SUITES: [(&str, &[&str]); 4] = [
    ("gateway-testnet", &["--lib"]),
    ("gateway-tests", &["--test", "programs"]),
    ("gateway-tests", &["--test", "steer"]),
    ("gateway-tests", &["--test", "kernel"]),
];

/// After how many seconds a machine is given up, as `timeout` takes it.
const PATIENCE: &str = "3600";

/// Boots each kernel and runs the tests in it.
///
/// # Errors
///
/// When a kernel or a program cannot be had, or the tests do not build.
pub(super) fn run(filter: Option<&str>) -> Result<Tally> {
    let qemu = machine::require("qemu-system-x86_64", &["qemu-system-x86"])?;
    let tests = programs()?;
    let mut tally = Tally::default();
    for series in SERIES {
        let kernel = Kernel::fetch(series)?;
        println!("\n=== {}", kernel.release);
        let image = machine::directory("kernels")?.join(format!("{}.cpio", kernel.release));
        root::write(&image, &kernel, &tests, filter)?;
        tally += boot(&qemu, &kernel, &image)?;
    }
    Ok(tally)
}

/// Boots a kernel, shows what the machine prints, and counts its tests.
fn boot(qemu: &Path, kernel: &Kernel, image: &Path) -> Result<Tally> {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE).arg(qemu);
    command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "3G"]);
    command.args(["-nic", "none", "-display", "none", "-monitor", "none", "-serial", "stdio"]);
    // A panic ends the machine, and with it the run.
    command.args(["-no-reboot", "-append", "console=ttyS0 quiet panic=-1"]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(image);
    let (mut tally, mut ended) = (Tally::default(), 0);
    let status = child::follow(&mut command, |line| {
        tally.count_cargo(line);
        if line.starts_with(root::ENDED) {
            ended += 1;
        }
    })?;
    if !status.success() || ended != SUITES.len() {
        bail!("{} ended with {status} after {ended} of {} suites", kernel.release, SUITES.len());
    }
    Ok(tally)
}

/// Builds the test programs.
fn programs() -> Result<Vec<PathBuf>> {
    let mut programs = Vec::new();
    for (package, selection) in SUITES {
        let mut build = machine::cargo(&["test", "--no-run", "--message-format", "json"])?;
        build.args(["--package", package]).args(selection);
        let messages = machine::output(&mut build, "cannot build the tests")?;
        let program = messages.lines().find_map(executable);
        programs.push(program.with_context(|| format!("{package} has no test program"))?);
    }
    Ok(programs)
}

/// The test program that a message of cargo's is about, if it is about one.
fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"].as_bool() == Some(true);
    is_test.then_some(message["executable"].as_str()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_program_is_found_among_cargos_messages() {
        let built = r#"{"reason":"compiler-artifact","profile":{"test":true},"executable":"/t/k"}"#;
        assert_eq!(executable(built), Some("/t/k".into()));
        let library =
            r#"{"reason":"compiler-artifact","profile":{"test":false},"executable":null}"#;
        assert_eq!(executable(library), None);
        assert_eq!(executable(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
