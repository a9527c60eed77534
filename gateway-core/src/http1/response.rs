//! The head of a response.

use super::fields::{Fields, head_end, room};
use super::request::persistence;
use super::{HeadError, Limits, Persistence, Version};

/// A checked response head that owns its text.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    status: u16,
    reason: String,
    version: Version,
    chunked: bool,
    length: Option<u64>,
    persistence: Persistence,
    fields: Fields,
}

/// How a response's body is delimited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ResponseFraming {
    /// In chunks.
    Chunked,
    /// By its length in bytes.
    Length(u64),
    /// There is no body.
    None,
    /// By the end of the connection.
    UntilClose,
}

impl ResponseHead {
    /// Parses a head at the start of `input`, with default [`Limits`].
    ///
    /// `None` asks for more bytes. Otherwise the head and its length in bytes.
    ///
    /// # Errors
    ///
    /// Whatever is not exactly a response head that can have only one meaning: to
    /// the client that is a 502.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, HeadError> {
        Self::parse_within(input, &Limits::default())
    }

    /// [`ResponseHead::parse`] with limits of your own.
    ///
    /// # Errors
    ///
    /// As [`ResponseHead::parse`].
    pub fn parse_within(input: &[u8], limits: &Limits) -> Result<Option<(Self, usize)>, HeadError> {
        let known = input.len().min(5);
        if input[..known] != b"HTTP/"[..known] {
            return Err(HeadError::StartLine);
        }
        let Some(length) = head_end(input, limits.head)? else { return Ok(None) };
        let head = &input[..length];
        let mut room = room();
        let mut parsed = httparse::Response::new(&mut []);
        if httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(&mut parsed, head, &mut room)?
            .is_partial()
        {
            return Err(HeadError::StartLine);
        }
        Ok(Some((Self::checked(head, &parsed)?, length)))
    }

    fn checked(text: &[u8], parsed: &httparse::Response) -> Result<Self, HeadError> {
        let status = parsed.code.filter(|code| (100..600).contains(code));
        let status = status.ok_or(HeadError::StartLine)?;
        let version = if parsed.version == Some(0) { Version::Http10 } else { Version::Http11 };
        let fields = Fields::new(text, parsed.headers);
        let chunked = fields.is_chunked(version)?;
        let length = fields.content_length()?;
        if chunked && (status < 200 || status == 204) {
            // RFC 9112, section 6.1: no body, so nothing to encode.
            return Err(HeadError::TransferEncoding);
        }
        Ok(Self {
            status,
            reason: parsed.reason.unwrap_or_default().to_owned(),
            version,
            chunked,
            length,
            persistence: persistence(&fields, version),
            fields,
        })
    }

    /// The status code, 100 to 599.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// The reason phrase; may be empty.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Whether another, final head follows this one (RFC 9110, section 15.2).
    /// `101` is final: it ends HTTP on the connection.
    #[must_use]
    pub const fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// How the body is delimited, when it answers a request of this method (RFC
    /// 9112, section 6.3).
    #[must_use]
    pub fn framing(&self, method: &str) -> ResponseFraming {
        if self.status < 200 || matches!(self.status, 204 | 304) || method == "HEAD" {
            return ResponseFraming::None;
        }
        if self.chunked {
            return ResponseFraming::Chunked;
        }
        self.length.map_or(ResponseFraming::UntilClose, ResponseFraming::Length)
    }

    /// Whether the connection may be used again after the body. Never, when the
    /// body ends with the connection.
    #[must_use]
    pub fn persistence(&self, method: &str) -> Persistence {
        match self.framing(method) {
            ResponseFraming::UntilClose => Persistence::Close,
            _ => self.persistence,
        }
    }

    /// The header fields.
    #[must_use]
    pub const fn fields(&self) -> &Fields {
        &self.fields
    }
}
