//! Splice: packets of a streamed answer go from the endpoint's connection into the
//! client's, below the sockets.
//!
//! Two programs, one per direction of an interface. Which of a connection's packets
//! they see depends on its side:
//!
//! ```text
//!              splice_in                     splice_out
//!   client --> client::arriving              client::leaving   --> client
//! endpoint --> endpoint::arriving            endpoint::leaving --> endpoint
//! ```
//!
//! `docs/decisions/0005-splice-in-tc.md` tells how sequence numbers, windows and
//! acknowledgements are kept right.

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use gateway_common::splice::{Conn, MARK_DONE};

mod client;
mod endpoint;
mod handshake;
mod maps;
mod packet;
mod payload;

use packet::{Ip, Packet, V4, V6};

/// "Next": the program after this one decides, or else the stack takes the packet.
const NEXT: i32 = -1;
/// The packet is dropped. Only for what its sender will send again.
const DROP: i32 = 2;

/// The packet goes elsewhere, as the helper was told.
const REDIRECT: i32 = 7;

/// Packets that arrive on an interface.
#[classifier]
pub fn splice_in(ctx: TcContext) -> i32 {
    if packet::mark(&ctx) == MARK_DONE {
        return NEXT;
    }
    match packet::ethertype_be(&ctx) {
        V4::ETHERTYPE_BE => arriving::<V4>(&ctx),
        V6::ETHERTYPE_BE => arriving::<V6>(&ctx),
        _ => NEXT,
    }
}

/// Packets that leave by an interface.
#[classifier]
pub fn splice_out(ctx: TcContext) -> i32 {
    if packet::mark(&ctx) == MARK_DONE {
        return NEXT;
    }
    match packet::ethertype_be(&ctx) {
        V4::ETHERTYPE_BE => leaving::<V4>(&ctx),
        V6::ETHERTYPE_BE => leaving::<V6>(&ctx),
        _ => NEXT,
    }
}

#[inline(always)]
fn arriving<I: Ip>(ctx: &TcContext) -> i32 {
    let Some(packet) = Packet::<I>::read(ctx) else { return NEXT };
    let tuple = packet.tuple_arriving();
    if packet.is_syn() {
        handshake::arriving(ctx, &packet, &tuple);
        return NEXT;
    }
    match maps::conn(&tuple) {
        Some(Conn { slot, side: Conn::CLIENT }) => client::arriving(ctx, &packet, slot),
        Some(Conn { slot, side: Conn::ENDPOINT }) => endpoint::arriving(ctx, &packet, slot),
        _ => NEXT,
    }
}

#[inline(always)]
fn leaving<I: Ip>(ctx: &TcContext) -> i32 {
    let Some(packet) = Packet::<I>::read(ctx) else { return NEXT };
    let tuple = packet.tuple_leaving();
    if packet.is_syn() {
        handshake::leaving(ctx, &packet, &tuple);
        return NEXT;
    }
    match maps::conn(&tuple) {
        Some(Conn { slot, side: Conn::CLIENT }) => client::leaving(ctx, &packet, slot),
        Some(Conn { slot, side: Conn::ENDPOINT }) => endpoint::leaving(ctx, &packet, slot),
        _ => NEXT,
    }
}
