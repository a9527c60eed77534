//! The data path in a network: client, gateway and pod with a stack each.
//!
//! Whatever happens on the way, every byte of an answer arrives once and in its place, or
//! the client can tell that the answer is not whole. Each scenario runs on every path; the
//! user-space path is the reference. Bodies are compared as they stand on the wire, chunk
//! framing included.
//!
//! `GATEWAY_TEST_SIZE=full` (as `cargo xtask test --tier datapath` sets it) runs the
//! scenarios of size at full size, which takes minutes; `small` is for emulated machines.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails its test")]

use site::Datapath;

#[path = "../wire/scripted.rs"]
#[allow(dead_code, reason = "shared with the scenarios of the wire, which use all of it")]
mod scripted;

mod daemon;
mod ends;
mod engine;
mod links;
mod process;
mod shapes;
mod site;
mod sockets;
mod story;
mod streams;
mod wires;

const CHAT: &str = "/v1/chat/completions";

/// Declares a test of each scenario on each path.
macro_rules! on_every_path {
    ($($scenario:ident),+ $(,)?) => {
        mod user {
            $(#[test]
            fn $scenario() {
                super::$scenario(crate::Datapath::User);
            })+
        }

        mod sk_msg {
            $(#[test]
            fn $scenario() {
                super::$scenario(crate::Datapath::SkMsg);
            })+
        }

        mod splice {
            $(#[test]
            fn $scenario() {
                super::$scenario(crate::Datapath::Splice);
            })+
        }

        mod splice_ipv6 {
            $(#[test]
            fn $scenario() {
                super::$scenario(crate::Datapath::SpliceIpv6);
            })+
        }
    };
}
use on_every_path;

/// How much of something to do: `usual` by default, `full` when asked for everything, a
/// tenth of `usual` where everything takes ten times as long.
fn size(usual: usize, full: usize) -> usize {
    match std::env::var("GATEWAY_TEST_SIZE").as_deref() {
        Ok("full") => full,
        Ok("small") => usual.div_ceil(10),
        _ => usual,
    }
}
