//! One TCP packet over IPv4: read, rewritten, sent elsewhere.

use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::helpers::generated::{
    bpf_clone_redirect, bpf_csum_diff, bpf_l3_csum_replace, bpf_l4_csum_replace,
    bpf_redirect_neigh, bpf_skb_change_tail, bpf_skb_load_bytes, bpf_skb_store_bytes,
};
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::TcContext;
use gateway_common::splice::{MARK_DONE, Tuple};

use super::maps;

/// Bytes of an Ethernet header; interfaces of other kinds get no programs.
pub const ETHERNET: u32 = 14;
/// Bytes of an IP header without options.
const IP: u32 = 20;
/// Where the TCP header begins.
const TCP_AT: u32 = ETHERNET + IP;
/// Bytes of a TCP header without options.
const TCP: u32 = 20;
/// Bytes of both.
const HEADERS: u32 = IP + TCP;
const IP_CHECK_AT: u32 = ETHERNET + 10;
const TCP_CHECK_AT: u32 = TCP_AT + 16;
/// `ETH_P_IP`, as the context has it.
const ETH_P_IP_BE: u32 = 0x0800_u16.to_be() as u32;
const PROTO_TCP: u8 = 6;
/// Most payload, in bytes, that stays in a packet which is cut: its checksum has to be
/// made anew, block by block.
const KEPT: u32 = 1024;
const BLOCK: u32 = 64;
/// "More fragments" and the fragment's offset.
const FRAGMENT: u16 = 0x3fff;
const BPF_F_PSEUDO_HDR: u64 = 0x10;
const BPF_F_INGRESS: u64 = 1;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

/// IP and TCP header, as they stand in a packet.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Headers {
    version: u8,
    tos: u8,
    total_be: u16,
    id: u16,
    fragment_be: u16,
    ttl: u8,
    protocol: u8,
    ip_check: u16,
    source_be: u32,
    destination_be: u32,
    source_port_be: u16,
    destination_port_be: u16,
    seq_be: u32,
    ack_be: u32,
    offset: u8,
    flags: u8,
    window_be: u16,
    check: u16,
    urgent: u16,
}

/// What does not fit on a program's stack of 512 bytes.
#[repr(C)]
pub struct Scratch {
    /// The headers as they were before a change.
    old: Headers,
    /// The headers as they are.
    now: Headers,
    /// TCP options as they were.
    old_options: [u64; 8],
    /// TCP options as they are to be.
    new_options: [u64; 8],
    block: [u64; BLOCK as usize / 8],
    /// Of the handshake: memory of this kind is where the verifier does not follow a
    /// value, so that a loop over it is one path and not a tree.
    pub offer: Offer,
}

/// What a SYN offers, while its options are read.
#[repr(C)]
pub struct Offer {
    /// Where the next option begins.
    pub at: u32,
    pub mss: u32,
    pub scale: u32,
    /// Something was taken out.
    pub changed: u32,
    /// Something is there that must stay, and that is not translated.
    pub doubt: u32,
    pub reserved: u32,
}

/// One for each CPU: a program of this kind is not interrupted by another on its CPU.
#[btf_map(name = "scratch")]
static SCRATCH: PerCpuArray<Scratch, 1> = PerCpuArray::new();

/// Room for all options of a TCP header, in bytes.
pub const OPTIONS: usize = 40;

/// What the programs want to know of a packet.
#[derive(Clone, Copy)]
pub struct Packet {
    scratch: *mut Scratch,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    /// The window field as it stands there.
    pub window: u16,
    /// Bytes of the TCP header.
    pub header: u32,
    /// Bytes of payload.
    pub length: u32,
}

/// The packet's mark.
#[inline(always)]
pub fn mark(ctx: &TcContext) -> u32 {
    // SAFETY: the context is valid for the program's run.
    unsafe { (*ctx.skb.skb).mark }
}

/// The interface it is on.
#[inline(always)]
pub fn interface(ctx: &TcContext) -> u32 {
    // SAFETY: as in `mark`.
    unsafe { (*ctx.skb.skb).ifindex }
}

impl Packet {
    /// Reads the headers. `None` for everything that these programs do not translate:
    /// other protocols, IP options, fragments, lengths that do not add up.
    #[inline(always)]
    pub fn read(ctx: &TcContext) -> Option<Self> {
        let skb = ctx.skb.skb;
        // SAFETY: as in `mark`.
        if unsafe { (*skb).protocol } != ETH_P_IP_BE {
            return None;
        }
        let scratch = SCRATCH.get_ptr_mut(0)?;
        // SAFETY: the element is valid, and nobody else uses it during this run.
        let headers = unsafe { &mut (*scratch).now };
        // SAFETY: the buffer has the size that is named.
        let read = unsafe { bpf_skb_load_bytes(skb.cast(), ETHERNET, address(headers), HEADERS) };
        if read != 0 || headers.version != 0x45 || headers.protocol != PROTO_TCP {
            return None;
        }
        if u16::from_be(headers.fragment_be) & FRAGMENT != 0 {
            return None;
        }
        let total = u32::from(u16::from_be(headers.total_be));
        let header = u32::from(headers.offset >> 4) * 4;
        if header < TCP || total < IP + header {
            return None;
        }
        Some(Self {
            scratch,
            seq: u32::from_be(headers.seq_be),
            ack: u32::from_be(headers.ack_be),
            flags: headers.flags,
            window: u16::from_be(headers.window_be),
            header,
            length: total - IP - header,
        })
    }

