//! A veth pair: two namespaces joined.

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::offload::{self, Offloads};
use crate::{Faults, Namespace, Wire};

/// Prefix length of every cable's network.
const PREFIX: u8 = 24;

/// Columns of `/proc/net/dev` after the interface's name.
const RECEIVED_PACKETS: usize = 1;
const SENT_PACKETS: usize = 9;

/// Two plugged-in ends.
#[derive(Clone, Debug)]
pub struct Cable {
    /// The end nearer to the client.
    pub near: Plug,
    /// The other end.
    pub far: Plug,
    /// What is between, unless they are joined directly.
    pub wire: Option<Arc<Wire>>,
}

/// One end of a cable.
#[derive(Clone, Debug)]
pub struct Plug {
    /// Where it is.
    pub namespace: Namespace,
    /// The interface's name there.
    pub interface: String,
    /// Its address.
    pub address: Ipv4Addr,
}

impl Cable {
    /// Joins two plugs, and brings both up.
    ///
    /// # Errors
    ///
    /// When `ip` is missing or refuses; for example because an interface of that name
    /// exists.
    pub fn join(near: Plug, far: Plug) -> Result<Self> {
        near.namespace.ip(&format!(
            "link add {} type veth peer name {} netns {}\n{}",
            near.interface,
            far.interface,
            far.namespace.path(),
            near.bring_up()
        ))?;
        far.namespace.ip(&far.bring_up())?;
        Ok(Self { near, far, wire: None })
    }

    /// Joins two plugs by a wire with these faults, drawn from `seed`.
    ///
    /// # Errors
    ///
    /// As [`Cable::join`]; or without the capability `CAP_NET_RAW`.
    pub fn join_by_wire(near: Plug, far: Plug, faults: Faults, seed: u64) -> Result<Self> {
        let wire = Wire::join(&near, &far, faults, seed)?;
        Ok(Self { near, far, wire: Some(Arc::new(wire)) })
    }

    /// Both ends.
    #[must_use]
    pub fn plugs(&self) -> [&Plug; 2] {
        [&self.near, &self.far]
    }

    /// Sets the largest packet, in bytes, that both ends send.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, for example less than 68.
    pub fn set_mtu(&self, bytes: u32) -> Result<()> {
        self.plugs().into_iter().try_for_each(|plug| {
            plug.namespace.ip(&format!("link set {} mtu {bytes}\n", plug.interface))
        })
    }

    /// Switches the offloads of both ends.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_offloads(&self, offloads: Offloads) -> Result<()> {
        self.plugs().into_iter().try_for_each(|plug| plug.set_offloads(offloads))
    }
}

impl Plug {
    /// An end that is not plugged in yet.
    #[must_use]
    pub fn new(namespace: &Namespace, interface: &str, address: Ipv4Addr) -> Self {
        Self { namespace: namespace.clone(), interface: interface.to_owned(), address }
    }

