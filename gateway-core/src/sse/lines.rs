//! Lines of an event stream, in any split (WHATWG HTML, "Server-sent events").

use std::ops::Range;

use memchr::memchr2;

/// Cuts a stream into lines and their fields; keeps no bytes but a field's name.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    state: State,
    /// The last byte was CR: a LF after it belongs to the same line end.
    after_cr: bool,
    /// Start of the current line's field name, and the name's whole length.
    name: [u8; 5],
    name_len: usize,
}

/// What a line is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Field {
    /// The empty line that ends an event.
    Blank,
    Comment,
    Data,
    Event,
    Other,
}

/// A run of bytes of one field's value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Part {
    pub(crate) field: Field,
    /// Where it lies in the piece.
    pub(crate) range: Range<usize>,
    /// Whether the line ends after it.
    pub(crate) ends: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Name,
    /// After the colon, where one space is not part of the value.
    Colon(Field),
    Value(Field),
}

impl Lines {
    pub(crate) const fn new() -> Self {
        Self { state: State::Name, after_cr: false, name: [0; 5], name_len: 0 }
    }

    /// Whether the next byte starts a line, for certain.
    pub(crate) fn at_line_start(&self) -> bool {
        self.state == State::Name && self.name_len == 0 && !self.after_cr
    }

    /// The next run at or after `at`, which moves on; `None` at the piece's end.
    pub(crate) fn next(&mut self, piece: &[u8], at: &mut usize) -> Option<Part> {
        while let Some(&byte) = piece.get(*at) {
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                *at += 1;
                continue;
            }
            match self.state {
                State::Name if matches!(byte, b'\n' | b'\r') => {
                    let field = if self.name_len == 0 { Field::Blank } else { Field::Other };
                    let here = *at..*at;
                    self.line_ended(byte, at);
                    return Some(Part { field, range: here, ends: true });
                }
                State::Name if byte == b':' => self.state = State::Colon(self.field()),
                State::Name => {
                    if let Some(slot) = self.name.get_mut(self.name_len) {
                        *slot = byte;
                    }
                    self.name_len += 1;
                }
                State::Colon(field) => {
                    self.state = State::Value(field);
                    if byte != b' ' {
                        continue;
                    }
                }
                State::Value(field) => return Some(self.value(field, piece, at)),
            }
            *at += 1;
        }
        None
    }

    fn value(&mut self, field: Field, piece: &[u8], at: &mut usize) -> Part {
        let start = *at;
        let Some(len) = memchr2(b'\n', b'\r', &piece[start..]) else {
            *at = piece.len();
            return Part { field, range: start..piece.len(), ends: false };
        };
        *at = start + len;
        self.line_ended(piece[*at], at);
        Part { field, range: start..start + len, ends: true }
    }

    fn line_ended(&mut self, byte: u8, at: &mut usize) {
        *at += 1;
        self.after_cr = byte == b'\r';
        self.state = State::Name;
        self.name_len = 0;
    }

    fn field(&self) -> Field {
        match self.name.get(..self.name_len) {
            Some(b"") => Field::Comment,
            Some(b"data") => Field::Data,
            Some(b"event") => Field::Event,
            _ => Field::Other,
        }
    }
}
