//! The TCP options of a packet, before and after a change.

use aya_ebpf::helpers::generated::{bpf_csum_diff, bpf_skb_load_bytes, bpf_skb_store_bytes};
use aya_ebpf::programs::TcContext;

use super::checksum::replace_tcp_check;
use super::{Ip, OPTIONS, Packet, TCP, address};
use crate::verifier::{clear, within};

impl<I: Ip> Packet<I> {
    /// Reads the TCP options, `length` bytes, twice: as they are, and for a change. Both
    /// are padded with zeros.
    #[inline(always)]
    pub fn read_options(&self, ctx: &TcContext, length: u32) -> Option<Options> {
        // SAFETY: as in `read`; the two are different fields.
        let (old, new) =
            unsafe { (&mut (*self.scratch).old_options, &mut (*self.scratch).new_options) };
        clear(old);
        if length == 0 || length > OPTIONS as u32 {
            return None;
        }
        let skb = ctx.skb.skb.cast();
        // Kernel 6.1 has to see that it is not zero.
        let length = within::<64>(length);
        // SAFETY: `length` is at most the room.
        if unsafe { bpf_skb_load_bytes(skb, I::TCP_AT + TCP, address(old), length) } != 0 {
            return None;
        }
        for (to, from) in new.iter_mut().zip(old.iter()) {
            // SAFETY: references are valid; as in `clear`.
            unsafe { core::ptr::write_volatile(to, core::ptr::read_volatile(from)) };
        }
        Some((bytes(old), bytes(new)))
    }
}

/// Options before and after a change, in room enough for any index of six bits.
pub type Options = (&'static mut [u8; 64], &'static mut [u8; 64]);

#[inline(always)]
fn bytes(words: &'static mut [u64; 8]) -> &'static mut [u8; 64] {
    // SAFETY: the same size, and no alignment to keep.
    unsafe { &mut *address(words) }
}

/// Replaces the packet's `length` bytes of TCP options.
#[inline(always)]
pub fn store_options<I: Ip>(ctx: &TcContext, (old, new): Options, length: u32) -> bool {
    if length == 0 || length > OPTIONS as u32 {
        return false;
    }
    let (room, length) = (OPTIONS as u32, within::<64>(length));
    // SAFETY: both buffers have that room, and `length` is at most that.
    unsafe {
        let difference = bpf_csum_diff(address(old), room, address(new), room, 0);
        bpf_skb_store_bytes(ctx.skb.skb.cast(), I::TCP_AT + TCP, address(new), length, 0) == 0
            && replace_tcp_check::<I>(ctx, difference, 0)
    }
}
