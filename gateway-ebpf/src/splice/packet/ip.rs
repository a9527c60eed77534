//! The two kinds of IP headers.

use aya_ebpf::helpers::generated::bpf_l3_csum_replace;
use aya_ebpf::programs::TcContext;
use gateway_common::address::IpAddress;

use super::checksum::{changed, fold};
use super::{ETHERNET, TCP};

/// Next header, or protocol.
pub const PROTO_TCP: u8 = 6;
/// "More fragments" and the fragment's offset.
const FRAGMENT: u16 = 0x3fff;
const V4_CHECK_AT: u32 = ETHERNET + 10;

/// A header of IPv4 without options, or of IPv6 without further headers.
pub trait Ip: Copy + 'static {
    /// Its type, as the context has it.
    const ETHERTYPE_BE: u32;
    /// Bytes of the header.
    const BYTES: u32;
    /// Bytes of source and destination together.
    const ADDRESSES: u32;
    /// Where the TCP header begins.
    const TCP_AT: u32 = ETHERNET + Self::BYTES;
    /// Bytes of Ethernet, IP and TCP header.
    const HEADERS: u32 = Self::TCP_AT + TCP;
    /// Every address of the family, as a listener's.
    const ANY: IpAddress;

    /// Bytes that follow the header; `None` when that is not a whole packet of TCP.
    fn tcp_length(&self) -> Option<u32>;
    fn set_tcp_length(&mut self, length: u32);
    fn source(&self) -> IpAddress;
    fn destination(&self) -> IpAddress;
    fn set_addresses(&mut self, source: &IpAddress, destination: &IpAddress);
    /// Where both addresses stand, one after the other.
    fn addresses(&mut self) -> *mut u32;
    /// Brings a checksum in the header up to date, whose addresses have changed by
    /// `addresses`, and the bytes that follow it from `old` to `new`.
    fn mend(ctx: &TcContext, addresses: u32, old: u32, new: u32) -> bool;
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct V4 {
    version: u8,
    tos: u8,
    total_be: u16,
    id: u16,
    fragment_be: u16,
    ttl: u8,
    protocol: u8,
    check: u16,
    addresses: [u32; 2],
}

impl Ip for V4 {
    const ETHERTYPE_BE: u32 = 0x0800_u16.to_be() as u32;
    const BYTES: u32 = 20;
    const ADDRESSES: u32 = 8;
    const ANY: IpAddress = IpAddress::ANY_V4;

    #[inline(always)]
    fn tcp_length(&self) -> Option<u32> {
        let is_part = u16::from_be(self.fragment_be) & FRAGMENT != 0;
        let total = u32::from(u16::from_be(self.total_be));
        if self.version != 0x45 || self.protocol != PROTO_TCP || is_part || total < Self::BYTES {
            return None;
        }
        Some(total - Self::BYTES)
    }

    #[inline(always)]
    fn set_tcp_length(&mut self, length: u32) {
        self.total_be = ((Self::BYTES + length) as u16).to_be();
    }

    #[inline(always)]
    fn source(&self) -> IpAddress {
        IpAddress::v4(self.addresses[0])
    }

    #[inline(always)]
    fn destination(&self) -> IpAddress {
        IpAddress::v4(self.addresses[1])
    }

    #[inline(always)]
    fn set_addresses(&mut self, source: &IpAddress, destination: &IpAddress) {
        self.addresses = [source.words_be[3], destination.words_be[3]];
    }

    #[inline(always)]
    fn addresses(&mut self) -> *mut u32 {
        self.addresses.as_mut_ptr()
    }

    #[inline(always)]
    fn mend(ctx: &TcContext, addresses: u32, old: u32, new: u32) -> bool {
        let lengths = changed((Self::BYTES + old) as u16, (Self::BYTES + new) as u16);
        let difference = u64::from(fold(addresses + lengths));
        // SAFETY: the offset is that of the IP checksum.
        unsafe { bpf_l3_csum_replace(ctx.skb.skb.cast(), V4_CHECK_AT, 0, difference, 0) == 0 }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct V6 {
    version: u8,
    class_and_flow: [u8; 3],
    length_be: u16,
    next: u8,
    hops: u8,
    addresses: [[u32; 4]; 2],
}

impl Ip for V6 {
    const ETHERTYPE_BE: u32 = 0x86dd_u16.to_be() as u32;
    const BYTES: u32 = 40;
    const ADDRESSES: u32 = 32;
    const ANY: IpAddress = IpAddress::ANY_V6;

    #[inline(always)]
    fn tcp_length(&self) -> Option<u32> {
        if self.version >> 4 != 6 || self.next != PROTO_TCP {
            return None;
        }
        Some(u32::from(u16::from_be(self.length_be)))
    }

    #[inline(always)]
    fn set_tcp_length(&mut self, length: u32) {
        self.length_be = (length as u16).to_be();
    }

    #[inline(always)]
    fn source(&self) -> IpAddress {
        IpAddress { words_be: self.addresses[0] }
    }

    #[inline(always)]
    fn destination(&self) -> IpAddress {
        IpAddress { words_be: self.addresses[1] }
    }

    #[inline(always)]
    fn set_addresses(&mut self, source: &IpAddress, destination: &IpAddress) {
        self.addresses = [source.words_be, destination.words_be];
    }

    #[inline(always)]
    fn addresses(&mut self) -> *mut u32 {
        self.addresses.as_mut_ptr().cast()
    }

    /// There is none.
    #[inline(always)]
    fn mend(_: &TcContext, _: u32, _: u32, _: u32) -> bool {
        true
    }
}
