//! Packets of a client's connection.

use aya_ebpf::programs::TcContext;
use gateway_common::seq::{before, distance, earlier, later};
use gateway_common::splice::{Flow, Mark, Seam, Slot};

use super::packet::{self, ACK, FIN, Ip, Numbers, Onward, Packet, RST, SYN};
use super::{DROP, NEXT, REDIRECT, maps};

const URGENT: u8 = 32;

/// From the client: acknowledgements go to whom they concern, everything else to the
/// local socket.
#[inline(always)]
pub fn arriving<I: Ip>(ctx: &TcContext, packet: &Packet<I>, index: u32) -> i32 {
    let Some(slot) = maps::slot(index) else { return NEXT };
    let number = maps::load(&slot.flow);
    let Some(flow) = maps::flow(number) else { return NEXT };
    let Some(up) = maps::slot(flow.up_slot) else { return NEXT };
    // Before the mark: what the local socket has acknowledged since may stand behind
    // bytes that this mark does not count, and would be taken for them.
    let own = (maps::load(&up.own_ack), maps::load(&up.own_edge));
    let mark = Mark::unpack(maps::load(&up.mark));
    let seam = maps::seam(flow, mark);
    let was_settled = seam.settled;
    let seam = settle(flow, number, seam, mark, packet);

    let edge = packet.ack.wrapping_add(u32::from(packet.window) << slot.peer_scale);
    if packet.has(ACK) {
        note_peer(slot, packet.ack, edge);
    }
    if packet.has(FIN | RST) {
        slot.ended = 1;
    }
    if packet.has(RST) && number != 0 && is_over(flow, &seam, mark) {
        // The client will never acknowledge what it has not.
        flow.settled = 1;
    }
    let told = seam.ack_to_local(packet.ack);
    let is_for_endpoint = seam.length > 0
        && !was_settled
        && packet.has(ACK)
        && !packet.has(RST)
        && !before(packet.ack, seam.down_wire);
    let is_for_local = !is_for_endpoint
        || is_over(flow, &seam, mark)
        || packet.length > 0
        || packet.has(FIN | RST | SYN | URGENT)
        || packet.seq != slot.own_ack
        || told != slot.told_ack;
    let mut packet = *packet;
    let numbers = to_endpoint(up, own, &seam, packet.ack, edge);
    if is_for_local {
        slot.told_ack = told;
        let offered =
            packet::window_field(distance(told, seam.edge_to_local(edge)), slot.peer_scale);
        let (ack, window) =
            if packet.has(ACK) { (told, offered) } else { (packet.ack, packet.window) };
        if !packet.renumber(ctx, packet.seq, ack, window) {
            return failed();
        }
        if !is_for_endpoint {
            return NEXT;
        }
        if !packet::deliver_copy(ctx) {
            return failed();
        }
        // The checksum is another one now.
        let Some(again) = Packet::<I>::read(ctx) else { return failed() };
        packet = again;
    }
    let to = Onward { tuple: &flow.up, slot: up, ifindex: flow.up_ifindex };
    if !packet.acknowledge_as(ctx, &to, &numbers) {
        return failed();
    }
    maps::count(|counters| counters.acks += 1);
    REDIRECT
}

/// To the client: what the local socket sends stands behind what was moved.
#[inline(always)]
pub fn leaving<I: Ip>(ctx: &TcContext, packet: &Packet<I>, index: u32) -> i32 {
    let Some(slot) = maps::slot(index) else { return NEXT };
    let Some(flow) = maps::flow(maps::load(&slot.flow)) else { return NEXT };
    let Some(up) = maps::slot(flow.up_slot) else { return NEXT };
    note_own(slot, packet);
    let seam = maps::seam(flow, Mark::unpack(maps::load(&up.mark)));
    let seq = seam.to_client(packet.seq);
    let mut packet = *packet;
    if !seam.settled && seam.length > 0 && before(packet.seq, seam.down_local()) {
        // A packet made of what was sent before the seam and after it is two.
        if !packet.truncate(ctx, distance(packet.seq, seam.down_local())) {
            return failed();
        }
    }
    if packet.renumber(ctx, seq, packet.ack, packet.window) { NEXT } else { failed() }
}

/// What the local socket has sent, acknowledged and offered.
#[inline(always)]
pub fn note_own<I: Ip>(slot: &mut Slot, packet: &Packet<I>) {
    let mut end = packet.seq.wrapping_add(packet.length);
    if packet.has(FIN | RST) {
        slot.ended = 1;
        end = end.wrapping_add(1);
    }
    if !packet.has(ACK) {
        return;
    }
    let edge = packet.ack.wrapping_add(u32::from(packet.window) << slot.own_scale);
    if slot.known & Slot::OWN == 0 {
        slot.own_next = end;
        slot.own_ack = packet.ack;
        slot.own_edge = edge;
        slot.known |= Slot::OWN;
        return;
    }
    slot.own_next = later(slot.own_next, end);
    if !before(packet.ack, slot.own_ack) {
        slot.own_ack = packet.ack;
        slot.own_edge = edge;
    }
}

/// Drops what could not be sent on; its sender sends it again.
#[inline(always)]
pub fn failed() -> i32 {
    maps::count(|counters| counters.failed += 1);
    DROP
}

/// Notes it, once the client has acknowledged all that was moved and nothing more can be.
#[inline(always)]
fn settle<I: Ip>(flow: &mut Flow, number: u32, seam: Seam, mark: Mark, packet: &Packet<I>) -> Seam {
    if number == 0 || seam.settled || !packet.has(ACK) {
        return seam;
    }
    if is_over(flow, &seam, mark)
        && seam.arrived(packet.ack) == seam.length
        && !before(packet.ack, seam.down_wire)
    {
        flow.settled = 1;
        return Seam { settled: true, ..seam };
    }
    seam
}

/// Whether nothing more can be moved at this seam.
#[inline(always)]
fn is_over(flow: &Flow, seam: &Seam, mark: Mark) -> bool {
    flow.frozen != 0 || mark.end != seam.up_end()
}

/// What the client has and takes; old packets tell nothing new.
#[inline(always)]
fn note_peer(slot: &mut Slot, ack: u32, edge: u32) {
    if slot.known & Slot::PEER == 0 {
        slot.peer_ack = ack;
        slot.peer_edge = edge;
        slot.known |= Slot::PEER;
    } else if !before(ack, slot.peer_ack) {
        slot.peer_ack = ack;
        slot.peer_edge = edge;
    }
}

/// What the endpoint is told when the client has acknowledged `client_ack` and offers
/// room up to `edge`, and the local socket has acknowledged `own_ack` and offers up to
/// `own_edge`.
#[inline(always)]
fn to_endpoint(up: &Slot, own: (u32, u32), seam: &Seam, client_ack: u32, edge: u32) -> Numbers {
    let (own_ack, own_edge) = own;
    let ack = seam.ack_to_endpoint(own_ack, client_ack);
    let own = seam.own_edge_to_endpoint(own_edge);
    let end = if seam.settled { own } else { earlier(own, seam.client_edge_to_endpoint(edge)) };
    Numbers {
        seq: up.own_next,
        ack,
        window: packet::window_field(distance(ack, end), up.own_scale),
    }
}
