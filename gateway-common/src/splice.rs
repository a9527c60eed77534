//! What the splice programs and the daemon tell each other, and the arithmetic of
//! a splice.
//!
//! A *splice* moves data packets of an endpoint's connection into the client's
//! connection below the sockets. The sockets in between do not know: bytes taken
//! out of one stream and put into the other are hidden from them by translating
//! sequence numbers. [`Seam`] is that translation.
//!
//! Who writes what: handshakes are noted by the kernel; connections and flows are
//! entered by the daemon; slots belong to the kernel but for [`Slot::flow`]. Host
//! byte order throughout, except in fields named `_be`.

use crate::address::IpAddress;
use crate::frames::Unfit;

mod seam;

pub use seam::{From, Seam};

/// Slots and flows there are; entry 0 of either means "none" and is never used.
pub const SLOTS: u32 = 16 << 10;
/// See [`SLOTS`].
pub const FLOWS: u32 = 4 << 10;
/// Mark of sockets whose connections may be spliced towards an endpoint.
pub const MARK_UPSTREAM: u32 = 0x1a6a_0001;
/// Mark of packets that these programs have translated already.
pub const MARK_DONE: u32 = 0x1a6a_0002;

/// A TCP connection of the gateway, as it stands on the wire.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Tuple {
    /// The gateway's address.
    pub local: IpAddress,
    /// The client's or the endpoint's address.
    pub remote: IpAddress,
    /// The gateway's port.
    pub local_port_be: u16,
    /// The client's or the endpoint's port.
    pub remote_port_be: u16,
}

/// What was seen of a connection's opening.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Handshake {
    /// Sequence number of the gateway's SYN.
    pub own_isn: u32,
    /// Sequence number of the other side's SYN.
    pub peer_isn: u32,
    /// Interface on which the other side's packets arrive.
    pub ifindex: u32,
    /// Largest segment the gateway takes, in bytes.
    pub own_mss: u16,
    /// Largest segment the other side takes, in bytes.
    pub peer_mss: u16,
    /// How far the gateway's window fields are to be shifted.
    pub own_scale: u8,
    /// How far the other side's window fields are to be shifted.
    pub peer_scale: u8,
    /// [`Handshake::OWN`] and [`Handshake::PEER`] once the SYN of that side was seen.
    pub seen: u8,
    /// Not 0 when something was there that the programs do not translate.
    pub doubt: u8,
    /// Ethernet addresses of a frame to the other side: destination, source.
    pub frame: [u16; 6],
}

impl Handshake {
    /// The gateway's SYN was seen.
    pub const OWN: u8 = 1;
    /// The other side's SYN was seen.
    pub const PEER: u8 = 2;

    /// Whether a SYN of the other side with this sequence number was seen already.
    #[must_use]
    #[inline(always)]
    pub const fn has_peer(&self, isn: u32) -> bool {
        self.seen & Self::PEER != 0 && self.peer_isn == isn
    }

    /// Whether both SYNs were seen, and nothing that would be in the way.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.seen == Self::OWN | Self::PEER && self.doubt == 0
    }
}

/// A connection that the programs look after.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Conn {
    /// Its slot.
    pub slot: u32,
    /// [`Conn::CLIENT`] or [`Conn::ENDPOINT`].
    pub side: u32,
}

impl Conn {
    /// The other side is a client.
    pub const CLIENT: u32 = 1;
    /// The other side is an endpoint.
    pub const ENDPOINT: u32 = 2;
}

/// A connection's state. Sequence numbers are the local socket's ("local") or those
/// on the wire ("wire").
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Slot {
    /// Of an endpoint's connection: [`Mark`] in one word, so that it changes at once.
    pub mark: u64,
    /// The flow in force; written by the daemon.
    pub flow: u32,
    /// Local: end of what the local socket has sent.
    pub own_next: u32,
    /// Local: what the local socket has acknowledged.
    pub own_ack: u32,
    /// Local: end of the window that the local socket has offered.
    pub own_edge: u32,
    /// Wire: what the other side has acknowledged.
    pub peer_ack: u32,
    /// Wire: end of the window that the other side has offered.
    pub peer_edge: u32,
    /// Local: the last acknowledgement that reached the local socket.
    pub told_ack: u32,
    /// [`Slot::OWN`], [`Slot::PEER`]: which of the above are known.
    pub known: u32,
    /// Not 0 once either side has sent FIN or RST.
    pub ended: u32,
    /// See [`Handshake::own_scale`].
    pub own_scale: u8,
    /// See [`Handshake::peer_scale`].
    pub peer_scale: u8,
    /// See [`Handshake::frame`].
    pub frame: [u16; 6],
    /// Always 0.
    pub reserved: [u8; 2],
    /// [`Slot::NEIGHBOUR`] or [`Slot::PEER_DEVICE`]: how packets are sent on to the other
    /// side; written by the daemon.
    pub hop: u32,
}

