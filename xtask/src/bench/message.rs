//! The messages that every path carries, byte for byte the same.
//!
//! Bodies are real chat requests: several turns, escapes, and a beginning that
//! all of them share (a system prompt) followed by text of their own, so that a
//! proxy that looks at the prompt has honest work to do.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::LazyLock;

use anyhow::{Result, bail};
use clap::ValueEnum;

/// Model name in every request.
pub(crate) const MODEL: &str = "bench";

/// Bytes of one streamed event.
pub(crate) const EVENT_BYTES: usize = 256;

/// Bytes of the constant answer to a request that is not streamed.
pub(crate) const ANSWER_BYTES: usize = 250;

/// How many different bodies of one size a load sends in turn.
const VARIANTS: usize = 64;

const WORDS: [&str; 16] = [
    "the",
    "queue",
    "of",
    "tokens",
    "grows",
    "when",
    "a",
    "slow",
    "GPU",
    "\\\"waits\\\"",
    "for",
    "caf\\u00e9",
    "line\\nbreak",
    "memory",
    "tab\\tstop",
    "and",
];

/// Whole requests, head and body, whose bodies have `bytes` bytes each.
pub(crate) fn chat_requests(host: SocketAddr, bytes: usize) -> Vec<Vec<u8>> {
    (0..VARIANTS).map(|variant| with_head(host, "*/*", &chat_body(bytes, variant))).collect()
}

/// When the chunks of several streams leave the model server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pacing {
    /// Evenly spread: every chunk comes alone, the costliest case for a proxy.
    Even,
    /// As engines do it: an endpoint's streams together, at the end of each step.
    Steps,
}

impl Pacing {
    /// Value of the `x-pacing` header.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Steps => "steps",
        }
    }
}

/// A request for a streamed answer.
pub(crate) fn stream_request(host: SocketAddr, pacing: Pacing) -> Vec<u8> {
    let body = format!(
        r#"{{"model":"{MODEL}","stream":true,"messages":[{{"role":"user","content":"Tell me a story."}}]}}"#
    );
    with_head(host, &format!("text/event-stream\r\nx-pacing: {}", pacing.name()), &body)
}

/// The constant body of an answer that is not streamed.
pub(crate) static ANSWER: LazyLock<String> = LazyLock::new(|| {
    let head = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":""#;
    let tail = r#""},"finish_reason":"stop"}],"usage":{"prompt_tokens":31,"completion_tokens":5,"total_tokens":36}}"#;
    format!("{head}{}{tail}", "o".repeat(ANSWER_BYTES - head.len() - tail.len()))
});

fn with_head(host: SocketAddr, accept: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nuser-agent: bench\r\naccept: {accept}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn chat_body(bytes: usize, variant: usize) -> String {
    let tail = r#""}]}"#;
    let mut body = format!(r#"{{"model":"{MODEL}","messages":["#);
    if bytes > 1024 {
        let system = prose(bytes / 4, 0);
        let _ = write!(body, r#"{{"role":"system","content":"{system}"}},"#);
        let _ = write!(body, r#"{{"role":"user","content":"{}"}},"#, prose(bytes / 4, variant + 1));
        let _ = write!(
            body,
            r#"{{"role":"assistant","content":"{}"}},"#,
            prose(bytes / 8, variant + 2)
        );
    }
    body.push_str(r#"{"role":"user","content":""#);
    body.push_str(&prose(bytes.saturating_sub(body.len() + tail.len()), variant + 3));
    body.push_str(tail);
    body
}

/// Exactly `bytes` bytes of JSON string content; `seed` chooses the text.
fn prose(bytes: usize, seed: usize) -> String {
    let mut random = fastrand::Rng::with_seed(seed as u64);
    let mut text = String::with_capacity(bytes);
    loop {
        let word = WORDS[random.usize(..WORDS.len())];
        if text.len() + word.len() + 1 > bytes {
            break;
        }
        text.push_str(word);
        text.push(' ');
    }
    // An escape must not be cut in two, so the rest is filled with letters.
    text.push_str(&"e".repeat(bytes - text.len()));
    text
}

/// A response head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes up to the body.
    pub(crate) bytes: usize,
    pub(crate) status: u16,
    /// Value of `content-length`; `None` for a chunked body.
    pub(crate) content_length: Option<usize>,
}

/// Reads a response head, `None` while it is incomplete.
pub(crate) fn response_head(bytes: &[u8]) -> Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(bytes)? else { return Ok(None) };
    let mut content_length = None;
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            content_length = Some(std::str::from_utf8(header.value)?.parse()?);
        }
    }
    let Some(status) = response.code else { bail!("response without a status") };
    Ok(Some(Head { bytes: length, status, content_length }))
}

/// Whether the whole answer is there.
///
/// # Errors
///
/// When it is not the one the model server gives.
pub(crate) fn is_answer(received: &[u8]) -> Result<bool> {
    let Some(head) = response_head(received)? else { return Ok(false) };
    if head.status != 200 || head.content_length != Some(ANSWER_BYTES) {
        bail!("unexpected answer: {}", String::from_utf8_lossy(received));
    }
    let body = &received[head.bytes..];
    if body.len() < ANSWER_BYTES {
        return Ok(false);
    }
    if body != ANSWER.as_bytes() {
        bail!("the answer's body was changed: {}", String::from_utf8_lossy(body));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: &str, body: &str) -> Result<bool, String> {
        let text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        is_answer(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn another_status_or_body_is_an_error() {
        assert_eq!(answer("200 OK", &ANSWER), Ok(true));
        assert!(answer("503 No", &ANSWER).unwrap_err().contains("503"));
        assert!(answer("200 OK", &ANSWER.replace('o', "0")).unwrap_err().contains("changed"));
        assert!(answer("200 OK", "short").unwrap_err().contains("unexpected"));
    }

    #[test]
    fn half_an_answer_is_not_yet_one() {
        assert!(!is_answer(b"HTTP/1.1 200 OK\r\ncontent-length: 250\r\n\r\n{").unwrap());
    }

    #[test]
    fn bodies_are_valid_chats_of_the_asked_size() {
        for bytes in [100, 8 * 1024, 128 * 1024] {
            for variant in [0, 1, 63] {
                let body = chat_body(bytes, variant);
                assert_eq!(body.len(), bytes);
                let chat: serde_json::Value = serde_json::from_str(&body).unwrap();
                assert_eq!(chat["model"], MODEL);
                assert!(!chat["messages"].as_array().unwrap().is_empty());
            }
        }
    }

    #[test]
    fn variants_share_the_system_prompt_and_then_differ() {
        let (one, two) = (chat_body(8192, 0), chat_body(8192, 1));
        let shared = one.bytes().zip(two.bytes()).take_while(|(a, b)| a == b).count();
        assert!((2048..2300).contains(&shared), "{shared}");
    }

    #[test]
    fn the_answer_is_a_chat_completion_of_250_bytes() {
        assert_eq!(ANSWER.len(), ANSWER_BYTES);
        let answer: serde_json::Value = serde_json::from_str(&ANSWER).unwrap();
        assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    }

    #[test]
    fn a_response_head_is_read_once_it_is_complete() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
        assert_eq!(response_head(&text[..20]).unwrap(), None);
        let head = response_head(text).unwrap();
        assert_eq!(head, Some(Head { bytes: text.len(), status: 200, content_length: Some(7) }));
    }
}
