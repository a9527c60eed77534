//! The task runner: `cargo xtask COMMAND`.
//!
//! The only one. It installs what a task needs where it can, and says what is
//! missing where it cannot.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod check;
mod child;
mod demo;
mod ebpf;
mod fleet;
mod fuzz;
mod lab;
mod machine;
mod stream;
mod test;

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
    BuildEbpf(ebpf::BuildEbpf),
    Check(check::Check),
    Demo(demo::Demo),
    Fuzz(fuzz::Fuzz),
    Lab(lab::Lab),
    Test(test::Test),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Bench(bench) => bench::run(&bench),
        Command::BuildEbpf(_) => ebpf::run(),
        Command::Check(check) => check::run(&check),
        Command::Demo(demo) => demo::run(&demo),
        Command::Fuzz(fuzz) => fuzz::run(&fuzz),
        Command::Lab(lab) => lab::run(&lab),
        Command::Test(test) => test::run(&test),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where in this program it was noticed helps nobody who runs a task.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
