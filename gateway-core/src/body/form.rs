//! The fields of a `multipart/form-data` body (RFC 7578), as audio routes take it.
//!
//! Only `model` and `stream` are read; a file's bytes are searched for the next
//! delimiter and nothing else.

use std::ops::Range;

use memchr::memchr;

use super::RequestFacts;
use crate::json::{Fault, ScanError};

/// Reads a form.
#[derive(Clone, Debug)]
pub(super) struct Form {
    /// CR LF and two dashes before the boundary.
    delimiter: Vec<u8>,
    /// Bytes of the delimiter that the last bytes of the body were.
    matched: usize,
    state: State,
    /// Header lines of a part, or the value of a field that matters.
    text: Vec<u8>,
    /// Offset at which that value began.
    value_start: usize,
    field: Field,
    facts: RequestFacts,
    max_string: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Before the first delimiter.
    Preamble,
    /// After a delimiter: CR LF, or two dashes at the end. Up to two bytes.
    Delimiter,
    Headers,
    Value,
    /// After the closing delimiter; anything may follow.
    Epilogue,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Field {
    Model,
    Other,
    Stream,
}

const MAX_HEADERS: usize = 8 << 10;

/// Whether a `content-type` is a form's.
pub(super) fn is_form(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("multipart/form-data")
}

impl Form {
    /// `None` when the content type has no valid boundary.
    pub(super) fn new(content_type: &str, max_string: usize) -> Option<Self> {
        let boundary = parameter(content_type.as_bytes(), "boundary")?;
        let is_valid = |b: &u8| b.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(b);
        if boundary.is_empty() || boundary.len() > 70 || !boundary.iter().all(is_valid) {
            return None;
        }
        Some(Self {
            delimiter: [b"\r\n--", &boundary[..]].concat(),
            // The body's start counts as a line's start.
            matched: 2,
            state: State::Preamble,
            text: Vec::new(),
            value_start: 0,
            field: Field::Other,
            facts: RequestFacts::default(),
            max_string,
        })
    }

    pub(super) fn model(&self) -> Option<&str> {
        self.facts.model.as_deref()
    }

    pub(super) fn so_far(&self) -> RequestFacts {
        self.facts.clone()
    }

    pub(super) fn finish(self) -> Option<RequestFacts> {
        (self.state == State::Epilogue).then_some(self.facts)
    }

    pub(super) fn push(&mut self, offset: usize, piece: &[u8]) -> Result<(), ScanError> {
        let mut at = 0;
        while at < piece.len() {
            let result = match self.state {
                State::Preamble | State::Value => self.value(offset, piece, at),
                State::Delimiter => self.after_delimiter(piece[at]).map(|()| at + 1),
                State::Headers => self.header(offset, piece, at),
                State::Epilogue => return Ok(()),
            };
            at = result.map_err(|fault| ScanError { offset: offset + at, fault })?;
        }
        Ok(())
    }

    /// Searches for the delimiter; returns the offset after what it used up.
    fn value(&mut self, offset: usize, piece: &[u8], mut at: usize) -> Result<usize, Fault> {
        while at < piece.len() {
            if self.matched == 0 {
                let run = memchr(b'\r', &piece[at..]).unwrap_or(piece.len() - at);
                self.keep(&piece[at..at + run])?;
                at += run;
                if at == piece.len() {
                    break;
                }
            }
            if piece[at] != self.delimiter[self.matched] {
                // A delimiter has one CR, its first byte: no shorter match can be
                // hidden in what matched so far.
                let start = self.delimiter[..self.matched].to_vec();
                self.matched = 0;
                self.keep(&start)?;
                continue;
            }
            self.matched += 1;
            at += 1;
            if self.matched == self.delimiter.len() {
                let start = self.value_start;
                self.value_ended(start..(offset + at).saturating_sub(self.delimiter.len()))?;
                break;
            }
        }
        Ok(at)
    }

    /// Keeps bytes of a value that matters.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if self.state == State::Preamble || self.field == Field::Other {
            return Ok(());
        }
        if self.text.len() + bytes.len() > self.max_string {
            return Err(Fault::TooLong);
        }
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    fn value_ended(&mut self, span: Range<usize>) -> Result<(), Fault> {
        match self.field {
            Field::Model => {
                let name = std::str::from_utf8(&self.text).map_err(|_| Fault::String)?;
                self.facts.model = Some(name.to_owned());
                self.facts.model_span = Some(span);
            }
            Field::Stream => {
                let flag = self.text.trim_ascii();
                self.facts.stream = flag.eq_ignore_ascii_case(b"true") || flag == b"1";
            }
            Field::Other => {}
        }
        self.text.clear();
        self.matched = 0;
        self.state = State::Delimiter;
        Ok(())
    }

    fn after_delimiter(&mut self, byte: u8) -> Result<(), Fault> {
        match (self.text.last(), byte) {
            // Padding before the line end is allowed (RFC 2046, section 5.1.1).
            (None, b' ' | b'\t') => {}
            (None, b'\r' | b'-') => self.text.push(byte),
            (Some(b'\r'), b'\n') => {
                self.text.clear();
                self.state = State::Headers;
            }
            (Some(b'-'), b'-') => self.state = State::Epilogue,
            _ => return Err(Fault::Syntax),
        }
        Ok(())
    }

    /// Collects header lines up to the empty one.
    fn header(&mut self, offset: usize, piece: &[u8], at: usize) -> Result<usize, Fault> {
        let rest = &piece[at..];
        let line = memchr(b'\n', rest).map_or(rest.len(), |lf| lf + 1);
        if self.text.len() + line > MAX_HEADERS {
            return Err(Fault::TooLong);
        }
        self.text.extend_from_slice(&rest[..line]);
        if self.text == b"\r\n" || self.text.ends_with(b"\r\n\r\n") {
            self.field = part_field(&self.text);
            self.text.clear();
            self.value_start = offset + at + line;
            self.state = State::Value;
            // An empty value's delimiter shares the CR LF with nothing: it has its own.
            self.matched = 0;
        }
        Ok(at + line)
    }
}

/// Which field a part is, from its header lines.
fn part_field(headers: &[u8]) -> Field {
    let disposition = headers.split(|&b| b == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked("content-disposition:".len())?;
        name.eq_ignore_ascii_case(b"content-disposition:").then_some(value)
    });
    match disposition.and_then(|value| parameter(value, "name")).as_deref() {
        Some(b"model") => Field::Model,
        Some(b"stream") => Field::Stream,
        _ => Field::Other,
    }
}

/// A parameter of a header value, as in `form-data; name="model"`.
fn parameter(value: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut rest = &value[memchr(b';', value)? + 1..];
    loop {
        let equals = memchr(b'=', rest)?;
        let key = rest[..equals].trim_ascii();
        let (text, after) = parameter_value(rest[equals + 1..].trim_ascii_start());
        if key.eq_ignore_ascii_case(name.as_bytes()) {
            return Some(text);
        }
        rest = &after[memchr(b';', after)? + 1..];
    }
}

/// A token or quoted string, and what follows it.
fn parameter_value(value: &[u8]) -> (Vec<u8>, &[u8]) {
    let Some(quoted) = value.strip_prefix(b"\"") else {
        let end = memchr(b';', value).unwrap_or(value.len());
        return (value[..end].trim_ascii().to_vec(), &value[end..]);
    };
    let mut text = Vec::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((i, &byte)) = bytes.next() {
        match byte {
            b'"' => return (text, &quoted[i + 1..]),
            b'\\' => text.extend(bytes.next().map(|(_, &escaped)| escaped)),
            byte => text.push(byte),
        }
    }
    (text, &[])
}
