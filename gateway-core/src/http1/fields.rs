//! Header fields, kept as they came.

use std::mem::MaybeUninit;
use std::ops::Range;

use memchr::memchr_iter;

use super::{HeadError, MAX_FIELDS, Version};

/// A head's text and where its fields lie in it: one copy of the bytes, one list.
#[derive(Clone, Debug)]
pub struct Fields {
    text: Box<[u8]>,
    places: Vec<Place>,
}

/// Offsets of a field in the text. A head is far below 4 GiB.
#[derive(Clone, Debug)]
struct Place {
    name: Range<u32>,
    value: Range<u32>,
}

/// Connection fields that no proxy passes on (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a field of this name belongs to one connection, whatever the head says.
/// [`Fields::is_hop_by_hop`] also knows what `Connection` nominates.
#[must_use]
pub fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.iter().any(|hop| hop.eq_ignore_ascii_case(name))
}

impl Fields {
    /// Copies the head and remembers where the parsed fields lie in it.
    pub(super) fn new(head: &[u8], parsed: &[httparse::Header]) -> Self {
        let places = parsed
            .iter()
            .map(|field| Place {
                name: range_in(head, field.name.as_bytes()),
                value: range_in(head, field.value),
            })
            .collect();
        Self { text: head.into(), places }
    }

    pub(super) fn text(&self, range: &Range<u32>) -> &str {
        // The ranges are of strings that httparse checked.
        std::str::from_utf8(self.bytes(range)).unwrap_or_default()
    }

    fn bytes(&self, range: &Range<u32>) -> &[u8] {
        &self.text[range.start as usize..range.end as usize]
    }

    /// Names and values in the order and case in which they came.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &[u8])> {
        self.places.iter().map(|place| (self.text(&place.name), self.bytes(&place.value)))
    }

    /// All values of a field; `name` in any case.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let is_named =
            move |place: &&Place| self.bytes(&place.name).eq_ignore_ascii_case(name.as_bytes());
        self.places.iter().filter(is_named).map(|place| self.bytes(&place.value))
    }

    /// The first value of a field; `name` in any case.
    #[must_use]
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The first value of a field, when it is text.
    #[must_use]
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.first(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The comma-separated members of a field, over all its lines, trimmed; empty
    /// ones are left out.
    pub fn members<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.all(name)
            .flat_map(|value| value.split(|&b| b == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|member| !member.is_empty())
    }

    /// Whether a list field has this member, in any case.
    #[must_use]
    pub fn has_member(&self, name: &str, member: &str) -> bool {
        self.members(name).any(|m| m.eq_ignore_ascii_case(member.as_bytes()))
    }

    /// Whether a field is for this connection only and must not be passed on:
    /// one of the fixed set, or nominated by `Connection`.
    #[must_use]
    pub fn is_hop_by_hop(&self, name: &str) -> bool {
        is_hop_by_hop(name) || self.has_member("connection", name)
    }

    /// `Content-Length`, when there is one. Equal duplicates count as one.
    pub(super) fn content_length(&self) -> Result<Option<u64>, HeadError> {
        let mut length = None;
        for value in self.all("content-length") {
            for member in value.split(|&b| b == b',') {
                let given = decimal(member.trim_ascii()).ok_or(HeadError::ContentLength)?;
                if length.is_some_and(|length| length != given) {
                    return Err(HeadError::ContentLength);
                }
                length = Some(given);
            }
        }
        Ok(length)
    }

    /// Whether the body is chunked. Any other coding, or more than one, is an
    /// error: who cannot decode it cannot find the body's end.
    pub(super) fn is_chunked(&self, version: Version) -> Result<bool, HeadError> {
        let mut lines = self.all("transfer-encoding");
        let Some(coding) = lines.next() else { return Ok(false) };
        if version == Version::Http10 {
            return Err(HeadError::EncodingInHttp10);
        }
        if lines.next().is_some() || !coding.eq_ignore_ascii_case(b"chunked") {
            return Err(HeadError::TransferEncoding);
        }
        if self.first("content-length").is_some() {
            return Err(HeadError::LengthAndEncoding);
        }
        Ok(true)
    }
}

/// Where `part`, a piece of `head`, lies in it.
pub(super) fn range_in(head: &[u8], part: &[u8]) -> Range<u32> {
    let start = (part.as_ptr() as usize).saturating_sub(head.as_ptr() as usize);
    // httparse gives an empty value a place of its own choice.
    let start = if part.is_empty() { 0 } else { start } as u32;
    start..start + part.len() as u32
}

/// A number of at most 19 digits and nothing else.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Finds the end of a head: the offset after its empty line, `None` when that has
/// not arrived yet. `input` starts with the start line.
///
/// Every line end on the way is checked, so that a client that ends its lines
/// with a bare LF gets an answer instead of a wait.
pub(super) fn head_end(input: &[u8], limit: usize) -> Result<Option<usize>, HeadError> {
    let window = &input[..input.len().min(limit)];
    let mut line_start = 0;
    for lf in memchr_iter(b'\n', window) {
        if lf == 0 || window[lf - 1] != b'\r' {
            return Err(HeadError::BareLineEnd);
        }
        if lf - 1 == line_start {
            return Ok(Some(lf + 1));
        }
        line_start = lf + 1;
    }
    if input.len() >= limit { Err(HeadError::TooLarge) } else { Ok(None) }
}

/// Room for the fields of one head on the stack.
pub(super) const fn room<'a>() -> [MaybeUninit<httparse::Header<'a>>; MAX_FIELDS] {
    [const { MaybeUninit::uninit() }; MAX_FIELDS]
}

impl From<httparse::Error> for HeadError {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::HeaderName | httparse::Error::HeaderValue => Self::Field,
            httparse::Error::NewLine => Self::BareLineEnd,
            httparse::Error::TooManyHeaders => Self::TooManyFields,
            httparse::Error::Version => Self::Version,
            httparse::Error::Status | httparse::Error::Token => Self::StartLine,
        }
    }
}
