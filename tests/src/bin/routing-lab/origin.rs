//! Where rows come from: rows of one origin only may stand in one file.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use gateway_tests::lab::experiment::Span;
use gateway_tests::lab::report::{Report, Row};
use gateway_tests::lab::trace::DIRECTORY_VARIABLE;

/// Names the program, to the byte, and all that rows depend on besides what they say
/// themselves.
pub(crate) fn origin(span: Span) -> Result<String> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut hash = DefaultHasher::new();
    fs::read(&program)
        .with_context(|| format!("cannot read {}", program.display()))?
        .hash(&mut hash);
    std::env::var_os(DIRECTORY_VARIABLE).hash(&mut hash);
    let (warm_up, length) = (span.warm_up.as_secs(), span.length.as_secs());
    Ok(format!("{:016x}, {length} s after {warm_up} s\n", hash.finish()))
}

/// Where the origin of the rows in `json` is kept.
pub(crate) fn file(json: &Path) -> PathBuf {
    json.with_extension("origin")
}

/// Rows of an earlier run; none if there was none.
///
/// # Errors
///
/// When they have another origin, or cannot be read.
pub(crate) fn rows(json: &Path, origin: &str) -> Result<Vec<Row>> {
    if !json.exists() {
        return Ok(Vec::new());
    }
    let of = fs::read_to_string(file(json)).unwrap_or_default();
    ensure!(
        of == origin,
        "the rows in {} were made by another program, for another time or from other traces; \
         run without --resume",
        json.display()
    );
    let text = fs::read(json).with_context(|| format!("cannot read {}", json.display()))?;
    let report: Report =
        serde_json::from_slice(&text).with_context(|| format!("{} has no rows", json.display()))?;
    Ok(report.rows)
}
