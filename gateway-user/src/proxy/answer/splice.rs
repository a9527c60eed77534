//! The kernel's part in an answer: offered to it chunk by chunk, and taken back.

use std::sync::Arc;

use super::{Answer, BodyState};
use crate::proxy::client::Client;
use crate::splice::{Armed, Splicer};

/// The kernel's part in an answer.
#[derive(Debug)]
pub(super) struct Splice {
    pub(super) splicer: Arc<Splicer>,
    pub(super) armed: Option<Armed>,
    /// Bytes moved when the silence was last looked at.
    pub(super) seen: u64,
}

impl Answer {
    /// The maps to bind a client's connection with, when the kernel may carry this.
    pub(crate) fn splicer(&self) -> Option<&Arc<Splicer>> {
        self.splice.as_ref().map(|splice| &splice.splicer)
    }

    /// Lets the kernel carry what follows, if all that was read stands written to the
    /// client and ends with a chunk. Called again after every piece, until it works.
    pub(crate) fn offer(&mut self, client: &Client) {
        let Some(splice) = &mut self.splice else { return };
        let (Some(connection), BodyState::Chunked(tracker)) = (&self.connection, &self.body) else {
            return;
        };
        let (Some(up), Some(down)) = (&connection.bound, &client.bound) else { return };
        // The time to the first token is ours to measure.
        if !self.record.has_begun() {
            return;
        }
        if splice.armed.is_some() || !tracker.at_boundary() || !connection.buffer.is_empty() {
            return;
        }
        match splice.splicer.arm(up, connection.received, down, client.written) {
            Ok(armed) => {
                splice.seen = 0;
                splice.armed = Some(armed);
            }
            Err(why) => tracing::trace!(?why, "not spliced yet"),
        }
    }

    /// Something came that the kernel did not move: the answer is ours again.
    pub(super) fn take_back(&mut self) {
        if let Some(armed) = self.splice.as_mut().and_then(|splice| splice.armed.take()) {
            self.record.moved(&armed.take_back());
        }
    }

    /// Whether the kernel has moved something since this was last asked.
    pub(super) fn has_moved(&mut self) -> bool {
        let Some(splice) = &mut self.splice else { return false };
        let bytes = splice.armed.as_ref().map_or(0, Armed::bytes);
        std::mem::replace(&mut splice.seen, bytes) != bytes
    }
}