    #[inline(always)]
    fn now(&self) -> &'static mut Headers {
        // SAFETY: as in `read`.
        unsafe { &mut (*self.scratch).now }
    }

    /// Keeps the headers for a comparison, and returns what was kept.
    #[inline(always)]
    fn keep(&self) -> &'static mut Headers {
        // SAFETY: as in `read`.
        unsafe {
            (*self.scratch).old = (*self.scratch).now;
            &mut (*self.scratch).old
        }
    }

    /// The offer at hand.
    #[inline(always)]
    pub fn offer(&self) -> &'static mut Offer {
        // SAFETY: as in `read`.
        unsafe { &mut (*self.scratch).offer }
    }

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
        if unsafe { bpf_skb_load_bytes(skb, TCP_AT + TCP, address(old), length) } != 0 {
            return None;
        }
        for (to, from) in new.iter_mut().zip(old.iter()) {
            // SAFETY: references are valid; as in `clear`.
            unsafe { core::ptr::write_volatile(to, core::ptr::read_volatile(from)) };
        }
        Some((bytes(old), bytes(new)))
    }

    /// Its connection, when it comes from the other side.
    #[inline(always)]
    pub fn tuple_arriving(&self) -> Tuple {
        let headers = self.now();
        Tuple {
            local_ip_be: headers.destination_be,
            remote_ip_be: headers.source_be,
            local_port_be: headers.destination_port_be,
            remote_port_be: headers.source_port_be,
        }
    }

    /// Its connection, when it goes to the other side.
    #[inline(always)]
    pub fn tuple_leaving(&self) -> Tuple {
        let headers = self.now();
        Tuple {
            local_ip_be: headers.source_be,
            remote_ip_be: headers.destination_be,
            local_port_be: headers.source_port_be,
            remote_port_be: headers.destination_port_be,
        }
    }

    #[inline(always)]
    pub fn is_syn(&self) -> bool {
        self.flags & SYN != 0
    }

    #[inline(always)]
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Where the payload begins.
    #[inline(always)]
    pub fn payload_at(&self) -> u32 {
        TCP_AT + self.header
    }

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
        let length = if length > KEPT { KEPT } else { length };
        let old = self.keep();
        self.now().flags &= !(FIN | PSH);
        self.replace(ctx, old, self.header, length)
    }

    /// Turns it into a packet of another connection, payload included, and sends it on.
    #[inline(always)]
    pub fn send_as(&mut self, ctx: &TcContext, tuple: &Tuple, to: &Numbers, ifindex: u32) -> bool {
        let old = self.keep();
        self.address(tuple, to);
        self.replace(ctx, old, self.header, self.length) && redirect(ctx, ifindex)
    }

    /// Turns it into a bare acknowledgement of another connection and sends it on.
    #[inline(always)]
    pub fn acknowledge_as(
        &mut self,
        ctx: &TcContext,
        tuple: &Tuple,
        to: &Numbers,
        ifindex: u32,
    ) -> bool {
        let old = self.keep();
        self.address(tuple, to);
        let new = self.now();
        new.flags = ACK;
        new.offset = 5 << 4;
        self.replace(ctx, old, TCP, 0) && redirect(ctx, ifindex)
    }

    #[inline(always)]
    fn address(&self, tuple: &Tuple, to: &Numbers) {
        let headers = self.now();
        headers.source_be = tuple.local_ip_be;
        headers.destination_be = tuple.remote_ip_be;
        headers.source_port_be = tuple.local_port_be;
        headers.destination_port_be = tuple.remote_port_be;
        headers.seq_be = to.seq.to_be();
        headers.ack_be = to.ack.to_be();
        headers.window_be = to.window.to_be();
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
        // SAFETY: the buffer has the size that is named. The checksums in it are still
        // the old ones and are brought up to date below.
        let stored = unsafe { bpf_skb_store_bytes(skb, ETHERNET, address(new), HEADERS, 0) };
        let in_ip = u64::from(fold(addresses + totals));
        // SAFETY: the offset is that of the IP checksum.
        stored == 0
            && unsafe { bpf_l3_csum_replace(skb, IP_CHECK_AT, 0, in_ip, 0) } == 0
            && replace_tcp_check(ctx, difference, 0)
            && replace_tcp_check(ctx, i64::from(fold(addresses + lengths)), BPF_F_PSEUDO_HDR)
    }
}

