//! Watches an answer go by: first token, usage, end.
//!
//! The watcher never changes a byte, and it looks closely at few of them: of a
//! streamed answer only the line starts, a search for a word or two, and the rare
//! event that carries usage. An event's JSON stands on one line in every engine's
//! stream, so a line of data is judged by itself.

mod event;
mod lines;
mod usage;

use crate::json::Walker;
use event::EventWatch;
pub(crate) use lines::{Field, Lines};
pub use usage::Usage;
use usage::UsageVisitor;

/// Watches one answer.
#[derive(Clone, Debug)]
pub struct Watch {
    usage: UsageVisitor,
    kind: Kind,
    /// Bytes seen.
    offset: usize,
}

#[derive(Clone, Debug)]
enum Kind {
    Events(Box<EventWatch>),
    Json { walker: Walker, is_broken: bool },
    Opaque,
}

/// What a piece of the answer brought, the most telling last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Progress {
    /// No event was completed.
    Nothing,
    /// At least one event without content (a role, a ping), but no content.
    Event,
    /// At least one event that carries generated content: a token.
    Content,
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

/// Nesting of an answer's JSON; beyond it usage is not looked for.
const MAX_DEPTH: u32 = 1_000;

impl Watch {
    /// A watcher of `text/event-stream`.
    #[must_use]
    pub fn events() -> Self {
        Self::of(Kind::Events(Box::new(EventWatch::new())))
    }

    /// A watcher of a JSON body.
    #[must_use]
    pub fn json() -> Self {
        Self::of(Kind::Json { walker: Walker::new(MAX_DEPTH), is_broken: false })
    }

    /// A watcher of anything else, which looks only for the first byte.
    #[must_use]
    pub fn opaque() -> Self {
        Self::of(Kind::Opaque)
    }

    /// The watcher for a `content-type`. A body with a content coding must be
    /// watched as [`Watch::opaque`].
    #[must_use]
    pub fn for_content_type(content_type: Option<&str>) -> Self {
        let media_type = content_type.and_then(|t| t.split(';').next()).unwrap_or_default().trim();
        let is_json = media_type.eq_ignore_ascii_case("application/json")
            || media_type.to_ascii_lowercase().ends_with("+json");
        match media_type {
            _ if media_type.eq_ignore_ascii_case("text/event-stream") => Self::events(),
            _ if is_json => Self::json(),
            _ => Self::opaque(),
        }
    }

    fn of(kind: Kind) -> Self {
        Self { usage: UsageVisitor::default(), kind, offset: 0 }
    }

    /// Looks at the next bytes of the body (chunk framing removed). Of anything but
    /// an event stream, the first byte counts as content.
    pub fn push(&mut self, piece: &[u8]) -> Progress {
        let offset = self.offset;
        self.offset += piece.len();
        match &mut self.kind {
            Kind::Events(events) => return events.push(piece, &mut self.usage),
            Kind::Json { walker, is_broken } if !*is_broken => {
                *is_broken = walker.push(offset, piece, &mut self.usage).is_err();
            }
            Kind::Json { .. } | Kind::Opaque => {}
        }
        if offset == 0 && !piece.is_empty() { Progress::Content } else { Progress::Nothing }
    }

    /// Tokens so far; of several records the last wins, field by field.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.usage.usage()
    }

    /// Events seen, comments not counted; 0 unless the answer is an event stream.
    #[must_use]
    pub fn events_seen(&self) -> u64 {
        self.as_events().map_or(0, EventWatch::events)
    }

    /// Events seen that carried content; an estimate of output tokens when the
    /// engine sends no usage.
    #[must_use]
    pub fn content_events(&self) -> u64 {
        self.as_events().map_or(0, EventWatch::content_events)
    }

    /// How far the answer got. An opaque answer stays open.
    #[must_use]
    pub fn completion(&self) -> Completion {
        match &self.kind {
            Kind::Events(events) => events.completion(),
            Kind::Json { walker, .. } if walker.is_done() => Completion::Complete,
            Kind::Json { .. } | Kind::Opaque => Completion::Open,
        }
    }

    /// Whether a comment or an event may be inserted here.
    #[must_use]
    pub fn at_event_boundary(&self) -> bool {
        self.as_events().is_some_and(EventWatch::at_boundary)
    }

    fn as_events(&self) -> Option<&EventWatch> {
        match &self.kind {
            Kind::Events(events) => Some(events),
            Kind::Json { .. } | Kind::Opaque => None,
        }
    }
}

#[cfg(test)]
mod tests;
