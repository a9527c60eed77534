//! From socket to socket: what an endpoint on this node sends goes straight into the
//! socket of the client.
//!
//! `sk_msg_enrol` sees connections open, on the node's root cgroup, and puts the endpoint's
//! socket of a gateway's connection into a map. `sk_msg_move` is on that map, and runs in
//! each send call of the sockets in it.
//!
//! `docs/decisions/0011-from-socket-to-socket.md` tells what is kept right, and how.

use aya_ebpf::bindings::{BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB};
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::{sk_msg, sock_ops};
use aya_ebpf::programs::{SkMsgContext, SockOpsContext};
use gateway_common::frames::Frames;
use gateway_common::sk_msg::{Stop, Stream, Word, cost};

use crate::atomic::{exchange, load};
use payload::Bytes;

mod enrol;
mod maps;
mod payload;

/// The call goes on: to the other end of its own connection, or as was told to a helper.
const PASS: u32 = 1;
/// The call fails.
const DROP: u32 = 0;
/// How often a count is tried. The daemon changes a word twice for every answer.
const TRIES: u32 = 8;

/// Connections that open, anywhere on the node.
#[sock_ops]
pub fn sk_msg_enrol(ctx: SockOpsContext) -> u32 {
    match ctx.op() {
        BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB => enrol::gateway(&ctx),
        BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB => enrol::endpoint(&ctx),
        _ => {}
    }
    // Nothing is decided here for anybody.
    1
}

/// Send calls of endpoints' sockets.
#[sk_msg]
pub fn sk_msg_move(ctx: SkMsgContext) -> u32 {
    let Some(stream) = maps::stream_of(&ctx) else { return PASS };
    let bytes = ctx.size();
    let old = load(&stream.word);
    let word = Word::unpack(old);
    if !word.armed {
        maps::count(|counters| counters.passed += 1);
        return pass(stream, bytes);
    }
    let Some(payload) = Bytes::of(ctx.msg, bytes) else {
        return stopped(stream, bytes, Stop::Many);
    };
    let frames = match Frames::read(&payload, 0, bytes) {
        Ok(frames) => frames,
        Err(why) => return stopped(stream, bytes, why.into()),
    };
    let spent = load(&stream.spent).saturating_add(cost(bytes));
    if spent > load(&stream.credit) {
        return stopped(stream, bytes, Stop::Credit);
    }
    let client = load(&stream.client);
    // From here on the bytes are the client's, unless the daemon was faster.
    if !exchange(&mut stream.word, old, word.and_moved(bytes).pack()) {
        return stopped(stream, bytes, Stop::Closed);
    }
    if !maps::redirect(&ctx, client) {
        return give_back(stream, bytes);
    }
    note(stream, &payload, &frames, spent);
    PASS
}

/// The call goes to the gateway's end of the connection, and counts there.
#[inline(always)]
fn pass(stream: &mut Stream, bytes: u32) -> u32 {
    recount(stream, |word| word.and_passed(bytes))
}

/// As [`pass`], and says why it was not moved.
#[inline(always)]
fn stopped(stream: &mut Stream, bytes: u32, why: Stop) -> u32 {
    stream.stop = why as u32;
    maps::count(|counters| {
        if let Some(stops) = counters.stops.get_mut(why as usize) {
            *stops += 1;
        }
    });
    pass(stream, bytes)
}

/// The client's socket is gone: what was counted as moved is passed instead.
#[inline(always)]
fn give_back(stream: &mut Stream, bytes: u32) -> u32 {
    stream.stop = Stop::Gone as u32;
    maps::count(|counters| counters.stops[Stop::Gone as usize] += 1);
    recount(stream, |word| word.and_not_moved(bytes).and_passed(bytes))
}

#[inline(always)]
fn recount(stream: &mut Stream, change: impl Fn(Word) -> Word) -> u32 {
    let mut tried = 0;
    while tried < TRIES {
        let old = load(&stream.word);
        if exchange(&mut stream.word, old, change(Word::unpack(old)).pack()) {
            return PASS;
        }
        tried += 1;
    }
    // Better no answer than one whose bytes nobody has counted.
    DROP
}

/// Keeps the account of a call that was moved.
#[inline(always)]
fn note(stream: &mut Stream, payload: &Bytes, frames: &Frames, spent: u32) {
    let bytes = payload.size;
    // SAFETY: the helper only reads a clock.
    let now = unsafe { bpf_ktime_get_ns() };
    if stream.first_ns == 0 {
        stream.first_ns = now;
    }
    stream.last_ns = now;
    stream.spent = spent;
    stream.bytes += u64::from(bytes);
    stream.data += u64::from(frames.bytes);
    stream.chunks += u64::from(frames.count);
    let next = stream.tail;
    stream.tail = next.wrapping_add(frames.count);
    maps::count(|counters| {
        counters.moved += 1;
        counters.moved_bytes += u64::from(bytes);
        counters.moved_chunks += u64::from(frames.count);
    });
    if let Some(tails) = maps::tails_of(payload.msg) {
        frames.keep(payload, tails, next);
    }
}
