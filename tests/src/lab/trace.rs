//! Recorded traffic: when requests came, how long they were, what they shared.
//!
//! Two public file formats are read, because between them they hold what routing
//! depends on: Azure's has the real rhythm of a large service but no content, Mooncake's
//! also says which prompts begin alike. Generated samples of both formats are built
//! in, so that the lab runs on a machine without the public files; they are named
//! as samples wherever a result comes from them.
//!
//! A trace is replayed at another speed by [`Trace::faster`]: rates scale, the shape of
//! the bursts stays.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use gateway_core::Time;
use xxhash_rust::xxh64::xxh64;

use super::request::{BLOCK_TOKENS, LabRequest};
use super::scenario::Session;
use crate::engine::EngineRequest;

mod azure;
mod error;
mod known;
mod mooncake;
#[cfg(test)]
mod sample;

pub use error::{LineError, Problem, TraceError, UnknownFormat};
pub use known::{DIRECTORY_VARIABLE, KNOWN, Known, Origin};

/// Requests in order of arrival.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Trace {
    /// The requests; the first one arrives at zero.
    pub entries: Vec<Entry>,
}

/// One recorded request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Entry {
    /// Arrival, since the trace's first request.
    pub at: Duration,
    /// Prompt length; at least one.
    pub prompt_tokens: u32,
    /// Answer length; at least one.
    pub output_tokens: u32,
    /// Identities of the prompt's leading blocks of [`Entry::BLOCK_TOKENS`] tokens. Equal
    /// identities mean equal text from the prompt's start. Empty when unknown.
    pub blocks: Vec<u64>,
}

/// A file format.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Format {
    /// CSV of Azure's `AzureLLMInferenceTrace` (2023, and 2024 with its time zone):
    /// `TIMESTAMP,ContextTokens,GeneratedTokens`.
    Azure,
    /// JSON lines of Mooncake (FAST '25): `timestamp` in milliseconds, `input_length`,
    /// `output_length` and `hash_ids`, one per 512 prompt tokens.
    Mooncake,
}

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`TraceError`] when the file cannot be read, has no request, or has a line that is
    /// not of the format; it names the line.
    pub fn read(path: &Path, format: Format) -> Result<Self, TraceError> {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| TraceError::Read { path: name(), source })?;
        Self::parse(&text, format).map_err(|source| TraceError::Line { path: name(), source })
    }

    /// Reads a file's text. Lines may be out of order of time.
    ///
    /// # Errors
    ///
    /// [`LineError`] for the first line that is not of the format.
    pub fn parse(text: &str, format: Format) -> Result<Self, LineError> {
        let mut entries = match format {
            Format::Azure => azure::parse(text)?,
            Format::Mooncake => mooncake::parse(text)?,
        };
        entries.sort_by_key(|entry| entry.at);
        let Some(start) = entries.first().map(|entry| entry.at) else {
            return Err(LineError { line: text.lines().count().max(1), problem: Problem::Empty });
        };
        for entry in &mut entries {
            entry.at -= start;
        }
        Ok(Self { entries })
    }

    /// The same requests, `factor` times as fast; a factor that is not positive changes nothing.
    #[must_use]
    pub fn faster(mut self, factor: f64) -> Self {
        if factor > 0.0 && factor.is_finite() {
            for entry in &mut self.entries {
                entry.at = entry.at.div_f64(factor);
            }
        }
        self
    }

    /// Only what arrives within `span` of the start.
    #[must_use]
    pub fn within(mut self, span: Duration) -> Self {
        let keep = self.entries.partition_point(|entry| entry.at < span);
        self.entries.truncate(keep);
        self
    }

    /// Only requests of at most `tokens` tokens, prompt and answer together.
    #[must_use]
    pub fn fitting(mut self, tokens: u32) -> Self {
        self.entries.retain(|entry| entry.tokens() <= u64::from(tokens));
        self
    }

    /// Requests per second between the first and the last; zero for fewer than two.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let span = self.entries.last().map_or(0.0, |last| last.at.as_secs_f64());
        if span > 0.0 { (self.entries.len() - 1) as f64 / span } else { 0.0 }
    }

    /// The requests as a scenario has them, each independent of the others: what waited
    /// for what is not recorded.
    #[must_use]
    pub fn sessions(&self) -> Vec<Session> {
        let single = |entry: &Entry| {
            let request = LabRequest { engine: entry.request(), ..LabRequest::default() };
            Session::single(Time::from_origin(entry.at), request)
        };
        self.entries.iter().map(single).collect()
    }
}

