//! What a finished step leaves: computed tokens, cached blocks, events.

use super::Engine;
use super::request::{Event, EventKind};
use super::sequence::Slot;
use super::settings::{EventDetail, PrefixCaching};
use super::step::{self, Planned, Step};

/// A change to a sequence's blocks within a stretch; sorts in order of time.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
struct BlockChange {
    step: u32,
    /// A step allocates before it fills.
    kind: BlockChangeKind,
    order: usize,
}

#[derive(Eq, Ord, PartialEq, PartialOrd)]
enum BlockChangeKind {
    Allocate,
    Fill,
}

impl Engine {
    /// Applies the first `done` steps of `step`.
    pub(super) fn complete(&mut self, step: &Step, done: u32) {
        let tokens: u32 = step.planned.iter().map(|planned| planned.tokens).sum();
        self.stats.step_tokens.observe_times(f64::from(tokens), u64::from(done));
        let end = step.end_of(done);
        let mut finished = false;
        if step.steps > 1 {
            self.complete_blocks(step, done);
            for Planned { slot, .. } in &step.planned {
                self.sequences[*slot].computed += done;
                finished |= self.sample(*slot, done, end);
            }
        } else {
            for Planned { slot, tokens } in &step.planned {
                finished |= self.complete_chunk(*slot, *tokens, end);
            }
        }
        if finished {
            self.drop_finished(end);
        }
    }

    /// Applies the block changes of a stretch in the order in which they would have
    /// happened step by step. Blocks of the step that comes next are allocated too,
    /// for it has started.
    fn complete_blocks(&mut self, step: &Step, done: u32) {
        let size = self.settings.block_size;
        let under_way = done.min(step.steps - 1);
        let mut changes = Vec::with_capacity(step.planned.len());
        for (order, planned) in step.planned.iter().enumerate() {
            let computed = self.sequences[planned.slot].computed;
            let allocates = (size - computed % size) % size;
            if (1..=under_way).contains(&allocates) {
                changes.push(BlockChange {
                    step: allocates,
                    kind: BlockChangeKind::Allocate,
                    order,
                });
            }
            let fills = size - 1 - computed % size;
            if fills < done {
                changes.push(BlockChange { step: fills, kind: BlockChangeKind::Fill, order });
            }
        }
        changes.sort_unstable();
        for change in changes {
            let slot = step.planned[change.order].slot;
            match change.kind {
                BlockChangeKind::Allocate => {
                    let block = self.blocks.allocate();
                    debug_assert!(
                        block.is_some(),
                        "a stretch starts with a block for each sequence"
                    );
                    self.sequences[slot].blocks.extend(block);
                }
                BlockChangeKind::Fill => {
                    let full = (self.sequences[slot].computed + change.step + 1) / size;
                    self.remember_block(slot, full - 1);
                }
            }
        }
    }

    /// Adds computed tokens to one sequence; true when it has ended.
    fn complete_chunk(&mut self, slot: Slot, tokens: u32, end: u64) -> bool {
        let size = self.settings.block_size;
        let sequence = &mut self.sequences[slot];
        let before = sequence.computed;
        sequence.computed += tokens;
        let (after, is_whole) = (sequence.computed, sequence.uncomputed() == 0);
        for block in before / size..after / size {
            self.remember_block(slot, block);
        }
        // Only a step that completes the known tokens samples the next.
        is_whole && self.sample(slot, 1, end)
    }

    /// Generates `tokens` tokens for a sequence; true when it has ended.
    fn sample(&mut self, slot: Slot, tokens: u32, end: u64) -> bool {
        let at = step::time(end);
        let sequence = &mut self.sequences[slot];
        let request = sequence.id;
        let first = sequence.first_token.is_none();
        sequence.first_token.get_or_insert(at);
        if sequence.request.output_tokens == 0 {
            return true;
        }
        sequence.generated += tokens;
        self.stats.generation_tokens += u64::from(tokens);
        if first {
            self.events.push(Event { at, request, kind: EventKind::FirstToken });
        } else if self.settings.events == EventDetail::EveryToken {
            self.events.push(Event { at, request, kind: EventKind::Token });
        }
        self.sequences[slot].remaining() == 0
    }

    fn drop_finished(&mut self, end: u64) {
        let at = step::time(end);
        let sequences = &self.sequences;
        let is_finished = |slot: &Slot| {
            let sequence = &sequences[*slot];
            sequence.first_token.is_some() && sequence.remaining() == 0
        };
        let (finished, running): (Vec<Slot>, Vec<Slot>) =
            self.running.iter().copied().partition(is_finished);
        self.running = running;
        for slot in finished {
            self.vacate(slot);
            let sequence = self.remove(slot);
            self.stats.finished += 1;
            let kind = EventKind::Finished(sequence.ended(at));
            self.events.push(Event { at, request: sequence.id, kind });
        }
    }

    fn remember_block(&mut self, slot: Slot, block: u32) {
        if self.settings.prefix_caching == PrefixCaching::Off {
            return;
        }
        let sequence = &self.sequences[slot];
        let hash = sequence.request.block_hashes.get(block as usize);
        let index = sequence.blocks.get(block as usize);
        if let (Some(hash), Some(index)) = (hash, index) {
            self.blocks.remember(*index, *hash);
        }
    }
}
