//! Whether the bytes of a packet, or of a send call, are whole chunks and nothing else.
//!
//! The kernel moves nothing else, and never the last chunk: that, and whatever it does not
//! follow, is for user space ([`crate::chunked`]).

use crate::chunked::{SIZE_LINE, size_line};

/// Chunks that the kernel follows at a time; what holds more goes to user space.
pub const CHUNKS: u32 = 24;
/// How many of an answer's last chunks are kept.
pub const TAIL_CHUNKS: u32 = 4;
/// How much of each is kept, in bytes.
pub const TAIL_BYTES: u32 = 512;

/// Bytes that lie in a packet, in a send call, or in memory. Places count from where the
/// implementation begins to count.
pub trait Payload {
    /// The bytes from `at` on, of which there are `rest`, filled up with zeros. `None` when
    /// there are none, or they cannot be read.
    fn window(&self, at: u32, rest: u32) -> Option<[u8; SIZE_LINE]>;

    /// The two bytes at `at`, if they can be read.
    fn pair(&self, at: u32) -> Option<[u8; 2]>;

    /// Copies `length` bytes, 1 to [`TAIL_BYTES`], from `at` on.
    fn copy(&self, at: u32, length: u32, to: &mut [u8; TAIL_BYTES as usize]);
}

/// Chunks that lie one after the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Frames {
    /// How many there are; 1 to [`CHUNKS`].
    pub count: u32,
    /// Their data, in bytes.
    pub bytes: u32,
    /// Data of the last ones, by number of the chunk modulo [`TAIL_CHUNKS`]: `at << 32 |
    /// length`, for whole words are cleared without a call.
    data: [u64; TAIL_CHUNKS as usize],
}

/// Why bytes are not whole chunks that the kernel may move.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unfit {
    /// They end within a chunk.
    Cut,
    /// One is the last chunk.
    Last,
    /// They are not the framing that the kernel follows.
    Framing,
    /// They are too many.
    Many,
}

impl Frames {
    /// Follows the framing from `at` to `end`.
    ///
    /// # Errors
    ///
    /// Says why the bytes are not to be moved.
    #[inline(always)]
    pub fn read(payload: &(impl Payload + ?Sized), mut at: u32, end: u32) -> Result<Self, Unfit> {
        let mut frames = Self { count: 0, bytes: 0, data: [0; TAIL_CHUNKS as usize] };
        while frames.count < CHUNKS {
            let Some(window) = payload.window(at, end - at) else { return Err(Unfit::Cut) };
            let Some(line) = size_line(window) else {
                return Err(if end - at < SIZE_LINE as u32 { Unfit::Cut } else { Unfit::Framing });
            };
            if line.size == 0 {
                return Err(Unfit::Last);
            }
            let data = at + line.line;
            let tail = data + line.size;
            if tail + 2 > end {
                return Err(Unfit::Cut);
            }
            if payload.pair(tail) != Some(*b"\r\n") {
                return Err(Unfit::Framing);
            }
            let place = (frames.count & (TAIL_CHUNKS - 1)) as usize;
            frames.data[place] = (data as u64) << 32 | line.size as u64;
            frames.count += 1;
            frames.bytes += line.size;
            at = tail + 2;
            if at == end {
                return Ok(frames);
            }
        }
        Err(Unfit::Many)
    }

    /// Keeps the beginnings of the last chunks; the first of all is number `next` of its
    /// answer.
    #[inline(always)]
    pub fn keep(&self, payload: &(impl Payload + ?Sized), tails: &mut Tails, next: u32) {
        let mut number = self.count.saturating_sub(TAIL_CHUNKS);
        let mut rounds = 0;
        while rounds < TAIL_CHUNKS && number < self.count {
            let piece = self.data[(number & (TAIL_CHUNKS - 1)) as usize];
            let (at, length) = ((piece >> 32) as u32, piece as u32);
            let length = if length > TAIL_BYTES { TAIL_BYTES } else { length };
            let place = (next.wrapping_add(number) & (TAIL_CHUNKS - 1)) as usize;
            tails.lengths[place] = length;
            payload.copy(at, length, &mut tails.bytes[place]);
            number += 1;
            rounds += 1;
        }
    }
}

/// The beginnings of an answer's last chunks, without framing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tails {
    /// How much of each chunk was kept, in bytes.
    pub lengths: [u32; TAIL_CHUNKS as usize],
    /// The bytes.
    pub bytes: [[u8; TAIL_BYTES as usize]; TAIL_CHUNKS as usize],
}

