//! Runners of other languages: how they are called, and what their ends mean.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::tally::Tally;
use crate::child;

/// What pytest ends with when no test has such a name.
const NO_SUCH_TEST: i32 = 5;

/// Runs pytest; `command` is a Python, prepared as the tests want it.
///
/// # Errors
///
/// When it cannot be started.
pub(super) fn pytest(command: &mut Command, filter: Option<&str>) -> Result<Tally> {
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.args(["-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-v"]);
    command.args(filter.map(|filter| ["-k", filter]).into_iter().flatten());
    let mut tally = Tally::default();
    let status = child::follow(command, |line| tally.count_pytest(line))?;
    Ok(tally.with_end(status.success() || status.code() == Some(NO_SUCH_TEST)))
}

/// Runs `scripts` with node's test runner; `command` is a node, prepared as the tests want
/// it.
///
/// # Errors
///
/// When it cannot be started.
pub(super) fn node(
    command: &mut Command,
    filter: Option<&str>,
    scripts: &[PathBuf],
) -> Result<Tally> {
    command.args(["--test", "--test-reporter", "tap"]);
    command.args(filter.map(|filter| ["--test-name-pattern", filter]).into_iter().flatten());
    command.args(scripts);
    let mut tally = Tally::default();
    let status = child::follow(command, |line| tally.count_node(line))?;
    Ok(tally.with_end(status.success()))
}
