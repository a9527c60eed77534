//! What is run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use gateway_tests::lab::experiment::Span;

/// Compares routing policies on simulated fleets, on virtual time.
#[derive(Debug, Parser)]
#[command(name = "routing-lab")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Args {
    /// Scenarios by name, separated by commas, or `all`.
    #[arg(default_value = "all")]
    pub(crate) scenario: String,
    /// Policies, separated by commas; all when not given.
    #[arg(long, value_delimiter = ',')]
    pub(crate) policies: Vec<String>,
    /// Shares of capacity, separated by commas; those of each scenario when not given.
    #[arg(long, value_delimiter = ',')]
    pub(crate) loads: Vec<f64>,
    /// Seeds per policy; results are medians over them.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,
    /// Seeds of the bound, which takes many times as long; as many as the others at most.
    #[arg(long, default_value_t = 3)]
    pub(crate) bound_seeds: u64,
    /// A third of the time, for a first look.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seconds in which arrivals count, after the warm-up; 180 when not given, 60 with --quick.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) span: Option<u64>,
    /// Writes the rows here, and pictures and a page beside them. What is done stays when
    /// the run is interrupted.
    #[arg(long, default_value = "target/lab/results.json")]
    pub(crate) json: PathBuf,
    /// Takes up the rows that are there, if the same program made them, and runs the rest.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Writes the results as Markdown: goals, the default policy, every policy.
    #[arg(long)]
    pub(crate) report: Option<PathBuf>,
    /// Draws nothing.
    #[arg(long)]
    pub(crate) no_plots: bool,
    /// Names all scenarios and policies, and ends.
    #[arg(long)]
    pub(crate) list: bool,
}

impl Args {
    pub(crate) fn span(&self) -> Span {
        let usual = if self.quick { Span::QUICK } else { Span::FULL };
        Span { length: self.span.map_or(usual.length, Duration::from_secs), ..usual }
    }

    /// Where pictures and the page go.
    pub(crate) fn directory(&self) -> &Path {
        self.json.parent().unwrap_or(Path::new("."))
    }
}
