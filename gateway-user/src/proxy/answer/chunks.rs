//! Follows chunked framing through what was received, and cuts pieces out of it.

use bytes::{Bytes, BytesMut};
use gateway_common::chunked::{ChunkTracker, Kind};

use super::{AnswerError, Cut};
use crate::proxy::record::Record;

/// A run of chunked bytes.
pub(super) struct Chunks {
    pub(super) piece: Bytes,
    pub(super) ended: bool,
    /// Whether the first token was among them.
    pub(super) token: bool,
}

impl Chunks {
    /// Follows the framing through all that was received and cuts the piece.
    pub(super) fn follow(
        tracker: &mut ChunkTracker,
        buffer: &mut BytesMut,
        record: &mut Record,
        cut: Cut,
    ) -> Result<Self, AnswerError> {
        let mut at = 0;
        let mut ended = false;
        let mut token = false;
        let mut first: Option<(usize, usize)> = None;
        let mut more: Option<BytesMut> = None;
        while at < buffer.len() && !ended {
            let step = tracker.next(&buffer[at..]);
            match step.kind {
                Kind::Data => {
                    let data = &buffer[at..at + step.consumed];
                    token |= record.data(data);
                    match (cut, first, &mut more) {
                        (Cut::Verbatim, ..) => {}
                        (Cut::Payload, None, _) => first = Some((at, at + step.consumed)),
                        (Cut::Payload, Some(_), Some(more)) => more.extend_from_slice(data),
                        (Cut::Payload, Some((from, to)), None) => {
                            // A second chunk in one read: only now is a copy needed.
                            let mut joined = BytesMut::with_capacity(buffer.len() - from);
                            joined.extend_from_slice(&buffer[from..to]);
                            joined.extend_from_slice(data);
                            more = Some(joined);
                        }
                    }
                }
                Kind::ChunkEnd | Kind::Framing | Kind::Trailer => {}
                Kind::End => ended = true,
                Kind::Lost => return Err(AnswerError::Malformed),
            }
            at += step.consumed;
        }
        let consumed = buffer.split_to(at).freeze();
        let piece = match (cut, first, more) {
            (Cut::Verbatim, ..) => consumed,
            (Cut::Payload, _, Some(joined)) => joined.freeze(),
            (Cut::Payload, Some((from, to)), None) => consumed.slice(from..to),
            (Cut::Payload, None, None) => Bytes::new(),
        };
        Ok(Self { piece, ended, token })
    }
}
