//! Failures to order.
//!
//! One [`Failures`] value says how a server misbehaves from now on. It can be set
//! through the handle or by `POST /admin/failures`, whole each time: what a new
//! value does not mention is healthy again.

use serde::{Deserialize, Serialize};

/// How a server misbehaves; the default is not at all.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Failures {
    /// The listener is closed, so that connecting is refused. Set from outside, it
    /// can only be lifted through the handle or by `lift_after_seconds`.
    pub refuse_connections: bool,
    /// `/health` answers 503, as while a model is loading.
    pub loading: bool,
    /// What happens to requests for inference.
    pub answers: Option<AnswerFault>,
    /// Share of requests that `answers` strikes, 0 to 1; all of them when absent.
    pub share: Option<f64>,
    /// How many requests `answers` strikes before it wears off; no limit when absent.
    pub count: Option<u64>,
    /// How answers are cut into chunks.
    pub chunks: Chunks,
    /// Whether answers are compressed.
    pub gzip: bool,
    /// What happens to a connection after an answer.
    pub connection: Connection,
    /// How fast request bodies are read, in bytes per second.
    pub read_bytes_per_second: Option<u64>,
    /// What happens to `/metrics`.
    pub metrics: MetricsFault,
    /// When all this ends by itself.
    pub lift_after_seconds: Option<f64>,
}

/// What happens to a request for inference.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case", deny_unknown_fields)]
pub enum AnswerFault {
    /// The connection closes before the first byte.
    CloseBeforeHead,
    /// The connection closes after this many chunks of the body.
    CloseAfterChunks {
        /// Whole chunks sent before.
        chunks: u32,
        /// Whether half of a further chunk is sent as well.
        #[serde(default)]
        within_chunk: bool,
    },
    /// Nothing is ever sent.
    HangBeforeHead,
    /// Nothing more is sent after this many chunks of the body.
    HangAfterChunks {
        /// Whole chunks sent before.
        chunks: u32,
    },
    /// An error answer.
    Status {
        /// Its code, such as 429, 500 or 503.
        code: u16,
        /// Value of its `Retry-After` header, in seconds.
        #[serde(default)]
        retry_after: Option<u64>,
    },
    /// A chunk size that is not a number; for whole answers, a wrong content length.
    BadFraming,
    /// Bytes that are not HTTP.
    Garbage,
}

/// How a streamed answer is cut into chunks of its transfer encoding.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Chunks {
    /// One event, one chunk, one write: as real servers do.
    #[default]
    Event,
    /// Chunks of so many bytes, which split events and characters.
    Bytes(usize),
    /// Whole chunks, but written so many bytes at a time.
    Writes(usize),
    /// Chunks of this many events.
    Events(usize),
}

/// What happens to a connection after an answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Connection {
    /// It is announced as closing, and closed.
    Close,
    /// It closes at once without a word, so that its next request may be lost.
    CloseSilently,
    /// It stays open.
    #[default]
    Keep,
}

/// What happens to `/metrics`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsFault {
    /// How long each answer takes, in seconds.
    pub delay_seconds: f64,
    /// Whether the page stays as it was.
    pub frozen: bool,
    /// Families that are left out, by name as in their TYPE line.
    pub missing: Vec<String>,
    /// An error instead of the page.
    pub status: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_readable_json() {
        let order = r#"{"answers":{"close_after_chunks":{"chunks":2,"within_chunk":true}},
            "share":0.5,"chunks":{"bytes":3},"connection":"close_silently",
            "metrics":{"missing":["vllm:num_requests_waiting"]}}"#;
        let failures: Failures = serde_json::from_str(order).unwrap();
        let fault = AnswerFault::CloseAfterChunks { chunks: 2, within_chunk: true };
        assert_eq!(failures.answers, Some(fault));
        assert_eq!(failures.chunks, Chunks::Bytes(3));
        assert_eq!(failures.connection, Connection::CloseSilently);
    }

    #[test]
    fn misspelt_order_is_refused() {
        assert!(serde_json::from_str::<Failures>(r#"{"refuse":true}"#).is_err());
    }
}
