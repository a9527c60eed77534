//! Packets of a connection to an endpoint.

use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::programs::TcContext;
use gateway_common::frames::Frames;
use gateway_common::seq::{before, distance, earlier};
use gateway_common::splice::{Flow, From, Mark, Seam, Slot, Stop};

use super::client::{failed, note_own};
use super::packet::{ACK, FIN, Ip, Numbers, Onward, PSH, Packet, RST, window_field};
use super::payload::Bytes;
use super::{NEXT, REDIRECT, maps};

/// How often a packet's account is tried anew because another CPU was faster.
const ROUNDS: u32 = 4;

/// From the endpoint: whole chunks of an open flow go to the client, everything else
/// to the local socket.
///
/// What a packet is and that it is accounted for is one compare-and-set on the
/// connection's mark: no byte can go to both sides, or to neither.
#[inline(always)]
pub fn arriving<I: Ip>(ctx: &TcContext, packet: &Packet<I>, index: u32) -> i32 {
    let Some(slot) = maps::slot(index) else { return NEXT };
    let number = maps::load(&slot.flow);
    let Some(flow) = maps::flow(number) else { return NEXT };
    let Some(down) = maps::slot(flow.down_slot) else { return NEXT };
    if packet.has(FIN | RST) {
        slot.ended = 1;
    }
    let mut seam = maps::seam(flow, Mark::unpack(maps::load(&slot.mark)));
    let is_armed = packet.length > 0 && number != 0 && maps::load(&flow.open) != 0;
    if !(is_armed && moved(ctx, packet, flow, number, slot, down, &mut seam)) {
        let Some(now) = passed(packet, flow, slot) else { return failed() };
        seam = now;
        if seam.length == 0 || !matches!(seam.from_endpoint(packet.seq), From::Moved(_)) {
            return deliver(ctx, packet, &seam);
        }
        maps::count(|counters| counters.resent += 1);
    }
    forward(ctx, packet, flow, down, &seam)
}

/// Accounts for a packet that goes to the client; false when it does not.
#[inline(always)]
fn moved<I: Ip>(
    ctx: &TcContext,
    packet: &Packet<I>,
    flow: &mut Flow,
    number: u32,
    slot: &mut Slot,
    down: &Slot,
    seam: &mut Seam,
) -> bool {
    let word = maps::load(&slot.mark);
    let mark = Mark::unpack(word);
    *seam = maps::seam(flow, mark);
    let frames = match fit(ctx, packet, flow, mark, seam, slot, down) {
        Ok(frames) => frames,
        Err(why) => {
            if let Some(why) = why {
                maps::stopped(flow, why);
            }
            return false;
        }
    };
    let next = Mark {
        moved: mark.moved.wrapping_add(packet.length),
        end: mark.end.wrapping_add(packet.length),
    };
    if !maps::exchange(&mut slot.mark, word, next.pack()) {
        return false;
    }
    account(ctx, packet, flow, number, &frames);
    seam.length += packet.length;
    true
}

/// Accounts for a packet that goes to the local socket, or that is sent again, and
/// returns the seam that it stands at. `None` when four other CPUs were faster.
#[inline(always)]
fn passed<I: Ip>(packet: &Packet<I>, flow: &Flow, slot: &mut Slot) -> Option<Seam> {
    let end = packet.seq.wrapping_add(packet.length);
    let mut round = 0;
    while round < ROUNDS {
        round += 1;
        let word = maps::load(&slot.mark);
        let mark = Mark::unpack(word);
        let seam = maps::seam(flow, mark);
        // Of what is sent again only the part before the seam's end is looked at; the
        // rest comes again by itself.
        let is_again = seam.length > 0 && matches!(seam.from_endpoint(packet.seq), From::Moved(_));
        if packet.length == 0 || is_again || !before(mark.end, end) {
            return Some(seam);
        }
        if maps::exchange(&mut slot.mark, word, Mark { end, ..mark }.pack()) {
            return Some(seam);
        }
    }
    None
}

