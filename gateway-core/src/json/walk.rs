//! Follows an object's fields, one level or a few deep.

use super::skip::Skip;
use super::text::is_scalar;
use super::{Fault, ScanError};

/// Who looks at an object's fields.
pub(crate) trait Visitor {
    /// The value of the field `key` (without quotes, escapes not decoded) begins
    /// at offset `at`, in the object at `level`: 0 is the outermost.
    fn field(&mut self, level: u8, key: &[u8], kind: Kind, at: usize) -> Want;

    /// Bytes of the taken value: a string without its quotes, anything else as it
    /// is written.
    fn bytes(&mut self, piece: &[u8]);

    /// The taken value ended before offset `end`.
    fn end(&mut self, end: usize);

    /// The object that was entered at `level` ended.
    fn left(&mut self, level: u8) {
        let _ = level;
    }
}

/// Kind of a value, as its first byte tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Array,
    Object,
    Scalar,
    String,
}

/// What to do with a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Want {
    /// Visit its fields; any other kind than an object is skipped.
    Enter,
    /// Run over it.
    Skip,
    /// Hand out its bytes.
    Take,
}

/// Walks one object that arrives in pieces.
#[derive(Clone, Debug)]
pub(crate) struct Walker {
    state: State,
    want: Want,
    skip: Skip,
    /// Objects entered below the outermost.
    level: u8,
    max_depth: u32,
    /// The current key, or a number or literal that may be cut.
    scratch: Vec<u8>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Start,
    FirstKey,
    Key,
    InKey,
    Colon,
    Value,
    InString,
    InContainer,
    InScalar,
    CommaOrEnd,
    Done,
}

/// A key is compared up to this length, escapes included; longer ones are
/// unknown in any case. Numbers are bounded generously.
const MAX_KEY: usize = 256;
const MAX_SCALAR: usize = 1 << 10;
const MAX_LEVEL: u8 = 8;

impl Walker {
    pub(crate) fn new(max_depth: u32) -> Self {
        Self {
            state: State::Start,
            want: Want::Skip,
            skip: Skip::default(),
            level: 0,
            max_depth,
            scratch: Vec::new(),
        }
    }

    /// Ready for another object; keeps its buffer.
    pub(crate) fn reset(&mut self) {
        self.state = State::Start;
        self.level = 0;
    }

    /// Whether the object is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes the next piece, whose first byte has the offset `base`.
    pub(crate) fn push(
        &mut self,
        base: usize,
        piece: &[u8],
        visitor: &mut impl Visitor,
    ) -> Result<(), ScanError> {
        let mut at = 0;
        while at < piece.len() {
            match self.step(base, piece, at, visitor) {
                Ok(next) => at = next,
                Err(fault) => return Err(ScanError { offset: base + at, fault }),
            }
        }
        Ok(())
    }

    /// Moves on from `at`; returns the offset of the next byte to look at.
    fn step(
        &mut self,
        base: usize,
        piece: &[u8],
        at: usize,
        visitor: &mut impl Visitor,
    ) -> Result<usize, Fault> {
        match self.state {
            State::InKey => Ok(self.key(piece, at)),
            State::InString => Ok(self.string(base, piece, at, visitor)),
            State::InContainer => self.container(base, piece, at, visitor),
            State::InScalar => self.scalar(base, piece, at, visitor),
            _ if matches!(piece[at], b' ' | b'\t' | b'\r' | b'\n') => Ok(at + 1),
            State::Value => self.value(base, piece, at, visitor),
            _ => {
                self.state = self.structure(piece[at], visitor)?;
                Ok(at + 1)
            }
        }
    }

    /// The state after a byte of structure.
    fn structure(&mut self, byte: u8, visitor: &mut impl Visitor) -> Result<State, Fault> {
        match (self.state, byte) {
            (State::Start, b'{') => Ok(State::FirstKey),
            (State::FirstKey | State::Key, b'"') => {
                self.scratch.clear();
                self.skip.begin_string();
                Ok(State::InKey)
            }
            (State::Colon, b':') => Ok(State::Value),
            (State::CommaOrEnd, b',') => Ok(State::Key),
            (State::FirstKey | State::CommaOrEnd, b'}') if self.level == 0 => Ok(State::Done),
            (State::FirstKey | State::CommaOrEnd, b'}') => {
                visitor.left(self.level);
                self.level -= 1;
                Ok(State::CommaOrEnd)
            }
            (State::Done, _) => Err(Fault::Trailing),
            _ => Err(Fault::Syntax),
        }
    }

