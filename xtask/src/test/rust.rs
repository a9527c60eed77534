//! Tests that cargo runs.

use anyhow::Result;

use super::tally::Tally;
use crate::child;
use crate::machine;

/// Which of them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    /// The data path in network namespaces, at full size.
    Datapath,
    /// The other scenarios, in a network as on a node with pods.
    Network,
    /// All tests and examples of all crates.
    Everything,
    /// The same, with answers that go from socket to socket.
    Sockets,
    /// The scenarios of the `tests` crate.
    Scenarios,
    /// Each crate's own tests and examples.
    Units,
}

/// Runs them all, even when one fails, and shows what they print.
///
/// # Errors
///
/// When they do not build.
pub(super) fn run(scope: Scope, filter: Option<&str>) -> Result<Tally> {
    let mut tally = Tally::default();
    let selections: &[&[&str]] = match scope {
        Scope::Datapath => &[&["--package", "gateway-tests", "--test", "kernel"]],
        Scope::Everything => &[&["--workspace"]],
        Scope::Network | Scope::Sockets => {
            &[&["--package", "gateway-tests", "--test", "wire", "--test", "fleet"]]
        }
        Scope::Scenarios => &[&["--package", "gateway-tests", "--test", "*"]],
        // Cargo runs the examples of documentation only by themselves.
        Scope::Units => &[&["--workspace", "--lib", "--bins"], &["--workspace", "--doc"]],
    };
    for selection in selections {
        let mut command = machine::cargo(&["test", "--no-fail-fast"])?;
        command.args(*selection);
        match scope {
            Scope::Datapath => drop(command.env("GATEWAY_TEST_SIZE", "full")),
            Scope::Network => drop(command.env("GATEWAY_TEST_PLACE", "network")),
            Scope::Sockets => {
                command.env("GATEWAY_TEST_PLACE", "network");
                command.env("GATEWAY_TEST_DATAPATH", "sk_msg");
            }
            Scope::Everything | Scope::Scenarios | Scope::Units => {}
        }
        if let Some(filter) = filter {
            command.args(["--", filter]);
        }
        let mut part = Tally::default();
        let status = child::follow(&mut command, |line| part.count_cargo(line))?;
        tally += part.with_end(status.success());
    }
    Ok(tally)
}
