//! A request body on its way in, from either protocol.

use std::future::Future;

use bytes::{Buf, BytesMut};
use gateway_common::chunked::{ChunkTracker, Kind};
use gateway_core::http1::Framing;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use super::client::Client;
use super::error::ProxyError;

/// Largest piece of a body that is read at once. Small enough to stay in the
/// processor's cache between the read and the scan.
const PIECE_BYTES: usize = 256 * 1024;

/// A request body. Dropping it leaves the rest unread.
#[derive(Debug)]
pub(crate) enum Upload<'a> {
    Http1(Http1Upload<'a>),
    Http2(Incoming),
}

/// An HTTP/1.1 body, framed by length or in chunks.
#[derive(Debug)]
pub(crate) struct Http1Upload<'a> {
    client: &'a mut Client,
    state: State,
    /// The client waits for a `100 Continue` before it sends anything.
    expects_continue: bool,
}

#[derive(Debug)]
enum State {
    Chunked(ChunkTracker),
    Done,
    Remaining(u64),
}

/// Whether more of a body is to come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum More {
    No,
    Yes,
}

impl Upload<'_> {
    /// Appends the next piece to `body`; at the end appends nothing.
    ///
    /// # Errors
    ///
    /// [`ProxyError::ClientGone`] when the client closes early, and
    /// [`ProxyError::BadBody`] when the framing is broken.
    pub(crate) async fn append(&mut self, body: &mut BytesMut) -> Result<More, ProxyError> {
        match self {
            Self::Http1(upload) => upload.append(body).await,
            Self::Http2(incoming) => loop {
                match incoming.frame().await {
                    None => return Ok(More::No),
                    Some(Err(_)) => return Err(ProxyError::ClientGone),
                    // Trailers of a request mean nothing to an engine.
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            body.extend_from_slice(&data);
                            return Ok(if incoming.is_end_stream() { More::No } else { More::Yes });
                        }
                    }
                }
            },
        }
    }

    /// Bytes still to come, when the client told.
    pub(crate) fn remaining(&self) -> Option<u64> {
        match self {
            Self::Http1(upload) => match upload.state {
                State::Remaining(length) => Some(length),
                State::Done => Some(0),
                State::Chunked(_) => None,
            },
            Self::Http2(incoming) => incoming.size_hint().exact(),
        }
    }

    /// Runs `work` unless the client goes away first.
    ///
    /// # Errors
    ///
    /// [`ProxyError::ClientGone`]. Over HTTP/2 the whole request is dropped then,
    /// so there it cannot happen.
    pub(crate) async fn unless_gone<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, ProxyError> {
        match self {
            Self::Http1(upload) => {
                upload.client.unless_gone(work).await.ok_or(ProxyError::ClientGone)
            }
            Self::Http2(_) => Ok(work.await),
        }
    }

    /// Runs `work`, which passes on a piece of this upload and may be held up by its
    /// receiver, unless the client goes away first.
    ///
    /// # Errors
    ///
    /// As [`Upload::unless_gone`].
    pub(crate) async fn unless_left<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, ProxyError> {
        let Self::Http1(upload) = self else { return Ok(work.await) };
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = upload.client.closed_behind() => Err(ProxyError::ClientGone),
        }
    }
}

impl<'a> Http1Upload<'a> {
    pub(crate) fn new(client: &'a mut Client, framing: Framing, expects: bool) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Remaining(length),
            Framing::Chunked => State::Chunked(ChunkTracker::new()),
        };
        Self { client, state, expects_continue: expects }
    }

    /// Whether the whole body was read, so that the connection can go on.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    async fn append(&mut self, body: &mut BytesMut) -> Result<More, ProxyError> {
        match self.state {
            State::Done => Ok(More::No),
            State::Remaining(remaining) => self.append_of(remaining, body).await,
            State::Chunked(_) => self.append_chunks(body).await,
        }
    }

    /// Reads a piece of a body of known length, past the connection's own buffer.
    async fn append_of(&mut self, remaining: u64, body: &mut BytesMut) -> Result<More, ProxyError> {
        let wanted = usize::try_from(remaining).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let buffered = &mut self.client.buffer;
        let read = if buffered.is_empty() {
            self.send_continue().await?;
            body.reserve(wanted);
            let before = body.len();
            self.client.read_at_most(wanted, body).await.map_err(|_| ProxyError::ClientGone)?;
            body.len() - before
        } else {
            let ready = buffered.len().min(wanted);
            body.extend_from_slice(&buffered[..ready]);
            buffered.advance(ready);
            ready
        };
        if read == 0 {
            return Err(ProxyError::ClientGone);
        }
        let remaining = remaining - read as u64;
        self.state = if remaining == 0 { State::Done } else { State::Remaining(remaining) };
        Ok(if remaining == 0 { More::No } else { More::Yes })
    }

    /// Reads until at least one piece of chunk data (or the end) has come.
    async fn append_chunks(&mut self, body: &mut BytesMut) -> Result<More, ProxyError> {
        let before = body.len();
        loop {
            if self.client.buffer.is_empty() {
                if body.len() > before {
                    return Ok(More::Yes);
                }
                self.send_continue().await?;
                if self.client.fill().await.map_err(|_| ProxyError::ClientGone)? == 0 {
                    return Err(ProxyError::ClientGone);
                }
            }
            let State::Chunked(tracker) = &mut self.state else { return Ok(More::No) };
            let step = tracker.next(&self.client.buffer);
            match step.kind {
                Kind::Data => body.extend_from_slice(&self.client.buffer[..step.consumed]),
                Kind::ChunkEnd | Kind::Framing | Kind::Trailer => {}
                Kind::End => self.state = State::Done,
                Kind::Lost => return Err(ProxyError::BadBody("malformed chunk".to_owned())),
            }
            self.client.buffer.advance(step.consumed);
            if self.is_done() {
                return Ok(More::No);
            }
        }
    }

    /// Tells a client that waits for it to go on, once, and only when nothing of
    /// the body is here yet: an early refusal must come without it.
    async fn send_continue(&mut self) -> Result<(), ProxyError> {
        if std::mem::take(&mut self.expects_continue) {
            const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
            let idle = std::time::Duration::from_secs(10);
            self.client.write(CONTINUE, idle).await.map_err(|_| ProxyError::ClientGone)?;
        }
        Ok(())
    }
}
