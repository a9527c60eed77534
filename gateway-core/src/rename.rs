//! Replaces the model name in an answer.
//!
//! A client that asked for an alias must see the alias again (the name the engine
//! was sent is an operator's business), in plain answers and in every event of a
//! stream, wherever the bytes happen to be cut. Only the value of `model` at the
//! top, in `response` (Responses API) or in `message` (Anthropic) is replaced, and
//! only when it is exactly the engine's name; text that merely looks like it is
//! left alone. No more is held back than one such value.

use std::ops::Range;

use crate::json::{Kind, Visitor, Walker, Want, escape, unescape};
use crate::sse::{Field, Lines};

/// Rewrites one answer as it passes.
#[derive(Clone, Debug)]
pub struct Rename {
    lines: Option<Lines>,
    walker: Walker,
    /// The current line, or the whole answer, is not JSON: it passes unread.
    is_broken: bool,
    seeker: Seeker,
    /// The alias as JSON.
    replacement: Vec<u8>,
    /// Bytes seen.
    offset: usize,
    /// The last bytes seen, while they may be the start of a name.
    held: Vec<u8>,
}

/// The shape of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// `text/event-stream`.
    Events,
    /// One JSON object.
    Json,
}

/// Looks for values to replace.
#[derive(Clone, Debug)]
struct Seeker {
    target: String,
    /// Where a value that may match began.
    candidate: Option<usize>,
    text: Vec<u8>,
    /// Values of the current piece that did match.
    spans: Vec<Range<usize>>,
}

const MAX_DEPTH: u32 = 1_000;

impl Rename {
    /// Replaces the engine's `target` by the client's `alias`.
    #[must_use]
    pub fn new(shape: Shape, target: &str, alias: &str) -> Self {
        Self {
            lines: (shape == Shape::Events).then(Lines::new),
            walker: Walker::new(MAX_DEPTH),
            is_broken: false,
            seeker: Seeker {
                target: target.to_owned(),
                candidate: None,
                text: Vec::new(),
                spans: Vec::new(),
            },
            replacement: escape(alias),
            offset: 0,
            held: Vec::new(),
        }
    }

    /// Takes the next bytes of the body and appends to `out` what may go on.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        match self.lines.take() {
            Some(mut lines) => {
                self.events(&mut lines, piece);
                self.lines = Some(lines);
            }
            None => self.walk(0, piece),
        }
        self.emit(piece, out);
        self.offset += piece.len();
    }

    /// Appends what was held back, at the end of the body.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
    }

    fn events(&mut self, lines: &mut Lines, piece: &[u8]) {
        let mut at = 0;
        while let Some(part) = lines.next(piece, &mut at) {
            if part.field == Field::Data {
                self.walk(part.range.start, &piece[part.range]);
            }
            if part.ends {
                self.walker.reset();
                self.is_broken = false;
                self.seeker.candidate = None;
            }
        }
    }

    fn walk(&mut self, at: usize, bytes: &[u8]) {
        if !self.is_broken && self.walker.push(self.offset + at, bytes, &mut self.seeker).is_err() {
            self.is_broken = true;
            self.seeker.candidate = None;
        }
    }

    /// Writes held bytes and `piece`, with the spans replaced, up to the start of a
    /// candidate.
    fn emit(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let start = self.offset - self.held.len();
        let end = self.offset + piece.len();
        let mut pending = Pending { start, held: &self.held, piece };
        for span in self.seeker.spans.drain(..) {
            pending.write(pending.start..span.start, out);
            out.extend_from_slice(&self.replacement);
            pending.start_at(span.end);
        }
        let stop = self.seeker.candidate.unwrap_or(end);
        pending.write(pending.start..stop, out);
        pending.start_at(stop);
        let mut kept = Vec::new();
        pending.write(stop..end, &mut kept);
        self.held = kept;
    }
}

/// Bytes that were not written yet: what was held, then the piece.
struct Pending<'a> {
    /// Offset of the first of them.
    start: usize,
    held: &'a [u8],
    piece: &'a [u8],
}

impl Pending<'_> {
    /// Writes a range of offsets.
    fn write(&self, range: Range<usize>, out: &mut Vec<u8>) {
        let cut = |at: usize| at.saturating_sub(self.start);
        let (from, to) = (cut(range.start), cut(range.end));
        let boundary = self.held.len();
        out.extend_from_slice(&self.held[from.min(boundary)..to.min(boundary)]);
        let in_piece = |at: usize| at.saturating_sub(boundary).min(self.piece.len());
        out.extend_from_slice(&self.piece[in_piece(from)..in_piece(to)]);
    }

    /// Forgets what lies before an offset.
    fn start_at(&mut self, offset: usize) {
        let passed = offset - self.start;
        let from_held = passed.min(self.held.len());
        self.held = &self.held[from_held..];
        self.piece = &self.piece[passed - from_held..];
        self.start = offset;
    }
}

impl Seeker {
    /// The longest way to write the name: every byte as `\u00xx`.
    fn longest(&self) -> usize {
        self.target.len() * 6
    }
}

impl Visitor for Seeker {
    fn field(&mut self, level: u8, key: &[u8], kind: Kind, at: usize) -> Want {
        match (level, key, kind) {
            (0 | 1, b"model", Kind::String) => {
                self.candidate = Some(at);
                self.text.clear();
                Want::Take
            }
            (0, b"response" | b"message", Kind::Object) => Want::Enter,
            _ => Want::Skip,
        }
    }

    fn bytes(&mut self, piece: &[u8]) {
        if self.text.len() + piece.len() > self.longest() {
            self.candidate = None;
        }
        if self.candidate.is_some() {
            self.text.extend_from_slice(piece);
        }
    }

    fn end(&mut self, end: usize) {
        if let Some(start) = self.candidate.take()
            && (self.text == self.target.as_bytes()
                || unescape(&self.text).is_some_and(|text| text == self.target))
        {
            self.spans.push(start..end);
        }
    }
}

#[cfg(test)]
mod tests;
