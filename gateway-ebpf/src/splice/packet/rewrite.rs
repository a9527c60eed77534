//! Changes of a packet: new numbers in place, or new headers for another connection.

use aya_ebpf::helpers::generated::{bpf_skb_change_tail, bpf_skb_store_bytes};
use aya_ebpf::programs::TcContext;
use gateway_common::splice::{Slot, Tuple};

use super::checksum::{
    address_difference, changed, fold, payload_sum, pseudo, replace_tcp_check, sum, tcp_difference,
};
use super::{
    ACK, BPF_F_PSEUDO_HDR, FIN, Headers, Ip, KEPT, PSH, Packet, TCP, address, load_headers,
    redirect, whole,
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

impl<I: Ip> Packet<I> {
    /// Replaces sequence number, acknowledgement and window field, in place.
    #[inline(always)]
    pub fn renumber(&self, ctx: &TcContext, seq: u32, ack: u32, window: u16) -> bool {
        if seq == self.seq && ack == self.ack && window == self.window {
            return true;
        }
        let old = self.keep();
        let new = self.now();
        new.tcp.seq_be = seq.to_be();
        new.tcp.ack_be = ack.to_be();
        new.tcp.window_be = window.to_be();
        let difference = tcp_difference(old, new);
        let tcp = address(&mut new.tcp);
        // SAFETY: a TCP header is there.
        let stored = unsafe { bpf_skb_store_bytes(ctx.skb.skb.cast(), I::TCP_AT, tcp, TCP, 0) };
        maps::count(|counters| counters.translated += 1);
        stored == 0 && replace_tcp_check::<I>(ctx, difference, 0)
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
        self.now().tcp.flags &= !(FIN | PSH);
        // The next change begins with the checksums that this one has made.
        self.replace(ctx, old, self.header, length) && load_headers::<I>(ctx, self.scratch)
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
        new.tcp.flags = ACK;
        new.tcp.offset = 5 << 4;
        self.replace(ctx, old, TCP, 0) && redirect(ctx, to.slot.hop, to.ifindex)
    }

    #[inline(always)]
    fn address(&self, to: &Onward, numbers: &Numbers) {
        // SAFETY: as in `read`.
        unsafe { (*self.scratch).frame = to.slot.frame };
        let (Headers { ip, tcp }, tuple) = (self.now(), to.tuple);
        ip.set_addresses(&tuple.local, &tuple.remote);
        tcp.source_port_be = tuple.local_port_be;
        tcp.destination_port_be = tuple.remote_port_be;
        tcp.seq_be = numbers.seq.to_be();
        tcp.ack_be = numbers.ack.to_be();
        tcp.window_be = numbers.window.to_be();
    }

    /// Puts the new headers in the place of `old` and cuts the packet to `header` and
    /// `length` bytes.
    #[inline(always)]
    fn replace(&mut self, ctx: &TcContext, old: &mut Headers<I>, header: u32, length: u32) -> bool {
        let new = self.now();
        let skb = ctx.skb.skb.cast();
        let old_tcp = self.header + self.length;
        let new_tcp = header + length;
        new.ip.set_tcp_length(new_tcp);
        let mut difference = tcp_difference(old, new);
        if new_tcp != old_tcp {
            // The checksum of what is cut off follows from that of the whole; a packet
            // whose checksum is yet to be made (by the device) has only the pseudo
            // header in it, and the kernel leaves this difference out there.
            let whole = !u32::from(old.tcp.check) & 0xffff;
            let kept = fold(sum(old) + pseudo(old, old_tcp) + payload_sum(ctx, self, length));
            let cut = fold(whole + 0xffff - kept);
            difference = i64::from(fold(fold(difference as u32) + 0xffff - cut));
            // SAFETY: the context is valid; the length only shrinks.
            if unsafe { bpf_skb_change_tail(skb, I::TCP_AT + new_tcp, 0) } != 0 {
                return false;
            }
        }
        let addresses = fold(address_difference(old, new) as u32);
        let lengths = changed(old_tcp as u16, new_tcp as u16);
        self.header = header;
        self.length = length;
        self.flags = new.tcp.flags;
        // SAFETY: all three headers are there. The checksums in them are still the old
        // ones and are brought up to date below.
        let stored = unsafe { bpf_skb_store_bytes(skb, 0, whole(self.scratch), I::HEADERS, 0) };
        stored == 0
            && I::mend(ctx, addresses, old_tcp, new_tcp)
            && replace_tcp_check::<I>(ctx, difference, 0)
            && replace_tcp_check::<I>(ctx, i64::from(fold(addresses + lengths)), BPF_F_PSEUDO_HDR)
    }
}
