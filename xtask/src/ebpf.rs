//! `cargo xtask build-ebpf`: compiles the kernel programs.
//!
//! They are for another machine (`bpfel-unknown-none`) whose core library does not
//! come ready-made, so the compiler needs its own sources and nightly's options: a
//! rustup nightly where there is one, else Debian's packages of a newer compiler.
//! The daemon embeds the object that lies here when it is built, and does without
//! when none does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::machine;
use toolchain::Toolchain;

mod toolchain;

/// The processor that the kernel emulates, little-endian.
const TARGET: &str = "bpfel-unknown-none";
/// Name of the object in the directory `ebpf` of the target directory; the daemon's build
/// script looks for it there.
const OBJECT: &str = "gateway.bpf.o";

/// Builds the kernel programs for the daemon to embed.
#[derive(Args, Debug)]
pub(crate) struct BuildEbpf;

/// What becomes of the compiler's warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warnings {
    /// They are shown.
    Allow,
    /// They are errors.
    Deny,
}

/// Builds and says where the object is.
///
/// # Errors
///
/// When no toolchain can be had (the error says what to install), or the programs do
/// not compile.
pub(crate) fn run() -> Result<()> {
    println!("{}", build(Warnings::Allow)?.display());
    Ok(())
}

/// Builds before something that works without, less well: in CI a failure is an error,
/// elsewhere a message.
///
/// # Errors
///
/// As [`run`], in CI only.
pub(crate) fn prepare() -> Result<()> {
    match build(Warnings::Allow) {
        Err(error) if !machine::is_ci() => {
            eprintln!("going on without kernel programs: {error:#}");
            Ok(())
        }
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

/// Builds what has changed; the object's path.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn build(warnings: Warnings) -> Result<PathBuf> {
    let tools = Toolchain::find()?;
    let built = machine::directory("ebpf-build")?;
    let mut command = tools.cargo();
    command
        .current_dir(source())
        .args(["build", "--quiet", "--release", "--locked", "--target", TARGET])
        .args(["-Z", "build-std=core"])
        .env("CARGO_TARGET_DIR", &built)
        .env("CARGO_ENCODED_RUSTFLAGS", flags());
    if warnings == Warnings::Deny {
        command.args(["-Z", "warnings"]).env("CARGO_BUILD_WARNINGS", "deny");
    }
    machine::run(&mut command, "cannot build the kernel programs")?;
    let object = machine::directory("ebpf")?.join(OBJECT);
    // One that did not change keeps its time, or the daemon would be built anew.
    replace_if_different(&built.join(TARGET).join("release/gateway"), &object)?;
    Ok(object)
}

/// Cargo for the kernel programs' own commands that need no special compiler.
///
/// # Errors
///
/// When this executable was moved elsewhere.
pub(crate) fn plain_cargo(arguments: &[&str]) -> Result<Command> {
    let mut command = machine::cargo(arguments)?;
    command.current_dir(source());
    Ok(command)
}

/// Lints the kernel programs. Debian's compiler for them has no clippy, so the workspace's
/// reads them, as if they were for this machine; nothing is built.
///
/// # Errors
///
/// When it has found something, or cannot run.
pub(crate) fn lint() -> Result<()> {
    let mut command = plain_cargo(&["clippy", "--quiet", "--locked", "--", "-D", "warnings"])?;
    command
        .env("CARGO_TARGET_DIR", machine::directory("ebpf-lint")?)
        .env("CARGO_ENCODED_RUSTFLAGS", target_arch())
        // They use features of a nightly.
        .env("RUSTC_BOOTSTRAP", "1");
    machine::run(&mut command, "clippy has found something in the kernel programs")
}

fn source() -> PathBuf {
    machine::workspace().join("gateway-ebpf")
}

/// Options of the compiler, as cargo takes them: separated by the unit separator.
fn flags() -> String {
    [
        &target_arch(),
        // Types of maps and programs, for the kernel and for people with bpftool.
        "-Cdebuginfo=2",
        "-Clink-arg=--btf",
        // Compare-and-set needs the third version of the instructions.
        "-Ctarget-cpu=v3",
    ]
    .join("\u{1f}")
}

/// What aya-ebpf takes the layout of the kernel's registers from.
fn target_arch() -> String {
    format!("--cfg=bpf_target_arch=\"{}\"", std::env::consts::ARCH)
}

fn replace_if_different(new: &Path, old: &Path) -> Result<()> {
    let bytes = fs::read(new).with_context(|| format!("cannot read {}", new.display()))?;
    if fs::read(old).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    fs::write(old, bytes).with_context(|| format!("cannot write {}", old.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_did_not_change_keeps_its_time() {
        let directory = machine::directory("tmp/ebpf-test").unwrap();
        let (new, old) = (directory.join("new"), directory.join("old"));
        fs::write(&new, "object").unwrap();
        fs::write(&old, "object").unwrap();
        let early = std::time::SystemTime::UNIX_EPOCH;
        fs::File::options().write(true).open(&old).unwrap().set_modified(early).unwrap();
        replace_if_different(&new, &old).unwrap();
        assert_eq!(fs::metadata(&old).unwrap().modified().unwrap(), early);

        fs::write(&new, "another").unwrap();
        replace_if_different(&new, &old).unwrap();
        assert_eq!(fs::read(&old).unwrap(), b"another");
    }
}
