//! Turns a prompt into a chain of block hashes.
//!
//! Two prompts that share their first *n* blocks share their first *n* chained
//! hashes and no more, so "how much of this prompt does that engine hold" is a
//! walk along the chain. The work is split in two because a request's body is
//! read before its pool is known:
//!
//! 1. [`BlockHasher`] hashes each block of bytes by itself while the body
//!    streams past;
//! 2. [`chain`] links those hashes from a [`Seed`] of model, adapter and salt,
//!    once routing has decided, so that equal prompts under different adapters
//!    or salts never match.
//!
//! A link is `xxh64(LE64(block) || LE64(previous))`: linking 256 blocks costs a
//! microsecond, and a pool with larger blocks takes every k-th link
//! ([`coarsen`]).

use xxhash_rust::xxh64::{Xxh64, xxh64};

/// Bytes of a block of the default grid: 16 tokens of 4 bytes.
pub const DEFAULT_BLOCK_BYTES: usize = 64;

/// Blocks of a prompt that are hashed by default: 32 thousand tokens. An agent's context
/// grows to that, and which endpoint holds it shows only at its end.
pub const DEFAULT_MAX_BLOCKS: usize = 2048;

/// What must be equal, besides the prompt, for cached blocks to be usable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Seed<'a> {
    /// Model the engine is asked for.
    pub model: &'a str,
    /// LoRA adapter, when one is asked for.
    pub adapter: Option<&'a str>,
    /// The request's `cache_salt`.
    pub cache_salt: Option<&'a str>,
}

impl Seed<'_> {
    /// Hash that the chain starts from.
    #[must_use]
    pub fn hash(&self) -> u64 {
        // Lengths keep ("ab", "c") and ("a", "bc") apart; a tag keeps `None`
        // apart from an empty string.
        let mut hasher = Xxh64::new(0);
        for part in [Some(self.model), self.adapter, self.cache_salt] {
            match part {
                Some(text) => {
                    hasher.update(&(text.len() as u64 + 1).to_le_bytes());
                    hasher.update(text.as_bytes());
                }
                None => hasher.update(&0_u64.to_le_bytes()),
            }
        }
        hasher.digest()
    }
}

/// Links block hashes in place, in order, starting from `seed`.
///
/// Afterwards `blocks[i]` stands for the whole prompt up to and including block
/// `i`.
pub fn chain(blocks: &mut [u64], seed: &Seed) {
    let mut previous = seed.hash();
    for block in blocks {
        let mut link = [0; 16];
        link[..8].copy_from_slice(&block.to_le_bytes());
        link[8..].copy_from_slice(&previous.to_le_bytes());
        previous = xxh64(&link, 0);
        *block = previous;
    }
}

/// Keeps every `factor`-th link of a chain: the chain of a grid whose blocks are
/// `factor` times as large. A factor of 0 counts as 1.
pub fn coarsen(chain: &mut Vec<u64>, factor: usize) {
    let factor = factor.max(1);
    if factor == 1 {
        return;
    }
    let kept = chain.len() / factor;
    for i in 0..kept {
        chain[i] = chain[i * factor + factor - 1];
    }
    chain.truncate(kept);
}

/// Hashes the blocks of a text that arrives in pieces.
#[derive(Clone, Debug)]
pub struct BlockHasher {
    block_bytes: usize,
    max_blocks: usize,
    blocks: Vec<u64>,
    /// The block that is not full yet.
    partial: Vec<u8>,
}

impl BlockHasher {
    /// A hasher for blocks of `block_bytes` (0 counts as 1), at most
    /// `max_blocks` of them; what follows is ignored.
    #[must_use]
    pub fn new(block_bytes: usize, max_blocks: usize) -> Self {
        Self {
            block_bytes: block_bytes.max(1),
            max_blocks,
            blocks: Vec::new(),
            partial: Vec::new(),
        }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        if !self.partial.is_empty() && !self.is_full() {
            let missing = (self.block_bytes - self.partial.len()).min(bytes.len());
            self.partial.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.partial.len() == self.block_bytes {
                self.blocks.push(xxh64(&self.partial, 0));
                self.partial.clear();
            }
        }
        if self.is_full() {
            return;
        }
        let mut full = bytes.chunks_exact(self.block_bytes);
        for block in full.by_ref().take(self.max_blocks - self.blocks.len()) {
            self.blocks.push(xxh64(block, 0));
        }
        if !self.is_full() {
            self.partial.extend_from_slice(full.remainder());
        }
    }

    /// Whether further bytes make no difference.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.blocks.len() >= self.max_blocks
    }

    /// Forgets everything, as if nothing had been pushed.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.partial.clear();
    }

    /// Appends the full blocks to `out`, never making it longer than the limit.
    ///
    /// A `Tail::Counts` text is one that other text follows in the prompt: its
    /// last, partial block is a block of its own. The tail of a prompt's end
    /// (`Tail::Ignored`) may still grow in the next turn, so it is not.
    pub fn append_to(&self, out: &mut Vec<u64>, tail: Tail) {
        let room = self.max_blocks.saturating_sub(out.len());
        out.extend(self.blocks.iter().take(room));
        if tail == Tail::Counts && !self.partial.is_empty() && out.len() < self.max_blocks {
            out.push(xxh64(&self.partial, 0));
        }
    }
}

