//! An engine's answer on its way to the client.
//!
//! Bytes leave in the order and, where the client's protocol allows, in the very
//! framing in which they came: a chunked answer to an HTTP/1.1 client is passed
//! on verbatim, chunk sizes included. The framing is followed all the same, for
//! three reasons: to know the end (so that the connection can be reused), to know
//! the boundaries (so that an error can be told only where it cannot be mistaken
//! for data), and to see first token and usage go by.
//!
//! Whoever drops an answer before its end closes the connection to the engine,
//! which stops generating.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gateway_common::chunked::ChunkTracker;
use gateway_core::http1::ResponseFraming;
use gateway_core::rename::Rename;
use tokio::time::Instant;

use super::error::Dialect;
use super::record::Record;
use super::upstream::{Connection, Idle};
use crate::carrier::Carriers;
use crate::endpoint::Endpoint;
use crate::pool::Reservation;
use carriage::Carriage;
use chunks::Chunks;
use timer::Timer;

mod carriage;
mod chunks;
mod timer;

/// How the pieces of an answer are cut for the client's side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cut {
    /// Payload only; the client's side frames it.
    Payload,
    /// Chunked framing and payload, as they came.
    Verbatim,
}

/// Why an answer stopped in the middle.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    /// The engine closed or reset the connection.
    #[error("the model server closed the connection in the middle of its answer")]
    Closed(#[source] Option<std::io::Error>),
    /// The engine's chunked framing is broken.
    #[error("the model server sent malformed chunks")]
    Malformed,
    /// The engine sent nothing for too long.
    #[error("the model server sent nothing for {0:?}")]
    Idle(Duration),
    /// Nobody is left to answer to.
    #[error("the client closed the connection")]
    ClientGone,
    /// The whole request took too long.
    #[error("the request took longer than {0:?}")]
    Deadline(Duration),
    /// The kernel put only a part of what it moved into the client's socket.
    #[error("the client's connection did not take all that was moved to it")]
    Torn,
}

/// A streaming (or short) answer body.
#[derive(Debug)]
pub(crate) struct Answer {
    connection: Option<Connection>,
    /// Where the connection goes when the answer is complete.
    reuse: Option<Arc<Idle>>,
    body: BodyState,
    cut: Cut,
    dialect: Dialect,
    rename: Option<Rename>,
    timer: Timer,
    endpoint: Arc<Endpoint>,
    reservation: Reservation,
    record: Record,
    carriage: Option<Carriage>,
}

#[derive(Debug)]
enum BodyState {
    Chunked(ChunkTracker),
    Done,
    Remaining(u64),
    UntilClose,
}

/// What the answer needs besides its bytes.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) connection: Connection,
    pub(crate) reuse: Option<Arc<Idle>>,
    pub(crate) framing: ResponseFraming,
    pub(crate) cut: Cut,
    pub(crate) dialect: Dialect,
    pub(crate) rename: Option<Rename>,
    /// Longest silence of the engine.
    pub(crate) idle: Duration,
    /// When the whole request must be over, and how long it was given.
    pub(crate) deadline: (Instant, Duration),
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) reservation: Reservation,
    pub(crate) record: Record,
    /// Who may carry it besides us.
    pub(crate) carriers: Carriers,
}

impl Answer {
    pub(crate) fn new(parts: Parts) -> Self {
        let body = match parts.framing {
            ResponseFraming::Chunked => BodyState::Chunked(ChunkTracker::new()),
            ResponseFraming::Length(0) | ResponseFraming::None => BodyState::Done,
            ResponseFraming::Length(length) => BodyState::Remaining(length),
            ResponseFraming::UntilClose => BodyState::UntilClose,
        };
        let mut answer = Self {
            connection: Some(parts.connection),
            reuse: parts.reuse,
            body,
            cut: parts.cut,
            dialect: parts.dialect,
            rename: parts.rename,
            timer: Timer::new(parts.idle, parts.deadline),
            endpoint: parts.endpoint,
            reservation: parts.reservation,
            record: parts.record,
            carriage: Carriage::new(parts.carriers),
        };
        if matches!(answer.body, BodyState::Done) {
            answer.complete();
        }
        answer
    }

    /// Whether pieces carry the engine's own chunk framing.
    pub(crate) fn is_verbatim(&self) -> bool {
        self.cut == Cut::Verbatim
    }

