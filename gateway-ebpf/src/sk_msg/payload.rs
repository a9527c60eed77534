//! The bytes of a send call, as the framing is followed through them.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::sk_msg_md;
use aya_ebpf::helpers::generated::{bpf_msg_pull_data, bpf_probe_read_kernel};
use gateway_common::chunked::SIZE_LINE;
use gateway_common::frames::{Payload, TAIL_BYTES};
use gateway_common::sk_msg::CALL_BYTES;

use crate::verifier::{cleared, within};

/// What a call sends, all of it one after the other in memory.
pub struct Bytes {
    pub msg: *mut sk_msg_md,
    /// How many there are; at most [`CALL_BYTES`].
    pub size: u32,
}

impl Bytes {
    /// The bytes of a call of `size`; what lies on several pages (of a writev, or at the end
    /// of a page) is put together. `None` when they are too many for that.
    #[inline(always)]
    pub fn of(msg: *mut sk_msg_md, size: u32) -> Option<Self> {
        if size > CALL_BYTES {
            return None;
        }
        if !is_linear(msg, size) {
            // SAFETY: the message is the kernel's, and has so many bytes.
            let pulled = unsafe { bpf_msg_pull_data(msg, 0, size, 0) };
            if pulled != 0 || !is_linear(msg, size) {
                return None;
            }
        }
        Some(Self { msg, size })
    }

    /// Where a byte lies; `at` is below [`CALL_BYTES`], which the verifier does not see by
    /// itself.
    #[inline(always)]
    fn address(&self, at: u32) -> usize {
        // SAFETY: the message is the kernel's.
        let data = unsafe { (*self.msg).__bindgen_anon_1.data as usize };
        data + (core::hint::black_box(at) & (CALL_BYTES - 1)) as usize
    }

    /// So many bytes, if there are.
    #[inline(always)]
    fn load<const BYTES: usize>(&self, at: u32) -> Option<[u8; BYTES]> {
        let place = self.address(at);
        // SAFETY: the message is the kernel's.
        let end = unsafe { (*self.msg).__bindgen_anon_2.data_end as usize };
        if place + BYTES > end {
            return None;
        }
        // SAFETY: within the message.
        Some(unsafe { (place as *const [u8; BYTES]).read() })
    }
}

impl Payload for Bytes {
    #[inline(always)]
    fn window(&self, at: u32, rest: u32) -> Option<[u8; SIZE_LINE]> {
        if rest >= SIZE_LINE as u32 {
            return self.load(at);
        }
        let mut word = MaybeUninit::uninit();
        let word = cleared(&mut word);
        let (to, from) = ((&raw mut *word).cast(), self.address(at) as *const _);
        // SAFETY: fewer bytes than the word has; the kernel checks what is read.
        let read = unsafe { bpf_probe_read_kernel(to, within::<8>(rest), from) };
        (read == 0).then(|| word.to_ne_bytes())
    }

    #[inline(always)]
    fn pair(&self, at: u32) -> Option<[u8; 2]> {
        self.load(at)
    }

    #[inline(always)]
    fn copy(&self, at: u32, length: u32, to: &mut [u8; TAIL_BYTES as usize]) {
        let (to, from) = (to.as_mut_ptr().cast(), self.address(at) as *const _);
        // SAFETY: `length` is at most the size of the place; the kernel checks what is read,
        // and the framing was followed through it.
        unsafe { bpf_probe_read_kernel(to, within::<TAIL_BYTES>(length), from) };
    }
}

/// Whether all bytes lie one after the other.
#[inline(always)]
fn is_linear(msg: *mut sk_msg_md, size: u32) -> bool {
    // SAFETY: the message is the kernel's.
    let [data, end] = unsafe {
        [(*msg).__bindgen_anon_1.data as usize, (*msg).__bindgen_anon_2.data_end as usize]
    };
    data + size as usize <= end
}

const _: () = assert!(CALL_BYTES.is_power_of_two() && CALL_BYTES < 1 << 16);
