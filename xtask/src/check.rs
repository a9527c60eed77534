//! `cargo xtask check`: everything CI demands beside the tests.
//!
//! All checks run even when one fails, so that one run tells the whole story.

use anyhow::{Result, bail};
use clap::Args;

mod crates;
mod deny;
mod docs;
mod rust;
mod text;

/// Checks format, lints, documentation, dependencies and house rules.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Only the checks that compile nothing.
    #[arg(long)]
    quick: bool,
}

/// A check: its name, and what it does.
type Named = (&'static str, fn() -> Result<()>);

const QUICK: &[Named] = &[
    ("format", rust::format),
    ("file length", text::file_length),
    ("words that do not belong here", text::words),
    ("links of documents", docs::links),
    ("reasons for dependencies", docs::reasons),
    ("licences and duplicates", deny::run),
];

const COMPILING: &[Named] = &[
    ("clippy", rust::clippy),
    ("kernel programs", rust::kernel_programs),
    ("documentation", rust::documentation),
    ("list of metrics", docs::metrics),
];

/// Runs the checks.
///
/// # Errors
///
/// When one does not pass; what is wrong has been printed.
pub(crate) fn run(options: &Check) -> Result<()> {
    let compiling = if options.quick { &[] } else { COMPILING };
    let mut failed = Vec::new();
    for (name, check) in QUICK.iter().chain(compiling) {
        match check() {
            Ok(()) => println!("check {name} ... ok"),
            Err(error) => {
                println!("check {name} ... FAILED\n{error:#}\n");
                failed.push(*name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// An error that lists `faults`, one a line, if there are any.
fn none_of(faults: &[String]) -> Result<()> {
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    Ok(())
}