    fn key(&mut self, piece: &[u8], at: usize) -> usize {
        let rest = &piece[at..];
        let end = self.skip.string_end(rest);
        let key = &rest[..end.unwrap_or(rest.len())];
        // One byte more than the limit tells a cut key from a full one.
        let room = (MAX_KEY + 1).saturating_sub(self.scratch.len());
        self.scratch.extend_from_slice(&key[..key.len().min(room)]);
        let Some(end) = end else { return piece.len() };
        self.state = State::Colon;
        at + end + 1
    }

    fn value(
        &mut self,
        base: usize,
        piece: &[u8],
        at: usize,
        visitor: &mut impl Visitor,
    ) -> Result<usize, Fault> {
        let kind = match piece[at] {
            b'"' => Kind::String,
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => Kind::Scalar,
            _ => return Err(Fault::Syntax),
        };
        let key = if self.scratch.len() > MAX_KEY { &[] } else { &self.scratch[..] };
        self.want = visitor.field(self.level, key, kind, base + at);
        match kind {
            Kind::Object if self.want == Want::Enter && self.level < MAX_LEVEL => {
                self.level += 1;
                self.state = State::FirstKey;
            }
            Kind::Array | Kind::Object => {
                self.skip.begin_container();
                self.state = State::InContainer;
                if self.want == Want::Take {
                    visitor.bytes(&piece[at..=at]);
                }
            }
            Kind::Scalar => {
                self.scratch.clear();
                self.state = State::InScalar;
                return Ok(at);
            }
            Kind::String => {
                self.skip.begin_string();
                self.state = State::InString;
            }
        }
        Ok(at + 1)
    }

    fn string(
        &mut self,
        base: usize,
        piece: &[u8],
        at: usize,
        visitor: &mut impl Visitor,
    ) -> usize {
        let rest = &piece[at..];
        let end = self.skip.string_end(rest);
        if self.want == Want::Take {
            visitor.bytes(&rest[..end.unwrap_or(rest.len())]);
        }
        let Some(end) = end else { return piece.len() };
        self.ended(base + at + end + 1, visitor);
        at + end + 1
    }

    fn container(
        &mut self,
        base: usize,
        piece: &[u8],
        at: usize,
        visitor: &mut impl Visitor,
    ) -> Result<usize, Fault> {
        let rest = &piece[at..];
        let max_depth = self.max_depth.saturating_sub(u32::from(self.level) + 1);
        let end = self.skip.container_end(rest, max_depth)?;
        let len = end.map_or(rest.len(), |end| end + 1);
        if self.want == Want::Take {
            visitor.bytes(&rest[..len]);
        }
        if end.is_some() {
            self.ended(base + at + len, visitor);
        }
        Ok(at + len)
    }

    fn scalar(
        &mut self,
        base: usize,
        piece: &[u8],
        at: usize,
        visitor: &mut impl Visitor,
    ) -> Result<usize, Fault> {
        let rest = &piece[at..];
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.');
        let end = rest.iter().position(|b| !is_part(b));
        let part = &rest[..end.unwrap_or(rest.len())];
        if self.scratch.len() + part.len() > MAX_SCALAR {
            return Err(Fault::Syntax);
        }
        self.scratch.extend_from_slice(part);
        if end.is_some() {
            if !is_scalar(&self.scratch) {
                return Err(Fault::Syntax);
            }
            if self.want == Want::Take {
                visitor.bytes(&self.scratch);
            }
            self.ended(base + at + part.len(), visitor);
        }
        Ok(at + part.len())
    }

    fn ended(&mut self, end: usize, visitor: &mut impl Visitor) {
        self.state = State::CommaOrEnd;
        if self.want == Want::Take {
            visitor.end(end);
        }
    }
}
