//! Prefix hashing of prompts, and the index of who holds which prefix.

pub mod hash;
pub mod index;
