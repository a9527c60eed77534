//! Reading HTTP/1.1 requests, as uvicorn does.
//!
//! Written here rather than taken from hyper because a simulated server must
//! control what hyper hides: where chunks begin, when bytes leave, and how to
//! break the rules on purpose.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest head that is read.
const MAX_HEAD: usize = 256 * 1024;
const MAX_HEADERS: usize = 256;

/// A request's head.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Head {
    /// Method, as sent.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Minor version: 0 or 1.
    pub minor_version: u8,
    /// Headers in order, names as sent.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl Head {
    /// The first header of this name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }

    /// The same as text; empty when absent or not UTF-8.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.header(name).and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default()
    }

    /// The path without its query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Whether the connection stays open after the answer.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        let connection = self.text("connection").to_ascii_lowercase();
        match self.minor_version {
            0 => connection.contains("keep-alive"),
            _ => !connection.contains("close"),
        }
    }
}

/// A connection's incoming half with what was read ahead.
#[derive(Debug)]
pub(super) struct Incoming<R> {
    io: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub(super) fn new(io: R) -> Self {
        Self { io, buffer: BytesMut::with_capacity(16 * 1024) }
    }

    /// The next head; `None` when the peer closed between requests.
    pub(super) async fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(head) = self.parse_head()? {
                return Ok(Some(head));
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(invalid("head too long"));
            }
            if self.io.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(invalid("cut head")) };
            }
        }
    }

    /// The body of the request with this head, read at most as fast as `pace` says.
    pub(super) async fn body(&mut self, head: &Head, pace: Pace) -> io::Result<Vec<u8>> {
        if head.text("transfer-encoding").to_ascii_lowercase().contains("chunked") {
            return self.chunked_body(pace).await;
        }
        let length = match head.text("content-length") {
            "" => 0,
            digits => digits.trim().parse().map_err(|_| invalid("content-length"))?,
        };
        let mut body = Vec::new();
        self.take(length, &mut body, pace).await?;
        Ok(body)
    }

    /// Ends when the peer closes; what it sends before is kept for later, but no
    /// more than a head's worth is read.
    pub(super) async fn closed(&mut self) {
        while self.buffer.len() <= MAX_HEAD {
            if !matches!(self.io.read_buf(&mut self.buffer).await, Ok(1..)) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    fn parse_head(&mut self) -> io::Result<Option<Head>> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let status = request.parse(&self.buffer).map_err(|_| invalid("head"))?;
        let httparse::Status::Complete(length) = status else { return Ok(None) };
        let named = |header: &httparse::Header<'_>| (header.name.to_owned(), header.value.to_vec());
        let head = Head {
            method: request.method.unwrap_or_default().to_owned(),
            target: request.path.unwrap_or_default().to_owned(),
            minor_version: request.version.unwrap_or(1),
            headers: request.headers.iter().map(named).collect(),
        };
        self.buffer.advance(length);
        Ok(Some(head))
    }

    async fn chunked_body(&mut self, pace: Pace) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| invalid("chunk size"))?;
            if size == 0 {
                while !self.line().await?.is_empty() {} // trailers
                return Ok(body);
            }
            self.take(size, &mut body, pace).await?;
            if !self.line().await?.is_empty() {
                return Err(invalid("chunk end"));
            }
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.buffer.len() > MAX_HEAD || self.io.read_buf(&mut self.buffer).await? == 0 {
                return Err(invalid("line"));
            }
        }
    }

    async fn take(&mut self, length: usize, body: &mut Vec<u8>, pace: Pace) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            if self.buffer.is_empty() && self.io.read_buf(&mut self.buffer).await? == 0 {
                return Err(invalid("cut body"));
            }
            let most = pace.bytes_per_turn().unwrap_or(left);
            let part = self.buffer.split_to(left.min(most).min(self.buffer.len()));
            body.extend_from_slice(&part);
            left -= part.len();
            if pace.bytes_per_turn().is_some() {
                tokio::time::sleep(Pace::TURN).await;
            }
        }
        Ok(())
    }
}

/// How fast a body is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// As fast as it comes.
    Free,
    /// This many bytes per second.
    BytesPerSecond(u64),
}

impl Pace {
    const TURN: Duration = Duration::from_millis(10);

    fn bytes_per_turn(self) -> Option<usize> {
        match self {
            Self::Free => None,
            Self::BytesPerSecond(bytes) => Some((bytes / 100).max(1) as usize),
        }
    }
}

/// Tells a client that waits for it to send its body.
pub(super) async fn invite_body(
    out: &mut (impl AsyncWrite + Unpin),
    head: &Head,
) -> io::Result<()> {
    if head.text("expect").eq_ignore_ascii_case("100-continue") {
        out.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    Ok(())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("invalid request: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> io::Result<(Head, Vec<u8>)> {
        let mut incoming = Incoming::new(bytes);
        let head = incoming.head().await?.unwrap();
        let body = incoming.body(&head, Pace::Free).await?;
        Ok((head, body))
    }

    #[tokio::test]
    async fn chunked_body_is_joined_and_trailers_skipped() {
        let bytes = b"POST /a?b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
            3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\n";
        let (head, body) = read(bytes).await.unwrap();
        assert_eq!(
            (head.path(), head.target.as_str(), body.as_slice()),
            ("/a", "/a?b", &b"abcde"[..])
        );
    }

    #[tokio::test]
    async fn body_shorter_than_announced_is_an_error() {
        assert!(read(b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nabc").await.is_err());
    }

    #[test]
    fn old_clients_close_unless_they_ask() {
        let head = |minor_version, value: &str| Head {
            minor_version,
            headers: vec![("Connection".to_owned(), value.as_bytes().to_vec())],
            ..Head::default()
        };
        assert!(head(1, "").keeps_alive() && head(0, "Keep-Alive").keeps_alive());
        assert!(!head(1, "close").keeps_alive() && !head(0, "").keeps_alive());
    }
}
