//! Network namespaces joined by veth pairs, for tests and benches of the data path.
//!
//! - [`Network`]: the standard arrangement, `client -- gateway -- pods`;
//! - [`Namespace`]: a stack of interfaces, routes and sockets of its own, in which
//!   threads, runtimes and processes run;
//! - [`Cable`]: two namespaces joined, with MTU and offloads to choose;
//! - [`Wire`]: a cable that loses, doubles and reorders packets;
//! - [`Room`]: a runtime whose sockets are in a namespace.
//!
//! A crate of its own because the benches need it and must not build the daemon for it.
//!
//! Namespaces have no name in the file system: they live as long as a descriptor, a
//! thread or a socket refers to them, and the links in them go with them. Nothing is
//! left behind even by a test that is killed.
//!
//! Links are made by `ip` (iproute2): its words are those of every manual, it is on
//! every machine that routes, and a netlink crate would bring eight others for a
//! dozen lines. Offloads, which need `ethtool` otherwise, are two system calls.
//!
//! Nothing here can leave the machine: a namespace has no interface but its own
//! loopback and its ends of cables. The addresses are from 198.18.0.0/15, which
//! RFC 2544 keeps for benches and nobody routes, should a test mistake its namespace.

mod cable;
mod kernel;
mod namespace;
mod network;
mod offload;
mod room;
mod tap;
mod wire;

pub use cable::{Cable, Plug};
pub use kernel::has_tcx;
pub use namespace::Namespace;
pub use network::{Network, Pod};
pub use offload::Offloads;
pub use room::Room;
pub use wire::{Faults, Wire};
