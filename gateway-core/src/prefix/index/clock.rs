//! An endpoint's generations: which blocks it remembers, by when they were touched.

use std::collections::VecDeque;

/// A generation is this fraction of the capacity.
const FRACTION: usize = 16;

/// More generations than this are never kept. Without a bound, one old block would
/// keep every generation since, because only whole ones are dropped.
const MOST: usize = 64;

/// Counts the blocks of each generation that is still remembered.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// Number of the oldest generation remembered.
    first: u32,
    /// Blocks per generation, oldest first; never empty.
    counts: VecDeque<u32>,
    total: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { first: 0, counts: VecDeque::from([0]), total: 0 }
    }
}

impl Clock {
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn current(&self) -> u32 {
        self.first + self.counts.len() as u32 - 1
    }

    /// Prepares for touching `blocks`: starts a generation unless they fit the current one.
    /// No generation thus outgrows the capacity, and none is dropped while
    /// it is being filled.
    pub(super) fn begin(&mut self, blocks: usize, capacity: usize) {
        let used = self.counts.back().map_or(0, |&count| count as usize);
        if used > 0 && used + blocks > (capacity / FRACTION).max(1) {
            self.counts.push_back(0);
        }
    }

    /// Adds blocks to the current generation.
    pub(super) fn enter(&mut self, blocks: u32) {
        if let Some(count) = self.counts.back_mut() {
            *count += blocks;
        }
        self.total += u64::from(blocks);
    }

    /// Takes blocks out of `generation`, if it is still remembered.
    pub(super) fn leave(&mut self, generation: u32, blocks: u32) {
        let age = generation.checked_sub(self.first);
        if let Some(count) = age.and_then(|age| self.counts.get_mut(age as usize)) {
            *count -= blocks;
            self.total -= u64::from(blocks);
        }
    }

    /// Drops the oldest generations until at most `capacity` blocks are left.
    pub(super) fn expire(&mut self, capacity: usize) {
        while self.counts.len() > 1
            && (self.total > capacity as u64
                || self.counts.len() > MOST
                || self.counts.front() == Some(&0))
        {
            self.total -= u64::from(self.counts.pop_front().unwrap_or(0));
            self.first += 1;
        }
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.first += self.counts.len() as u32;
        *self = Self { first: self.first, ..Self::default() };
    }
}
