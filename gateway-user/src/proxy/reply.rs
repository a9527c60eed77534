//! What goes back to a client, before it is put into its protocol's form.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::answer::Answer;
use super::error::{Dialect, ProxyError, REASON_HEADER};

/// Head and body of an answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Header lines, each `name: value\r\n`, without those that frame the body.
    pub(crate) fields: Vec<u8>,
    pub(crate) body: ReplyBody,
}

/// The body of a [`Reply`].
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// Made here, complete.
    Full(Bytes),
    /// Comes from an engine. `Some` is the length its head gave, for an answer that
    /// is passed on unchanged.
    Answer(Box<Answer>, Option<u64>),
}

impl Reply {
    /// A complete answer made here.
    pub(crate) fn full(status: u16, content_type: &str, body: Bytes) -> Self {
        let mut fields = Vec::with_capacity(128);
        push_field(&mut fields, "content-type", content_type.as_bytes());
        push_date(&mut fields);
        Self { status, fields, body: ReplyBody::Full(body) }
    }

    /// The gateway's own refusal.
    pub(crate) fn error(error: &ProxyError, dialect: Dialect, request_id: &str) -> Self {
        let mut reply = Self::full(error.status(), "application/json", error.body(dialect));
        push_field(&mut reply.fields, REASON_HEADER, error.reason().as_bytes());
        push_field(&mut reply.fields, "x-request-id", request_id.as_bytes());
        if let Some(seconds) = error.retry_after() {
            push_field(&mut reply.fields, "retry-after", seconds.to_string().as_bytes());
        }
        if matches!(error, ProxyError::Unauthorized) {
            push_field(&mut reply.fields, "www-authenticate", b"Bearer");
        }
        reply
    }

    /// The answer as the libraries have it. `body` makes their body; a status that is none
    /// becomes 502, for it came from an engine.
    pub(crate) fn into_response<B>(self, body: impl FnOnce(ReplyBody) -> B) -> Response<B> {
        let mut response = Response::new(body(self.body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_GATEWAY);
        for field in self.fields.split(|byte| *byte == b'\n') {
            let Some(colon) = field.iter().position(|byte| *byte == b':') else { continue };
            let value = field[colon + 1..].trim_ascii();
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(&field[..colon]), HeaderValue::from_bytes(value))
            {
                response.headers_mut().append(name, value);
            }
        }
        response
    }

    /// The beginning of the answer in HTTP/1.1: status line and fields, without those
    /// that frame the body.
    pub(crate) fn begin(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.fields.len() + 512);
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(self.status.to_string().as_bytes());
        out.push(b' ');
        out.extend_from_slice(reason_phrase(self.status).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.fields);
        out
    }
}

/// Appends a header line.
pub(crate) fn push_field(fields: &mut Vec<u8>, name: &str, value: &[u8]) {
    fields.extend_from_slice(name.as_bytes());
    fields.extend_from_slice(b": ");
    fields.extend_from_slice(value);
    fields.extend_from_slice(b"\r\n");
}

/// Appends the `date` that RFC 9110 (6.6.1) asks of whoever makes an answer.
pub(crate) fn push_date(fields: &mut Vec<u8>) {
    let now = httpdate::fmt_http_date(std::time::SystemTime::now());
    push_field(fields, "date", now.as_bytes());
}

/// The phrase that belongs to a status, for HTTP/1.1 status lines.
fn reason_phrase(status: u16) -> &'static str {
    match status {
        499 => "Client Closed Request",
        _ => StatusCode::from_u16(status)
            .ok()
            .and_then(|status| status.canonical_reason())
            .unwrap_or(""),
    }
}
