//! The command line. Every flag has a twin in the environment; what is written on the
//! command line goes before it, and it before the file.
//!
//! Flags end in the same schema as the file ([`crate::config`]), so nothing is checked
//! twice and no default exists twice. Names are those of other routers where they have
//! one, so that a command line can be brought along.

mod overrides;
mod run;

use std::convert::Infallible;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Secret;
pub use overrides::Overrides;
pub use run::{RunFlags, Started};

/// One OpenAI endpoint in front of many model servers.
#[derive(Debug, Parser)]
#[command(name = "inference-gateway", version)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve until told to stop.
    Run(Box<RunFlags>),
    /// Check a configuration file and say what it amounts to.
    Validate(ValidateFlags),
    /// Ask a running gateway where a request would go, and why.
    Explain(ExplainFlags),
    /// Show the pools and endpoints of a running gateway.
    Status(StatusFlags),
    /// Look at the gateway's part in this node's kernel.
    #[command(subcommand)]
    Bpf(BpfCommand),
    /// List every metric of the metrics page, as Markdown.
    Metrics,
}

/// Flags of `validate`.
#[derive(Args, Debug)]
pub struct ValidateFlags {
    /// Configuration file, YAML.
    #[arg(long, env = "INFERENCE_GATEWAY_CONFIG", value_name = "FILE")]
    pub config: PathBuf,
    /// Print the whole configuration, with defaults filled in and keys left out.
    #[arg(long)]
    pub dump: bool,
}

/// Where a running gateway's operators' port is.
#[derive(Args, Clone, Debug)]
pub struct AdminAddress {
    /// Admin address of the running gateway.
    #[arg(
        long,
        env = "INFERENCE_GATEWAY_ADMIN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:9090"
    )]
    pub admin: String,
    /// Print the answer as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `explain`.
#[derive(Args, Debug)]
pub struct ExplainFlags {
    /// Where to ask.
    #[command(flatten)]
    pub admin: AdminAddress,
    /// File with the request's body; `-` is standard input.
    #[arg(value_name = "FILE", conflicts_with_all = ["model", "prompt"])]
    pub body: Option<PathBuf>,
    /// Model to ask for.
    #[arg(long, required_unless_present = "body")]
    pub model: Option<String>,
    /// Prompt of the request.
    #[arg(long, default_value = "Hello")]
    pub prompt: String,
}

/// Flags of `status`.
#[derive(Args, Debug)]
pub struct StatusFlags {
    /// Where to ask.
    #[command(flatten)]
    pub admin: AdminAddress,
}

/// What to do with the gateway's part in the kernel.
#[derive(Debug, Subcommand)]
pub enum BpfCommand {
    /// Show what is needed, attached, steered and counted, whether or not a daemon runs.
    Status(BpfStatusFlags),
}

/// Flags of `bpf status`.
#[derive(Args, Debug)]
pub struct BpfStatusFlags {
    /// Where the daemon has pinned its maps.
    #[arg(
        long,
        env = crate::kernel::ROOT_VARIABLE,
        value_name = "DIRECTORY",
        default_value = crate::kernel::DEFAULT_ROOT
    )]
    pub root: PathBuf,
    /// Answers to list one by one; the others are counted.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub flows: usize,
    /// Print the answer as JSON.
    #[arg(long)]
    pub json: bool,
}

/// A key on the command line, which no `Debug` output shows.
#[expect(clippy::unnecessary_wraps, reason = "clap's parsers may fail")]
fn secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::from(text.to_owned()))
}
