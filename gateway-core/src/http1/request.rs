//! The head of a request.

use std::ops::Range;

use super::fields::{Fields, head_end, range_in, room};
use super::{Framing, HeadError, Limits, Persistence, Version};

/// A checked request head that owns its text.
#[derive(Clone, Debug)]
pub struct RequestHead {
    method: Range<u32>,
    target: Range<u32>,
    version: Version,
    framing: Framing,
    persistence: Persistence,
    fields: Fields,
}

impl RequestHead {
    /// Parses a head at the start of `input`, with default [`Limits`].
    ///
    /// `None` asks for more bytes. Otherwise the head and its length in bytes;
    /// the body, if any, follows.
    ///
    /// # Errors
    ///
    /// Whatever is not exactly a request head that can have only one meaning.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, HeadError> {
        Self::parse_within(input, &Limits::default())
    }

    /// [`RequestHead::parse`] with limits of your own.
    ///
    /// # Errors
    ///
    /// As [`RequestHead::parse`].
    pub fn parse_within(input: &[u8], limits: &Limits) -> Result<Option<(Self, usize)>, HeadError> {
        // An empty line before a request is left over from a sloppy client's
        // last body (RFC 9112, section 2.2).
        let skipped = empty_lines(input);
        let input = &input[skipped..];
        if input.first().is_some_and(|&b| !b.is_ascii_alphabetic() && b != b'\r') {
            // Not HTTP at all, a TLS hello for example: do not wait for its end.
            return Err(HeadError::StartLine);
        }
        let Some(length) = head_end(input, limits.head)? else { return Ok(None) };
        let head = &input[..length];
        let mut room = room();
        let mut parsed = httparse::Request::new(&mut []);
        if parsed.parse_with_uninit_headers(head, &mut room)?.is_partial() {
            return Err(HeadError::StartLine);
        }
        let head = Self::checked(head, &parsed, limits)?;
        Ok(Some((head, skipped + length)))
    }

    fn checked(
        text: &[u8],
        parsed: &httparse::Request,
        limits: &Limits,
    ) -> Result<Self, HeadError> {
        let (Some(method), Some(target)) = (parsed.method, parsed.path) else {
            return Err(HeadError::StartLine);
        };
        if target.len() > limits.target {
            return Err(HeadError::TargetTooLong);
        }
        let version = if parsed.version == Some(0) { Version::Http10 } else { Version::Http11 };
        let fields = Fields::new(text, parsed.headers);
        check_host(&fields, version)?;
        check_expectation(&fields)?;
        Ok(Self {
            method: range_in(text, method.as_bytes()),
            target: range_in(text, target.as_bytes()),
            version,
            framing: framing(&fields, version)?,
            persistence: persistence(&fields, version),
            fields,
        })
    }

    /// The method, for example `POST`.
    #[must_use]
    pub fn method(&self) -> &str {
        self.fields.text(&self.method)
    }

    /// The target as it was sent: `/path?query`, or `http://host/path?query`.
    #[must_use]
    pub fn target(&self) -> &str {
        self.fields.text(&self.target)
    }

    /// Path and query, whatever form the target has; `/` for a target without a path.
    #[must_use]
    pub fn path_and_query(&self) -> &str {
        let target = self.target();
        let Some((_, rest)) = target.split_once("://").filter(|_| !target.starts_with('/')) else {
            return target;
        };
        match rest.find(['/', '?']) {
            Some(at) if rest.as_bytes()[at] == b'/' => &rest[at..],
            // A query without a path cannot be cut out as one piece; no client sends it.
            _ => "/",
        }
    }

    /// The path alone, still percent-encoded.
    #[must_use]
    pub fn path(&self) -> &str {
        let whole = self.path_and_query();
        whole.split_once('?').map_or(whole, |(path, _)| path)
    }

    /// What follows the `?`, if there is one.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.path_and_query().split_once('?').map(|(_, query)| query)
    }

    /// The version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// How the body is delimited.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether the client wants to send another request on this connection.
    #[must_use]
    pub const fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.version == Version::Http11
            && self.framing != Framing::None
            && self.fields.first("expect").is_some()
    }

    /// The header fields.
    #[must_use]
    pub const fn fields(&self) -> &Fields {
        &self.fields
    }
}

/// Bytes of empty lines at the start of `input`.
fn empty_lines(input: &[u8]) -> usize {
    input.chunks_exact(2).take_while(|pair| pair == b"\r\n").count() * 2
}

fn check_host(fields: &Fields, version: Version) -> Result<(), HeadError> {
    let mut hosts = fields.all("host");
    let valid = match hosts.next() {
        Some(host) => host.iter().all(|b| b.is_ascii_graphic() && !b"/?#@,".contains(b)),
        None => version == Version::Http10,
    };
    if valid && hosts.next().is_none() { Ok(()) } else { Err(HeadError::Host) }
}

fn check_expectation(fields: &Fields) -> Result<(), HeadError> {
    if fields.all("expect").all(|value| value.eq_ignore_ascii_case(b"100-continue")) {
        Ok(())
    } else {
        Err(HeadError::Expectation)
    }
}

/// Length of a request body (RFC 9112, section 6.3).
fn framing(fields: &Fields, version: Version) -> Result<Framing, HeadError> {
    if fields.is_chunked(version)? {
        return Ok(Framing::Chunked);
    }
    Ok(match fields.content_length()? {
        Some(length) => Framing::Length(length),
        None => Framing::None,
    })
}

/// RFC 9112, section 9.3.
pub(super) fn persistence(fields: &Fields, version: Version) -> Persistence {
    let stays = match version {
        Version::Http10 => fields.has_member("connection", "keep-alive"),
        Version::Http11 => true,
    };
    if stays && !fields.has_member("connection", "close") {
        Persistence::KeepAlive
    } else {
        Persistence::Close
    }
}