impl Entry {
    /// Tokens of one of [`Self::blocks`].
    pub const BLOCK_TOKENS: u32 = 512;

    /// Prompt and answer.
    fn tokens(&self) -> u64 {
        u64::from(self.prompt_tokens) + u64::from(self.output_tokens)
    }

    /// The request as an engine sees it, with blocks of [`BLOCK_TOKENS`] tokens.
    ///
    /// An engine's block gets the identity of the recorded block it lies in, and its
    /// place there: as recorded blocks are chained from the prompt's start, so are these.
    /// What the model answered is not recorded, hence never shared.
    #[must_use]
    pub fn request(&self) -> EngineRequest {
        let parts = u64::from(Self::BLOCK_TOKENS / BLOCK_TOKENS);
        let full = (self.prompt_tokens / BLOCK_TOKENS) as usize;
        let block_hashes = self.blocks.iter().flat_map(|recorded| {
            let bytes = recorded.to_le_bytes();
            (0..parts).map(move |part| xxh64(&bytes, part))
        });
        EngineRequest {
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            block_hashes: block_hashes.take(full).collect(),
            ..EngineRequest::default()
        }
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        match name {
            "azure" => Ok(Self::Azure),
            "mooncake" => Ok(Self::Mooncake),
            _ => Err(UnknownFormat { name: name.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(at: u64, blocks: &[u64]) -> Entry {
        Entry {
            at: Duration::from_millis(at),
            prompt_tokens: 1100,
            output_tokens: 5,
            blocks: blocks.to_vec(),
        }
    }

    #[test]
    fn prompts_that_begin_alike_share_exactly_that_many_engine_blocks() {
        let (one, other) = (entry(0, &[7, 8, 9]).request(), entry(0, &[7, 8, 5]).request());
        assert_eq!(one.block_hashes.len(), 1100 / 16);
        let shared = one.block_hashes.iter().zip(&other.block_hashes).take_while(|(a, b)| a == b);
        assert_eq!(shared.count(), 1024 / 16);
    }

    #[test]
    fn blocks_of_one_recorded_block_differ_from_each_other() {
        let mut hashes = entry(0, &[7, 8, 9]).request().block_hashes;
        let before = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), before);
    }

    #[test]
    fn twice_as_fast_is_twice_the_rate_and_half_the_time() {
        let trace = Trace { entries: vec![entry(0, &[]), entry(500, &[]), entry(1000, &[])] };
        assert!((trace.rate() - 2.0).abs() < 1e-9);
        let faster = trace.faster(2.0);
        assert!((faster.rate() - 4.0).abs() < 1e-9);
        assert_eq!(faster.within(Duration::from_millis(300)).entries.len(), 2);
    }

    #[test]
    fn requests_that_no_engine_could_hold_can_be_left_out() {
        let trace = Trace { entries: vec![entry(0, &[])] };
        assert_eq!(trace.clone().fitting(1105).entries.len(), 1);
        assert_eq!(trace.fitting(1104).entries.len(), 0);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,80}(\n\\PC{0,80}){0,4}") {
            for format in [Format::Azure, Format::Mooncake] {
                if let Err(error) = Trace::parse(&text, format) {
                    prop_assert!(error.line <= text.lines().count().max(1));
                }
            }
        }
    }
}
