//! The Internet checksum (RFC 1071) of a packet that changes.
//!
//! Sums are in the byte order of the packet, as the helpers have them; it makes no
//! difference to a sum in one's complement.

use aya_ebpf::helpers::generated::{bpf_csum_diff, bpf_l4_csum_replace, bpf_skb_load_bytes};
use aya_ebpf::programs::TcContext;

use super::{BLOCK, Headers, KEPT, PROTO_TCP, Packet, TCP, TCP_CHECK_AT, address};
use crate::verifier::{clear, within};

#[inline(always)]
pub fn replace_tcp_check(ctx: &TcContext, difference: i64, flags: u64) -> bool {
    // SAFETY: the offset is that of the TCP checksum.
    unsafe {
        bpf_l4_csum_replace(ctx.skb.skb.cast(), TCP_CHECK_AT, 0, difference as u64, flags) == 0
    }
}

/// What changes in a sum when a field does.
#[inline(always)]
pub fn changed(old: u16, new: u16) -> u32 {
    u32::from(new.to_be()) + 0xffff - u32::from(old.to_be())
}

/// Sum over the first `length` bytes of payload, at most [`KEPT`].
#[inline(always)]
pub fn payload_sum(ctx: &TcContext, packet: &Packet, length: u32) -> u32 {
    // SAFETY: as in `Packet::read`.
    let block = unsafe { &mut (*packet.scratch).block };
    let mut total = 0;
    let mut done = 0;
    while done < KEPT && done < length {
        clear(block);
        let rest = length - done;
        let take = within::<BLOCK>(if rest < BLOCK { rest } else { BLOCK });
        let from = packet.payload_at() + done;
        // SAFETY: `take` is at most the size of the block.
        unsafe {
            if bpf_skb_load_bytes(ctx.skb.skb.cast(), from, address(block), take) != 0 {
                return 0;
            }
            let part = bpf_csum_diff(core::ptr::null_mut(), 0, address(block), BLOCK, 0);
            total = fold(total + fold(part as u32));
        }
        done += BLOCK;
    }
    total
}

/// What changes in the sum over the TCP header.
#[inline(always)]
pub fn tcp_difference(old: &mut Headers, new: &mut Headers) -> i64 {
    let (from, to) = (address(&mut old.source_port_be), address(&mut new.source_port_be));
    // SAFETY: both have 20 bytes there.
    unsafe { bpf_csum_diff(from, TCP, to, TCP, 0) }
}

/// What changes in the sum over the addresses.
#[inline(always)]
pub fn address_difference(old: &mut Headers, new: &mut Headers) -> i64 {
    let (from, to) = (address(&mut old.source_be), address(&mut new.source_be));
    // SAFETY: both have two addresses there.
    unsafe { bpf_csum_diff(from, 8, to, 8, 0) }
}

/// Sum over a TCP header without its checksum.
#[inline(always)]
pub fn sum(headers: &mut Headers) -> u32 {
    let check = u32::from(headers.check);
    let from = address(&mut headers.source_port_be);
    // SAFETY: there are 20 bytes.
    let sum = unsafe { bpf_csum_diff(core::ptr::null_mut(), 0, from, TCP, 0) };
    fold(fold(sum as u32) + 0xffff - check)
}

/// Sum over the pseudo header for `length` bytes of TCP.
#[inline(always)]
pub fn pseudo(headers: &mut Headers, length: u32) -> u32 {
    let from = address(&mut headers.source_be);
    // SAFETY: there are two addresses.
    let addresses = unsafe { bpf_csum_diff(core::ptr::null_mut(), 0, from, 8, 0) } as u32;
    let rest = u32::from((length as u16).to_be()) + u32::from(u16::from(PROTO_TCP).to_be());
    fold(fold(addresses) + rest)
}

/// Folds a sum into 16 bits, carries added.
#[inline(always)]
pub fn fold(sum: u32) -> u32 {
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff)
}
