//! Connections to endpoints: opened, reused, and found stale in time.
//!
//! HTTP/1.1 towards engines is spoken by hand. The bytes of a streamed answer
//! are passed on exactly as they came, chunk framing included, so the gateway
//! needs to know at every moment how many bytes it has read and where the chunk
//! boundaries are; a client library hides both. (`docs/decisions/0002-own-http1.md`
//! has the measurements.)

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use gateway_core::http1::{HeadError, ResponseHead};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::transport::Transport;
use crate::carrier::Carriers;
use crate::endpoint::Endpoint;
use crate::sk_msg::Upstream;
use crate::splice::Bound;

/// Room for one read: several small chunks, or a slice of a large answer.
const READ_BYTES: usize = 16 * 1024;
/// Interim heads (1xx) we skip before we call an endpoint broken.
const INTERIM_HEADS: u32 = 8;

/// Why an attempt at an endpoint failed before its answer began.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    /// No connection.
    #[error("connect failed")]
    Connect(#[source] io::Error),
    /// No connection in time.
    #[error("connect timed out after {0:?}")]
    ConnectTimeout(Duration),
    /// The connection broke, or was closed, before the first byte of the answer.
    #[error("closed before the first byte of the answer")]
    Closed(#[source] Option<io::Error>),
    /// What came is not an HTTP answer.
    #[error("malformed answer head")]
    Malformed(#[source] Option<HeadError>),
    /// Nothing came in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// One connection to an endpoint.
#[derive(Debug)]
pub(crate) struct Connection {
    transport: Transport,
    /// Received and not yet consumed.
    pub(crate) buffer: BytesMut,
    /// Whether an earlier request used it: then a close before the answer is
    /// most likely the keep-alive race and says nothing about the endpoint.
    pub(crate) reused: bool,
    /// All that was ever received.
    pub(crate) received: u64,
    /// The kernel's end of it, where answers may be spliced.
    pub(crate) bound: Option<Bound>,
    /// The same, where what endpoints on this node send may go straight to clients.
    pub(crate) local: Option<Upstream>,
}

impl Connection {
    /// Connects to `endpoint` within `limit`.
    ///
    /// # Errors
    ///
    /// [`AttemptError::Connect`] and [`AttemptError::ConnectTimeout`].
    pub(crate) async fn open(
        endpoint: &Endpoint,
        limit: Duration,
        carriers: &Carriers,
    ) -> Result<Self, AttemptError> {
        let (transport, local) = Transport::open(endpoint, limit, carriers).await?;
        let splicer = carriers.splicer.as_ref();
        let bound = splicer.zip(transport.plain()).and_then(|(splicer, stream)| {
            splicer.bind_endpoint(stream.local_addr().ok()?, stream.peer_addr().ok()?)
        });
        Ok(Self { transport, buffer: BytesMut::new(), reused: false, received: 0, bound, local })
    }

    /// Whether the endpoint may be asked for something else: not while it may have to
    /// send again what the kernel has moved from it, which a next answer would wait for;
    /// unless that goes to the same client, whose connection waits for it anyway. `flow`
    /// is the one in force on the client's connection.
    fn is_free_for(&self, flow: u32) -> bool {
        let is_free = |bound: &Bound| flow != 0 && bound.flow() == flow || bound.is_settled();
        self.bound.as_ref().is_none_or(is_free)
    }

    /// Whether the connection can carry another request: nothing unread, not closed.
    fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut byte = ReadBuf::new(&mut byte);
        let mut nobody = Context::from_waker(Waker::noop());
        self.buffer.is_empty()
            && Pin::new(&mut self.transport).poll_read(&mut nobody, &mut byte).is_pending()
    }

    /// Writes a request, or its beginning.
    ///
    /// An engine may answer, or close, before it has read everything (a body it
    /// finds too large); then writing stops and the answer counts.
    pub(crate) async fn send(&mut self, head: &[u8], body: &[u8]) -> io::Result<Sent> {
        if let Some(local) = &self.local {
            local.begin(self.received);
        }
        let all = head.len() + body.len();
        let mut written = 0;
        while written < all {
            let rest = [
                IoSlice::new(head.get(written..).unwrap_or_default()),
                IoSlice::new(&body[written.saturating_sub(head.len())..]),
            ];
            // One write for head and body: the engine wakes once, for all of it.
            let rest = if rest[0].is_empty() { &rest[1..] } else { &rest[..] };
            let step =
                poll_fn(|cx| match Pin::new(&mut self.transport).poll_write_vectored(cx, rest) {
                    Poll::Ready(step) => Poll::Ready(step),
                    Poll::Pending => self.poll_fill(cx).map_ok(|_| 0),
                });
            match step.await? {
                0 => return Ok(Sent::AnsweredEarly),
                length => written += length,
            }
        }
        poll_fn(|cx| Pin::new(&mut self.transport).poll_flush(cx)).await?;
        Ok(Sent::Whole)
    }

    /// Writes a piece of an upload after `head`; in a chunk of its own unless the
    /// body's length was announced.
    pub(crate) async fn send_piece(
        &mut self,
        head: &mut Vec<u8>,
        piece: &[u8],
        announced: bool,
    ) -> io::Result<Sent> {
        if announced || piece.is_empty() {
            return self.send(head, piece).await;
        }
        head.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        match self.send(head, piece).await? {
            Sent::Whole => self.send(b"\r\n", b"").await,
            early @ Sent::AnsweredEarly => Ok(early),
        }
    }

    /// See [`Transport::delay_acks`].
    pub(crate) fn delay_acks(&self) {
        self.transport.delay_acks();
    }

    /// Reads the head of the answer, past interim ones; `limit` bounds the wait.
    ///
    /// # Errors
    ///
    /// Every [`AttemptError`] but the connecting ones.
    pub(crate) async fn read_head(
        &mut self,
        limit: Duration,
    ) -> Result<ResponseHead, AttemptError> {
        match tokio::time::timeout(limit, self.read_final_head()).await {
            Ok(result) => result,
            Err(_) => Err(AttemptError::Timeout(limit)),
        }
    }

    async fn read_final_head(&mut self) -> Result<ResponseHead, AttemptError> {
        let mut interim = 0;
        loop {
            let parsed =
                if self.buffer.is_empty() { Ok(None) } else { ResponseHead::parse(&self.buffer) };
            match parsed.map_err(|error| AttemptError::Malformed(Some(error)))? {
                Some((head, length)) => {
                    self.buffer.advance(length);
                    // We never ask for another protocol.
                    if head.status() == 101 {
                        return Err(AttemptError::Malformed(None));
                    }
                    if !head.is_interim() {
                        return Ok(head);
                    }
                    interim += 1;
                    if interim > INTERIM_HEADS {
                        return Err(AttemptError::Malformed(None));
                    }
                }
                None => match poll_fn(|cx| self.poll_fill(cx)).await {
                    // Half a head and then the end is as broken as none at all.
                    Ok(0) => return Err(AttemptError::Closed(None)),
                    Ok(_) => {}
                    Err(error) => return Err(AttemptError::Closed(Some(error))),
                },
            }
        }
    }

    /// Reads more into the buffer; zero is the end.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.buffer.reserve(READ_BYTES);
        // `read_buf` keeps nothing between polls, so a new one each time is the same read.
        let read = pin!(self.transport.read_buf(&mut self.buffer)).poll(cx);
        if let Poll::Ready(Ok(length)) = read {
            self.received += length as u64;
        }
        read
    }
}

/// How far a request got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sent {
    /// The endpoint began to answer, or closed, before it had everything. Such a
    /// connection cannot be reused.
    AnsweredEarly,
    /// Everything was written.
    Whole,
}

