//! A client's HTTP/1.1 connection: bytes in, bytes out, and noticing that it is gone.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use gateway_core::http1::{HeadError, Limits, RequestHead};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use crate::sk_msg::{Downstream, Owed, SkMsg};
use crate::splice::{Bound, Splicer};

/// Room for one read of a head or a small body.
const READ_BYTES: usize = 8 * 1024;
/// How much of a client's next requests is read ahead while one is answered.
/// Beyond it a client that goes away is noticed by the next write instead.
const PIPELINE_BYTES: usize = 64 * 1024;
/// How long, and how many bytes, an unread request body is thrown away for after
/// an early answer, so that closing does not destroy the answer on its way (a
/// close with unread bytes is a reset).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 8 * 1024 * 1024;

/// How often a client whose upload is held up is looked after.
const LOOK: Duration = Duration::from_millis(250);

/// The connection. One task owns it.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    /// Received and not yet consumed.
    pub(crate) buffer: BytesMut,
    /// All that was ever written, by us or from socket to socket.
    pub(crate) written: u64,
    /// The kernel's end of the connection, once an answer on it could be spliced.
    pub(crate) bound: Option<Bound>,
    /// Whether endpoints on this node may send into it, once that was tried.
    enrolled: Option<Result<Downstream, ()>>,
}

/// What [`Client::read_head`] found.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A request; the bytes of its head are gone from the buffer.
    Request(RequestHead),
    /// Not HTTP, or a head we refuse.
    Refused(HeadError),
    /// The client closed between requests, or in the middle of a head.
    Closed,
}

impl Client {
    pub(crate) fn new(stream: TcpStream, received: BytesMut) -> Self {
        Self { stream, buffer: received, written: 0, bound: None, enrolled: None }
    }

    /// Waits until the client sends something; gives memory back meanwhile.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub(crate) async fn wait(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
            self.stream.readable().await?;
        }
        Ok(())
    }

    /// Reads one request head.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub(crate) async fn read_head(&mut self, limits: &Limits) -> io::Result<Incoming> {
        loop {
            match RequestHead::parse_within(&self.buffer, limits) {
                Ok(Some((head, length))) => {
                    self.buffer.advance(length);
                    return Ok(Incoming::Request(head));
                }
                Ok(None) => {}
                Err(error) => return Ok(Incoming::Refused(error)),
            }
            if self.fill().await? == 0 {
                return Ok(Incoming::Closed);
            }
        }
    }

    /// Reads more into the buffer; zero is the end.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(READ_BYTES);
        self.stream.read_buf(&mut self.buffer).await
    }

    /// Reads at most `limit` bytes of a body straight to where they will stay.
    pub(crate) async fn read_at_most(
        &mut self,
        limit: usize,
        body: &mut BytesMut,
    ) -> io::Result<usize> {
        self.stream.read_buf(&mut body.limit(limit)).await
    }

    /// Writes all of `bytes`; each step of progress may take `idle`.
    ///
    /// # Errors
    ///
    /// The connection broke, or the client read nothing for `idle`.
    pub(crate) async fn write(&mut self, bytes: &[u8], idle: Duration) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.try_write(rest) {
                Ok(written) => {
                    self.written += written as u64;
                    rest = &rest[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match tokio::time::timeout(idle, self.stream.writable()).await {
                        Ok(writable) => writable?,
                        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Has the kernel look after the connection, if it can be spliced.
    pub(crate) fn bind(&mut self, splicer: &Arc<Splicer>) {
        if self.bound.is_none()
            && let (Ok(local), Ok(remote)) = (self.stream.local_addr(), self.stream.peer_addr())
        {
            self.bound = splicer.bind_client(local, remote);
        }
    }

    /// Lets endpoints on this node send into the socket; the socket, if they may.
    pub(crate) fn enrol(&mut self, maps: &SkMsg) -> Option<(&Downstream, &TcpStream)> {
        let stream = &self.stream;
        let enrolled = self.enrolled.get_or_insert_with(|| {
            maps.enrol(stream).map_err(|error| {
                tracing::debug!(%error, "a client's socket cannot be enrolled");
            })
        });
        enrolled.as_ref().ok().map(|downstream| (downstream, stream))
    }

    /// Whether the socket was given exactly what it is owed.
    pub(crate) fn has(&self, owed: Owed) -> bool {
        owed.is_paid(&self.stream)
    }

    /// Closes so that nobody takes what was written for a whole answer.
    pub(crate) fn tear(self) {
        // Without it the connection ends within the chunked body all the same.
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// Ready when the client has closed its side or the connection broke.
    ///
    /// A client that shuts down its sending side counts as gone, as it does for
    /// most HTTP servers: the engine must not generate for nobody.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.buffer.len() < PIPELINE_BYTES {
            // Asking first keeps the buffer unallocated while nothing comes.
            if std::task::ready!(self.stream.poll_read_ready(cx)).is_err() {
                return Poll::Ready(());
            }
            self.buffer.reserve(READ_BYTES);
            let reading = pin!(self.stream.read_buf(&mut self.buffer));
            match std::task::ready!(reading.poll(cx)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {}
            }
        }
        Poll::Pending
    }

    /// Runs `work` unless the client goes away first.
    pub(crate) async fn unless_gone<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            self.poll_gone(cx).map(|()| None)
        })
        .await
    }

    /// Ends when the client has closed its side, even behind bytes that nobody has
    /// read yet: while an upload is held up, reading on would only fill memory.
    pub(crate) async fn closed_behind(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            // The state is current; only a change of it would not wake this task.
            match self.stream.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => {}
                _ => return,
            }
        }
    }

    /// Closes gently after an answer that left part of the request unread.
    pub(crate) async fn linger(mut self) {
        let discarding = async {
            self.stream.shutdown().await?;
            let mut discarded = 0;
            while discarded < LINGER_BYTES {
                self.buffer.clear();
                match self.fill().await? {
                    0 => break,
                    n => discarded += n,
                }
            }
            io::Result::Ok(())
        };
        // Whatever stops it, the connection closes here.
        let _ = tokio::time::timeout(LINGER, discarding).await;
    }
}
