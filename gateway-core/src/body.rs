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

mod form;
mod media;
mod object;
mod prompt;

use std::ops::Range;

pub use crate::json::{Fault, ScanError};
use crate::prefix::hash::{DEFAULT_BLOCK_BYTES, DEFAULT_MAX_BLOCKS, Seed, chain};
use form::Form;
use object::Object;

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
    /// Estimated prompt length: a quarter of its bytes, or the count of token ids;
    /// an image or sound inside it counts as a thousand.
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

/// Reads a body piece by piece.
#[derive(Clone, Debug)]
pub struct Scanner {
    kind: Kind,
    /// Bytes seen.
    offset: usize,
    broken: Option<ScanError>,
}

#[derive(Clone, Debug)]
enum Kind {
    Form(Box<Form>),
    Object(Box<Object>),
}

impl Scanner {
    /// A scanner of a JSON body.
    #[must_use]
    pub fn json(settings: ScanSettings) -> Self {
        Self::of(Kind::Object(Box::new(Object::new(settings))))
    }

    /// A scanner of a `multipart/form-data` body.
    ///
    /// # Errors
    ///
    /// [`Fault::Boundary`] when `content_type` carries none (RFC 2046, section 5.1.1).
    pub fn multipart(content_type: &str, settings: ScanSettings) -> Result<Self, ScanError> {
        let form = Form::new(content_type, settings.max_string)
            .ok_or(ScanError { offset: 0, fault: Fault::Boundary })?;
        Ok(Self::of(Kind::Form(Box::new(form))))
    }

    /// The scanner for a request of this `content-type`: a form's or, for anything
    /// else, JSON's. Clients that post JSON under another type exist, and the
    /// engines read it.
    ///
    /// # Errors
    ///
    /// As [`Scanner::multipart`].
    pub fn for_content_type(
        content_type: Option<&str>,
        settings: ScanSettings,
    ) -> Result<Self, ScanError> {
        match content_type {
            Some(content_type) if form::is_form(content_type) => {
                Self::multipart(content_type, settings)
            }
            _ => Ok(Self::json(settings)),
        }
    }

    fn of(kind: Kind) -> Self {
        Self { kind, offset: 0, broken: None }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    ///
    /// When the body is known to be broken; it stays so.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), ScanError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let result = match &mut self.kind {
            Kind::Form(form) => form.push(self.offset, piece),
            Kind::Object(object) => object.push(self.offset, piece),
        };
        self.offset += piece.len();
        self.broken = result.err();
        result
    }

    /// The model's name, once it has been read. A later duplicate would replace it.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        match &self.kind {
            Kind::Form(form) => form.model(),
            Kind::Object(object) => object.model(),
        }
    }

    /// What was found so far, in a body that is routed before it has ended.
    #[must_use]
    pub fn so_far(&self) -> RequestFacts {
        match &self.kind {
            Kind::Form(form) => form.so_far(),
            Kind::Object(object) => object.so_far(),
        }
    }

    /// What was found, at the end of the body.
    ///
    /// # Errors
    ///
    /// When the body is broken or incomplete.
    pub fn finish(self) -> Result<RequestFacts, ScanError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let facts = match self.kind {
            Kind::Form(form) => form.finish(),
            Kind::Object(object) => object.finish(),
        };
        facts.ok_or(ScanError { offset: self.offset, fault: Fault::Incomplete })
    }
}

#[cfg(test)]
mod tests;
