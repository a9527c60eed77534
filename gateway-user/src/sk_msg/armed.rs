//! An answer that the kernel may move from socket to socket.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use gateway_common::frames::TAIL_CHUNKS;
use gateway_common::sk_msg::Word;

use super::socket::{Room, position};
use super::{Downstream, SkMsg, Upstream, field};
use crate::splice::Moved;
use crate::splice::shared::ORDER;

/// Why an answer cannot be armed at this moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NotNow {
    /// More of the answer was sent than was read.
    Behind,
    /// The client has too much to read.
    Slow,
    /// The client's socket is closed.
    Gone,
}

/// An armed answer; dropping it takes it back.
#[derive(Debug)]
pub(crate) struct Armed {
    maps: Arc<SkMsg>,
    stream: u32,
    /// What the word was when it was armed.
    before: Word,
    /// What the client's socket had been given then, in bytes.
    position: u64,
}

/// What must be in the client's socket before anything else is written to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Owed {
    /// Bytes that the socket had been given before.
    position: u64,
    /// Bytes that the kernel has counted as moved since then.
    pub(crate) moved: u64,
}

impl Owed {
    /// Whether the socket has all of it, and nothing else.
    pub(crate) fn is_paid(self, client: &impl AsFd) -> bool {
        position(client).is_ok_and(|position| position == self.position + self.moved)
    }
}

impl Upstream {
    /// Lets the kernel move what follows on `received` bytes of this connection into the
    /// client's socket, to which all was written that came before. Both must be at a
    /// chunk's boundary.
    ///
    /// # Errors
    ///
    /// [`NotNow`]; nothing has changed then.
    pub(crate) fn arm(
        &self,
        received: u64,
        down: &Downstream,
        client: &impl AsFd,
    ) -> Result<Armed, NotNow> {
        let streams = &self.maps.streams;
        let word = streams.u64_at(self.stream, field::WORD);
        let old = word.load(ORDER);
        let before = Word::unpack(old);
        if before.armed || before.passed != received as u32 {
            return Err(NotNow::Behind);
        }
        let credit = Room::of(client).map_err(|_| NotNow::Gone)?.credit().ok_or(NotNow::Slow)?;
        let position = position(client).map_err(|_| NotNow::Gone)?;
        // Nobody reads or writes these while the stream is not armed.
        streams.u64_at(self.stream, field::CLIENT).store(down.cookie, ORDER);
        for counted in [field::BYTES, field::DATA, field::CHUNKS, field::FIRST_NS, field::LAST_NS] {
            streams.u64_at(self.stream, counted).store(0, ORDER);
        }
        streams.u32_at(self.stream, field::SPENT).store(0, ORDER);
        streams.u32_at(self.stream, field::TAIL).store(0, ORDER);
        streams.u32_at(self.stream, field::CREDIT).store(credit, ORDER);
        let armed = Word { armed: true, ..before }.pack();
        word.compare_exchange(old, armed, ORDER, ORDER).map_err(|_| NotNow::Behind)?;
        Ok(Armed { maps: Arc::clone(&self.maps), stream: self.stream, before, position })
    }
}

impl Armed {
    /// Bytes moved so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.maps.streams.u64_at(self.stream, field::BYTES).load(ORDER)
    }

    /// Takes the answer back; says what was moved, and what the client's socket is owed.
    pub(crate) fn take_back(self) -> (Moved, Owed) {
        let word = self.disarm();
        let stream = self.maps.streams.read(self.stream);
        let tails = self.maps.tails.read(self.stream);
        let kept = stream.chunks.min(u64::from(TAIL_CHUNKS)) as u32;
        let moved = Moved {
            bytes: stream.bytes,
            data: stream.data,
            chunks: stream.chunks,
            span: Duration::from_nanos(stream.last_ns.saturating_sub(stream.first_ns)),
            tails: tails.last(stream.tail, kept),
        };
        let counted = u64::from(word.moved_since(self.before));
        (moved, Owed { position: self.position, moved: counted })
    }

    /// From now on nothing more is counted as moved.
    fn disarm(&self) -> Word {
        let word = self.maps.streams.u64_at(self.stream, field::WORD);
        let mut old = word.load(ORDER);
        loop {
            let now = Word { armed: false, ..Word::unpack(old) };
            match word.compare_exchange(old, now.pack(), ORDER, ORDER) {
                Ok(_) => return now,
                Err(newer) => old = newer,
            }
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.disarm();
    }
}
