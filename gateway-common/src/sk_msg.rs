//! What the `sk_msg` programs and the daemon tell each other.
//!
//! Where an endpoint runs on the node, what it sends is put straight into the socket of
//! the client: the program on the endpoint's socket decides for each of its send calls.
//! Nothing that goes this way enters the connection between endpoint and gateway, so that
//! there are no sequence numbers to translate. [`Word`] decides who has which bytes.
//!
//! A *stream* is a connection to an endpoint, of which the gateway has one end and the
//! endpoint the other. Host byte order throughout, except in fields named `_be`.

use crate::frames::Unfit;

/// Streams there are; entry 0 means "none" and is never used.
pub const STREAMS: u32 = 2048;
/// Clients' sockets there may be, and endpoints'.
pub const SOCKETS: u32 = 16 << 10;
/// Bytes of a send call that the kernel follows.
pub const CALL_BYTES: u32 = 32 << 10;
/// What a call costs of a client's send buffer besides its bytes, in bytes: the kernel
/// keeps a packet buffer for each (1,280 bytes on 6.18).
const CALL_COST: u32 = 2048;

/// Who has which of the bytes that an endpoint has sent on a connection: in one word, so
/// that both sides change it by compare-and-set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Word {
    /// Whether the kernel may move the bytes that follow on `passed`.
    pub armed: bool,
    /// Bytes put into clients' sockets since the connection was opened, modulo 2^31.
    pub moved: u32,
    /// Bytes passed to the gateway's end of the connection since then, modulo 2^32.
    pub passed: u32,
}

const ARMED: u64 = 1 << 63;
const MOVED: u32 = u32::MAX >> 1;

impl Word {
    /// All in one word.
    #[must_use]
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        let armed = if self.armed { ARMED } else { 0 };
        armed | ((self.moved & MOVED) as u64) << 32 | self.passed as u64
    }

    /// All out of one word.
    #[must_use]
    #[inline(always)]
    pub const fn unpack(word: u64) -> Self {
        Self { armed: word & ARMED != 0, moved: (word >> 32) as u32 & MOVED, passed: word as u32 }
    }

    /// After `bytes` have been put into a client's socket.
    #[must_use]
    #[inline(always)]
    pub const fn and_moved(self, bytes: u32) -> Self {
        Self { moved: self.moved.wrapping_add(bytes) & MOVED, ..self }
    }

    /// After `bytes` that were counted as moved were not.
    #[must_use]
    #[inline(always)]
    pub const fn and_not_moved(self, bytes: u32) -> Self {
        Self { moved: self.moved.wrapping_sub(bytes) & MOVED, ..self }
    }

    /// After `bytes` were passed: the stream is user space's again.
    #[must_use]
    #[inline(always)]
    pub const fn and_passed(self, bytes: u32) -> Self {
        Self { armed: false, passed: self.passed.wrapping_add(bytes), ..self }
    }

    /// Bytes moved since `before`, fewer than 2^31.
    #[must_use]
    #[inline(always)]
    pub const fn moved_since(self, before: Self) -> u32 {
        self.moved.wrapping_sub(before.moved) & MOVED
    }
}

/// What `bytes` of a send call may at most take of the client's send buffer, in bytes: one
/// packet buffer for each segment, of which the smallest have 536 bytes.
#[must_use]
#[inline(always)]
pub const fn cost(bytes: u32) -> u32 {
    CALL_COST + 4 * bytes
}

/// A connection as both its ends know it while it opens. The sequence numbers, which both
/// sides draw at random, tell it from others with the same addresses (in other network
/// namespaces, or earlier).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Pair {
    /// The gateway's address; IPv4 in its IPv6 form.
    pub gateway_ip_be: [u32; 4],
    /// The endpoint's address.
    pub endpoint_ip_be: [u32; 4],
    /// The gateway's port.
    pub gateway_port: u32,
    /// The endpoint's port.
    pub endpoint_port: u32,
    /// Sequence number of the first byte that the gateway sends.
    pub gateway_next: u32,
    /// Sequence number of the first byte that the endpoint sends.
    pub endpoint_next: u32,
}

/// Whose stream a connection is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Owner {
    /// Cookie of the gateway's socket: no other socket of this kernel has or had it.
    pub cookie: u64,
    /// Number of the stream.
    pub stream: u32,
    /// Always 0.
    pub reserved: u32,
}

