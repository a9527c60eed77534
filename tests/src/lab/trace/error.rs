//! What can be wrong with a trace.

use std::io;

/// A trace that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line is not of the format.
    #[error("cannot read the trace {path}: {source}")]
    Line {
        /// The file.
        path: String,
        /// The line and what is wrong with it.
        source: LineError,
    },
    /// The file cannot be read.
    #[error("cannot read the trace {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why not.
        source: io::Error,
    },
}

/// The first line that is not of the format.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct LineError {
    /// Counted from one.
    pub line: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a line.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Problem {
    /// There is no request at all.
    #[error("no request in the file")]
    Empty,
    /// The columns' names are others.
    #[error("header is `{found}`; `{wanted}` was expected")]
    Header {
        /// As the file has it.
        found: String,
        /// As the format has it.
        wanted: &'static str,
    },
    /// Not an object of the format.
    #[error("not an object of the format: {reason}")]
    Json {
        /// The parser's words.
        reason: String,
    },
    /// Not a whole number of tokens, or zero for a prompt.
    #[error("`{found}` is no number of tokens for {column}")]
    Tokens {
        /// The column.
        column: &'static str,
        /// As the file has it.
        found: String,
    },
    /// Not a moment.
    #[error("`{found}` is no time; `2023-11-16 18:17:03.9799600` would be one")]
    Time {
        /// As the file has it.
        found: String,
    },
    /// More blocks than the prompt has.
    #[error("{found} hash_ids for {most} blocks of 512 tokens")]
    TooManyBlocks {
        /// As the file has it.
        found: usize,
        /// Blocks in the prompt.
        most: usize,
    },
    /// Not as many columns as the header.
    #[error("{found} columns; 3 were expected")]
    Columns {
        /// As the file has it.
        found: usize,
    },
}

/// A format was named that does not exist.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown trace format `{name}`; known: azure, mooncake")]
pub struct UnknownFormat {
    /// The name as given.
    pub name: String,
}
