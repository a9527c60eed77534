//! The `inference-gateway` command.

use std::fmt::Display;
use std::process::ExitCode;

use clap::Parser;
use inference_gateway::app::{App, KernelPath};
use inference_gateway::args::{Arguments, BpfCommand, Command, RunFlags};
use inference_gateway::reload::Source;
use inference_gateway::{cli, telemetry};

/// `EX_USAGE` of sysexits: the command line or the configuration is wrong.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run(flags) => run(&flags),
        Command::Validate(flags) => tell(cli::validate(&flags), USAGE),
        Command::Explain(flags) => tell(cli::explain(&flags).map_err(full), 1),
        Command::Status(flags) => tell(cli::status(&flags).map_err(full), 1),
        Command::Metrics => tell(cli::metrics(), 1),
        Command::Bpf(BpfCommand::Status(flags)) => tell(cli::bpf_status(&flags).map_err(full), 1),
    }
}

fn run(flags: &RunFlags) -> ExitCode {
    let started = match flags.start() {
        Ok(started) => started,
        Err(error) => return fail(error, USAGE),
    };
    telemetry::start(&started.config.log);
    for note in &started.notes {
        tracing::warn!("{note}");
    }
    let source = match started.file {
        Some((path, text)) => Source::File(path, text),
        None => Source::Flags,
    };
    match App::start_with(started.config, source, KernelPath::Wanted) {
        Ok(app) => {
            app.announce();
            app.run();
            ExitCode::SUCCESS
        }
        Err(error) => fail(full(error), 1),
    }
}

fn tell(result: Result<String, impl Display>, code: u8) -> ExitCode {
    match result {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(error, code),
    }
}

fn fail(error: impl Display, code: u8) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(code)
}

/// An error with all that led to it, on one line.
#[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn full(error: anyhow::Error) -> String {
    format!("{error:#}")
}
