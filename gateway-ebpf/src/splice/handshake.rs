//! The opening of connections: what has to be known of them later, and the options
//! that a splice could not keep right.
//!
//! Timestamps of two hosts have unrelated origins, and selective acknowledgements
//! name ranges of numbers; both are taken out of the SYN, as if the stack did not
//! offer them.

use aya_ebpf::programs::TcContext;
use gateway_common::splice::{Handshake, MARK_UPSTREAM, Tuple};

use super::maps;
use super::packet::{self, ACK, FIN, OPTIONS, Packet, RST};

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const TIMESTAMPS: u8 = 8;
const MD5: u8 = 19;
const AO: u8 = 29;
const MPTCP: u8 = 30;
/// Largest segment when none is named (RFC 9293, section 3.7.1).
const DEFAULT_MSS: u16 = 536;
/// Largest shift of a window (RFC 7323, section 2.3).
const LARGEST_SCALE: u8 = 14;

/// A SYN from outside: a client's first, or an endpoint's answer.
#[inline(always)]
pub fn arriving(ctx: &TcContext, packet: &Packet, tuple: &Tuple) {
    maps::forget(tuple);
    let mut handshake = if packet.has(ACK) {
        let Some(opened) = maps::handshake(tuple) else { return };
        opened
    } else if maps::is_listener(tuple.local_ip_be, tuple.local_port_be) {
        Handshake::default()
    } else {
        return;
    };
    let offer = Offer::take(ctx, packet);
    handshake.peer_isn = packet.seq;
    handshake.ifindex = packet::interface(ctx);
    handshake.peer_mss = offer.mss;
    handshake.peer_scale = offer.scale;
    handshake.seen |= Handshake::PEER;
    note(tuple, handshake, &offer);
}

/// A SYN of the gateway: its answer to a client, or its first to an endpoint.
#[inline(always)]
pub fn leaving(ctx: &TcContext, packet: &Packet, tuple: &Tuple) {
    let mut handshake = if packet.has(ACK) {
        let Some(opened) = maps::handshake(tuple) else { return };
        opened
    } else if packet::mark(ctx) == MARK_UPSTREAM {
        maps::forget(tuple);
        Handshake::default()
    } else {
        return;
    };
    let offer = Offer::take(ctx, packet);
    handshake.own_isn = packet.seq;
    handshake.own_mss = offer.mss;
    handshake.own_scale = offer.scale;
    handshake.seen |= Handshake::OWN;
    note(tuple, handshake, &offer);
}

#[inline(always)]
fn note(tuple: &Tuple, mut handshake: Handshake, offer: &Offer) {
    if offer.doubt {
        handshake.doubt = 1;
    }
    if handshake.seen == Handshake::OWN | Handshake::PEER {
        let scaled = handshake.own_scale != NO_SCALE && handshake.peer_scale != NO_SCALE;
        if !scaled {
            handshake.own_scale = 0;
            handshake.peer_scale = 0;
        }
    }
    maps::note_handshake(tuple, &handshake);
}

/// No shift was offered; both sides must offer one for either to be used.
const NO_SCALE: u8 = 0xff;

/// What a SYN offers.
struct Offer {
    mss: u16,
    scale: u8,
    /// Something was taken out of it.
    changed: bool,
    /// Something is there that must stay, and that is not translated.
    doubt: bool,
}

impl Offer {
    /// Reads the options of a SYN and takes out of the packet what must not be there.
    #[inline(always)]
    fn take(ctx: &TcContext, packet: &Packet) -> Self {
        let mut offer = Self { mss: DEFAULT_MSS, scale: NO_SCALE, changed: false, doubt: false };
        offer.doubt = packet.length > 0 || packet.has(FIN | RST);
        let length = packet.header - 20;
        if length == 0 || offer.doubt {
            return offer;
        }
        let Some((old, new)) = packet.read_options(ctx, length) else {
            offer.doubt = true;
            return offer;
        };
        offer.walk(old, new);
        if offer.changed && !offer.doubt {
            offer.doubt = !packet::store_options(ctx, (old, new), length);
        }
        offer
    }

    /// One byte at a time: an index that only counts is one that the verifier follows.
    #[inline(always)]
    fn walk(&mut self, old: &[u8; OPTIONS], new: &mut [u8; OPTIONS]) {
        let mut kind = NOP;
        // Bytes of the option at hand still to come, and those that have come.
        let (mut rest, mut seen) = (0_u8, 0_u8);
        let mut at = 0;
        while at < OPTIONS {
            let byte = old[at];
            if rest == 0 {
                kind = byte;
                seen = 0;
                match kind {
                    END => return,
                    NOP => {}
                    _ => {
                        // The length that follows counts both.
                        let Some(&length) = old.get(at + 1) else { return };
                        if length < 2 {
                            self.doubt = true;
                            return;
                        }
                        rest = length - 1;
                    }
                }
                if kind == MD5 || kind == AO {
                    self.doubt = true;
                }
            } else {
                seen += 1;
                rest -= 1;
                match (kind, seen) {
                    (MSS, 2) => self.mss = u16::from(byte) << 8,
                    (MSS, 3) => self.mss |= u16::from(byte),
                    (SCALE, 2) => {
                        self.scale = if byte > LARGEST_SCALE { LARGEST_SCALE } else { byte };
                    }
                    _ => {}
                }
            }
            if kind == SACK_PERMITTED || kind == TIMESTAMPS || kind == MPTCP {
                new[at] = NOP;
                self.changed = true;
            }
            at += 1;
        }
    }
}
