//! Whether a send call holds whole chunks and nothing else.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::sk_msg_md;
use aya_ebpf::helpers::generated::{bpf_msg_pull_data, bpf_probe_read_kernel};
use gateway_common::chunked::{SIZE_LINE, size_line};
use gateway_common::sk_msg::{CALL_BYTES, CHUNKS_PER_CALL, Stop};
use gateway_common::splice::{TAIL_BYTES, TAIL_CHUNKS, Tails};

use crate::splice::{cleared, within};

/// Where a call's last chunks lie.
pub struct Frames {
    /// How many there are.
    pub count: u32,
    /// Their data, in bytes.
    pub bytes: u32,
    /// Data of the last ones, by number of the chunk modulo [`TAIL_CHUNKS`]. Each is
    /// `at << 32 | length`.
    data: [u64; TAIL_CHUNKS as usize],
}

impl Frames {
    /// Follows the framing from the first byte of the call to the last.
    #[inline(always)]
    pub fn read(msg: *mut sk_msg_md, size: u32) -> Result<Self, Stop> {
        if size > CALL_BYTES {
            return Err(Stop::Many);
        }
        // What lies on several pages (of a writev, or at the end of a page) is put together.
        if !is_linear(msg, size) {
            // SAFETY: the message is the kernel's, and has so many bytes.
            let pulled = unsafe { bpf_msg_pull_data(msg, 0, size, 0) };
            if pulled != 0 || !is_linear(msg, size) {
                return Err(Stop::Many);
            }
        }
        let mut data_of = MaybeUninit::<[u64; TAIL_CHUNKS as usize]>::uninit();
        let data_of = cleared(&mut data_of);
        let mut count = 0;
        let mut bytes = 0;
        let mut at = 0;
        while count < CHUNKS_PER_CALL {
            let Some(window) = window_at(msg, at, size) else { return Err(Stop::Cut) };
            let Some(line) = size_line(window) else {
                return Err(if size - at < SIZE_LINE as u32 { Stop::Cut } else { Stop::Framing });
            };
            if line.size == 0 {
                return Err(Stop::Last);
            }
            let data = at + line.line;
            let tail = data + line.size;
            if tail + 2 > size {
                return Err(Stop::Cut);
            }
            if bytes_at::<2>(msg, tail) != Some(*b"\r\n") {
                return Err(Stop::Framing);
            }
            let number = (count & (TAIL_CHUNKS - 1)) as usize;
            data_of[number] = u64::from(data) << 32 | u64::from(line.size);
            count += 1;
            bytes += line.size;
            at = tail + 2;
            if at == size {
                return Ok(Self { count, bytes, data: *data_of });
            }
        }
        Err(Stop::Many)
    }

    /// Keeps the beginnings of the last chunks; the first of them is number `next`.
    #[inline(always)]
    pub fn keep(&self, msg: *mut sk_msg_md, tails: &mut Tails, next: u32) {
        let mut number = self.count.saturating_sub(TAIL_CHUNKS);
        let mut rounds = 0;
        while rounds < TAIL_CHUNKS && number < self.count {
            let piece = self.data[(number & (TAIL_CHUNKS - 1)) as usize];
            let (at, length) = ((piece >> 32) as u32, piece as u32);
            let place = (next.wrapping_add(number) & (TAIL_CHUNKS - 1)) as usize;
            let length = if length > TAIL_BYTES { TAIL_BYTES } else { length };
            tails.lengths[place] = length;
            let to = tails.bytes[place].as_mut_ptr().cast();
            let from = address(msg, at) as *const core::ffi::c_void;
            // SAFETY: `length` is at most the size of the place; the kernel checks what is
            // read, and the framing was followed through it.
            unsafe { bpf_probe_read_kernel(to, within::<TAIL_BYTES>(length), from) };
            number += 1;
            rounds += 1;
        }
    }
}

/// Whether all bytes of the message lie one after the other.
#[inline(always)]
fn is_linear(msg: *mut sk_msg_md, size: u32) -> bool {
    // SAFETY: the message is the kernel's.
    let [data, end] = unsafe {
        [(*msg).__bindgen_anon_1.data as usize, (*msg).__bindgen_anon_2.data_end as usize]
    };
    data + size as usize <= end
}

/// Where a byte of the message lies; `at` is below [`CALL_BYTES`], which the verifier does
/// not see by itself.
#[inline(always)]
fn address(msg: *mut sk_msg_md, at: u32) -> usize {
    // SAFETY: the message is the kernel's.
    let data = unsafe { (*msg).__bindgen_anon_1.data as usize };
    data + (core::hint::black_box(at) & (CALL_BYTES - 1)) as usize
}

/// What there is from `at` on, at most a window, filled up with zeros.
#[inline(always)]
fn window_at(msg: *mut sk_msg_md, at: u32, size: u32) -> Option<[u8; SIZE_LINE]> {
    let rest = size - at;
    if rest >= SIZE_LINE as u32 {
        return bytes_at(msg, at);
    }
    let mut word = MaybeUninit::<[u64; 1]>::uninit();
    let word = cleared(&mut word);
    let (to, from) = ((&raw mut *word).cast(), address(msg, at) as *const core::ffi::c_void);
    // SAFETY: fewer bytes than the word has; the kernel checks what is read.
    let read = unsafe { bpf_probe_read_kernel(to, within::<8>(rest), from) };
    (read == 0).then(|| word[0].to_ne_bytes())
}

/// So many bytes of the message, if it has them.
#[inline(always)]
fn bytes_at<const BYTES: usize>(msg: *mut sk_msg_md, at: u32) -> Option<[u8; BYTES]> {
    let place = address(msg, at);
    // SAFETY: the message is the kernel's.
    let end = unsafe { (*msg).__bindgen_anon_2.data_end as usize };
    if place + BYTES > end {
        return None;
    }
    // SAFETY: within the message.
    Some(unsafe { (place as *const [u8; BYTES]).read() })
}

const _: () = assert!(CALL_BYTES.is_power_of_two() && CALL_BYTES < 1 << 16);
