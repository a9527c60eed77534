//! The translation of sequence numbers around moved bytes.

use crate::seq::{before, distance, later};

/// Bytes that went from an endpoint's stream into a client's below the sockets.
///
/// Local numbers are those of the gateway's own sockets, which know nothing of the
/// moved bytes; wire numbers are those of endpoint and client, which do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Seam {
    /// Wire: where the bytes begin in the endpoint's stream.
    pub up_wire: u32,
    /// Wire: where they begin in the client's stream.
    pub down_wire: u32,
    /// Bytes moved out of the endpoint's stream before these.
    pub up_shift: u32,
    /// Bytes moved into the client's stream before these.
    pub down_shift: u32,
    /// How many bytes were moved.
    pub length: u32,
    /// Whether the client has acknowledged them all and no more will come. Then what
    /// lies before the seam is history, and numbers may be any distance away from it.
    pub settled: bool,
}

/// Where a byte of an endpoint's stream lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum From {
    /// Before the seam, or after it: the local socket's, with this number.
    Local(u32),
    /// Among the moved bytes: the client's, with this number on the wire.
    Moved(u32),
}

impl Seam {
    /// Local number, at the client's connection, of the first byte after the seam.
    #[must_use]
    #[inline(always)]
    pub const fn down_local(&self) -> u32 {
        self.down_wire.wrapping_sub(self.down_shift)
    }

    /// Local number, at the endpoint's connection, of the first byte after the seam.
    #[must_use]
    #[inline(always)]
    pub const fn up_local(&self) -> u32 {
        self.up_wire.wrapping_sub(self.up_shift)
    }

    /// Wire number at the endpoint's connection of the first byte after the seam.
    #[must_use]
    #[inline(always)]
    pub const fn up_end(&self) -> u32 {
        self.up_wire.wrapping_add(self.length)
    }

    /// Wire number of what the local socket sends to the client as `seq`.
    #[must_use]
    #[inline(always)]
    pub const fn to_client(&self, seq: u32) -> u32 {
        let wire = seq.wrapping_add(self.down_shift);
        if !self.settled && before(seq, self.down_local()) {
            wire
        } else {
            wire.wrapping_add(self.length)
        }
    }

    /// How many of the moved bytes the client has, if it acknowledged `ack` (wire).
    #[must_use]
    #[inline(always)]
    pub const fn arrived(&self, ack: u32) -> u32 {
        if self.settled {
            return self.length;
        }
        let behind = distance(self.down_wire, ack);
        if behind < self.length { behind } else { self.length }
    }

    /// What a client's acknowledgement `ack` (wire) tells the local socket.
    #[must_use]
    #[inline(always)]
    pub const fn ack_to_local(&self, ack: u32) -> u32 {
        ack.wrapping_sub(self.down_shift).wrapping_sub(self.arrived(ack))
    }

    /// Local end of the window that a client offers up to `edge` (wire).
    #[must_use]
    #[inline(always)]
    pub const fn edge_to_local(&self, edge: u32) -> u32 {
        edge.wrapping_sub(self.down_shift).wrapping_sub(self.length)
    }

    /// Where the byte `seq` (wire) of the endpoint's stream lies.
    #[must_use]
    #[inline(always)]
    pub const fn from_endpoint(&self, seq: u32) -> From {
        let local = seq.wrapping_sub(self.up_shift);
        if self.settled || !before(seq, self.up_end()) {
            From::Local(local.wrapping_sub(self.length))
        } else if before(seq, self.up_wire) {
            From::Local(local)
        } else {
            From::Moved(seq.wrapping_sub(self.up_wire).wrapping_add(self.down_wire))
        }
    }

    /// What to acknowledge to the endpoint (wire), when the local socket has
    /// acknowledged `own` (local) and the client `client` (wire). Never a moved byte
    /// that the client does not have: the endpoint would forget it.
    #[must_use]
    #[inline(always)]
    pub const fn ack_to_endpoint(&self, own: u32, client: u32) -> u32 {
        let arrived = self.arrived(client);
        if self.settled {
            return own.wrapping_add(self.up_shift).wrapping_add(self.length);
        }
        // The local socket has all before the seam, or nothing would have been moved;
        // it may only be slow to say so.
        let own = if self.length > 0 { later(own, self.up_local()) } else { own };
        if before(own, self.up_local()) || self.length == 0 {
            own.wrapping_add(self.up_shift)
        } else if arrived < self.length {
            self.up_wire.wrapping_add(arrived)
        } else {
            own.wrapping_add(self.up_shift).wrapping_add(self.length)
        }
    }

    /// End (wire) of the window for the endpoint that the local socket offers up to
    /// `edge` (local).
    #[must_use]
    #[inline(always)]
    pub const fn own_edge_to_endpoint(&self, edge: u32) -> u32 {
        edge.wrapping_add(self.up_shift).wrapping_add(self.length)
    }

    /// End (wire) of the window for the endpoint that the client offers up to `edge`
    /// (wire of its own connection).
    #[must_use]
    #[inline(always)]
    pub const fn client_edge_to_endpoint(&self, edge: u32) -> u32 {
        edge.wrapping_sub(self.down_wire).wrapping_add(self.up_wire)
    }
}

#[cfg(test)]
mod tests;
