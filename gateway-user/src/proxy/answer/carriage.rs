//! The kernel's part in an answer: offered to it chunk by chunk, and taken back.

use super::{Answer, AnswerError, BodyState};
use crate::carrier::{Carried, Carriers};
use crate::proxy::client::Client;
use crate::proxy::record::Path;
use crate::sk_msg::Owed;
use crate::splice::Splicer;

/// The kernel's part in an answer.
#[derive(Debug)]
pub(super) struct Carriage {
    carriers: Carriers,
    carried: Option<Carried>,
    /// What the client's socket must have before we write to it.
    owed: Option<Owed>,
    /// Bytes moved when the silence was last looked at.
    seen: u64,
}

impl Carriage {
    /// `None` where nobody but the daemon may carry it.
    pub(super) fn new(carriers: Carriers) -> Option<Self> {
        carriers.any().then_some(Self { carriers, carried: None, owed: None, seen: 0 })
    }
}

impl Answer {
    /// Whether the kernel may carry this.
    pub(crate) fn may_be_carried(&self) -> bool {
        self.carriage.is_some()
    }

    /// The maps to bind a client's connection with, when the kernel may splice this.
    pub(crate) fn splicer(&self) -> Option<&std::sync::Arc<Splicer>> {
        self.carriage.as_ref()?.carriers.splicer.as_ref()
    }

    /// Lets the kernel carry what follows, if all that was read stands written to the
    /// client and ends with a chunk. Called again after every piece, until it works.
    pub(crate) fn offer(&mut self, client: &mut Client) {
        let Some(carriage) = &mut self.carriage else { return };
        let (Some(connection), BodyState::Chunked(tracker)) = (&self.connection, &self.body) else {
            return;
        };
        // The time to the first token is ours to measure.
        if !self.record.has_begun() {
            return;
        }
        if carriage.carried.is_some() || !tracker.at_boundary() || !connection.buffer.is_empty() {
            return;
        }
        let read = connection.received;
        let local = connection.local.as_ref().filter(|local| local.is_enrolled());
        if let Some(armed) =
            local.zip(carriage.carriers.sk_msg.as_ref()).and_then(|(local, maps)| {
                let downstream = client.enrol(maps)?;
                Some(local.arm(read, downstream.0, downstream.1))
            })
        {
            match armed {
                Ok(armed) => carriage.carried = Some(Carried::SkMsg(armed)),
                Err(why) => tracing::trace!(?why, "not moved from socket to socket yet"),
            }
        } else if let (Some(splicer), Some(up), Some(down)) =
            (&carriage.carriers.splicer, &connection.bound, &client.bound)
        {
            match splicer.arm(up, read, down, client.written) {
                Ok(armed) => carriage.carried = Some(Carried::Splice(armed)),
                Err(why) => tracing::trace!(?why, "not spliced yet"),
            }
        }
        if carriage.carried.is_some() {
            carriage.seen = 0;
        }
    }

    /// Something came that the kernel did not move: the answer is ours again. Before
    /// anything is written to the client, [`Answer::settle`] must be called.
    pub(super) fn take_back(&mut self) {
        let Some(carriage) = &mut self.carriage else { return };
        match carriage.carried.take() {
            None => {}
            Some(Carried::Splice(armed)) => {
                self.record.moved(&armed.take_back(), Path::Splice);
            }
            Some(Carried::SkMsg(armed)) => {
                let (moved, owed) = armed.take_back();
                carriage.owed = Some(owed);
                self.record.moved(&moved, Path::SkMsg);
            }
        }
    }

    /// Makes sure that all that was moved is in the client's socket, and nothing else.
    ///
    /// # Errors
    ///
    /// [`AnswerError::Torn`]: then nothing may be written to the client any more.
    pub(crate) fn settle(&mut self, client: &mut Client) -> Result<(), AnswerError> {
        let owed = self.carriage.as_mut().and_then(|carriage| carriage.owed.take());
        let Some(owed) = owed else { return Ok(()) };
        client.written += owed.moved;
        if client.has(owed) {
            return Ok(());
        }
        if self.connection.is_some() {
            let _ = self.fail(AnswerError::Torn);
        } else {
            self.record.broken(&AnswerError::Torn);
        }
        Err(AnswerError::Torn)
    }

    /// Whether the kernel has moved something since this was last asked.
    pub(super) fn has_moved(&mut self) -> bool {
        let Some(carriage) = &mut self.carriage else { return false };
        let bytes = carriage.carried.as_ref().map_or(0, Carried::bytes);
        std::mem::replace(&mut carriage.seen, bytes) != bytes
    }
}
