//! Why a configuration cannot be used.

use std::fmt;
use std::path::{Path, PathBuf};

use super::at::{At, Place};
use super::locate::{Aim, locate};

/// What is wrong, where, and what to do about it.
///
/// Begins with `gateway.yaml:12:5:`, which editors can jump to.
#[derive(Debug)]
pub struct ConfigError {
    file: Option<PathBuf>,
    place: Option<Place>,
    problem: String,
    fix: Option<String>,
    source: Option<std::io::Error>,
}

impl ConfigError {
    /// The file could not be read.
    pub(super) fn read(path: &Path, source: std::io::Error) -> Self {
        let problem = "cannot read the configuration".to_owned();
        Self { source: Some(source), ..Self::new(None, problem) }.in_file(path)
    }

    /// The text is not the YAML we expect; `path` is what serde was reading.
    pub(super) fn syntax(
        text: &str,
        error: &serde_saphyr::Error,
        path: &serde_path_to_error::Path,
    ) -> Self {
        let message = error.without_snippet().to_string();
        // The place stands in front already.
        let problem = match message.rsplit_once(" at line ") {
            Some((problem, _)) => problem.to_owned(),
            None => message,
        };
        let problem = match wanted(&problem) {
            Some(wanted) => format!("`{}` needs {wanted}", key(path)),
            None => problem,
        };
        let known = error.location().and_then(|location| Place::of(&location));
        let place = if problem.starts_with("unknown field") {
            locate(text, path, Aim::Key).or(known)
        } else {
            known.or_else(|| locate(text, path, Aim::Value))
        };
        Self::new(place, problem)
    }

    /// A value does not fit.
    pub(super) fn at<T>(value: &At<T>, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::placed(value.place, problem, fix)
    }

    /// Something at a place does not fit.
    pub(crate) fn placed(
        place: Option<Place>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { fix: Some(fix.into()), ..Self::new(place, problem.into()) }
    }

    fn new(place: Option<Place>, problem: String) -> Self {
        Self { file: None, place, problem, fix: None, source: None }
    }

    pub(crate) fn in_file(self, path: &Path) -> Self {
        Self { file: Some(path.to_owned()), ..self }
    }

    /// Line in the file, from 1; none when a flag or the file as a whole is at fault.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        self.place.map(|place| place.line)
    }

    /// Column in the line, from 1.
    #[must_use]
    pub fn column(&self) -> Option<u64> {
        self.place.map(|place| place.column)
    }

    /// What is wrong.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What to do about it, where that is not obvious from the problem.
    #[must_use]
    pub fn fix(&self) -> Option<&str> {
        self.fix.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.place) {
            (Some(file), Some(place)) => write!(f, "{}:{place}: ", file.display())?,
            (Some(file), None) => write!(f, "{}: ", file.display())?,
            (None, Some(place)) => write!(f, "line {}, column {}: ", place.line, place.column)?,
            (None, None) => {}
        }
        f.write_str(&self.problem)?;
        match &self.fix {
            Some(fix) => write!(f, "; {fix}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// The reader's terse complaints about scalars, in other words.
fn wanted(problem: &str) -> Option<&'static str> {
    let kind = problem
        .strip_prefix("invalid ")
        .or_else(|| problem.strip_prefix("unexpected event: expected "))?;
    match kind {
        "mapping start" => Some("a section of settings"),
        "sequence start" => Some("a list"),
        "string scalar" => Some("a text"),
        _ if kind.contains("bool") => Some("on or off"),
        _ if kind.starts_with("floating point") => Some("a number"),
        _ if kind.starts_with(['u', 'i']) && kind[1..].parse::<u8>().is_ok() => {
            Some("a whole number that is not too large")
        }
        _ => None,
    }
}

/// The key that a path ends in.
fn key(path: &serde_path_to_error::Path) -> &str {
    let keys: Vec<&str> = path
        .iter()
        .filter_map(|segment| match segment {
            serde_path_to_error::Segment::Map { key } => Some(key.as_str()),
            _ => None,
        })
        .collect();
    // The wrapper that keeps a value's place looks like a key to serde.
    keys.iter().rev().find(|key| **key != "value").copied().unwrap_or("value")
}
