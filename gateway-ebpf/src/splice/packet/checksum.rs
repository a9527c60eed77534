//! The Internet checksum (RFC 1071) of a packet that changes.
//!
//! Sums are in the byte order of the packet, as the helpers have them; it makes no
//! difference to a sum in one's complement.

use aya_ebpf::helpers::generated::{bpf_csum_diff, bpf_l4_csum_replace, bpf_skb_load_bytes};
use aya_ebpf::programs::TcContext;

use super::ip::PROTO_TCP;
use super::{BLOCK, CHECK, Headers, Ip, KEPT, Packet, TCP, address};
use crate::verifier::{clear, within};

#[inline(always)]
pub fn replace_tcp_check<I: Ip>(ctx: &TcContext, difference: i64, flags: u64) -> bool {
    let check_at = I::TCP_AT + CHECK;
    // SAFETY: the offset is that of the TCP checksum.
    unsafe { bpf_l4_csum_replace(ctx.skb.skb.cast(), check_at, 0, difference as u64, flags) == 0 }
}

/// What changes in a sum when a field does.
#[inline(always)]
pub fn changed(old: u16, new: u16) -> u32 {
    u32::from(new.to_be()) + 0xffff - u32::from(old.to_be())
}

/// Sum over the first `length` bytes of payload, at most [`KEPT`].
#[inline(always)]
pub fn payload_sum<I: Ip>(ctx: &TcContext, packet: &Packet<I>, length: u32) -> u32 {
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
pub fn tcp_difference<I: Ip>(old: &mut Headers<I>, new: &mut Headers<I>) -> i64 {
    // SAFETY: both are of that size.
    unsafe { bpf_csum_diff(address(&mut old.tcp), TCP, address(&mut new.tcp), TCP, 0) }
}

/// What changes in the sum over the addresses.
#[inline(always)]
pub fn address_difference<I: Ip>(old: &mut Headers<I>, new: &mut Headers<I>) -> i64 {
    let (from, to) = (old.ip.addresses(), new.ip.addresses());
    // SAFETY: both have two addresses there.
    unsafe { bpf_csum_diff(from, I::ADDRESSES, to, I::ADDRESSES, 0) }
}

/// Sum over a TCP header without its checksum.
#[inline(always)]
pub fn sum<I: Ip>(headers: &mut Headers<I>) -> u32 {
    let check = u32::from(headers.tcp.check);
    let from = address(&mut headers.tcp);
    // SAFETY: there are 20 bytes.
    let sum = unsafe { bpf_csum_diff(core::ptr::null_mut(), 0, from, TCP, 0) };
    fold(fold(sum as u32) + 0xffff - check)
}

/// Sum over the pseudo header for `length` bytes of TCP, fewer than 2^16: the same for
/// both families (RFC 9293, section 3.1).
#[inline(always)]
pub fn pseudo<I: Ip>(headers: &mut Headers<I>, length: u32) -> u32 {
    let from = headers.ip.addresses();
    // SAFETY: there are two addresses.
    let addresses = unsafe { bpf_csum_diff(core::ptr::null_mut(), 0, from, I::ADDRESSES, 0) };
    let rest = u32::from((length as u16).to_be()) + u32::from(u16::from(PROTO_TCP).to_be());
    fold(fold(addresses as u32) + rest)
}

/// Folds a sum into 16 bits, carries added.
#[inline(always)]
pub fn fold(sum: u32) -> u32 {
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff)
}
