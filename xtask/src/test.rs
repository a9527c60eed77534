//! `cargo xtask test`: every test there is, in tiers.
//!
//! A tier is what a test needs: nothing but Rust, real client libraries, a real
//! engine. Each runs with its own runner, whose lines are shown; the last line
//! counts them all. Tests run unoptimised, except for dependencies: one build
//! serves the unit tests, the scenarios and the programs that clients talk to.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::{ebpf, machine};

mod clients;
mod engines;
mod kernels;
mod runner;
mod rust;
mod tally;

use tally::Tally;

/// Runs the tests.
#[derive(Args, Debug)]
pub(crate) struct Test {
    /// Which tests; `all` is every tier that needs no download of gigabytes.
    #[arg(long, value_enum, default_value_t = Tier::All)]
    tier: Tier,
    /// Runs only tests whose name contains this.
    filter: Option<String>,
}

/// What a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// `unit`, `in-process` and `clients`.
    All,
    /// Real client libraries against the daemon and simulated model servers.
    Clients,
    /// Root: the data path in network namespaces at full size, for minutes, and the other
    /// scenarios in such a network. The usual size is part of `in-process`.
    Datapath,
    /// A real engine (vLLM on the CPU); installs several GB. Not part of `all`.
    Engines,
    /// The daemon and simulated model servers in the test's own process.
    InProcess,
    /// QEMU: the data path on kernels 6.1 and 6.12. Not part of `all`.
    Kernels,
    /// Nothing: one crate's own tests and the examples in its documentation.
    Unit,
}

/// Runs the tiers asked for.
///
/// # Errors
///
/// When a test fails, none ran, or a tier could not be set up.
pub(crate) fn run(options: &Test) -> Result<()> {
    let filter = options.filter.as_deref();
    let mut tally = Tally::default();
    network_tools()?;
    ebpf::prepare()?;
    match options.tier {
        Tier::All => {
            tally += rust::run(rust::Scope::Everything, filter)?;
            tally += clients(filter)?;
        }
        Tier::Clients => tally += clients(filter)?,
        Tier::Datapath => {
            tally += rust::run(rust::Scope::Datapath, filter)?;
            tally += rust::run(rust::Scope::Network, filter)?;
            tally += rust::run(rust::Scope::Sockets, filter)?;
        }
        Tier::Engines => tally += engines::Engines::install()?.run(filter)?,
        Tier::InProcess => tally += rust::run(rust::Scope::Scenarios, filter)?,
        Tier::Kernels => tally += kernels::run(filter)?,
        Tier::Unit => tally += rust::run(rust::Scope::Units, filter)?,
    }
    println!("\n{tally}");
    if tally.failed > 0 {
        bail!("tests failed");
    }
    if tally.passed == 0 {
        bail!("no test ran; is `{}` the name of one?", filter.unwrap_or_default());
    }
    Ok(())
}

/// What tests in network namespaces need. Without it they skip themselves, but in CI.
fn network_tools() -> Result<()> {
    match machine::require("ip", &["iproute2"]) {
        Err(error) if machine::is_ci() => Err(error),
        Err(error) => {
            eprintln!("tests in network namespaces will be skipped: {error:#}");
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

/// The tier of client libraries. It needs interpreters: where they cannot be had, a
/// developer may go on without, CI may not.
fn clients(filter: Option<&str>) -> Result<Tally> {
    let clients = match clients::Clients::install() {
        Ok(clients) => clients,
        Err(error) if !machine::is_ci() => {
            eprintln!("skipped the tests with client libraries: {error:#}");
            return Ok(Tally { skipped: 1, ..Tally::default() });
        }
        Err(error) => return Err(error),
    };
    clients.run(filter)
}
