//! The kernel's part through its life: loaded, attached, left behind, taken over.
//!
//! Each test has a network namespace and a root of pins of its own. Needs root.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails its test")]

use gateway_testnet::Namespace;
use room::Room;

mod cgroup;
mod daemon;
mod foreign;
mod limits;
mod loading;
mod room;
mod steering;

/// A place for one test; `None` where it cannot be had, which CI does not forgive.
fn room(name: &str) -> Option<Room> {
    Namespace::can_be_made().then(|| Room::new(name)).flatten()
}
