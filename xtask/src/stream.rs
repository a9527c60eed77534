//! A client that streams one answer and sees when its first token comes.
//!
//! Written for this measurement alone: one connection per request, nothing shared
//! that could delay another request's clock.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gateway_common::chunked::{ChunkTracker, Kind};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longest head of an answer.
const HEAD_BYTES: usize = 16 * 1024;

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// From connecting to the first piece of text.
    pub(crate) ttft: Duration,
    /// What it says.
    pub(crate) text: String,
    /// As the engine counted them.
    pub(crate) output_tokens: u64,
    /// Address of the endpoint that answered, where the gateway names it.
    pub(crate) endpoint: Option<String>,
}

/// Sends `body` to `path`, of the chat or the completions API, and reads the answer to its end.
///
/// # Errors
///
/// When the answer is not a complete stream with text in it.
pub(crate) async fn ask(address: SocketAddr, path: &str, body: &str) -> Result<Answer> {
    let started = Instant::now();
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: text/event-stream\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;

    let mut received = Vec::with_capacity(HEAD_BYTES);
    let (endpoint, head_bytes) = loop {
        if stream.read_buf(&mut received).await? == 0 || received.len() > HEAD_BYTES {
            bail!("no answer: {}", String::from_utf8_lossy(&received));
        }
        if let Some(head) = read_head(&received)? {
            break head;
        }
    };
    received.drain(..head_bytes);

    let mut events = Events::default();
    let mut ttft = None;
    loop {
        let ended = events.feed(&received)?;
        if ttft.is_none() && !events.text.is_empty() {
            ttft = Some(started.elapsed());
        }
        if ended {
            break;
        }
        received.clear();
        if stream.read_buf(&mut received).await? == 0 {
            bail!("the answer broke off");
        }
    }
    Ok(Answer {
        ttft: ttft.context("an answer without text")?,
        text: events.text,
        output_tokens: events.output_tokens.context("an answer without usage")?,
        endpoint,
    })
}

/// The endpoint that answers, if it is named, and the length of the head, once it is complete.
fn read_head(received: &[u8]) -> Result<Option<(Option<String>, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(received)? else { return Ok(None) };
    if response.code != Some(200) {
        bail!("{}", String::from_utf8_lossy(received));
    }
    let value = |name: &str| {
        let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        header.map(|header| String::from_utf8_lossy(header.value).into_owned())
    };
    if value("transfer-encoding").as_deref() != Some("chunked") {
        bail!("the answer is not streamed");
    }
    Ok(Some((value("x-inference-gateway-endpoint"), length)))
}

/// Reads the events of a chunked body.
#[derive(Debug)]
struct Events {
    tracker: ChunkTracker,
    /// A line that is not complete yet.
    line: Vec<u8>,
    text: String,
    output_tokens: Option<u64>,
}

impl Default for Events {
    fn default() -> Self {
        let tracker = ChunkTracker::new();
        Self { tracker, line: Vec::new(), text: String::new(), output_tokens: None }
    }
}

#[derive(Debug, Deserialize)]
struct Chunk {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

/// Of the chat API with a delta, of the completions API with a text.
#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    text: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    completion_tokens: u64,
}

impl Choice {
    fn text(&self) -> Option<&String> {
        self.text.as_ref().or(self.delta.content.as_ref())
    }
}

impl Events {
    /// Takes in received bytes; true at the end of the body.
    fn feed(&mut self, mut input: &[u8]) -> Result<bool> {
        while !input.is_empty() {
            let step = self.tracker.next(input);
            let (piece, rest) = input.split_at(step.consumed);
            match step.kind {
                Kind::Data => self.lines(piece)?,
                Kind::End => return Ok(true),
                Kind::Lost => bail!("the answer's chunks are damaged"),
                Kind::ChunkEnd | Kind::Framing | Kind::Trailer => {}
            }
            input = rest;
        }
        Ok(false)
    }

    fn lines(&mut self, data: &[u8]) -> Result<()> {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.line(line.trim_ascii_end())?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<()> {
        let Some(data) = line.strip_prefix(b"data: ") else { return Ok(()) };
        if data == b"[DONE]" {
            return Ok(());
        }
        let chunk: Chunk = serde_json::from_slice(data)
            .with_context(|| format!("unknown event {}", String::from_utf8_lossy(data)))?;
        self.text.extend(chunk.choices.iter().filter_map(Choice::text).map(String::as_str));
        self.output_tokens =
            chunk.usage.map(|usage| usage.completion_tokens).or(self.output_tokens);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\
                        X-Inference-Gateway-Endpoint: 127.0.0.1:1\r\n\r\n";

    #[test]
    fn the_head_names_the_endpoint() {
        let (endpoint, length) = read_head(HEAD.as_bytes()).unwrap().unwrap();
        assert_eq!((endpoint.as_deref(), length), (Some("127.0.0.1:1"), HEAD.len()));
        let silent = HEAD.replace("X-Inference-Gateway-Endpoint: 127.0.0.1:1\r\n", "");
        assert_eq!(read_head(silent.as_bytes()).unwrap(), Some((None, silent.len())));
        assert!(read_head(&HEAD.as_bytes()[..30]).unwrap().is_none());
    }

    #[test]
    fn a_refusal_is_an_error_with_its_words() {
        let refusal = b"HTTP/1.1 503 No\r\ncontent-length: 4\r\n\r\nlost";
        assert!(read_head(refusal).unwrap_err().to_string().contains("lost"));
    }

    #[test]
    fn first_text_and_usage_are_found_however_the_stream_is_cut() {
        let role =
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
        let chat = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
        let completion = "data: {\"choices\":[{\"text\":\"Hi\"}]}\n\n";
        let usage =
            "data: {\"choices\":[],\"usage\":{\"completion_tokens\":7}}\n\ndata: [DONE]\n\n";
        let body = |text: &str| -> String {
            [role, text, usage, ""].map(|data| format!("{:x}\r\n{data}\r\n", data.len())).concat()
        };
        for (body, size) in [(body(chat), 1), (body(chat), 7), (body(completion), usize::MAX)] {
            let mut events = Events::default();
            let role_only = format!("{:x}\r\n{role}", role.len());
            events.feed(role_only.as_bytes()).unwrap();
            assert_eq!(events.text, "");
            let mut ended = false;
            for piece in body.as_bytes()[role_only.len()..].chunks(size.min(body.len())) {
                ended = events.feed(piece).unwrap();
            }
            assert_eq!((&*events.text, events.output_tokens, ended), ("Hi", Some(7), true));
        }
    }
}
