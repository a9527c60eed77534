//! Who holds which prefix, as far as this gateway's own picks tell.
//!
//! # Shape
//!
//! Block hashes are chained, so one hash stands for a whole prefix and prefixes form
//! a tree. The tree is kept compressed: a *run* is a stretch of blocks that have
//! always been seen together, with the endpoints that hold it. A
//! prompt of 256 blocks is usually one to three runs, so a look-up is a few
//! hash-table probes and one comparison of adjacent words per block, whatever
//! the number of endpoints. Where prompts diverge a run is split; where
//! a conversation grows at one endpoint its run grows in place.
//!
//! # Forgetting
//!
//! Each endpoint remembers at most a given number of blocks. Exact LRU would
//! cost a list operation per block and pick; here time is cut into generations of a
//! sixteenth of the capacity each. Whatever a pick touches moves into the endpoint's current
//! generation, and the oldest generation is dropped as a whole when the
//! capacity is exceeded. A prefix is touched whenever one of its
//! continuations is, so an endpoint that holds a block holds all blocks before
//! it: a match is always truly consecutive.
//!
//! Dropping is one comparison (`generation < first`), so an endpoint that leaves
//! or restarts is forgotten at once. A hand that moves on a little with every
//! insertion reclaims what nobody holds any more.
//!
//! # Memory
//!
//! 8 bytes per distinct block, 8 bytes per run and holder, about 100 bytes per
//! run. At most `endpoints × capacity` blocks are live, and reclaiming keeps the dead
//! ones to a fraction of that: 32 endpoints at the default capacity with no prefix in
//! common are 8 MB of hashes.

mod clock;
mod mixer;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use clock::Clock;
use mixer::Mixer;

/// Runs looked at by the reclaiming hand per insertion.
const HAND_RUNS: usize = 4;

/// Holders looked at by the reclaiming hand per insertion, roughly.
const HAND_HOLDERS: usize = 256;

/// No run.
const NONE: u32 = u32::MAX;

/// The index. Endpoints are named by slot, a small dense number.
#[derive(Clone, Debug)]
pub struct Index {
    capacity: usize,
    runs: Vec<Run>,
    free: Vec<u32>,
    /// First hash of a run to the run.
    starts: HashMap<u64, u32, BuildHasherDefault<Mixer>>,
    clocks: Vec<Clock>,
    /// Per slot, the oldest generation that is still remembered.
    firsts: Vec<u32>,
    hand: usize,
}

/// Blocks that have always been seen together, and who holds them.
#[derive(Clone, Debug, Default)]
struct Run {
    /// Empty when the place is free.
    hashes: Vec<u64>,
    /// By slot.
    holders: Vec<Holder>,
    parent: u32,
    children: u32,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    slot: u32,
    generation: u32,
}

/// A step of a walk: this many blocks of the run equal the prompt's from here on.
#[derive(Clone, Copy, Debug)]
struct Step {
    run: u32,
    common: usize,
}