/// Whether the last, partial block of a text is hashed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tail {
    /// It is a block of its own.
    Counts,
    /// It is dropped.
    Ignored,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blocks(text: &[u8]) -> Vec<u64> {
        let mut hasher = BlockHasher::new(64, 256);
        hasher.push(text);
        let mut out = Vec::new();
        hasher.append_to(&mut out, Tail::Ignored);
        out
    }

    fn chained(text: &[u8], seed: &Seed) -> Vec<u64> {
        let mut links = blocks(text);
        chain(&mut links, seed);
        links
    }

    const SEED: Seed = Seed { model: "m", adapter: None, cache_salt: None };

    #[test]
    fn only_full_blocks_count() {
        assert_eq!(blocks(&[7; 63]).len(), 0);
        assert_eq!(blocks(&[7; 64]).len(), 1);
        assert_eq!(blocks(&[7; 191]).len(), 2);
    }

    #[test]
    fn a_block_limit_ends_the_hashing() {
        assert_eq!(blocks(&vec![7; 1 << 20]).len(), 256);
    }

    #[test]
    fn a_change_in_an_early_block_changes_every_later_link() {
        let mut other = vec![b'a'; 640];
        let first = chained(&other, &SEED);
        other[70] = b'b';
        let second = chained(&other, &SEED);
        assert_eq!(first[0], second[0]);
        for i in 1..10 {
            assert_ne!(first[i], second[i], "link {i}");
        }
    }

    #[test]
    fn equal_blocks_at_different_places_have_different_links() {
        let links = chained(&[b'x'; 256], &SEED);
        for i in 0..4 {
            assert!(!links[..i].contains(&links[i]));
        }
    }

    #[test]
    fn model_adapter_and_salt_keep_equal_prompts_apart() {
        let text = [b'x'; 128];
        let seeds = [
            SEED,
            Seed { model: "n", ..SEED },
            Seed { adapter: Some("a"), ..SEED },
            Seed { cache_salt: Some("a"), ..SEED },
            Seed { cache_salt: Some(""), ..SEED },
            Seed { model: "ma", ..SEED },
        ];
        for (i, seed) in seeds.iter().enumerate() {
            for other in &seeds[..i] {
                assert_ne!(chained(&text, seed)[0], chained(&text, other)[0], "{seed:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_tail_that_counts_is_one_more_block() {
        let mut hasher = BlockHasher::new(64, 256);
        hasher.push(&[1; 65]);
        let mut out = Vec::new();
        hasher.append_to(&mut out, Tail::Counts);
        assert_eq!(out.len(), 2);
    }

    #[test]
    fn coarsening_keeps_every_kth_link() {
        let mut links = vec![1, 2, 3, 4, 5, 6, 7];
        coarsen(&mut links, 3);
        assert_eq!(links, [3, 6]);
        coarsen(&mut links, 0);
        assert_eq!(links, [3, 6]);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_blocks(
            text in prop::collection::vec(any::<u8>(), 0..700),
            cuts in prop::collection::vec(0_usize..700, 0..6),
        ) {
            let mut hasher = BlockHasher::new(64, 8);
            let mut cuts = cuts;
            cuts.sort_unstable();
            let mut from = 0;
            for cut in cuts.into_iter().chain([text.len()]) {
                let cut = cut.clamp(from, text.len());
                hasher.push(&text[from..cut]);
                from = cut;
            }
            let mut split = Vec::new();
            hasher.append_to(&mut split, Tail::Counts);

            let mut whole_hasher = BlockHasher::new(64, 8);
            whole_hasher.push(&text);
            let mut whole = Vec::new();
            whole_hasher.append_to(&mut whole, Tail::Counts);
            prop_assert_eq!(split, whole);
        }

        #[test]
        fn common_links_are_exactly_the_common_blocks(
            common in 0_usize..6, a in any::<[u8; 64]>(), b in any::<[u8; 64]>(),
        ) {
            prop_assume!(a != b);
            let mut left = vec![9; common * 64];
            let mut right = left.clone();
            left.extend_from_slice(&a);
            right.extend_from_slice(&b);
            left.extend_from_slice(&[1; 64]);
            right.extend_from_slice(&[1; 64]);
            let (left, right) = (chained(&left, &SEED), chained(&right, &SEED));
            let shared = left.iter().zip(&right).take_while(|(l, r)| l == r).count();
            prop_assert_eq!(shared, common);
            prop_assert!(left[common..].iter().zip(&right[common..]).all(|(l, r)| l != r));
        }
    }
}
