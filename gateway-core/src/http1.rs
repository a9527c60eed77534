//! HTTP/1.1 heads and body framing, without IO (RFC 9112).
//!
//! A head is parsed once, into a value that cannot be ambiguous: its framing is
//! known and every rule that keeps two parsers from disagreeing about where a
//! message ends was checked. What is not exactly right is refused, for a gateway
//! that repairs requests is the first half of a smuggling attack.
//!
//! Names, values, their order and case are kept as they came, so that a relayed
//! head differs from the original only where the gateway means it to.

mod fields;
mod request;
mod response;

pub use fields::{Fields, is_hop_by_hop};
pub use request::RequestHead;
pub use response::{ResponseFraming, ResponseHead};

/// How large a head may be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes of the whole head, start line included.
    pub head: usize,
    /// Bytes of the request target.
    pub target: usize,
}

/// Header fields that one head may have.
pub const MAX_FIELDS: usize = 128;

impl Default for Limits {
    fn default() -> Self {
        Self { head: 64 << 10, target: 16 << 10 }
    }
}

/// Version of a message; others are refused.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// How a request's body is delimited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// In chunks.
    Chunked,
    /// By its length in bytes.
    Length(u64),
    /// There is no body.
    None,
}

/// Whether a connection may carry another message after this one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Persistence {
    /// It ends with this message.
    Close,
    /// It stays open.
    KeepAlive,
}

/// Why a head was refused.
///
/// For a request, [`HeadError::status`] is the answer it deserves. A response
/// with any of these is a bad gateway: 502.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HeadError {
    /// A line ended without CR, or a CR stood alone.
    #[error("line does not end with CR LF")]
    BareLineEnd,
    /// Not a number, negative, too large, or several that differ.
    #[error("content-length is not one decimal number")]
    ContentLength,
    /// Both ways to say how long the body is.
    #[error("transfer-encoding and content-length exclude each other; send one")]
    LengthAndEncoding,
    /// An expectation other than `100-continue`.
    #[error("expectation is not supported; only 100-continue is")]
    Expectation,
    /// A malformed header field: name, value, folding or space before the colon.
    #[error("malformed header field")]
    Field,
    /// No Host, several, or one that is no host.
    #[error("an HTTP/1.1 request needs exactly one valid host header")]
    Host,
    /// The start line is not one.
    #[error("malformed start line")]
    StartLine,
    /// The head is larger than the limit.
    #[error("header section is too large")]
    TooLarge,
    /// There are more than [`MAX_FIELDS`] fields.
    #[error("more than {MAX_FIELDS} header fields")]
    TooManyFields,
    /// The target is longer than the limit.
    #[error("request target is too long")]
    TargetTooLong,
    /// Chunked framing does not exist in HTTP/1.0.
    #[error("transfer-encoding needs HTTP/1.1")]
    EncodingInHttp10,
    /// A transfer coding other than `chunked`.
    #[error("transfer-encoding is not supported; only chunked is")]
    TransferEncoding,
    /// Neither HTTP/1.0 nor HTTP/1.1.
    #[error("HTTP version is not supported; use HTTP/1.1 or HTTP/2")]
    Version,
}

impl HeadError {
    /// Status code for the client.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::BareLineEnd
            | Self::ContentLength
            | Self::EncodingInHttp10
            | Self::Field
            | Self::Host
            | Self::LengthAndEncoding
            | Self::StartLine => 400,
            Self::TargetTooLong => 414,
            Self::Expectation => 417,
            Self::TooLarge | Self::TooManyFields => 431,
            Self::TransferEncoding => 501,
            Self::Version => 505,
        }
    }
}

#[cfg(test)]
mod tests;