impl Slot {
    /// `own_*` are known.
    pub const OWN: u32 = 1;
    /// `peer_*` are known.
    pub const PEER: u32 = 2;
    /// As any packet that is forwarded: route, neighbour, the interface's egress.
    pub const NEIGHBOUR: u32 = 0;
    /// Into the device at the other end of the interface, which is a veth pair into
    /// another network namespace: the packet is received there at once.
    pub const PEER_DEVICE: u32 = 1;
}

/// How far an endpoint's stream has come: all bytes up to `end` went either to the
/// local socket or, `moved` of them (modulo 2^32), to clients.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Mark {
    /// Bytes moved to clients since the connection was opened.
    pub moved: u32,
    /// Wire: end of the bytes accounted for.
    pub end: u32,
}

impl Mark {
    /// Both in one word.
    #[must_use]
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        ((self.moved as u64) << 32) | self.end as u64
    }

    /// Both out of one word.
    #[must_use]
    #[inline(always)]
    pub const fn unpack(word: u64) -> Self {
        Self { moved: (word >> 32) as u32, end: word as u32 }
    }
}

/// A splice of one answer: where it goes, where the seam is, what was moved.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Flow {
    /// Bytes moved, framing included.
    pub bytes: u64,
    /// Bytes moved, without framing.
    pub data: u64,
    /// Chunks moved.
    pub chunks: u64,
    /// When the first chunk was moved, in ns of the monotonic clock; 0 before.
    pub first_ns: u64,
    /// When the last chunk was moved.
    pub last_ns: u64,
    /// The endpoint's connection.
    pub up: Tuple,
    /// The client's connection.
    pub down: Tuple,
    /// Interface towards the endpoint.
    pub up_ifindex: u32,
    /// Interface towards the client.
    pub down_ifindex: u32,
    /// Slot of the endpoint's connection.
    pub up_slot: u32,
    /// Slot of the client's connection.
    pub down_slot: u32,
    /// Wire: where the moved bytes begin in the endpoint's stream.
    pub up_wire: u32,
    /// Wire: where they begin in the client's stream.
    pub down_wire: u32,
    /// Bytes moved out of the endpoint's stream before.
    pub up_shift: u32,
    /// Bytes moved into the client's stream before.
    pub down_shift: u32,
    /// Whether the kernel may move bytes; written by the daemon.
    pub open: u32,
    /// Whether `length` is final; written by the daemon.
    pub frozen: u32,
    /// Bytes moved, once frozen.
    pub length: u32,
    /// Whether the client has acknowledged all that was moved (or never will), and
    /// nothing more is moved.
    pub settled: u32,
    /// Why the last packet that was not moved was not: see [`Stop`].
    pub stop: u32,
    /// Number of the tail that the next chunk is kept in.
    pub tail: u32,
}

/// Why a packet of an armed flow went to user space.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Stop {
    /// None did.
    #[default]
    None = 0,
    /// Data had gone to user space since the daemon last looked.
    Stale = 1,
    /// It did not follow on what was there.
    OutOfOrder = 2,
    /// It ended within a chunk.
    Cut = 3,
    /// It held the last chunk.
    Last = 4,
    /// It was not the framing that the kernel follows.
    Framing = 5,
    /// It held too many chunks.
    Many = 6,
    /// The client's window had no room for it.
    Window = 7,
    /// It had flags or options that are not translated.
    Flags = 8,
    /// The daemon had taken the flow back.
    Closed = 9,
}

impl core::convert::From<Unfit> for Stop {
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
    /// What [`Flow::stop`] says, in words.
    #[must_use]
    pub const fn name(code: u32) -> &'static str {
        match code {
            0 => "none",
            1 => "stale",
            2 => "out of order",
            3 => "cut chunk",
            4 => "last chunk",
            5 => "unusual framing",
            6 => "many chunks",
            7 => "window full",
            8 => "flags",
            9 => "closing",
            _ => "unknown",
        }
    }
}

/// Number of [`Stop`] reasons.
pub const STOPS: usize = 10;

/// What the programs did, per CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Packets moved from endpoints to clients.
    pub moved: u64,
    /// Bytes in them.
    pub moved_bytes: u64,
    /// Chunks in them.
    pub moved_chunks: u64,
    /// Moved packets that endpoints sent again.
    pub resent: u64,
    /// Acknowledgements passed from clients to endpoints.
    pub acks: u64,
    /// Packets whose numbers were translated for a local socket.
    pub translated: u64,
    /// Packets cut at a seam, or dropped because they could not be.
    pub cut: u64,
    /// Packets that could not be sent on.
    pub failed: u64,
    /// Data packets of armed flows that went to user space, by [`Stop`].
    pub stops: [u64; STOPS],
}

const _: () = {
    assert!(size_of::<Tuple>() == 36);
    assert!(size_of::<Handshake>() == 32);
    assert!(size_of::<Conn>() == 8);
    assert!(size_of::<Slot>() == 64);
    assert!(size_of::<Flow>() == 168);
    assert!(size_of::<Counters>() == 8 * (8 + STOPS));
};
