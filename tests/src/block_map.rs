//! Maps by block hash. The keys are hashes already, so one multiplication spreads them.
//!
//! The lab looks up hundreds of blocks for each request: with the standard library's hasher
//! that was a quarter of its time.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map by block hash.
pub(crate) type BlockMap<V> = HashMap<u64, V, BuildHasherDefault<Multiply>>;

/// A set of block hashes.
pub(crate) type BlockSet = HashSet<u64, BuildHasherDefault<Multiply>>;

/// Multiplies and swaps the halves: the table takes both its lowest and its
/// highest bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Multiply(u64);

/// 2^64 over the golden ratio, odd.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for Multiply {
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(FACTOR).rotate_left(32);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use super::*;

    #[test]
    fn small_numbers_are_spread_over_both_ends() {
        let build = BuildHasherDefault::<Multiply>::default();
        let hashes: Vec<u64> = (0..1000_u64).map(|value| build.hash_one(value)).collect();
        let distinct = |part: fn(u64) -> u64| {
            hashes.iter().map(|hash| part(*hash)).collect::<HashSet<u64>>().len()
        };
        // As many as there are, or as a thousand draws would give of 1,024.
        assert_eq!(distinct(|hash| hash), 1000);
        assert!(distinct(|hash| hash & 1023) > 550);
        assert_eq!(distinct(|hash| hash >> 57), 128);
    }
}