/// Whether the kernel may move this packet. `Err(None)` when it is one that has been
/// seen before.
#[inline(always)]
fn fit<I: Ip>(
    ctx: &TcContext,
    packet: &Packet<I>,
    flow: &Flow,
    mark: Mark,
    seam: &Seam,
    slot: &Slot,
    down: &Slot,
) -> Result<Frames, Option<Stop>> {
    if before(packet.seq, mark.end) {
        return Err(None);
    }
    if mark.end != seam.up_end() || flow.frozen != 0 {
        return Err(Some(Stop::Stale));
    }
    if packet.seq != mark.end {
        return Err(Some(Stop::OutOfOrder));
    }
    if packet.flags & !PSH != ACK || packet.header != 20 {
        return Err(Some(Stop::Flags));
    }
    if slot.ended != 0 || down.ended != 0 {
        return Err(Some(Stop::Closed));
    }
    let end = flow.down_wire.wrapping_add(seam.length).wrapping_add(packet.length);
    if before(down.peer_edge, end) {
        return Err(Some(Stop::Window));
    }
    let at = packet.payload_at();
    Frames::read(&Bytes(ctx), at, at + packet.length).map_err(|why| Some(why.into()))
}

/// Counts what is moved, and keeps the last chunks.
#[inline(always)]
fn account<I: Ip>(
    ctx: &TcContext,
    packet: &Packet<I>,
    flow: &mut Flow,
    number: u32,
    frames: &Frames,
) {
    // SAFETY: always there.
    let now = unsafe { bpf_ktime_get_ns() };
    if flow.first_ns == 0 {
        flow.first_ns = now;
    }
    flow.last_ns = now;
    flow.bytes += u64::from(packet.length);
    flow.data += u64::from(frames.bytes);
    flow.chunks += u64::from(frames.count);
    if let Some(tails) = maps::tails(number) {
        frames.keep(&Bytes(ctx), tails, flow.tail);
    }
    flow.tail = flow.tail.wrapping_add(frames.count);
    maps::count(|counters| {
        counters.moved += 1;
        counters.moved_bytes += u64::from(packet.length);
        counters.moved_chunks += u64::from(frames.count);
    });
}

/// Sends the packet to the client, as far as it lies before the seam's end.
#[inline(always)]
fn forward<I: Ip>(
    ctx: &TcContext,
    packet: &Packet<I>,
    flow: &Flow,
    down: &Slot,
    seam: &Seam,
) -> i32 {
    let seq = packet.seq.wrapping_sub(seam.up_wire).wrapping_add(seam.down_wire);
    let window = window_field(distance(down.own_ack, down.own_edge), down.own_scale);
    let numbers = Numbers { seq, ack: down.own_ack, window };
    let mut packet = *packet;
    if !packet.truncate(ctx, distance(packet.seq, seam.up_end())) {
        return failed();
    }
    let to = Onward { tuple: &flow.down, slot: down, ifindex: flow.down_ifindex };
    if packet.send_as(ctx, &to, &numbers) { REDIRECT } else { failed() }
}

/// Leaves the packet to the local socket.
#[inline(always)]
fn deliver<I: Ip>(ctx: &TcContext, packet: &Packet<I>, seam: &Seam) -> i32 {
    let From::Local(seq) = seam.from_endpoint(packet.seq) else { return failed() };
    let mut packet = *packet;
    if !seam.settled && seam.length > 0 && before(packet.seq, seam.up_wire) {
        // Sent again from before the seam: what lies behind it is not the socket's.
        if !packet.truncate(ctx, distance(packet.seq, seam.up_wire)) {
            return failed();
        }
    }
    if packet.renumber(ctx, seq, packet.ack, packet.window) { NEXT } else { failed() }
}

/// To the endpoint: the local socket must not acknowledge what the client does not have,
/// nor offer room that the client has not.
#[inline(always)]
pub fn leaving<I: Ip>(ctx: &TcContext, packet: &Packet<I>, index: u32) -> i32 {
    let Some(slot) = maps::slot(index) else { return NEXT };
    let Some(flow) = maps::flow(maps::load(&slot.flow)) else { return NEXT };
    let Some(down) = maps::slot(flow.down_slot) else { return NEXT };
    note_own(slot, packet);
    if !packet.has(ACK) {
        return NEXT;
    }
    let seam = maps::seam(flow, Mark::unpack(maps::load(&slot.mark)));
    let ack = seam.ack_to_endpoint(packet.ack, down.peer_ack);
    let own_edge = packet.ack.wrapping_add(u32::from(packet.window) << slot.own_scale);
    let mut end = seam.own_edge_to_endpoint(own_edge);
    if !seam.settled && seam.length > 0 {
        end = earlier(end, seam.client_edge_to_endpoint(down.peer_edge));
    }
    let window = window_field(distance(ack, end), slot.own_scale);
    let packet = *packet;
    if packet.renumber(ctx, packet.seq, ack, window) { NEXT } else { failed() }
}
