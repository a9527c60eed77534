//! `cargo xtask lab`: compares routing policies on simulated fleets.
//!
//! Builds `routing-lab` as a release (hours of virtual time are worth it) and runs it with
//! the arguments as they are. `--http` instead sends a scenario through real gateways and
//! real sockets, and says how far virtual time agrees.

use std::process::Command;

use anyhow::Result;
use clap::{Args, Parser as _};

use crate::machine;

mod agreement;
mod gateway;
mod http;
mod send;

/// Compares routing policies on simulated fleets; `--list` names scenarios and policies.
#[derive(Args, Debug)]
pub(crate) struct Lab {
    /// Scenarios (or `all`) and options of `routing-lab`: --policies, --loads, --seeds, --quick,
    /// --json FILE, --no-plots, --list. Or `--http` and its own options; try `--http --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds and runs the lab.
///
/// # Errors
///
/// When it does not build, or an argument is wrong; it has said which.
pub(crate) fn run(options: &Lab) -> Result<()> {
    if options.arguments.iter().any(|argument| argument == "--http") {
        let others = options.arguments.iter().filter(|argument| *argument != "--http");
        let name = "cargo xtask lab --http".to_owned();
        return http::run(&http::Options::parse_from([name].iter().chain(others)));
    }
    let mut cargo = machine::cargo(&["build", "--release", "--package", "gateway-tests"])?;
    cargo.args(["--bin", "routing-lab"]);
    machine::run(&mut cargo, "cannot build the routing lab")?;
    let target = machine::target()?;
    let mut lab = Command::new(target.join("release").join("routing-lab"));
    lab.current_dir(machine::workspace()).args(&options.arguments);
    if !options.arguments.iter().any(|argument| argument.starts_with("--json")) {
        lab.arg("--json").arg(target.join("lab").join("results.json"));
    }
    machine::run(&mut lab, "the routing lab failed")
}