/// `length`, which lies between 1 and `MAX` (a power of two), in a form from which the
/// verifier sees that it does. The compiler must not: it would leave the mask out.
#[inline(always)]
pub fn within<const MAX: u32>(length: u32) -> u32 {
    (core::hint::black_box(length).wrapping_sub(1) & (MAX - 1)) + 1
}

/// A place in memory, as helpers want it.
#[inline(always)]
fn address<T, U>(of: &mut T) -> *mut U {
    (&raw mut *of).cast()
}

/// What changes in a sum when a field does.
#[inline(always)]
fn changed(old: u16, new: u16) -> u32 {
    u32::from(new.to_be()) + 0xffff - u32::from(old.to_be())
}

/// The numbers of a packet in its new connection.
pub struct Numbers {
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
}

/// Sends a copy of the packet, as it is now, up to the local socket.
#[inline(always)]
pub fn deliver_copy(ctx: &TcContext) -> bool {
    set_mark(ctx);
    // SAFETY: the context is valid.
    unsafe { bpf_clone_redirect(ctx.skb.skb.cast(), interface(ctx), BPF_F_INGRESS) == 0 }
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
pub fn store_options(ctx: &TcContext, (old, new): Options, length: u32) -> bool {
    if length == 0 || length > OPTIONS as u32 {
        return false;
    }
    let (room, length) = (OPTIONS as u32, within::<64>(length));
    // SAFETY: both buffers have that room, and `length` is at most that.
    unsafe {
        let difference = bpf_csum_diff(address(old), room, address(new), room, 0);
        bpf_skb_store_bytes(ctx.skb.skb.cast(), TCP_AT + TCP, address(new), length, 0) == 0
            && replace_tcp_check(ctx, difference, 0)
    }
}

#[inline(always)]
fn set_mark(ctx: &TcContext) {
    // SAFETY: programs of this kind may write the mark.
    unsafe { (*ctx.skb.skb).mark = MARK_DONE };
}

#[inline(always)]
fn redirect(ctx: &TcContext, ifindex: u32) -> bool {
    set_mark(ctx);
    // SAFETY: without parameters the kernel finds the neighbour itself.
    unsafe { bpf_redirect_neigh(ifindex, core::ptr::null_mut(), 0, 0) >= 0 }
}

#[inline(always)]
fn replace_tcp_check(ctx: &TcContext, difference: i64, flags: u64) -> bool {
    // SAFETY: the offset is that of the TCP checksum.
    unsafe {
        bpf_l4_csum_replace(ctx.skb.skb.cast(), TCP_CHECK_AT, 0, difference as u64, flags) == 0
    }
}

/// Sum over the first `length` bytes of payload, at most [`KEPT`].
#[inline(always)]
fn payload_sum(ctx: &TcContext, packet: &Packet, length: u32) -> u32 {
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

/// Word by word: the compiler makes a call of anything else, and the kernel refuses a
/// called function that has no type information.
#[inline(always)]
pub fn clear(words: &mut [u64]) {
    for word in words {
        // SAFETY: a reference is valid to write.
        unsafe { core::ptr::write_volatile(word, 0) };
    }
}

/// What changes in the sum over the TCP header.
#[inline(always)]
fn tcp_difference(old: &mut Headers, new: &mut Headers) -> i64 {
    let (from, to) = (address(&mut old.source_port_be), address(&mut new.source_port_be));
    // SAFETY: both have 20 bytes there.
    unsafe { bpf_csum_diff(from, TCP, to, TCP, 0) }
}

/// What changes in the sum over the addresses.
#[inline(always)]
fn address_difference(old: &mut Headers, new: &mut Headers) -> i64 {
    let (from, to) = (address(&mut old.source_be), address(&mut new.source_be));
    // SAFETY: both have two addresses there.
    unsafe { bpf_csum_diff(from, 8, to, 8, 0) }
}

/// Sum over a TCP header without its checksum.
#[inline(always)]
fn sum(headers: &mut Headers) -> u32 {
    let check = u32::from(headers.check);
    let from = address(&mut headers.source_port_be);
    // SAFETY: there are 20 bytes.
    let sum = unsafe { bpf_csum_diff(core::ptr::null_mut(), 0, from, TCP, 0) };
    fold(fold(sum as u32) + 0xffff - check)
}

/// Sum over the pseudo header for `length` bytes of TCP.
#[inline(always)]
fn pseudo(headers: &mut Headers, length: u32) -> u32 {
    let from = address(&mut headers.source_be);
    // SAFETY: there are two addresses.
    let addresses = unsafe { bpf_csum_diff(core::ptr::null_mut(), 0, from, 8, 0) } as u32;
    let rest = u32::from((length as u16).to_be()) + u32::from(u16::from(PROTO_TCP).to_be());
    fold(fold(addresses) + rest)
}

/// Folds a sum into 16 bits, carries added.
#[inline(always)]
fn fold(sum: u32) -> u32 {
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff)
}
