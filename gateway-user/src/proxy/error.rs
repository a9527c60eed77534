//! What can go wrong with a request, and what the client is told.
//!
//! One enum, one exhaustive table from cause to status, type, code and reason.
//! The body is an OpenAI error object, or Anthropic's on its routes. The reason
//! is stable and travels in the `x-inference-gateway-reason` header and in the
//! metrics; the message is for people and may change.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

/// Response header that carries [`ProxyError::reason`].
pub const REASON_HEADER: &str = "x-inference-gateway-reason";

/// Which API's error objects the client understands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Dialect {
    /// `{"type":"error","error":{"type","message"}}`
    Anthropic,
    /// `{"error":{"message","type","param","code"}}`
    #[default]
    OpenAi,
}

/// Why a request was answered by the gateway itself.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProxyError {
    /// The request's head or framing is wrong.
    #[error("malformed HTTP request: {message}")]
    BadHead {
        /// 400, 431, 501 or 505.
        status: u16,
        /// What is wrong with it.
        message: String,
    },
    /// The body cannot be read as the route's format.
    #[error("cannot read the request body: {0}")]
    BadBody(String),
    /// The client went away, or stopped sending in the middle of its body.
    #[error("client closed the connection")]
    ClientGone,
    /// The client took too long to send its request.
    #[error("the request was not received in time")]
    UploadTimeout,
    /// No key, or one we do not know.
    #[error("missing or unknown API key; send `Authorization: Bearer <key>`")]
    Unauthorized,
    /// The key may not use this model.
    #[error("this API key may not use the model `{0}`")]
    Forbidden(String),
    /// A path nobody serves.
    #[error("no such route: {0}")]
    UnknownPath(String),
    /// No model in the body and no default pool.
    #[error(
        "no matching model: set the model in the request body or the x-gateway-model-name header"
    )]
    ModelMissing,
    /// A model nobody serves.
    #[error("the model `{0}` does not exist")]
    UnknownModel(String),
    /// The body is larger than the pool takes.
    #[error("the request body is larger than {limit} bytes")]
    TooLarge {
        /// Bytes the pool takes.
        limit: u64,
    },
    /// A compressed body, which cannot be routed.
    #[error("content-encoding `{0}` is not supported; send the body uncompressed")]
    UnsupportedEncoding(String),
    /// Every endpoint is at its limit and the queue is full or timed out.
    #[error("all model servers are busy; retry after {} s", retry_after.as_secs())]
    Exhausted {
        /// Computed from the queue and the drain rate.
        retry_after: Duration,
        /// `queue-full`, `queue-timeout` or `shed`.
        cause: &'static str,
    },
    /// The gateway holds too many unfinished uploads.
    #[error("too many request bodies are being received; retry shortly")]
    BufferFull,
    /// No endpoint could be picked at all.
    #[error("no model server is available: {0}")]
    NoEndpoint(String),
    /// The endpoint could not be reached, and no other could help.
    #[error("the model server could not be reached")]
    UpstreamConnect,
    /// The endpoint closed before it answered.
    #[error("the model server closed the connection before answering")]
    UpstreamClosed,
    /// The endpoint's answer is not HTTP.
    #[error("the model server sent a malformed answer")]
    UpstreamMalformed,
    /// The endpoint did not answer in time.
    #[error("the model server did not answer within {0:?}")]
    UpstreamTimeout(Duration),
    /// The gateway is shutting down.
    #[error("the gateway is shutting down")]
    Draining,
}

