//! What cargo checks: format, lints, documentation.

use std::process::Command;

use anyhow::Result;

use crate::{ebpf, machine};

/// The fuzz targets are a workspace of their own.
const FUZZ: &[&str] = &["--manifest-path", "fuzz/Cargo.toml"];

pub(super) fn format() -> Result<()> {
    let failure = "run `cargo fmt --all`";
    run(machine::cargo(&["fmt", "--all", "--check"])?, failure)?;
    run(ebpf::plain_cargo(&["fmt", "--check"])?, "run `cargo fmt` in gateway-ebpf")?;
    if !machine::workspace().join("fuzz/Cargo.toml").exists() {
        return Ok(());
    }
    let mut fuzz = machine::cargo(&["fmt", "--check"])?;
    fuzz.args(FUZZ);
    run(fuzz, "run `cargo fmt` in fuzz")
}

pub(super) fn clippy() -> Result<()> {
    let arguments =
        ["clippy", "--quiet", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    run(machine::cargo(&arguments)?, "clippy has found something")
}

pub(super) fn kernel_programs() -> Result<()> {
    ebpf::lint()?;
    ebpf::build(ebpf::Warnings::Deny).map(drop)
}

pub(super) fn documentation() -> Result<()> {
    let mut command = machine::cargo(&["doc", "--quiet", "--workspace", "--no-deps", "--locked"])?;
    command.env("RUSTDOCFLAGS", "-D warnings");
    run(command, "the documentation does not build cleanly")
}

fn run(mut command: Command, failure: &str) -> Result<()> {
    machine::run(&mut command, failure)
}