impl Index {
    /// An index that remembers `capacity` blocks per endpoint.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            runs: Vec::new(),
            free: Vec::new(),
            starts: HashMap::default(),
            clocks: Vec::new(),
            firsts: Vec::new(),
            hand: 0,
        }
    }

    /// Changes the capacity; takes effect with each endpoint's next insertion.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity.max(1);
    }

    /// For each slot below `matched.len()`, how many of `blocks` the endpoint holds from
    /// the first one on without a gap. `matched` is overwritten. Returns the longest.
    pub fn matches(&self, blocks: &[u64], matched: &mut [u32]) -> u32 {
        matched.fill(0);
        let mut longest = 0;
        let mut at = 0;
        while let Some(step) = self.step(blocks, at) {
            let reached = (at + step.common) as u32;
            let run = &self.runs[step.run as usize];
            let mut held = false;
            for holder in &run.holders {
                let slot = holder.slot as usize;
                if holder.generation >= self.firsts[slot]
                    && let Some(depth) = matched.get_mut(slot)
                    && *depth as usize == at
                {
                    *depth = reached;
                    held = true;
                }
            }
            if !held {
                break;
            }
            longest = reached;
            if step.common < run.hashes.len() {
                break;
            }
            at += step.common;
        }
        longest
    }

    /// Remembers that the endpoint at `slot` now holds `blocks`. Holding some
    /// already only refreshes them.
    pub fn insert(&mut self, slot: u32, blocks: &[u64]) {
        if blocks.is_empty() {
            return;
        }
        let blocks = &blocks[..blocks.len().min(self.capacity)];
        self.admit(slot);
        self.clocks[slot as usize].begin(blocks.len(), self.capacity);
        let (mut at, mut last) = (0, NONE);
        while let Some(step) = self.step(blocks, at) {
            last = if step.common < self.runs[step.run as usize].hashes.len() {
                self.split(step.run, step.common)
            } else {
                step.run
            };
            self.touch(last, slot);
            at += step.common;
        }
        if at < blocks.len() {
            self.append(last, slot, &blocks[at..]);
        }
        let clock = &mut self.clocks[slot as usize];
        clock.expire(self.capacity);
        self.firsts[slot as usize] = clock.first();
        self.reclaim();
    }

    /// Forgets everything about the endpoint at `slot`.
    pub fn forget(&mut self, slot: u32) {
        if let Some(clock) = self.clocks.get_mut(slot as usize) {
            clock.clear();
            self.firsts[slot as usize] = clock.first();
        }
    }

    /// Blocks remembered for the endpoint at `slot`.
    #[must_use]
    pub fn held(&self, slot: u32) -> u64 {
        self.clocks.get(slot as usize).map_or(0, Clock::total)
    }

    /// Runs in memory, live and not yet reclaimed.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len() - self.free.len()
    }

    fn admit(&mut self, slot: u32) {
        let needed = slot as usize + 1;
        if self.clocks.len() < needed {
            self.clocks.resize_with(needed, Clock::default);
            self.firsts.resize(needed, 0);
        }
    }

    fn step(&self, blocks: &[u64], at: usize) -> Option<Step> {
        let run = *self.starts.get(blocks.get(at)?)?;
        let hashes = &self.runs[run as usize].hashes;
        let common =
            hashes.iter().zip(&blocks[at..]).take_while(|(ours, theirs)| ours == theirs).count();
        Some(Step { run, common }).filter(|step| step.common > 0)
    }

    /// Moves `slot` into its current generation at `run`.
    fn touch(&mut self, run: u32, slot: u32) {
        let run = &mut self.runs[run as usize];
        let clock = &mut self.clocks[slot as usize];
        let blocks = run.hashes.len() as u32;
        let current = clock.current();
        match run.holders.binary_search_by_key(&slot, |holder| holder.slot) {
            Ok(at) => {
                clock.leave(run.holders[at].generation, blocks);
                run.holders[at].generation = current;
            }
            Err(at) => {
                let generation = current;
                run.holders.insert(at, Holder { slot, generation });
            }
        }
        clock.enter(blocks);
    }

    /// Cuts `run` after `length` blocks; returns the head. The tail keeps the
    /// place, because its children know it by that.
    fn split(&mut self, run: u32, length: usize) -> u32 {
        let tail = &mut self.runs[run as usize];
        let rest = tail.hashes.split_off(length);
        let head = Run {
            hashes: std::mem::replace(&mut tail.hashes, rest),
            holders: tail.holders.clone(),
            parent: tail.parent,
            children: 1,
        };
        let (head_start, tail_start) = (head.hashes[0], tail.hashes[0]);
        let place = self.place(head);
        self.runs[run as usize].parent = place;
        self.starts.insert(head_start, place);
        self.starts.insert(tail_start, run);
        place
    }

    /// Hangs `blocks` under `parent`, held by `slot` alone.
    fn append(&mut self, parent: u32, slot: u32, blocks: &[u64]) {
        if let Some(run) = self.runs.get_mut(parent as usize) {
            if run.children == 0 && matches!(run.holders[..], [only] if only.slot == slot) {
                run.hashes.extend_from_slice(blocks);
                self.clocks[slot as usize].enter(blocks.len() as u32);
                return;
            }
            run.children += 1;
        }
        let run =
            self.place(Run { hashes: blocks.to_vec(), holders: Vec::new(), parent, children: 0 });
        self.starts.insert(blocks[0], run);
        self.touch(run, slot);
    }

    fn place(&mut self, run: Run) -> u32 {
        if let Some(place) = self.free.pop() {
            self.runs[place as usize] = run;
            place
        } else {
            self.runs.push(run);
            self.runs.len() as u32 - 1
        }
    }

    /// Moves the hand on and frees runs that nobody holds.
    fn reclaim(&mut self) {
        let mut seen = 0;
        for _ in 0..HAND_RUNS {
            self.hand = (self.hand + 1) % self.runs.len().max(1);
            let firsts = &self.firsts;
            let Some(run) = self.runs.get_mut(self.hand) else {
                return;
            };
            seen += run.holders.len();
            run.holders.retain(|holder| holder.generation >= firsts[holder.slot as usize]);
            self.free_if_dead(self.hand as u32);
            if seen > HAND_HOLDERS {
                return;
            }
        }
    }

    /// Frees `run` when it has neither holder nor child, then its parent alike.
    fn free_if_dead(&mut self, run: u32) {
        let mut place = run;
        while let Some(run) = self.runs.get_mut(place as usize) {
            if run.hashes.is_empty() || run.children > 0 || !run.holders.is_empty() {
                return;
            }
            let gone = std::mem::take(run);
            self.starts.remove(&gone.hashes[0]);
            self.free.push(place);
            place = gone.parent;
            if let Some(parent) = self.runs.get_mut(place as usize) {
                parent.children -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