impl ProxyError {
    /// HTTP status of the answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.facts().0
    }

    /// Stable name for headers, metrics and logs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.facts().3
    }

    /// Seconds for the `Retry-After` header.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Exhausted { retry_after, .. } => Some(retry_after.as_secs().max(1)),
            Self::BufferFull | Self::Draining | Self::NoEndpoint(_) => Some(1),
            _ => None,
        }
    }

    /// The answer's body, JSON.
    #[must_use]
    pub fn body(&self, dialect: Dialect) -> Bytes {
        let (status, kind, code, _) = self.facts();
        let message = self.to_string();
        let body = match dialect {
            Dialect::OpenAi => json!({"error": {
                "message": message, "type": kind, "param": self.param(), "code": code,
            }}),
            Dialect::Anthropic => json!({"type": "error", "error": {
                "type": anthropic_kind(status), "message": message,
            }}),
        };
        Bytes::from(body.to_string())
    }

    fn param(&self) -> Option<&'static str> {
        match self {
            Self::ModelMissing | Self::UnknownModel(_) | Self::Forbidden(_) => Some("model"),
            _ => None,
        }
    }

    /// (status, OpenAI type, OpenAI code, reason)
    fn facts(&self) -> (u16, &'static str, &'static str, &'static str) {
        const INVALID: &str = "invalid_request_error";
        const DOWN: &str = "service_unavailable";
        match self {
            Self::BadHead { status, .. } => (*status, INVALID, "bad_request", "bad-request"),
            Self::BadBody(_) => (400, INVALID, "invalid_body", "invalid-body"),
            Self::ClientGone => (499, INVALID, "client_closed_request", "client-gone"),
            Self::UploadTimeout => (408, INVALID, "request_timeout", "upload-timeout"),
            Self::Unauthorized => (401, "authentication_error", "invalid_api_key", "unauthorized"),
            Self::Forbidden(_) => (403, "permission_error", "model_not_allowed", "forbidden"),
            Self::UnknownPath(_) => (404, INVALID, "unknown_url", "unknown-path"),
            Self::ModelMissing => (404, INVALID, "model_not_found", "model-missing"),
            Self::UnknownModel(_) => (404, INVALID, "model_not_found", "unknown-model"),
            Self::TooLarge { .. } => (413, INVALID, "request_too_large", "too-large"),
            Self::UnsupportedEncoding(_) => {
                (415, INVALID, "unsupported_encoding", "unsupported-encoding")
            }
            Self::Exhausted { cause, .. } => {
                (429, "rate_limit_error", "rate_limit_exceeded", cause)
            }
            Self::BufferFull => (503, "overloaded_error", "overloaded", "buffer-full"),
            Self::NoEndpoint(_) => (503, DOWN, "no_endpoint", "no-endpoint"),
            Self::UpstreamConnect => (502, "api_error", "upstream_unreachable", "upstream-connect"),
            Self::UpstreamClosed => (502, "api_error", "upstream_closed", "upstream-closed"),
            Self::UpstreamMalformed => {
                (502, "api_error", "upstream_malformed", "upstream-malformed")
            }
            Self::UpstreamTimeout(_) => (504, "api_error", "upstream_timeout", "upstream-timeout"),
            Self::Draining => (503, DOWN, "draining", "draining"),
        }
    }
}

/// Error types of the Anthropic Messages API, by status.
fn anthropic_kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// The error event that ends a stream which broke after it had begun.
#[must_use]
pub fn stream_error_event(dialect: Dialect, message: &str) -> Bytes {
    let event = match dialect {
        Dialect::OpenAi => {
            let body = json!({"error": {
                "message": message, "type": "api_error", "param": null, "code": "upstream_closed",
            }});
            format!("data: {body}\n\n")
        }
        Dialect::Anthropic => {
            let body = json!({"type": "error", "error": {"type": "api_error", "message": message}});
            format!("event: error\ndata: {body}\n\n")
        }
    };
    Bytes::from(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(body: &Bytes) -> serde_json::Value {
        serde_json::from_slice(body).unwrap()
    }

    #[test]
    fn unknown_model_is_an_openai_404() {
        let error = ProxyError::UnknownModel("nope".into());
        assert_eq!(error.status(), 404);
        assert_eq!(error.reason(), "unknown-model");
        let body = json(&error.body(Dialect::OpenAi));
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert_eq!(body["error"]["code"], "model_not_found");
        assert_eq!(body["error"]["param"], "model");
    }

    #[test]
    fn anthropic_routes_get_anthropic_errors() {
        let error =
            ProxyError::Exhausted { retry_after: Duration::from_secs(7), cause: "queue-full" };
        let body = json(&error.body(Dialect::Anthropic));
        assert_eq!(body["type"], "error");
        assert_eq!(body["error"]["type"], "rate_limit_error");
        assert_eq!(error.status(), 429);
        assert_eq!(error.retry_after(), Some(7));
    }

    #[test]
    fn a_quote_in_a_model_name_cannot_break_the_error_object() {
        let error = ProxyError::UnknownModel("a\"},{\n".into());
        assert!(json(&error.body(Dialect::OpenAi))["error"]["message"].is_string());
    }

    #[test]
    fn broken_streams_end_with_an_error_event() {
        let event = stream_error_event(Dialect::OpenAi, "gone");
        assert!(event.starts_with(b"data: {\"error\":"));
        assert!(event.ends_with(b"\n\n"));
        let event = stream_error_event(Dialect::Anthropic, "gone");
        assert!(event.starts_with(b"event: error\ndata: "));
    }
}
