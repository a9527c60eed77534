//! A hasher for keys that are hashes already.
//!
//! Block hashes are well spread, but a client that searches for prompts can steer some
//! of their bits; one multiplication folds all of them into the ones a table looks at.

use std::hash::Hasher;

/// Spreads keys that are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        let product = u128::from(self.0 ^ key) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}
