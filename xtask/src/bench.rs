//! `cargo xtask bench`: figures beside their baselines, in one run each.
//!
//! Each bench installs what it compares with, keeps all traffic on the loopback
//! interface or in network namespaces of its own, and leaves no process behind. docs/benchmarks.md has the results.

use anyhow::Result;
use clap::Subcommand;

use crate::ebpf;

mod datapath;
mod decide;
mod event;
pub(crate) mod figures;
pub(crate) mod install;
mod load;
mod memory;
mod message;
pub(crate) mod path;
mod proxy;
mod scrape;
mod streams;
mod upstream;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    Datapath(datapath::Datapath),
    Decide(decide::Decide),
    Memory(memory::Memory),
    Proxy(proxy::Proxy),
    Scrape(scrape::Scrape),
}

/// Runs one bench.
///
/// # Errors
///
/// When it cannot be set up, or what it measures gives a wrong answer.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    ebpf::prepare()?;
    match bench {
        Bench::Datapath(options) => datapath::run(options),
        Bench::Decide(options) => decide::run(options),
        Bench::Memory(options) => memory::run(options),
        Bench::Proxy(options) => proxy::run(options),
        Bench::Scrape(options) => scrape::run(options),
    }
}
