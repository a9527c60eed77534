//! The task runner.
use clap::Parser;
mod bench;
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}
#[derive(clap::Subcommand)]
enum Command {
    #[command(subcommand)]
    Bench(bench::Bench),
}
fn main() -> anyhow::Result<()> {
    let Command::Bench(b) = Args::parse().command;
    bench::run(&b)
}
