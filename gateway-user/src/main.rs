//! The `inference-gateway` command.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use inference_gateway::app::App;
use inference_gateway::config::Config;
use inference_gateway::reload::Source;
use inference_gateway::telemetry;

/// One OpenAI endpoint in front of many model servers.
#[derive(Debug, Parser)]
#[command(name = "inference-gateway", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until told to stop.
    Run {
        /// Configuration file, YAML.
        #[arg(long)]
        config: PathBuf,
    },
}

/// `EX_USAGE` of sysexits: the command line or the configuration is wrong.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let Command::Run { config: path } = Arguments::parse().command;
    let config = match Config::load(&path) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(USAGE);
        }
    };
    telemetry::start(&config.log);
    let source = std::fs::read_to_string(&path).map(|text| Source::File(path, text));
    match source.map_err(anyhow::Error::from).and_then(|source| App::start(config, source)) {
        Ok(app) => {
            app.announce();
            app.run();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
