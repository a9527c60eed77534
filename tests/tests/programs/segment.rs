//! TCP segments over IPv4 and Ethernet, as packets with right checksums.

use gateway_common::splice::Tuple;

pub(crate) const ACK: u8 = 16;
pub(crate) const PSH: u8 = 8;
pub(crate) const SYN: u8 = 2;

/// Ethernet addresses of every packet: destination, source.
pub(crate) const FRAME: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// A segment from `source` to `destination`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Segment {
    pub(crate) source: ([u8; 4], u16),
    pub(crate) destination: ([u8; 4], u16),
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
            source: ([198, 18, 0, 2], 40_000),
            destination: ([198, 18, 0, 1], 8080),
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
    pub(crate) fn tuple(&self) -> Tuple {
        Tuple {
            local_ip_be: u32::from_ne_bytes(self.destination.0),
            remote_ip_be: u32::from_ne_bytes(self.source.0),
            local_port_be: self.destination.1.to_be(),
            remote_port_be: self.source.1.to_be(),
        }
    }

    /// The way back.
    pub(crate) fn reversed(&self) -> Self {
        Self { source: self.destination, destination: self.source, ..self.clone() }
    }

    /// The frame that carries it.
    pub(crate) fn packet(&self) -> Vec<u8> {
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
        let check = !sum(&[self.pseudo_header(tcp.len()), tcp.clone()].concat());
        tcp[16..18].copy_from_slice(&check.to_be_bytes());
        let total = u16::try_from(20 + tcp.len()).unwrap();
        let mut ip = [
            &[0x45, 0][..],
            &total.to_be_bytes(),
            &[0, 1, 0x40, 0, 64, 6, 0, 0],
            &self.source.0,
            &self.destination.0,
        ]
        .concat();
        let check = !sum(&ip);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        [&FRAME[..], &[8, 0], &ip, &tcp].concat()
    }

    /// Reads a frame; its checksums must be right.
    pub(crate) fn parse(packet: &[u8]) -> Self {
        let (ip, tcp) = packet[14..].split_at(20);
        assert_eq!(usize::from(half(ip, 2)), packet.len() - 14, "length of the IP packet");
        assert_eq!(sum(ip), 0xffff, "checksum of the IP header");
        let header = usize::from(tcp[12] >> 4) * 4;
        let segment = Self {
            source: (ip[12..16].try_into().unwrap(), half(tcp, 0)),
            destination: (ip[16..20].try_into().unwrap(), half(tcp, 2)),
            seq: u32::from_be_bytes(tcp[4..8].try_into().unwrap()),
            ack: u32::from_be_bytes(tcp[8..12].try_into().unwrap()),
            flags: tcp[13],
            window: half(tcp, 14),
            options: tcp[20..header].to_vec(),
            payload: tcp[header..].to_vec(),
        };
        let covered = [segment.pseudo_header(tcp.len()), tcp.to_vec()].concat();
        assert_eq!(sum(&covered), 0xffff, "checksum of {segment:?}");
        segment
    }

    fn pseudo_header(&self, length: usize) -> Vec<u8> {
        let length = u16::try_from(length).unwrap().to_be_bytes();
        [&self.source.0[..], &self.destination.0, &[0, 6], &length].concat()
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