/// Connections and when each became idle, newest last.
type ByAuthority = HashMap<Arc<str>, Vec<(Connection, Instant)>>;

/// Connections of one worker that wait for their next request.
///
/// Newest first: under light load the same few stay warm and the rest time out.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    /// By `host:port`.
    connections: Mutex<ByAuthority>,
}

impl Idle {
    /// A connection to `endpoint` that still looks usable, for a client on whose
    /// connection `flow` is in force (0 for none).
    pub(crate) fn take(&self, endpoint: &Endpoint, flow: u32) -> Option<Connection> {
        let mut connections = self.lock();
        let waiting = connections.get_mut(&endpoint.authority)?;
        let is_free = |(connection, _): &(Connection, Instant)| connection.is_free_for(flow);
        while let Some(newest) = waiting.iter().rposition(is_free) {
            let (mut connection, _) = waiting.remove(newest);
            if connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps `connection` for a later request.
    pub(crate) fn put(&self, endpoint: &Endpoint, mut connection: Connection) {
        connection.reused = true;
        // An idle connection needs no buffer.
        connection.buffer = BytesMut::new();
        self.lock()
            .entry(Arc::clone(&endpoint.authority))
            .or_default()
            .push((connection, Instant::now()));
    }

    /// Closes what was idle for `limit`, what the other side has closed, and what
    /// belongs to endpoints that are gone.
    pub(crate) fn sweep(&self, limit: Duration, exists: impl Fn(&str) -> bool) {
        self.lock().retain(|endpoint, waiting| {
            if !exists(endpoint) {
                return false;
            }
            waiting
                .retain_mut(|(connection, since)| since.elapsed() < limit && connection.is_quiet());
            !waiting.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, ByAuthority> {
        // Every method leaves the map whole, so a panic elsewhere does not spoil it.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
