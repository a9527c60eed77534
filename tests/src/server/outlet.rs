//! Writing answers: framing, and every way to get it wrong on purpose.

use std::io::{self, Write};
use std::time::SystemTime;

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::failure::{AnswerFault, Chunks, Connection, Failures};

/// What follows an answer on its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    Close,
    Request,
}

/// One answer on its way out.
pub(super) struct Outlet<'a, W> {
    out: &'a mut W,
    fault: Option<AnswerFault>,
    chunks: Chunks,
    connection: Connection,
    request_id: String,
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// Bytes that wait for a chunk of the ordered size, and how many events they are.
    pending: Vec<u8>,
    pending_events: usize,
    chunks_written: u32,
    parts: Parts,
}

/// What of a whole answer is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Parts {
    All,
    HeadOnly,
}

impl<'a, W: AsyncWrite + Unpin> Outlet<'a, W> {
    pub(super) fn new(
        out: &'a mut W,
        failures: &Failures,
        fault: Option<AnswerFault>,
        request_id: String,
    ) -> Self {
        Self {
            out,
            fault,
            chunks: failures.chunks,
            connection: failures.connection,
            request_id,
            gzip: failures.gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
            pending: Vec::new(),
            pending_events: 0,
            chunks_written: 0,
            parts: Parts::All,
        }
    }

    /// The connection closes after this answer, and the head says so.
    pub(super) fn announce_close(&mut self) {
        self.connection = Connection::Close;
    }

    /// The request was HEAD: a whole answer's length is told, its body is not sent.
    pub(super) fn send_head_only(&mut self) {
        self.parts = Parts::HeadOnly;
    }

    /// An answer whose length is known.
    pub(super) async fn whole(&mut self, reply: &Whole) -> io::Result<Next> {
        let mut body = reply.body.clone();
        if let Some(mut gzip) = self.gzip.take() {
            gzip.write_all(&body)?;
            body = gzip.finish()?;
        }
        let encoding = if body == reply.body { "" } else { "content-encoding: gzip\r\n" };
        let announced = match self.fault {
            Some(AnswerFault::BadFraming) => "many".to_owned(),
            _ => body.len().to_string(),
        };
        let head = self.head(
            reply.status,
            &reply.headers,
            &format!("content-length: {announced}\r\n"),
            encoding,
        );
        match self.fault {
            Some(AnswerFault::CloseAfterChunks { within_chunk, .. }) => {
                let sent = if within_chunk { body.len() / 2 } else { 0 };
                self.out.write_all(&[head.as_bytes(), &body[..sent]].concat()).await?;
                Ok(Next::Close)
            }
            Some(AnswerFault::HangAfterChunks { .. }) => {
                self.out.write_all(head.as_bytes()).await?;
                std::future::pending().await
            }
            _ => {
                let body: &[u8] = if self.parts == Parts::HeadOnly { &[] } else { &body };
                self.out.write_all(&[head.as_bytes(), body].concat()).await?;
                Ok(self.next())
            }
        }
    }

    /// Starts an answer of unknown length.
    pub(super) async fn begin(&mut self, headers: &str) -> io::Result<()> {
        let encoding = if self.gzip.is_some() { "content-encoding: gzip\r\n" } else { "" };
        let head = self.head(200, headers, encoding, "transfer-encoding: chunked\r\n");
        self.out.write_all(head.as_bytes()).await
    }

    /// One event of a streamed answer.
    pub(super) async fn event(&mut self, event: &[u8]) -> io::Result<()> {
        let event = match &mut self.gzip {
            Some(gzip) => {
                gzip.write_all(event)?;
                gzip.flush()?;
                std::mem::take(gzip.get_mut())
            }
            None => event.to_vec(),
        };
        match self.chunks {
            Chunks::Event | Chunks::Writes(_) => self.chunk(&event).await,
            Chunks::Bytes(size) => {
                self.pending.extend_from_slice(&event);
                while self.pending.len() >= size.max(1) {
                    let rest = self.pending.split_off(size.max(1));
                    let chunk = std::mem::replace(&mut self.pending, rest);
                    self.chunk(&chunk).await?;
                }
                Ok(())
            }
            Chunks::Events(events) => {
                self.pending.extend_from_slice(&event);
                self.pending_events += 1;
                if self.pending_events < events { Ok(()) } else { self.flush().await }
            }
        }
    }

    /// Ends a streamed answer.
    pub(super) async fn end(&mut self) -> io::Result<Next> {
        if let Some(gzip) = self.gzip.take() {
            self.pending.extend(gzip.finish()?);
        }
        self.flush().await?;
        self.out.write_all(b"0\r\n\r\n").await?;
        Ok(self.next())
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.pending_events = 0;
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() { Ok(()) } else { self.chunk(&pending).await }
    }

    async fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut frame = format!("{:x}\r\n", bytes.len()).into_bytes();
        frame.extend_from_slice(bytes);
        frame.extend_from_slice(b"\r\n");
        match self.fault {
            Some(AnswerFault::CloseAfterChunks { chunks, within_chunk })
                if self.chunks_written >= chunks =>
            {
                let sent = if within_chunk { frame.len() / 2 } else { 0 };
                self.out.write_all(&frame[..sent]).await?;
                return Err(io::Error::other("connection closed as ordered"));
            }
            Some(AnswerFault::HangAfterChunks { chunks }) if self.chunks_written >= chunks => {
                return std::future::pending().await;
            }
            Some(AnswerFault::BadFraming) => frame.splice(..1, *b"xyz").for_each(drop),
            _ => {}
        }
        self.chunks_written += 1;
        let Chunks::Writes(size) = self.chunks else { return self.out.write_all(&frame).await };
        for part in frame.chunks(size.max(1)) {
            self.out.write_all(part).await?;
            // A further segment, not one that the kernel joins to the last.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// A head in uvicorn's order: `first`, the answer's own headers, `last`.
    fn head(&self, status: u16, headers: &str, first: &str, last: &str) -> String {
        let close = if self.connection == Connection::Close { "connection: close\r\n" } else { "" };
        let (date, reason) = (httpdate::fmt_http_date(SystemTime::now()), reason(status));
        let id = &self.request_id;
        format!(
            "HTTP/1.1 {status} {reason}\r\ndate: {date}\r\nserver: uvicorn\r\n{first}{headers}\
             vary: Origin\r\nx-request-id: {id}\r\n{close}{last}\r\n"
        )
    }

    fn next(&self) -> Next {
        if self.connection == Connection::Keep { Next::Request } else { Next::Close }
    }
}

/// An answer whose length is known.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    pub(super) status: u16,
    /// Complete header lines, such as the content type's.
    pub(super) headers: String,
    pub(super) body: Vec<u8>,
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unknown",
    }
}
