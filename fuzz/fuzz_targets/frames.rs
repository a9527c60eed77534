//! A packet that the kernel programs would move holds whole chunks for user space too,
//! and none of them is the last. What they have no reason to refuse they take.
#![no_main]

use gateway_common::chunked::{ChunkTracker, Kind, SIZE_LINE};
use gateway_common::frames::{CHUNKS, Frames};
use libfuzzer_sys::fuzz_target;

/// Number of chunks that a packet would be moved with, and bytes of data in them.
fn walk(packet: &[u8]) -> Option<(u32, u64)> {
    let frames = Frames::read(packet, 0, packet.len() as u32).ok()?;
    Some((frames.count, u64::from(frames.bytes)))
}

/// A chunk in the body, as the tracker sees it.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    /// Where it begins and ends.
    at: usize,
    end: usize,
    data: u64,
}

/// The chunks before the last one, or before the framing breaks.
fn chunks(body: &[u8]) -> Vec<Chunk> {
    let mut tracker = ChunkTracker::new();
    let (mut all, mut at, mut begin, mut data) = (Vec::new(), 0, 0, 0);
    while at < body.len() {
        let step = tracker.next(&body[at..]);
        at += step.consumed;
        match step.kind {
            Kind::Data => data += step.consumed as u64,
            Kind::ChunkEnd => {
                all.push(Chunk { at: begin, end: at, data });
                (begin, data) = (at, 0);
            }
            Kind::Framing => {}
            Kind::End | Kind::Lost | Kind::Trailer => break,
        }
    }
    all
}

/// Whether the kernel reads the size line of this chunk: no more than digits, and few.
fn is_plain(body: &[u8], chunk: Chunk) -> bool {
    let frame = &body[chunk.at..chunk.end];
    let line = frame.windows(2).position(|pair| pair == b"\r\n").unwrap_or(frame.len());
    line + 2 <= SIZE_LINE && frame[..line].iter().all(u8::is_ascii_hexdigit)
}

fuzz_target!(|input: &[u8]| {
    let (body, pieces) = gateway_fuzz::cut(input);
    let chunks = chunks(body);
    for first in 0..chunks.len() {
        let (mut count, mut bytes, mut plain) = (0, 0, true);
        for chunk in chunks[first..].iter().take(CHUNKS as usize + 1) {
            count += 1;
            bytes += chunk.data;
            plain &= is_plain(body, *chunk);
            let packet = &body[chunks[first].at..chunk.end];
            let taken = plain && count <= CHUNKS;
            assert_eq!(walk(packet), taken.then_some((count, bytes)));
        }
    }
    // Packets that end anywhere are moved only where a chunk ends.
    let mut at = 0;
    for piece in pieces {
        let is_chunks = chunks.iter().any(|chunk| chunk.at == at)
            && chunks.iter().any(|chunk| chunk.end == at + piece.len());
        let may_begin = at == 0 || chunks.iter().any(|chunk| chunk.end == at);
        if may_begin && walk(piece).is_some() {
            assert!(is_chunks, "moved {piece:?}");
        }
        at += piece.len();
    }
});
