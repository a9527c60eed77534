//! Changes of a packet: new numbers in place, or new headers for another connection.

use aya_ebpf::helpers::generated::{bpf_l3_csum_replace, bpf_skb_change_tail, bpf_skb_store_bytes};
use aya_ebpf::programs::TcContext;
use gateway_common::splice::{Slot, Tuple};

use super::checksum::{
    address_difference, changed, fold, payload_sum, pseudo, replace_tcp_check, sum, tcp_difference,
};
use super::{
    ACK, BPF_F_PSEUDO_HDR, FIN, HEADERS, Headers, IP, IP_CHECK_AT, KEPT, PSH, Packet, TCP, TCP_AT,
    address, load_headers, redirect, whole,
};
use crate::splice::maps;

/// The numbers of a packet in its new connection.
pub struct Numbers {
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
}

/// A connection that a packet is given to.
pub struct Onward<'a> {
    pub tuple: &'a Tuple,
    pub slot: &'a Slot,
    pub ifindex: u32,
}

impl Packet {
    /// Replaces sequence number, acknowledgement and window field, in place.
    #[inline(always)]
    pub fn renumber(&self, ctx: &TcContext, seq: u32, ack: u32, window: u16) -> bool {
        if seq == self.seq && ack == self.ack && window == self.window {
            return true;
        }
        let old = self.keep();
        let new = self.now();
        new.seq_be = seq.to_be();
        new.ack_be = ack.to_be();
        new.window_be = window.to_be();
        let difference = tcp_difference(old, new);
        let tcp = address(&mut new.source_port_be);
        // SAFETY: the TCP header is the last 20 bytes of the headers.
        let stored = unsafe { bpf_skb_store_bytes(ctx.skb.skb.cast(), TCP_AT, tcp, TCP, 0) };
        maps::count(|counters| counters.translated += 1);
        stored == 0 && replace_tcp_check(ctx, difference, 0)
    }

    /// Cuts the payload down to `length` bytes, or to [`KEPT`] if that is less; the
    /// sender sends the rest again.
    #[inline(always)]
    pub fn truncate(&mut self, ctx: &TcContext, length: u32) -> bool {
        if length >= self.length {
            return true;
        }
        maps::count(|counters| counters.cut += 1);
        let length = if length > KEPT { KEPT } else { length };
        let old = self.keep();
        self.now().flags &= !(FIN | PSH);
        // The next change begins with the checksums that this one has made.
        self.replace(ctx, old, self.header, length) && load_headers(ctx, self.scratch)
    }

    /// Turns it into a packet of another connection, payload included, and sends it on.
    #[inline(always)]
    pub fn send_as(&mut self, ctx: &TcContext, to: &Onward, numbers: &Numbers) -> bool {
        let old = self.keep();
        self.address(to, numbers);
        self.replace(ctx, old, self.header, self.length) && redirect(ctx, to.slot.hop, to.ifindex)
    }

    /// Turns it into a bare acknowledgement of another connection and sends it on.
    #[inline(always)]
    pub fn acknowledge_as(&mut self, ctx: &TcContext, to: &Onward, numbers: &Numbers) -> bool {
        let old = self.keep();
        self.address(to, numbers);
        let new = self.now();
        new.flags = ACK;
        new.offset = 5 << 4;
        self.replace(ctx, old, TCP, 0) && redirect(ctx, to.slot.hop, to.ifindex)
    }

    #[inline(always)]
    fn address(&self, to: &Onward, numbers: &Numbers) {
        // SAFETY: as in `read`.
        unsafe { (*self.scratch).frame = to.slot.frame };
        let (headers, tuple) = (self.now(), to.tuple);
        headers.source_be = tuple.local_ip_be;
        headers.destination_be = tuple.remote_ip_be;
        headers.source_port_be = tuple.local_port_be;
        headers.destination_port_be = tuple.remote_port_be;
        headers.seq_be = numbers.seq.to_be();
        headers.ack_be = numbers.ack.to_be();
        headers.window_be = numbers.window.to_be();
    }

    /// Puts the new headers in the place of `old` and cuts the packet to `header` and
    /// `length` bytes.
    #[inline(always)]
    fn replace(&mut self, ctx: &TcContext, old: &mut Headers, header: u32, length: u32) -> bool {
        let new = self.now();
        let skb = ctx.skb.skb.cast();
        let old_tcp = self.header + self.length;
        let new_tcp = header + length;
        new.total_be = ((IP + new_tcp) as u16).to_be();
        let mut difference = tcp_difference(old, new);
        if new_tcp != old_tcp {
            // The checksum of what is cut off follows from that of the whole; a packet
            // whose checksum is yet to be made (by the device) has only the pseudo
            // header in it, and the kernel leaves this difference out there.
            let whole = !u32::from(old.check) & 0xffff;
            let kept = fold(sum(old) + pseudo(old, old_tcp) + payload_sum(ctx, self, length));
            let cut = fold(whole + 0xffff - kept);
            difference = i64::from(fold(fold(difference as u32) + 0xffff - cut));
            // SAFETY: the context is valid; the length only shrinks.
            if unsafe { bpf_skb_change_tail(skb, TCP_AT + new_tcp, 0) } != 0 {
                return false;
            }
        }
        let addresses = fold(address_difference(old, new) as u32);
        let lengths = changed(old_tcp as u16, new_tcp as u16);
        let totals = changed(u16::from_be(old.total_be), (IP + new_tcp) as u16);
        self.header = header;
        self.length = length;
        self.flags = new.flags;
        // SAFETY: all three headers are there. The checksums in them are still the old
        // ones and are brought up to date below.
        let stored = unsafe { bpf_skb_store_bytes(skb, 0, whole(self.scratch), HEADERS, 0) };
        let in_ip = u64::from(fold(addresses + totals));
        // SAFETY: the offset is that of the IP checksum.
        stored == 0
            && unsafe { bpf_l3_csum_replace(skb, IP_CHECK_AT, 0, in_ip, 0) } == 0
            && replace_tcp_check(ctx, difference, 0)
            && replace_tcp_check(ctx, i64::from(fold(addresses + lengths)), BPF_F_PSEUDO_HDR)
    }
}
