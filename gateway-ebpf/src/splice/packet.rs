//! One TCP packet over IPv4 or IPv6: read, rewritten, sent elsewhere.

use core::marker::PhantomData;
use core::mem::offset_of;

use aya_ebpf::btf_maps::PerCpuArray;

use aya_ebpf::helpers::generated::{
    bpf_clone_redirect, bpf_redirect_neigh, bpf_redirect_peer, bpf_skb_load_bytes,
};
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::TcContext;
use gateway_common::splice::{MARK_DONE, Slot, Tuple};

use super::REDIRECT;

mod checksum;
mod ip;
mod options;
mod rewrite;

pub use ip::{Ip, V4, V6};
pub use options::store_options;
pub use rewrite::{Numbers, Onward};

/// Bytes of an Ethernet header; interfaces of other kinds get no programs.
pub const ETHERNET: u32 = 14;
/// Bytes of a TCP header without options.
const TCP: u32 = 20;
/// Where its checksum stands in it.
const CHECK: u32 = 16;
/// Most payload, in bytes, that stays in a packet which is cut: its checksum has to be
/// made anew, block by block.
const KEPT: u32 = 1024;
const BLOCK: u32 = 64;
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
pub struct Headers<I> {
    ip: I,
    tcp: Tcp,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Tcp {
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

/// Room for the headers of either family.
type Room = [u32; size_of::<Headers<V6>>() / 4];

/// What does not fit on a program's stack of 512 bytes.
#[repr(C)]
pub struct Scratch {
    /// The headers as they were before a change.
    old: Room,
    /// Always 0; aligns what follows.
    reserved: u16,
    /// Ethernet addresses: destination, source.
    frame: [u16; 6],
    ethertype: u16,
    /// The headers as they are. They follow on the frame's as in the packet.
    now: Room,
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
pub struct Packet<I> {
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
    family: PhantomData<I>,
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

/// The family of the packet, by the type of its Ethernet frame.
#[inline(always)]
pub fn ethertype_be(ctx: &TcContext) -> u32 {
    // SAFETY: as in `mark`.
    unsafe { (*ctx.skb.skb).protocol }
}

impl<I: Ip> Packet<I> {
    /// Reads the headers of a packet of this family. `None` for everything that these
    /// programs do not translate: other protocols, IP options and further headers,
    /// fragments, lengths that do not add up.
    #[inline(always)]
    pub fn read(ctx: &TcContext) -> Option<Self> {
        let scratch = SCRATCH.get_ptr_mut(0)?;
        if !load_headers::<I>(ctx, scratch) {
            return None;
        }
        // SAFETY: the element is valid, and nobody else uses it during this run.
        let Headers::<I> { ip, tcp } = unsafe { &*(&raw const (*scratch).now).cast() };
        let length = ip.tcp_length()?;
        let header = u32::from(tcp.offset >> 4) * 4;
        if header < TCP || length < header {
            return None;
        }
        Some(Self {
            scratch,
            seq: u32::from_be(tcp.seq_be),
            ack: u32::from_be(tcp.ack_be),
            flags: tcp.flags,
            window: u16::from_be(tcp.window_be),
            header,
            length: length - header,
            family: PhantomData,
        })
    }

    /// Ethernet addresses of a packet to the other side: destination, source.
    #[inline(always)]
    pub fn frame_back(&self) -> [u16; 6] {
        // SAFETY: as in `read`.
        let frame = unsafe { (*self.scratch).frame };
        [frame[3], frame[4], frame[5], frame[0], frame[1], frame[2]]
    }

    #[inline(always)]
    fn now(&self) -> &'static mut Headers<I> {
        // SAFETY: as in `read`.
        unsafe { &mut *(&raw mut (*self.scratch).now).cast() }
    }

    /// Keeps the headers for a comparison, and returns what was kept.
    #[inline(always)]
    fn keep(&self) -> &'static mut Headers<I> {
        // SAFETY: as in `read`; the two are different fields.
        let old = unsafe { &mut *(&raw mut (*self.scratch).old).cast() };
        *old = *self.now();
        old
    }

    /// The offer at hand.
    #[inline(always)]
    pub fn offer(&self) -> &'static mut Offer {
        // SAFETY: as in `read`.
        unsafe { &mut (*self.scratch).offer }
    }

    /// Its connection, when it comes from the other side.
    #[inline(always)]
    pub fn tuple_arriving(&self) -> Tuple {
        let Headers { ip, tcp } = self.now();
        Tuple {
            local: ip.destination(),
            remote: ip.source(),
            local_port_be: tcp.destination_port_be,
            remote_port_be: tcp.source_port_be,
        }
    }

    /// Its connection, when it goes to the other side.
    #[inline(always)]
    pub fn tuple_leaving(&self) -> Tuple {
        let Headers { ip, tcp } = self.now();
        Tuple {
            local: ip.source(),
            remote: ip.destination(),
            local_port_be: tcp.source_port_be,
            remote_port_be: tcp.destination_port_be,
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
        I::TCP_AT + self.header
    }
}

/// The window field that offers `bytes`, as near as it can.
#[inline(always)]
pub fn window_field(bytes: u32, scale: u8) -> u16 {
    let offered = bytes >> scale;
    if offered > 0xffff { 0xffff } else { offered as u16 }
}

/// Reads the headers as they stand in the packet.
#[inline(always)]
fn load_headers<I: Ip>(ctx: &TcContext, scratch: *mut Scratch) -> bool {
    // SAFETY: all three headers have room there.
    unsafe { bpf_skb_load_bytes(ctx.skb.skb.cast(), 0, whole(scratch), I::HEADERS) == 0 }
}

/// Where Ethernet, IP and TCP header stand one after the other.
#[inline(always)]
fn whole<T>(scratch: *mut Scratch) -> *mut T {
    // SAFETY: within the element.
    unsafe { scratch.cast::<u8>().add(offset_of!(Scratch, frame)).cast() }
}

/// A place in memory, as helpers want it.
#[inline(always)]
fn address<T, U>(of: &mut T) -> *mut U {
    (&raw mut *of).cast()
}

/// Sends a copy of the packet, as it is now, up to the local socket.
#[inline(always)]
pub fn deliver_copy(ctx: &TcContext) -> bool {
    set_mark(ctx, MARK_DONE);
    // SAFETY: the context is valid.
    unsafe { bpf_clone_redirect(ctx.skb.skb.cast(), interface(ctx), BPF_F_INGRESS) == 0 }
}

#[inline(always)]
fn set_mark(ctx: &TcContext, mark: u32) {
    // SAFETY: programs of this kind may write the mark.
    unsafe { (*ctx.skb.skb).mark = mark };
}

#[inline(always)]
fn redirect(ctx: &TcContext, hop: u32, ifindex: u32) -> bool {
    if hop == Slot::PEER_DEVICE {
        // Into another network namespace, where marks may mean something.
        set_mark(ctx, 0);
        // SAFETY: always there.
        return unsafe { bpf_redirect_peer(ifindex, 0) == i64::from(REDIRECT) };
    }
    set_mark(ctx, MARK_DONE);
    // SAFETY: without parameters the kernel finds the neighbour itself.
    unsafe { bpf_redirect_neigh(ifindex, core::ptr::null_mut(), 0, 0) == i64::from(REDIRECT) }
}
