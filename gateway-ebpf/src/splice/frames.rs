//! Whether a packet holds whole chunks and nothing else.

use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::bpf_skb_load_bytes;
use aya_ebpf::programs::TcContext;
use gateway_common::chunked::{SIZE_LINE, size_line};
use gateway_common::splice::{CHUNKS_PER_PACKET, Stop, TAIL_BYTES, TAIL_CHUNKS, Tails};

use super::packet::{Packet, clear, within};

/// Where a packet's last chunks lie.
pub struct Frames {
    /// How many there are.
    pub count: u32,
    /// Their data, in bytes.
    pub bytes: u32,
    /// Data of the last ones, by number of the chunk modulo [`TAIL_CHUNKS`].
    /// Each is `at << 32 | length`: whole words are cleared without a call.
    data: [u64; TAIL_CHUNKS as usize],
}

impl Frames {
    /// Follows the framing from the first byte of the payload to the last.
    #[inline(always)]
    pub fn read(ctx: &TcContext, packet: &Packet) -> Result<Self, Stop> {
        let mut at = packet.payload_at();
        let end = at + packet.length;
        let mut data_of = MaybeUninit::<[u64; TAIL_CHUNKS as usize]>::uninit();
        let data_of = cleared(&mut data_of);
        let mut count = 0;
        let mut bytes = 0;
        while count < CHUNKS_PER_PACKET {
            let Some(window) = load(ctx, at, end) else { return Err(Stop::Cut) };
            let Some(line) = size_line(window) else {
                return Err(if end - at < SIZE_LINE as u32 { Stop::Cut } else { Stop::Framing });
            };
            if line.size == 0 {
                return Err(Stop::Last);
            }
            let data = at + line.line;
            let tail = data + line.size;
            if tail + 2 > end {
                return Err(Stop::Cut);
            }
            let mut crlf = [0_u8; 2];
            // SAFETY: the buffer has two bytes.
            let read = unsafe {
                bpf_skb_load_bytes(ctx.skb.skb.cast(), tail, crlf.as_mut_ptr().cast(), 2)
            };
            if read != 0 || crlf != *b"\r\n" {
                return Err(Stop::Framing);
            }
            let number = (count & (TAIL_CHUNKS - 1)) as usize;
            data_of[number] = u64::from(data) << 32 | u64::from(line.size);
            count += 1;
            bytes += line.size;
            at = tail + 2;
            if at == end {
                return Ok(Self { count, bytes, data: *data_of });
            }
        }
        Err(Stop::Many)
    }

    /// Keeps the beginnings of the last chunks; the first of them is number `next`.
    #[inline(always)]
    pub fn keep(&self, ctx: &TcContext, tails: &mut Tails, next: u32) {
        let mut number = self.count.saturating_sub(TAIL_CHUNKS);
        let mut rounds = 0;
        while rounds < TAIL_CHUNKS && number < self.count {
            let piece = self.data[(number & (TAIL_CHUNKS - 1)) as usize];
            let (at, length) = ((piece >> 32) as u32, piece as u32);
            let place = (next.wrapping_add(number) & (TAIL_CHUNKS - 1)) as usize;
            let length = if length > TAIL_BYTES { TAIL_BYTES } else { length };
            tails.lengths[place] = length;
            if length > 0 {
                let to = tails.bytes[place].as_mut_ptr().cast();
                let length = within::<TAIL_BYTES>(length);
                // SAFETY: `length` is at most the size of the place.
                unsafe { bpf_skb_load_bytes(ctx.skb.skb.cast(), at, to, length) };
            }
            number += 1;
            rounds += 1;
        }
    }
}

/// Zeros, without the call that the compiler would make.
#[inline(always)]
pub fn cleared<const WORDS: usize>(words: &mut MaybeUninit<[u64; WORDS]>) -> &mut [u64; WORDS] {
    // SAFETY: any bits are a number, and all are written before they are read.
    let words = unsafe { &mut *words.as_mut_ptr() };
    clear(words);
    words
}

/// What there is between `at` and `end`, at most a window, filled up with zeros.
#[inline(always)]
fn load(ctx: &TcContext, at: u32, end: u32) -> Option<[u8; SIZE_LINE]> {
    let mut word = MaybeUninit::<[u64; 1]>::uninit();
    let word = cleared(&mut word);
    let to = (&raw mut *word).cast();
    let rest = end - at;
    let take = if rest < SIZE_LINE as u32 { rest } else { SIZE_LINE as u32 };
    // SAFETY: `take` is at most the size of the word.
    let read = take > 0
        && unsafe { bpf_skb_load_bytes(ctx.skb.skb.cast(), at, to, within::<8>(take)) } == 0;
    read.then(|| word[0].to_ne_bytes())
}