    /// Its address of the other family, from the documentation's prefix (RFC 3849).
    #[must_use]
    pub fn address6(&self) -> Ipv6Addr {
        let [_, _, network, host] = self.address.octets().map(u16::from);
        Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host)
    }

    /// Switches the offloads of this end.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_offloads(&self, offloads: Offloads) -> Result<()> {
        self.namespace
            .run(|| offload::switch(&self.interface, offloads))
            .with_context(|| format!("cannot switch offloads of {} {offloads:?}", self.interface))
    }

    /// Runs `tc` with these words; a word `DEV` is the interface's name.
    ///
    /// # Errors
    ///
    /// When the command refuses.
    pub fn traffic_control(&self, words: &str) -> Result<()> {
        let words = words.split_whitespace();
        let words = words.map(|word| if word == "DEV" { &*self.interface } else { word });
        let output = self.namespace.command("tc").args(words).output()?;
        if !output.status.success() {
            bail!("tc on {}: {}", self.interface, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// The interface's number in its namespace.
    ///
    /// # Errors
    ///
    /// When the interface is gone.
    pub fn index(&self) -> Result<u32> {
        let name = CString::new(self.interface.as_str())?;
        // SAFETY: the name ends with a zero and outlives the call.
        let index = self.namespace.run(|| unsafe { libc::if_nametoindex(name.as_ptr()) });
        if index == 0 { Err(self.missing()) } else { Ok(index) }
    }

    /// Packets received so far.
    ///
    /// # Errors
    ///
    /// When the interface is gone.
    pub fn received_packets(&self) -> Result<u64> {
        self.counter(RECEIVED_PACKETS)
    }

    /// Packets sent so far.
    ///
    /// # Errors
    ///
    /// When the interface is gone.
    pub fn sent_packets(&self) -> Result<u64> {
        self.counter(SENT_PACKETS)
    }

    fn counter(&self, column: usize) -> Result<u64> {
        let table = self.namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
        counter_in(&table, &self.interface, column).ok_or_else(|| self.missing())
    }

    fn missing(&self) -> anyhow::Error {
        anyhow!("no interface {} in namespace `{}`", self.interface, self.namespace.name())
    }

    pub(crate) fn bring_up(&self) -> String {
        let mut lines = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "addr add {}/{PREFIX} dev {}", self.address, self.interface);
        // Nobody else has the address, which would otherwise be asked for a second.
        let _ = writeln!(lines, "addr add {}/64 dev {} nodad", self.address6(), self.interface);
        // Without it every interface asks for IPv6 routers, between what is counted.
        let _ = writeln!(lines, "link set {} addrgenmode none up", self.interface);
        lines
    }
}

fn counter_in(table: &str, interface: &str, column: usize) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.split_once(':'));
    let (_, counters) = lines.find(|(name, _)| name.trim() == interface)?;
    counters.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cable() -> Option<Cable> {
        Namespace::can_be_made().then(|| {
            let (left, right) = (Namespace::new("left").unwrap(), Namespace::new("right").unwrap());
            let near = Plug::new(&left, "l0", Ipv4Addr::new(198, 18, 9, 1));
            let far = Plug::new(&right, "r0", Ipv4Addr::new(198, 18, 9, 2));
            Cable::join(near, far).unwrap()
        })
    }

    /// Sends this many bytes through the cable in one write, and says how many packets that took.
    fn packets_for(cable: &Cable, bytes: usize) -> u64 {
        use std::io::{Read as _, Write as _};
        let listen = || std::net::TcpListener::bind((cable.far.address, 0));
        let listener = cable.far.namespace.run(listen).unwrap();
        let target = listener.local_addr().unwrap();
        let connect = || std::net::TcpStream::connect(target);
        let mut sender = cable.near.namespace.run(connect).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let before = cable.near.sent_packets().unwrap();
        sender.write_all(&vec![7; bytes]).unwrap();
        drop(sender);
        let mut arrived = Vec::new();
        receiver.read_to_end(&mut arrived).unwrap();
        assert_eq!(arrived, vec![7; bytes]);
        cable.near.sent_packets().unwrap() - before
    }

    #[test]
    fn offloads_and_mtu_decide_what_the_packets_look_like() {
        let Some(cable) = cable() else { return };
        // The first window is ten segments.
        let few = packets_for(&cable, 12_000);
        cable.set_offloads(Offloads::Off).unwrap();
        let many = packets_for(&cable, 12_000);
        assert!(few < 9 && many >= 9, "{few} packets with offloads, {many} without");
        cable.set_mtu(576).unwrap();
        let small = packets_for(&cable, 12_000);
        assert!(small >= 12_000 / 576, "{small} packets of at most 576 bytes");
        cable.set_offloads(Offloads::On).unwrap();
        assert!(packets_for(&cable, 12_000) < small);
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_number() {
        let Some(cable) = cable() else { return };
        assert!(cable.near.index().unwrap() > 1);
        let astray = Plug { namespace: cable.far.namespace.clone(), ..cable.near.clone() };
        let error = astray.index().unwrap_err().to_string();
        assert_eq!(error, "no interface l0 in namespace `right`");
        assert!(astray.sent_packets().is_err());
    }

    #[test]
    fn counters_are_read_by_interface_and_column() {
        let table = "Inter-| x\n face |bytes\n  lo: 1 2 3\n eth0:10 20 30 40 50 60 70 80 90 100\n";
        assert_eq!(counter_in(table, "eth0", SENT_PACKETS), Some(100));
        assert_eq!(counter_in(table, "lo", RECEIVED_PACKETS), Some(2));
        assert_eq!(counter_in(table, "eth1", SENT_PACKETS), None);
    }
}
