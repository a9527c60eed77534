//! An engine whose every byte the test writes.
//!
//! Requests for inference are handed to the test when their head is here; the
//! listing that the gateway asks for by itself is refused, as by an engine that
//! has none.

use std::net::{IpAddr, SocketAddr};

use gateway_tests::place::Place;
use gateway_tests::wait::soon;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// The engine; dropping it closes its listener.
pub(crate) struct Scripted {
    pub(crate) addr: SocketAddr,
    exchanges: UnboundedReceiver<Exchange>,
    task: JoinHandle<()>,
}

/// A request whose head has come, and the connection it came on.
pub(crate) struct Exchange {
    /// The head as it came, blank line included.
    pub(crate) head: String,
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Scripted {
    #[expect(clippy::unused_async, reason = "it needs a runtime, which awaiting it says")]
    pub(crate) async fn start() -> Self {
        Self::over(Place::Pod.listen().unwrap())
    }

    /// Starts one at an address of the namespace this is awaited in.
    pub(crate) async fn start_at(address: impl Into<IpAddr>) -> Self {
        Self::over(TcpListener::bind((address.into(), 0)).await.unwrap())
    }

    fn over(listener: TcpListener) -> Self {
        let addr = listener.local_addr().unwrap();
        let (to, exchanges) = unbounded_channel();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                tokio::spawn(greet(stream, to.clone()));
            }
        });
        Self { addr, exchanges, task }
    }

    /// The next request on a new connection.
    pub(crate) async fn exchange(&mut self) -> Exchange {
        soon(self.exchanges.recv()).await.unwrap()
    }

    /// Reads the next request and answers it with these bytes.
    pub(crate) async fn answer(&mut self, bytes: &[u8]) -> Exchange {
        let mut exchange = self.exchange().await;
        exchange.body().await;
        exchange.send(bytes).await;
        exchange
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn greet(stream: TcpStream, to: UnboundedSender<Exchange>) {
    let mut exchange = Exchange { head: String::new(), stream, buffer: Vec::new() };
    while exchange.read_head().await {
        if !exchange.head.starts_with("GET /v1/models ") {
            // The test may be over.
            let _ = to.send(exchange);
            return;
        }
        exchange.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
    }
}

impl Exchange {
    /// The first header of this name, which must be given in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.to_ascii_lowercase() == name).then(|| value.trim())
        })
    }

    /// Reads a body of the announced length, or a chunked one with its framing.
    pub(crate) async fn body(&mut self) -> Vec<u8> {
        if self.header("transfer-encoding").is_some() {
            while !self.buffer.ends_with(b"0\r\n\r\n") {
                assert!(self.fill().await, "the body ended early");
            }
            return std::mem::take(&mut self.buffer);
        }
        let length = self.header("content-length").map_or(0, |length| length.parse().unwrap());
        while self.buffer.len() < length {
            assert!(self.fill().await, "the body ended early");
        }
        self.buffer.drain(..length).collect()
    }

    /// Writes these bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        soon(self.stream.write_all(bytes)).await.unwrap();
    }

    /// Writes these bytes, for however long the gateway takes to read them.
    pub(crate) async fn send_slowly(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Writes these bytes; false when the gateway has closed the connection.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> bool {
        soon(self.stream.write_all(bytes)).await.is_ok()
    }

    /// Reads the head of the next request on this connection; false at its end.
    pub(crate) async fn read_head(&mut self) -> bool {
        loop {
            let end = self.buffer.windows(4).position(|window| window == b"\r\n\r\n");
            if let Some(end) = end {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                self.head = String::from_utf8_lossy(&head).into_owned();
                return true;
            }
            if !self.fill().await {
                return false;
            }
        }
    }

    /// Waits until the gateway has closed this connection.
    pub(crate) async fn closed(&mut self) {
        soon(async { while self.fill().await {} }).await;
    }

    async fn fill(&mut self) -> bool {
        matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..))
    }
}

/// An answer with a length.
pub(crate) fn whole(content_type: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// The head of a chunked event stream.
pub(crate) const EVENTS: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
    transfer-encoding: chunked\r\n\r\n";

/// A chunk.
pub(crate) fn chunk(data: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

/// The end of a chunked body.
pub(crate) const END: &[u8] = b"0\r\n\r\n";
