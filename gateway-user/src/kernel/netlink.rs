//! The questions we have for the kernel's network configuration.
//!
//! Asked of the network namespace of the calling thread; `/sys` would answer for the
//! one that it was mounted in.

use std::io::{self, Read as _};

use socket2::{Domain, Protocol, Socket, Type};

/// `AF_NETLINK` and `NETLINK_ROUTE`.
const FAMILY: i32 = 16;
const ROUTE: i32 = 0;
/// Message types of `rtnetlink(7)`.
const GET_LINK: u16 = 18;
const GET_FILTER: u16 = 46;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Request flags: this is one; answer even if there is nothing to say; all there are.
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const DUMP: u16 = 0x300;
/// Lengths of the headers: of every message, of links, of filters, of an attribute.
const HEADER: usize = 16;
const LINK: usize = 16;
const FILTER: usize = 20;
const ATTRIBUTE: usize = 4;
/// Attributes of a link: name, queueing discipline, what it is (in that, the kind), the
/// namespace of its other end.
const LINK_NAME: u16 = 3;
const LINK_QDISC: u16 = 6;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const LINK_NAMESPACE: u16 = 37;
/// Attributes of a filter: kind and options; in these, its name.
const FILTER_KIND: u16 = 1;
const FILTER_OPTIONS: u16 = 2;
const BPF_NAME: u16 = 7;
/// An answer of the kernel is at most so long.
const LONGEST: usize = 32 << 10;

/// An interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Link {
    pub(super) name: String,
    /// ARP hardware type.
    pub(super) hardware: u16,
    /// One end of a pair whose other end is in another network namespace, and on which
    /// nothing that leaves waits or is shaped.
    pub(super) is_door: bool,
}

/// The interface with this index.
pub(super) fn link(ifindex: u32) -> io::Result<Link> {
    let mut body = [0; LINK];
    body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let answers = ask(GET_LINK, REQUEST | ACKNOWLEDGE, &body)?;
    let answer = answers.iter().find(|answer| answer.len() >= LINK);
    let answer = answer.ok_or(io::ErrorKind::NotFound)?;
    let attributes = &answer[LINK..];
    let string = |attribute_of| attribute(attributes, attribute_of).map(text);
    let kind = attribute(attributes, LINK_INFO).and_then(|info| attribute(info, INFO_KIND));
    Ok(Link {
        name: string(LINK_NAME).ok_or(io::ErrorKind::InvalidData)?,
        hardware: u16::from_ne_bytes([answer[2], answer[3]]),
        is_door: kind.map(text).as_deref() == Some("veth")
            && attribute(attributes, LINK_NAMESPACE).is_some()
            && string(LINK_QDISC).as_deref() == Some("noqueue"),
    })
}

/// A filter of an interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Filter {
    /// Name of a bpf filter, kind of another.
    pub(super) name: String,
    pub(super) priority: u16,
    /// Tells it from others of the same priority.
    pub(super) handle: u32,
}

/// The filters at `parent`.
pub(super) fn filters(ifindex: u32, parent: u32) -> io::Result<Vec<Filter>> {
    let mut body = [0; FILTER];
    body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    body[12..16].copy_from_slice(&parent.to_ne_bytes());
    let answers = ask(GET_FILTER, REQUEST | DUMP, &body)?;
    Ok(answers.iter().filter_map(|answer| filter(answer)).collect())
}

/// A filter, from a message without its header.
fn filter(message: &[u8]) -> Option<Filter> {
    let (header, attributes) = message.split_at_checked(FILTER)?;
    let word = |at: usize| Some(u32::from_ne_bytes(*header.get(at..)?.first_chunk()?));
    let name = filter_name(attributes)?;
    // The lower half is the protocol.
    Some(Filter { name, priority: (word(16)? >> 16) as u16, handle: word(8)? })
}

/// Name of a filter. A classifier is announced once without options before its filters.
fn filter_name(attributes: &[u8]) -> Option<String> {
    let options = attribute(attributes, FILTER_OPTIONS)?;
    attribute(options, BPF_NAME).or_else(|| attribute(attributes, FILTER_KIND)).map(text)
}

/// Asks, and collects the answers without their headers.
fn ask(kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let mut socket = Socket::new(Domain::from(FAMILY), Type::RAW, Some(Protocol::from(ROUTE)))?;
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(body);
    socket.send(&message)?;

    let mut answers = Vec::new();
    let mut buffer = vec![0; LONGEST];
    loop {
        let length = socket.read(&mut buffer)?;
        let mut rest = &buffer[..length];
        while let Some((kind, body, next)) = message_of(rest) {
            match kind {
                DONE => return Ok(answers),
                ERROR => {
                    let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                    // Zero is an acknowledgement.
                    let error = || Err(io::Error::from_raw_os_error(-code));
                    return if code == 0 { Ok(answers) } else { error() };
                }
                _ => answers.push(body.to_owned()),
            }
            rest = next;
        }
    }
}

/// Type and body of the first message, and what follows it.
fn message_of(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The value of an attribute.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?);
        let value = bytes.get(ATTRIBUTE..length)?;
        // The two upper bits are flags.
        if kind & 0x3fff == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

/// A string that ends with zero.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loopback_interface_is_known_by_its_index() {
        // Index 1 is the loopback interface of every network namespace.
        let loopback = Link { name: "lo".to_owned(), hardware: 772, is_door: false };
        assert_eq!(link(1).unwrap(), loopback);
        assert!(link(0x7fff_0000).is_err());
    }

    #[test]
    fn an_interface_without_filters_has_none() {
        assert_eq!(filters(1, 0xffff_fff2).unwrap(), []);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parsers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = message_of(&bytes);
            let _ = attribute(&bytes, LINK_NAME);
            let _ = filter(&bytes);
        }
    }
}
