//! The bytes of a packet, as the framing is followed through them.

use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::bpf_skb_load_bytes;
use aya_ebpf::programs::TcContext;
use gateway_common::chunked::SIZE_LINE;
use gateway_common::frames::{Payload, TAIL_BYTES};

use crate::verifier::{cleared, within};

/// A packet; places count from its first byte, headers included.
pub struct Bytes<'a>(pub &'a TcContext);

impl Payload for Bytes<'_> {
    #[inline(always)]
    fn window(&self, at: u32, rest: u32) -> Option<[u8; SIZE_LINE]> {
        let mut word = MaybeUninit::uninit();
        let word = cleared(&mut word);
        let take = if rest < SIZE_LINE as u32 { rest } else { SIZE_LINE as u32 };
        let to = (&raw mut *word).cast();
        // SAFETY: `take` is at most the size of the word.
        let read = take > 0
            && unsafe { bpf_skb_load_bytes(self.0.skb.skb.cast(), at, to, within::<8>(take)) } == 0;
        read.then(|| word.to_ne_bytes())
    }

    #[inline(always)]
    fn pair(&self, at: u32) -> Option<[u8; 2]> {
        let mut pair = [0_u8; 2];
        // SAFETY: the buffer has two bytes.
        let read =
            unsafe { bpf_skb_load_bytes(self.0.skb.skb.cast(), at, pair.as_mut_ptr().cast(), 2) };
        (read == 0).then_some(pair)
    }

    #[inline(always)]
    fn copy(&self, at: u32, length: u32, to: &mut [u8; TAIL_BYTES as usize]) {
        let length = within::<TAIL_BYTES>(length);
        // SAFETY: `length` is at most the size of the place.
        unsafe { bpf_skb_load_bytes(self.0.skb.skb.cast(), at, to.as_mut_ptr().cast(), length) };
    }
}