impl Tails {
    /// The beginnings of the `kept` last chunks, oldest first, when the next one is number
    /// `next`.
    #[cfg(feature = "user")]
    #[must_use]
    pub fn last(&self, next: u32, kept: u32) -> alloc::vec::Vec<alloc::vec::Vec<u8>> {
        let piece = |back: u32| {
            let place = (next.wrapping_sub(kept - back) % TAIL_CHUNKS) as usize;
            let length = (self.lengths[place] as usize).min(self.bytes[place].len());
            self.bytes[place][..length].to_vec()
        };
        (0..kept).map(piece).collect()
    }
}

/// Bytes in memory; places count from the first one. No kernel program has them: this is
/// what tests and fuzzing follow the same framing through.
impl Payload for [u8] {
    fn window(&self, at: u32, rest: u32) -> Option<[u8; SIZE_LINE]> {
        let from = self.get(at as usize..(at + rest) as usize).filter(|from| !from.is_empty())?;
        let mut window = [0; SIZE_LINE];
        for (to, from) in window.iter_mut().zip(from) {
            *to = *from;
        }
        Some(window)
    }

    fn pair(&self, at: u32) -> Option<[u8; 2]> {
        self.get(at as usize..at as usize + 2)?.try_into().ok()
    }

    fn copy(&self, at: u32, length: u32, to: &mut [u8; TAIL_BYTES as usize]) {
        let (at, length) = (at as usize, length as usize);
        to[..length].copy_from_slice(&self[at..at + length]);
    }
}

const _: () = {
    assert!(size_of::<Tails>() == 16 + 2048);
    assert!(TAIL_CHUNKS.is_power_of_two() && TAIL_BYTES.is_power_of_two());
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    extern crate std;
    use std::format;
    use std::vec::Vec;

    /// Reads all of it.
    fn read(payload: &[u8]) -> Result<Frames, Unfit> {
        Frames::read(payload, 0, payload.len() as u32)
    }

    /// As an engine writes a chunk.
    fn chunk(data: &[u8]) -> Vec<u8> {
        [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
    }

    #[test]
    fn what_is_not_whole_chunks_is_told_apart() {
        let seen = |payload: &[u8]| read(payload).map(|frames| (frames.count, frames.bytes));
        assert_eq!(seen(b"3\r\nabc\r\n"), Ok((1, 3)));
        assert_eq!(seen(b"3\r\nabc\r\nA\r\n0123456789\r\n"), Ok((2, 13)));
        for cut in 0..8 {
            assert_eq!(seen(&b"3\r\nabc\r\n"[..cut]), Err(Unfit::Cut), "{cut} bytes");
        }
        assert_eq!(seen(b"3\r\nabc\r\n0\r\n\r\n"), Err(Unfit::Last));
        assert_eq!(seen(b"3;a=1\r\nabc\r\n"), Err(Unfit::Framing));
        assert_eq!(seen(b"3\r\nabcd\r\n"), Err(Unfit::Framing));
        assert_eq!(seen(&b"1\r\na\r\n".repeat(24)), Ok((24, 24)));
        assert_eq!(seen(&b"1\r\na\r\n".repeat(25)), Err(Unfit::Many));
    }

    proptest! {
        #[test]
        fn the_last_chunks_of_an_answer_are_kept(
            answer in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..700), 1..40),
            most in 1..24_usize,
        ) {
            let mut tails = Tails { lengths: [0; 4], bytes: [[0; 512]; 4] };
            let mut next = 0;
            for packet in answer.chunks(most) {
                let payload: Vec<u8> = packet.iter().flat_map(|data| chunk(data)).collect();
                let frames = read(&payload).expect("whole chunks");
                prop_assert_eq!(frames.count as usize, packet.len());
                frames.keep(&payload[..], &mut tails, next);
                next += frames.count;
            }
            let kept = next.min(TAIL_CHUNKS);
            let last = &answer[answer.len() - kept as usize..];
            for (place, data) in (next - kept..next).zip(last) {
                let place = (place % TAIL_CHUNKS) as usize;
                let length = data.len().min(512);
                prop_assert_eq!(tails.lengths[place] as usize, length);
                prop_assert_eq!(&tails.bytes[place][..length], &data[..length]);
            }
        }
    }
}
