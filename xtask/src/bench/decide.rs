//! `cargo xtask bench decide`: the cost of a decision and of reading a body.
//!
//! Both live in gateway-core as its own benches; this runs them in release mode
//! and passes their tables on.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::machine;

/// Measures decisions (every policy, pool and prompt size) and the body scan.
#[derive(Args, Debug)]
pub(crate) struct Decide {
    /// Writes the decision figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs the bench.
///
/// # Errors
///
/// When a bench does not build or fails.
pub(crate) fn run(options: &Decide) -> Result<()> {
    let mut arguments = Vec::new();
    if let Some(file) = &options.json {
        // Cargo runs a bench in its package's directory.
        let file = std::path::absolute(file)
            .with_context(|| format!("cannot resolve {}", file.display()))?;
        arguments.extend(["--json".into(), file.into_os_string()]);
    }
    machine::run(bench("decide").args(arguments), "the decision bench failed")?;
    machine::run(&mut bench("scan"), "the body scan bench failed")
}

fn bench(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(machine::workspace()).args([
        "bench",
        "--package",
        "gateway-core",
        "--bench",
        name,
        "--",
    ]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_is_run_by_name_in_the_workspace() {
        let command = bench("scan");
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!(arguments, ["bench", "--package", "gateway-core", "--bench", "scan", "--"]);
        assert_eq!(command.get_current_dir(), Some(machine::workspace().as_path()));
    }
}
