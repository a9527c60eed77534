//! The machine the task runner runs on: where things are, and how to get what is
//! missing.
//!
//! A fresh Debian machine with rustup, git and root must be enough, so a missing
//! program is installed there; anywhere else the error names it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The workspace's root.
pub(crate) fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// Cargo's target directory: the one this executable was built into.
///
/// # Errors
///
/// When this executable was moved elsewhere.
pub(crate) fn target() -> Result<PathBuf> {
    let executable = std::env::current_exe().context("cannot find this executable")?;
    // Cargo leaves the first mark in a directory it makes, the second in any.
    let marks = ["CACHEDIR.TAG", ".rustc_info.json"];
    let mut above = executable.ancestors().skip(1);
    let target = above.find(|place| marks.iter().any(|mark| place.join(mark).is_file()));
    target.map(Path::to_owned).context("this executable is not in a target directory")
}

/// A directory below the target directory; made if missing.
///
/// # Errors
///
/// When it cannot be made.
pub(crate) fn directory(name: &str) -> Result<PathBuf> {
    let directory = target()?.join(name);
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

/// Cargo in the workspace, with the target directory of this executable.
///
/// # Errors
///
/// When this executable was moved elsewhere.
pub(crate) fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(workspace()).env("CARGO_TARGET_DIR", target()?).args(arguments);
    Ok(command)
}

/// Whether this is a run whose checks must not be skipped.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Finds `program` on the search path, installing the Debian `packages` that have
/// it when we are root on Debian.
///
/// # Errors
///
/// When it is missing and cannot be installed; the error says what to install.
pub(crate) fn require(program: &str, packages: &[&str]) -> Result<PathBuf> {
    if let Some(found) = find(program) {
        return Ok(found);
    }
    apt_install(program, packages)?;
    find(program).with_context(|| format!("{packages:?} is installed and has no {program}"))
}

/// A program on the search path, or where Debian keeps servers.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let servers = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(servers).map(|place| place.join(program));
    places.find(|place| place.is_file())
}

/// Makes a virtual environment of Python at `place`, unless there is one, and
/// installs `requirements` (arguments of pip) there when they have changed.
///
/// # Errors
///
/// When Python cannot be had, or a package cannot be installed.
pub(crate) fn python(place: &Path, requirements: &[&str]) -> Result<PathBuf> {
    let python = place.join("bin/python");
    if !works(Command::new(&python).args(["-m", "pip", "--version"])) {
        require("python3", &["python3", "python3-venv"])?;
        let make = || works(Command::new("python3").args(["-m", "venv", "--clear"]).arg(place));
        if !make() {
            // Debian's python3 comes without it.
            apt_install("python3 with its venv module", &["python3-venv"])?;
            if !make() {
                bail!("`python3 -m venv {}` failed", place.display());
            }
        }
    }
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    run(pip.args(requirements), "cannot install Python packages")?;
    Ok(python)
}

/// Installs Debian packages, to get `what`.
///
/// # Errors
///
/// When this is not Debian, we are not root, or the installation fails.
pub(crate) fn apt_install(what: &str, packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root || find("apt-get").is_none() {
        bail!("{what} is missing; install it (Debian: `apt-get install {names}`) and try again");
    }
    eprintln!("installing {names}");
    let apt = || {
        let mut command = Command::new("apt-get");
        // Keeps a package from starting a service of its own.
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("SYSTEMD_OFFLINE", "1")
            .env("RUNLEVEL", "1");
        command
    };
    run(apt().args(["update", "-qq"]), "cannot update the package lists")?;
    let mut install = apt();
    // Waits for whoever else is installing something.
    install.args(["-o", "DPkg::Lock::Timeout=600"]);
    install.args(["install", "-y", "-qq", "--no-install-recommends"]).args(packages);
    run(&mut install, "cannot install the package")
}

/// Runs `command` with its output shown.
///
/// # Errors
///
/// When it does not start, or fails.
pub(crate) fn run(command: &mut Command, failure: &str) -> Result<()> {
    let status =
        command.status().with_context(|| format!("{failure}: {command:?} does not start"))?;
    if !status.success() {
        bail!("{failure}: {command:?} ended with {status}");
    }
    Ok(())
}

/// What `command` prints.
///
/// # Errors
///
/// When it does not start, or fails; its own words are part of the error.
pub(crate) fn output(command: &mut Command, failure: &str) -> Result<String> {
    let output =
        command.output().with_context(|| format!("{failure}: {command:?} does not start"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{failure}: {command:?} ended with {}:\n{words}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{failure}: output is not UTF-8"))
}

/// Whether `command` starts and succeeds; its output is not shown.
fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_the_directory_with_the_crates() {
        assert!(workspace().join("gateway-core/Cargo.toml").exists());
    }

    #[test]
    fn a_program_is_found_by_name_only_when_it_is_there() {
        assert!(find("sh").is_some_and(|place| place.is_absolute()));
        assert_eq!(find("no-such-program"), None);
    }

    #[test]
    fn failure_of_a_command_carries_its_words() {
        let mut command = Command::new("sh");
        let error = output(command.args(["-c", "echo lost >&2; exit 3"]), "cannot look");
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains("cannot look") && error.contains("lost"), "{error}");
    }

    #[test]
    fn output_of_a_command_is_its_standard_output() {
        assert_eq!(output(Command::new("echo").arg("found"), "cannot look").unwrap(), "found\n");
    }
}
