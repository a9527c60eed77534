//! An HTTP/1.1 client that hides nothing.
//!
//! It sends exactly the bytes it is given and keeps what comes back as it came:
//! the head's bytes, each chunk with its moment, and how the connection ended.
//! With it a test can check that bytes pass unchanged, pipeline requests, break
//! the framing and close half a connection.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::place;

/// A connection to a server.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    buffer: BytesMut,
}

/// The head of an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AnswerHead {
    /// Status code.
    pub status: u16,
    /// Headers in order, names as sent.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The head as it came, blank line included.
    pub raw: Vec<u8>,
}

/// A chunk of a body, or a piece of one that is not chunked.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Its content.
    pub bytes: Vec<u8>,
    /// When it was complete.
    pub at: Instant,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct RawAnswer {
    /// Its head.
    pub head: AnswerHead,
    /// Its body as it came, in pieces.
    pub chunks: Vec<Chunk>,
}

impl RawClient {
    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// When the connection is refused or fails.
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        Self::over(place::connect(addr).await?)
    }

    /// Speaks over a connection that was made elsewhere.
    ///
    /// # Errors
    ///
    /// When the connection cannot be set up.
    pub fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: BytesMut::with_capacity(16 * 1024) })
    }

    /// The connection; what was read of it already stays behind.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Sends these bytes and nothing else.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Closes the sending half.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    pub async fn finish_sending(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    ///
    /// When the connection fails, or ends before the answer does.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<RawAnswer> {
        self.send(request).await?;
        self.answer().await
    }

    /// Reads a whole answer.
    ///
    /// # Errors
    ///
    /// When the connection fails, or ends before the answer does.
    pub async fn answer(&mut self) -> io::Result<RawAnswer> {
        let head = self.head().await?;
        let mut chunks = Vec::new();
        if head.is_chunked() {
            while let Some(chunk) = self.chunk().await? {
                chunks.push(chunk);
            }
        } else if let Some(length) = head.content_length() {
            let bytes = self.take(length).await?;
            chunks.push(Chunk { bytes, at: Instant::now() });
        } else if !matches!(head.status, 100..200 | 204 | 304) {
            let bytes = self.rest().await?;
            chunks.push(Chunk { bytes, at: Instant::now() });
        }
        Ok(RawAnswer { head, chunks })
    }

    /// Reads the next head.
    ///
    /// # Errors
    ///
    /// When the connection fails or ends, or when the bytes are no head.
    pub async fn head(&mut self) -> io::Result<AnswerHead> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 128];
            let mut response = httparse::Response::new(&mut headers);
            let parsed = response.parse(&self.buffer).map_err(|_| malformed("head"))?;
            if let httparse::Status::Complete(length) = parsed {
                let headers = response.headers.iter();
                let headers = headers.map(|header| (header.name.to_owned(), header.value.to_vec()));
                let (status, headers) = (response.code.unwrap_or_default(), headers.collect());
                let raw = self.buffer.split_to(length).to_vec();
                return Ok(AnswerHead { status, headers, raw });
            }
            self.read().await?;
        }
    }

    /// Reads the next chunk of a chunked body; `None` after its end. Trailers are skipped.
    ///
    /// # Errors
    ///
    /// When the connection fails or ends, or when the bytes are no chunk.
    pub async fn chunk(&mut self) -> io::Result<Option<Chunk>> {
        let line = self.line().await?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| malformed("chunk size"))?;
        if size == 0 {
            while !self.line().await?.is_empty() {}
            return Ok(None);
        }
        let bytes = self.take(size).await?;
        if self.take(2).await? != b"\r\n" {
            return Err(malformed("chunk end"));
        }
        Ok(Some(Chunk { bytes, at: Instant::now() }))
    }

    /// Reads until the server closes.
    ///
    /// # Errors
    ///
    /// When the connection fails, a reset included.
    pub async fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.stream.read_buf(&mut self.buffer).await? > 0 {}
        Ok(self.buffer.split().to_vec())
    }

    /// Waits until the server closes or resets, whatever it still sends.
    pub async fn closed(&mut self) {
        while matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..)) {}
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.buffer.advance(end + 2);
                return Ok(line);
            }
            self.read().await?;
        }
    }

    /// Reads exactly this many bytes, whatever they are.
    ///
    /// # Errors
    ///
    /// When the connection fails or ends.
    pub async fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.read().await?;
        }
        Ok(self.buffer.split_to(length).to_vec())
    }

    async fn read(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

impl AnswerHead {
    /// The first header of this name, in any case, as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    fn is_chunked(&self) -> bool {
        let encoding = self.header("transfer-encoding").unwrap_or_default();
        encoding.to_ascii_lowercase().contains("chunked")
    }

    fn content_length(&self) -> Option<usize> {
        self.header("content-length")?.trim().parse().ok()
    }
}

impl RawAnswer {
    /// The body without its framing.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        self.chunks.iter().flat_map(|chunk| chunk.bytes.iter().copied()).collect()
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body()).into_owned()
    }

    /// The body as JSON; `null` when it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body()).unwrap_or_default()
    }

    /// The `data` of each event of an event stream.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let text = self.text();
        text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }
}

/// A POST of a JSON body.
#[must_use]
pub fn post(path: &str, body: &str) -> Vec<u8> {
    post_with(path, &[], body)
}

/// A POST of a JSON body with further headers.
#[must_use]
pub fn post_with(path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let length = body.len();
    let headers: Vec<u8> = headers
        .iter()
        .flat_map(|(name, value)| [name, ": ", value, "\r\n"].concat().into_bytes())
        .collect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n"
    );
    [head.as_bytes(), &headers, b"\r\n", body.as_bytes()].concat()
}

/// A GET.
#[must_use]
pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").into_bytes()
}

/// Sends one request on a connection of its own.
///
/// # Errors
///
/// When the connection fails, or ends before the answer does.
pub async fn once(addr: SocketAddr, request: &[u8]) -> io::Result<RawAnswer> {
    RawClient::connect(addr).await?.exchange(request).await
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed answer: {what}"))
}
