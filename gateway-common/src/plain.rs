//! Lets the daemon read and write the maps' types as bytes.
#![allow(unsafe_code, reason = "the trait is a promise about a type's layout")]

use aya::Pod;

use crate::address::SocketAddress;
use crate::frames::Tails;
use crate::path::PathState;
use crate::splice::{Conn, Counters, Flow, Handshake, Slot, Tuple};
use crate::{sk_msg, steer};

macro_rules! plain {
    ($($name:ty),*) => {
        $(
            // SAFETY: `repr(C)`, made of integers, and without padding: the sizes that
            // are asserted beside the types leave no room for any.
            unsafe impl Pod for $name {}
        )*
    };
}

plain!(PathState);
plain!(Conn, Counters, Flow, Handshake, Slot, Tails, Tuple);
plain!(sk_msg::Owner, sk_msg::Pair, sk_msg::Stream, sk_msg::Counters);
plain!(SocketAddress, steer::Pool, steer::Endpoint, steer::Origin, steer::Beat, steer::Counters);
