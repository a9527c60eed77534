//! The task runner: `cargo xtask COMMAND`.

use anyhow::Result;
use clap::{Parser, Subcommand};

mod bench;

/// Everything a developer runs in this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures, beside a baseline each.
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Bench(bench) => bench::run(&bench),
    }
}
