//! TCP segments over IP and Ethernet, as packets with right checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gateway_common::address::IpAddress;
use gateway_common::splice::Tuple;

pub(crate) const ACK: u8 = 16;
pub(crate) const PSH: u8 = 8;
pub(crate) const SYN: u8 = 2;

/// Ethernet addresses of every packet: destination, source.
pub(crate) const FRAME: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// The family of a packet's addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// Who sends and receives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Host {
    Client,
    /// The gateway, where clients connect.
    Front,
    /// The gateway, where it connects to endpoints from.
    Back,
    Endpoint,
}

impl Host {
    const ALL: [Self; 4] = [Self::Client, Self::Front, Self::Back, Self::Endpoint];

    pub(crate) fn ip(self, family: Family) -> IpAddr {
        let (network, number) = match self {
            Self::Client => (0, 2),
            Self::Front => (0, 1),
            Self::Back => (1, 1),
            Self::Endpoint => (1, 2),
        };
        match family {
            Family::V4 => Ipv4Addr::new(198, 18, network, number).into(),
            Family::V6 => {
                let (network, number) = (u16::from(network), u16::from(number));
                Ipv6Addr::new(0xfd00, 1, 2, network, 3, 4, 5, number).into()
            }
        }
    }

    fn bytes(self, family: Family) -> Vec<u8> {
        match self.ip(family) {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        }
    }

    fn of(bytes: &[u8], family: Family) -> Self {
        let known = Self::ALL.into_iter().find(|host| host.bytes(family) == bytes);
        known.unwrap_or_else(|| panic!("nobody has the address {bytes:?}"))
    }
}

/// A segment from `source` to `destination`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Segment {
    pub(crate) source: (Host, u16),
    pub(crate) destination: (Host, u16),
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// A multiple of four bytes.
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Default for Segment {
    fn default() -> Self {
        Self {
            source: (Host::Client, 40_000),
            destination: (Host::Front, 8080),
            seq: 1000,
            ack: 2000,
            flags: ACK,
            window: 500,
            options: Vec::new(),
            payload: Vec::new(),
        }
    }
}

impl Segment {
    /// Its connection, when it arrives at the gateway.
    pub(crate) fn tuple(&self, family: Family) -> Tuple {
        Tuple {
            local: IpAddress::of(self.destination.0.ip(family)),
            remote: IpAddress::of(self.source.0.ip(family)),
            local_port_be: self.destination.1.to_be(),
            remote_port_be: self.source.1.to_be(),
        }
    }

    /// The way back.
    pub(crate) fn reversed(&self) -> Self {
        Self { source: self.destination, destination: self.source, ..self.clone() }
    }

    /// The frame that carries it.
    pub(crate) fn packet(&self, family: Family) -> Vec<u8> {
        let mut tcp = [
            &self.source.1.to_be_bytes()[..],
            &self.destination.1.to_be_bytes(),
            &self.seq.to_be_bytes(),
            &self.ack.to_be_bytes(),
            &[(((20 + self.options.len()) / 4) << 4) as u8, self.flags],
            &self.window.to_be_bytes(),
            &[0; 4],
            &self.options,
            &self.payload,
        ]
        .concat();
        let check = !sum(&[self.pseudo_header(family, tcp.len()), tcp.clone()].concat());
        tcp[16..18].copy_from_slice(&check.to_be_bytes());
        let addresses = self.addresses(family);
        let length = u16::try_from(tcp.len()).unwrap();
        let (ethertype, ip) = match family {
            Family::V4 => {
                let total = (20 + length).to_be_bytes();
                let start = [&[0x45, 0][..], &total, &[0, 1, 0x40, 0, 64, 6, 0, 0]].concat();
                let mut ip = [start, addresses].concat();
                let check = !sum(&ip);
                ip[10..12].copy_from_slice(&check.to_be_bytes());
                ([0x08, 0x00], ip)
            }
            Family::V6 => {
                let start = [&[0x60, 0, 1, 2][..], &length.to_be_bytes(), &[6, 64]].concat();
                ([0x86, 0xdd], [start, addresses].concat())
            }
        };
        [&FRAME[..], &ethertype, &ip, &tcp].concat()
    }

    /// Reads a frame; its checksums must be right.
    pub(crate) fn parse(packet: &[u8]) -> Self {
        let (family, [source, destination], tcp) = match packet[12..14] {
            [0x08, 0x00] => {
                let (ip, tcp) = packet[14..].split_at(20);
                assert_eq!(usize::from(half(ip, 2)), packet.len() - 14, "length of the IP packet");
                assert_eq!(sum(ip), 0xffff, "checksum of the IP header");
                (Family::V4, [&ip[12..16], &ip[16..20]], tcp)
            }
            [0x86, 0xdd] => {
                let (ip, tcp) = packet[14..].split_at(40);
                assert_eq!(usize::from(half(ip, 4)), tcp.len(), "length behind the IP header");
                (Family::V6, [&ip[8..24], &ip[24..40]], tcp)
            }
            _ => panic!("not a packet of IP: {packet:?}"),
        };
        let header = usize::from(tcp[12] >> 4) * 4;
        let segment = Self {
            source: (Host::of(source, family), half(tcp, 0)),
            destination: (Host::of(destination, family), half(tcp, 2)),
            seq: u32::from_be_bytes(tcp[4..8].try_into().unwrap()),
            ack: u32::from_be_bytes(tcp[8..12].try_into().unwrap()),
            flags: tcp[13],
            window: half(tcp, 14),
            options: tcp[20..header].to_vec(),
            payload: tcp[header..].to_vec(),
        };
        let covered = [segment.pseudo_header(family, tcp.len()), tcp.to_vec()].concat();
        assert_eq!(sum(&covered), 0xffff, "checksum of {segment:?}");
        segment
    }

    fn addresses(&self, family: Family) -> Vec<u8> {
        [self.source.0.bytes(family), self.destination.0.bytes(family)].concat()
    }

    /// Has the same sum in both families (RFC 9293, section 3.1).
    fn pseudo_header(&self, family: Family, length: usize) -> Vec<u8> {
        let length = u16::try_from(length).unwrap().to_be_bytes();
        [&self.addresses(family)[..], &[0, 6], &length].concat()
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The Internet checksum's sum (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |byte| u32::from(*byte)));
    let mut total: u32 = words.sum();
    while total > 0xffff {
        total = (total >> 16) + (total & 0xffff);
    }
    total as u16
}