/// A stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stream {
    /// [`Word`]; written by both.
    pub word: u64,
    /// Cookie of the gateway's socket, 0 while nobody uses the entry; written by the daemon.
    pub cookie: u64,
    /// Cookie of the client's socket; written by the daemon, before it arms.
    pub client: u64,
    /// Bytes moved since it was armed, framing included.
    pub bytes: u64,
    /// Bytes moved since then, without framing.
    pub data: u64,
    /// Chunks moved since then.
    pub chunks: u64,
    /// When the first of them was, in ns of the monotonic clock; 0 before.
    pub first_ns: u64,
    /// When the last of them was.
    pub last_ns: u64,
    /// What may be taken of the client's send buffer; written by the daemon.
    pub credit: u32,
    /// What has been taken of it; see [`cost`].
    pub spent: u32,
    /// [`Stream::UNKNOWN`], [`Stream::ENROLLED`] or [`Stream::REFUSED`].
    pub state: u32,
    /// Why the kernel refused to enrol the endpoint's socket: the number of the error.
    pub error: u32,
    /// Why the last call that was not moved was not: see [`Stop`].
    pub stop: u32,
    /// Number of the tail that the next chunk is kept in.
    pub tail: u32,
}

impl Stream {
    /// The endpoint's socket was not seen: it is not on this node, or not seen yet.
    pub const UNKNOWN: u32 = 0;
    /// The program is on the endpoint's socket.
    pub const ENROLLED: u32 = 1;
    /// It could not be put there.
    pub const REFUSED: u32 = 2;
}

/// Why a send call on an armed stream went to user space.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Stop {
    /// None did.
    #[default]
    None = 0,
    /// It ended within a chunk.
    Cut = 1,
    /// It held the last chunk.
    Last = 2,
    /// It was not the framing that the kernel follows.
    Framing = 3,
    /// It held too many chunks, or too many bytes.
    Many = 4,
    /// The credit did not suffice.
    Credit = 5,
    /// The client's socket was closed.
    Gone = 6,
    /// The daemon took the stream back at that moment.
    Closed = 7,
}

/// Number of [`Stop`] reasons.
pub const STOPS: usize = 8;

impl From<Unfit> for Stop {
    #[inline(always)]
    fn from(why: Unfit) -> Self {
        match why {
            Unfit::Cut => Self::Cut,
            Unfit::Last => Self::Last,
            Unfit::Framing => Self::Framing,
            Unfit::Many => Self::Many,
        }
    }
}

impl Stop {
    /// What to call the reason of this number.
    #[must_use]
    pub const fn name(code: u32) -> &'static str {
        match code {
            0 => "none",
            1 => "cut chunk",
            2 => "last chunk",
            3 => "unusual framing",
            4 => "many chunks",
            5 => "no credit",
            6 => "client gone",
            7 => "taken back",
            _ => "unknown",
        }
    }
}

/// What the programs did, per CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Connections of which the endpoint's socket was enrolled.
    pub enrolled: u64,
    /// Connections of which the endpoint's socket could not be.
    pub refused: u64,
    /// Send calls that were put into a client's socket.
    pub moved: u64,
    /// Bytes in them.
    pub moved_bytes: u64,
    /// Chunks in them.
    pub moved_chunks: u64,
    /// Send calls passed to user space while nothing was armed.
    pub passed: u64,
    /// Send calls passed although the stream was armed, by [`Stop`].
    pub stops: [u64; STOPS],
}

const _: () = {
    assert!(size_of::<Pair>() == 48);
    assert!(size_of::<Owner>() == 16);
    assert!(size_of::<Stream>() == 88);
    assert!(size_of::<Counters>() == 8 * (6 + STOPS));
    // So that the cost of a call does not overflow.
    assert!(CALL_BYTES < 1 << 20);
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_word_keeps_what_is_packed(armed: bool, moved in 0..=MOVED, passed: u32) {
            let word = Word { armed, moved, passed };
            prop_assert_eq!(Word::unpack(word.pack()), word);
        }

        #[test]
        fn counts_wrap_without_touching_each_other(moved in 0..=MOVED, passed: u32, bytes: u32) {
            let word = Word { armed: true, moved, passed };
            let after = Word::unpack(word.and_moved(bytes & MOVED).pack());
            prop_assert!(after.armed && after.passed == passed);
            prop_assert_eq!(after.moved_since(word), bytes & MOVED);
            prop_assert_eq!(after.and_not_moved(bytes & MOVED), word);
            let after = Word::unpack(word.and_passed(bytes).pack());
            prop_assert!(!after.armed && after.moved == moved);
            prop_assert_eq!(after.passed, passed.wrapping_add(bytes));
        }
    }
}
