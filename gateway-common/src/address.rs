//! Addresses, as the daemon and the kernel programs tell each other.

use core::net::{IpAddr, SocketAddr};

/// An IP address, as it stands in a header of IPv6; one of IPv4 is mapped (RFC 4291, section
/// 2.5.5.2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct IpAddress {
    /// In network byte order.
    pub words_be: [u32; 4],
}

impl IpAddress {
    /// Every address of IPv6 of this machine, as a listener's.
    pub const ANY_V6: Self = Self { words_be: [0; 4] };
    /// Every address of IPv4 of this machine.
    pub const ANY_V4: Self = Self::v4(0);
    /// Third word of an IPv4 address in IPv6's clothes, `::ffff:a.b.c.d`.
    const MAPPED_BE: u32 = 0xffff_u32.to_be();

    /// An address of IPv4, in network byte order.
    #[must_use]
    #[inline(always)]
    pub const fn v4(ip_be: u32) -> Self {
        Self { words_be: [0, 0, Self::MAPPED_BE, ip_be] }
    }

    /// Whether it is one of IPv4.
    #[must_use]
    pub const fn is_v4(&self) -> bool {
        matches!(self.words_be, [0, 0, Self::MAPPED_BE, _])
    }

    /// An address of either family; one of IPv4 is the same, mapped or not.
    #[must_use]
    pub fn of(ip: IpAddr) -> Self {
        let octets = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let word = |at: usize| [octets[at], octets[at + 1], octets[at + 2], octets[at + 3]];
        Self { words_be: [0, 4, 8, 12].map(|at| u32::from_ne_bytes(word(at))) }
    }

    /// The address as its family writes it.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        let mut octets = [0; 16];
        for (to, word) in octets.chunks_exact_mut(4).zip(self.words_be) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        IpAddr::from(octets).to_canonical()
    }
}

/// An address and a TCP port: of a listener, an endpoint, a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct SocketAddress {
    /// The address. For listeners [`IpAddress::ANY_V4`] or [`IpAddress::ANY_V6`] is every one
    /// of a family.
    pub ip: IpAddress,
    /// The port.
    pub port_be: u16,
    /// Always 0.
    pub reserved: u16,
}

impl SocketAddress {
    /// An address of either family; one of IPv4 is the same, mapped or not.
    #[must_use]
    pub fn of(address: SocketAddr) -> Self {
        Self { ip: IpAddress::of(address.ip()), port_be: address.port().to_be(), reserved: 0 }
    }

    /// As the standard library has it.
    #[must_use]
    pub fn socket_addr(self) -> SocketAddr {
        SocketAddr::new(self.ip.ip(), u16::from_be(self.port_be))
    }
}

const _: () = {
    assert!(size_of::<IpAddress>() == 16);
    assert!(size_of::<SocketAddress>() == 20);
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_address_is_the_same_in_every_dress(octets: [u8; 16], four: [u8; 4]) {
            prop_assert_eq!(IpAddress::of(octets.into()).ip(), IpAddr::from(octets).to_canonical());
            let ip = core::net::Ipv4Addr::from(four);
            let address = IpAddress::v4(u32::from_ne_bytes(four));
            prop_assert_eq!(address, IpAddress::of(ip.into()));
            prop_assert_eq!(address, IpAddress::of(ip.to_ipv6_mapped().into()));
            prop_assert!(address.is_v4());
            prop_assert_eq!(address.ip(), IpAddr::from(ip));
        }
    }
}
