//! The byte-level contract between the daemon and its kernel programs.
//!
//! `no_std`, so that the very same code runs in user space and in eBPF. Both sides
//! must agree, byte for byte, where a chunk of a streamed answer ends
//! ([`chunked`]), what the kernel may move of it ([`frames`]), what a sequence number means on either side of a splice
//! ([`splice`]), who has which bytes of a stream that goes from socket to socket
//! ([`sk_msg`]), and how the maps are laid out.
#![no_std]
#![deny(unsafe_code)]
#![allow(
    clippy::inline_always,
    reason = "the kernel refuses calls of functions whose types it does not know"
)]
#![allow(clippy::cast_lossless, reason = "`From` is not for constant functions yet")]

/// Version of the maps' layout: part of the path they are pinned at, so that readers of
/// another version do not misread them. Raised with every change of a map or its types.
pub const LAYOUT: u32 = 4;

#[cfg(feature = "user")]
extern crate alloc;

pub mod address;
pub mod chunked;
pub mod frames;
pub mod path;
pub mod seq;
pub mod sk_msg;
pub mod splice;
pub mod steer;

#[cfg(feature = "user")]
mod plain;
