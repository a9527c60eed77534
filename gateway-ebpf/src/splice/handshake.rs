//! The opening of connections: what has to be known of them later, and the options
//! that a splice could not keep right.
//!
//! Timestamps of two hosts have unrelated origins, and selective acknowledgements
//! name ranges of numbers; both are taken out of the SYN, as if the stack did not
//! offer them.

use aya_ebpf::programs::TcContext;
use gateway_common::splice::{Handshake, MARK_UPSTREAM, Tuple};

use super::maps;
use super::packet::{self, ACK, FIN, Ip, OPTIONS, Offer, Packet, RST};

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
const DEFAULT_MSS: u32 = 536;
/// Largest shift of a window (RFC 7323, section 2.3).
const LARGEST_SCALE: u8 = 14;
/// Options looked at: no header has room for more that mean something.
const MOST_OPTIONS: u32 = 20;
/// Longest option that is put out of effect: `MP_CAPABLE` of a first SYN has 20 bytes at most.
const LONGEST_BLANK: u32 = 20;
/// An index that stays within the buffer.
const INDEX: u32 = 63;

/// A SYN from outside: a client's first, or an endpoint's answer.
#[inline(always)]
pub fn arriving<I: Ip>(ctx: &TcContext, packet: &Packet<I>, tuple: &Tuple) {
    let known = maps::handshake(tuple);
    if let Some(known) = known
        && known.has_peer(packet.seq)
    {
        // The network doubled it, or it was sent again. The connection may be in use by
        // now: nothing is new, but the options must go all the same.
        take(ctx, packet);
        return;
    }
    maps::forget(tuple);
    let mut handshake = if packet.has(ACK) {
        let Some(opened) = known else { return };
        opened
    } else if maps::is_listener(tuple, I::ANY) {
        Handshake::default()
    } else {
        return;
    };
    let offer = take(ctx, packet);
    handshake.peer_isn = packet.seq;
    handshake.ifindex = packet::interface(ctx);
    handshake.frame = packet.frame_back();
    handshake.peer_mss = maps::load(&offer.mss) as u16;
    handshake.peer_scale = maps::load(&offer.scale) as u8;
    handshake.seen |= Handshake::PEER;
    note(tuple, handshake, offer);
}

/// A SYN of the gateway: its answer to a client, or its first to an endpoint.
#[inline(always)]
pub fn leaving<I: Ip>(ctx: &TcContext, packet: &Packet<I>, tuple: &Tuple) {
    let mut handshake = if packet.has(ACK) {
        let Some(opened) = maps::handshake(tuple) else { return };
        opened
    } else if packet::mark(ctx) == MARK_UPSTREAM {
        maps::forget(tuple);
        Handshake::default()
    } else {
        return;
    };
    let offer = take(ctx, packet);
    handshake.own_isn = packet.seq;
    handshake.own_mss = maps::load(&offer.mss) as u16;
    handshake.own_scale = maps::load(&offer.scale) as u8;
    handshake.seen |= Handshake::OWN;
    note(tuple, handshake, offer);
}

#[inline(always)]
fn note(tuple: &Tuple, mut handshake: Handshake, offer: &Offer) {
    if maps::load(&offer.doubt) != 0 {
        handshake.doubt = 1;
    }
    if handshake.seen == Handshake::OWN | Handshake::PEER {
        let scaled = u32::from(handshake.own_scale) != NO_SCALE
            && u32::from(handshake.peer_scale) != NO_SCALE;
        if !scaled {
            handshake.own_scale = 0;
            handshake.peer_scale = 0;
        }
    }
    maps::note_handshake(tuple, &handshake);
}

/// No shift was offered; both sides must offer one for either to be used.
const NO_SCALE: u32 = 0xff;

/// Reads the options of a SYN and takes out of the packet what must not be there.
#[inline(always)]
fn take<I: Ip>(ctx: &TcContext, packet: &Packet<I>) -> &'static mut Offer {
    let offer = packet.offer();
    let doubt = packet.length > 0 || packet.has(FIN | RST);
    store(&mut offer.mss, DEFAULT_MSS);
    store(&mut offer.scale, NO_SCALE);
    store(&mut offer.changed, 0);
    store(&mut offer.doubt, u32::from(doubt));
    let length = packet.header - 20;
    if length == 0 || doubt {
        return offer;
    }
    let Some((old, new)) = packet.read_options(ctx, length) else {
        store(&mut offer.doubt, 1);
        return offer;
    };
    walk(offer, old, new);
    let is_changed = maps::load(&offer.changed) != 0 && maps::load(&offer.doubt) == 0;
    if is_changed && !packet::store_options::<I>(ctx, (old, new), length) {
        store(&mut offer.doubt, 1);
    }
    offer
}

/// Every option in turn. What is learnt goes through memory; see [`Offer`].
#[inline(always)]
fn walk(offer: &mut Offer, old: &mut [u8; 64], new: &mut [u8; 64]) {
    store(&mut offer.at, 0);
    let mut round = 0;
    while round < MOST_OPTIONS {
        round += 1;
        let at = (maps::load(&offer.at) & INDEX) as usize;
        let kind = old[at];
        if at as u32 >= OPTIONS as u32 - 1 || kind == END {
            return;
        }
        if kind == NOP {
            store(&mut offer.at, at as u32 + 1);
            continue;
        }
        let length = u32::from(old[(at + 1) & INDEX as usize]);
        if length < 2 || length > OPTIONS as u32 || kind == MD5 || kind == AO {
            store(&mut offer.doubt, 1);
            return;
        }
        let value = old[(at + 2) & INDEX as usize];
        match kind {
            MSS => {
                let low = old[(at + 3) & INDEX as usize];
                store(&mut offer.mss, u32::from(value) << 8 | u32::from(low));
            }
            SCALE => store(&mut offer.scale, u32::from(value.min(LARGEST_SCALE))),
            SACK_PERMITTED | TIMESTAMPS | MPTCP => {
                store(&mut offer.changed, 1);
                blank(new, at as u32, length);
            }
            _ => {}
        }
        store(&mut offer.at, at as u32 + length);
    }
    // More options than a header has room for, unless they are all empty.
    store(&mut offer.doubt, 1);
}

/// Puts an option of `length` bytes at `at` out of effect.
#[inline(always)]
fn blank(options: &mut [u8; 64], at: u32, length: u32) {
    let mut offset = 0;
    while offset < LONGEST_BLANK {
        if offset < length {
            options[((at + offset) & INDEX) as usize] = NOP;
        }
        offset += 1;
    }
}

#[inline(always)]
fn store(to: &mut u32, value: u32) {
    // SAFETY: a reference is valid to write.
    unsafe { core::ptr::write_volatile(to, value) };
}
