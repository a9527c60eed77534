//! The byte-level contract between the daemon and its kernel programs.
//!
//! `no_std`, so that the very same code runs in user space and in eBPF. The
//! framing tracker is the first part of it: both sides must agree, byte for
//! byte, where a chunk of a streamed answer ends.
#![no_std]
#![forbid(unsafe_code)]

pub mod chunked;