    /// Error objects this answer's client understands.
    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Whether the last piece ended where an error event may follow.
    pub(crate) fn at_boundary(&self) -> bool {
        match &self.body {
            BodyState::Chunked(tracker) => tracker.at_boundary() && self.record.at_event_boundary(),
            BodyState::Done | BodyState::Remaining(_) => false,
            BodyState::UntilClose => self.record.at_event_boundary(),
        }
    }

    /// The next piece; `None` after the last one.
    ///
    /// # Errors
    ///
    /// [`AnswerError`]; the connection to the engine is closed then.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, AnswerError>>> {
        loop {
            let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
            if connection.buffer.is_empty() {
                let filled = connection.poll_fill(cx);
                if filled.is_ready() {
                    self.take_back();
                }
                match filled {
                    Poll::Pending => {
                        let error = ready!(self.timer.poll_expired(cx));
                        if matches!(error, AnswerError::Idle(_)) && self.has_moved() {
                            self.timer.touch();
                            continue;
                        }
                        return self.fail(error);
                    }
                    Poll::Ready(Ok(0)) if matches!(self.body, BodyState::UntilClose) => {
                        let held =
                            self.rename.as_mut().map(|rename| rename_piece(rename, b"", true));
                        self.reuse = None;
                        self.complete();
                        return Poll::Ready(held.filter(|held| !held.is_empty()).map(Ok));
                    }
                    Poll::Ready(Ok(0)) => return self.fail(AnswerError::Closed(None)),
                    Poll::Ready(Err(error)) => return self.fail(AnswerError::Closed(Some(error))),
                    Poll::Ready(Ok(_)) => self.timer.touch(),
                }
            }
            match self.take_piece() {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => return Poll::Ready(Some(Ok(piece))),
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Cuts what has been received into the next piece. May be empty when it was
    /// framing only.
    fn take_piece(&mut self) -> Result<Bytes, AnswerError> {
        let Some(connection) = &mut self.connection else { return Ok(Bytes::new()) };
        let buffer = &mut connection.buffer;
        let mut token = false;
        let piece = match &mut self.body {
            BodyState::Done => Bytes::new(),
            BodyState::UntilClose => {
                let piece = buffer.split().freeze();
                token = self.record.data(&piece);
                piece
            }
            BodyState::Remaining(remaining) => {
                let length = usize::try_from(*remaining).unwrap_or(usize::MAX).min(buffer.len());
                let piece = buffer.split_to(length).freeze();
                token = self.record.data(&piece);
                *remaining -= length as u64;
                if *remaining == 0 {
                    self.body = BodyState::Done;
                }
                piece
            }
            BodyState::Chunked(tracker) => {
                let chunks = Chunks::follow(tracker, buffer, &mut self.record, self.cut)?;
                if chunks.ended {
                    self.body = BodyState::Done;
                }
                token = chunks.token;
                chunks.piece
            }
        };
        if token {
            self.reservation.first_token();
        }
        let done = matches!(self.body, BodyState::Done);
        let piece = match &mut self.rename {
            Some(rename) => rename_piece(rename, &piece, done),
            None => piece,
        };
        if done {
            self.complete();
        }
        Ok(piece)
    }

    /// The answer is whole: release, count, and keep the connection if it is clean.
    fn complete(&mut self) {
        self.body = BodyState::Done;
        self.record.completed();
        match self.record.status() {
            status @ 400.. => self.reservation.refused(status),
            _ => self.reservation.completed(self.record.output_tokens()),
        }
        if let (Some(connection), Some(idle)) = (self.connection.take(), &self.reuse) {
            // Bytes after the end belong to no request: such a connection is not trusted.
            if connection.buffer.is_empty() {
                idle.put(&self.endpoint, connection);
            }
        }
    }

    fn fail(&mut self, error: AnswerError) -> Poll<Option<Result<Bytes, AnswerError>>> {
        self.take_back();
        self.connection = None;
        self.reservation.cut(self.record.output_tokens());
        self.record.broken(&error);
        self.reservation.broken(&error);
        Poll::Ready(Some(Err(error)))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.take_back();
        // Only an answer that was left before its end still holds its reservation.
        self.reservation.cut(self.record.output_tokens());
    }
}

fn rename_piece(rename: &mut Rename, piece: &[u8], done: bool) -> Bytes {
    let mut out = Vec::with_capacity(piece.len() + 64);
    rename.push(piece, &mut out);
    if done {
        rename.finish(&mut out);
    }
    Bytes::from(out)
}
