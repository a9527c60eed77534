//! The scheduler: what the next step computes, and what a finished one leaves.
//!
//! Order and rules are vLLM's. Running sequences come first, oldest first, each
//! with as many tokens as it still needs within the step's budget. When a block
//! is missing, the youngest running sequence is preempted: it loses its blocks,
//! returns to the head of the queue and is computed again later. What is left of
//! the budget goes to waiting requests in order of arrival, but only if nothing
//! was preempted and the whole prompt fits into the cache.

use super::Engine;
use super::adapter::Residence;
use super::request::{Event, EventKind};
use super::sequence::Slot;
use super::settings::{EventDetail, PrefixCaching};
use super::step::{self, Planned, Step};
use crate::profile::StepWork;

/// What a waiting request found in the prefix cache.
struct Prefix {
    blocks: u32,
    /// Of these, blocks that nobody holds: reusing them uses up free blocks.
    idle: u32,
}

impl Engine {
    /// Starts the next step at `start` (picoseconds), if there is any work.
    pub(super) fn begin_step(&mut self, start: u64) {
        let mut planned = std::mem::take(&mut self.spare);
        planned.clear();
        let mut budget = self.settings.max_num_batched_tokens;
        let mut work = StepWork::default();
        let preempted = self.plan_running(start, &mut planned, &mut budget);
        if !preempted {
            self.plan_waiting(start, &mut planned, &mut budget, &mut work);
        }
        if planned.is_empty() {
            self.spare = planned;
            return;
        }
        let decode_only = self.measure(&planned, &mut work);
        let steps = if decode_only { self.stretch(&planned) } else { 1 };
        self.step = Some(Step {
            start,
            first: self.profile.step_picoseconds(&work),
            growth: self.profile.kv_read_picoseconds(u64::from(work.decoding)),
            steps,
            planned,
        });
    }

    /// Plans running sequences; true when one had to be preempted.
    fn plan_running(&mut self, start: u64, planned: &mut Vec<Planned>, budget: &mut u32) -> bool {
        let mut preempted = false;
        let mut next = 0;
        while next < self.running.len() {
            let slot = self.running[next];
            let tokens = self.sequences[slot].uncomputed().min(*budget);
            if tokens == 0 {
                break;
            }
            if self.provide_blocks(slot, tokens) {
                planned.push(Planned { slot, tokens });
                *budget -= tokens;
                next += 1;
            } else if let Some(victim) = self.running.pop() {
                // The victim is this sequence or a younger one, hence not planned yet.
                self.preempt(start, victim);
                preempted = true;
            }
        }
        preempted
    }

    fn preempt(&mut self, start: u64, victim: Slot) {
        self.vacate(victim);
        let sequence = &mut self.sequences[victim];
        sequence.computed = 0;
        sequence.preemptions += 1;
        let request = sequence.id;
        self.waiting.push_front(victim);
        self.stats.preemptions += 1;
        self.events.push(Event { at: step::time(start), request, kind: EventKind::Preempted });
    }

    fn plan_waiting(
        &mut self,
        start: u64,
        planned: &mut Vec<Planned>,
        budget: &mut u32,
        work: &mut StepWork,
    ) {
        let mut next = 0;
        while *budget > 0 && self.running.len() < self.settings.max_num_seqs {
            let Some(slot) = self.waiting.get(next).copied() else { break };
            let adapter = self.sequences[slot].request.adapter;
            if adapter.is_some_and(|adapter| !self.adapters.admits(adapter)) {
                next += 1;
                continue;
            }
            let prefix = self.cached_prefix(slot);
            let needed = self.settings.blocks_for(self.sequences[slot].tokens()) - prefix.blocks;
            if needed + prefix.idle > self.blocks.free() {
                break;
            }
            self.waiting.remove(next);
            self.running.push(slot);
            if adapter.map(|adapter| self.adapters.acquire(adapter)) == Some(Residence::Loaded) {
                self.stats.adapter_loads += 1;
                work.adapter_loads += 1;
            }
            work.prompts_started += 1;
            self.admit(start, slot, prefix.blocks);
            let tokens = self.sequences[slot].uncomputed().min(*budget);
            *budget -= tokens;
            let provided = self.provide_blocks(slot, tokens);
            debug_assert!(provided, "the whole prompt was checked to fit");
            planned.push(Planned { slot, tokens });
        }
    }

    /// Gives a sequence that joins the batch its cached prefix.
    fn admit(&mut self, start: u64, slot: Slot, prefix_blocks: u32) {
        let sequence = &mut self.sequences[slot];
        for hash in &sequence.request.block_hashes[..prefix_blocks as usize] {
            if let Some(block) = self.blocks.find(*hash) {
                self.blocks.hold(block);
                sequence.blocks.push(block);
            }
        }
        sequence.computed = prefix_blocks * self.settings.block_size;
        if sequence.scheduled.is_some() {
            return;
        }
        let at = step::time(start);
        sequence.scheduled = Some(at);
        sequence.cached = sequence.computed;
        self.stats.prefix_queries += u64::from(sequence.request.prompt_tokens);
        self.stats.prefix_hits += u64::from(sequence.cached);
        let kind = EventKind::Scheduled { cached_tokens: sequence.cached };
        self.events.push(Event { at, request: sequence.id, kind });
    }

    /// The longest run of cached blocks; the last token is always computed.
    fn cached_prefix(&self, slot: Slot) -> Prefix {
        let mut prefix = Prefix { blocks: 0, idle: 0 };
        if self.settings.prefix_caching == PrefixCaching::Off {
            return prefix;
        }
        let sequence = &self.sequences[slot];
        let most = (sequence.tokens() - 1) / self.settings.block_size;
        for hash in sequence.request.block_hashes.iter().take(most as usize) {
            let Some(block) = self.blocks.find(*hash) else { break };
            prefix.blocks += 1;
            prefix.idle += u32::from(self.blocks.is_free(block));
        }
        prefix
    }

    /// Allocates what `tokens` more computed tokens need; all or nothing.
    fn provide_blocks(&mut self, slot: Slot, tokens: u32) -> bool {
        let sequence = &mut self.sequences[slot];
        let wanted = self.settings.blocks_for(sequence.computed + tokens) as usize;
        let missing = wanted.saturating_sub(sequence.blocks.len());
        if missing > self.blocks.free() as usize {
            return false;
        }
        sequence.blocks.extend((0..missing).map_while(|_| self.blocks.allocate()));
        true
    }

    /// Adds up what the step computes; true when it only decodes.
    fn measure(&self, planned: &[Planned], work: &mut StepWork) -> bool {
        for Planned { slot, tokens } in planned {
            let sequence = &self.sequences[*slot];
            if sequence.is_decoding() {
                work.decoding += 1;
                work.kv_tokens += u64::from(sequence.computed);
            } else {
                work.prefill_tokens += tokens;
            }
        }
        // One that was preempted may come back with all but its last token cached.
        work.prefill_tokens == 0 && work.prompts_started == 0
    }

    /// How many steps will be like this one for certain.
    ///
    /// Within one block's length each sequence allocates at most once, so as many
    /// free blocks as sequences are enough; nobody may finish before the end, and
    /// nobody may be able to join.
    fn stretch(&self, planned: &[Planned]) -> u32 {
        let full = self.running.len() >= self.settings.max_num_seqs;
        let certain = self.settings.events == EventDetail::FirstAndLast
            && (self.waiting.is_empty() || full)
            && planned.len() == self.running.len()
            && self.blocks.free() as usize >= planned.len();
        if !certain {
            return 1;
        }
        let remaining = planned.iter().map(|planned| self.sequences[planned.slot].remaining());
        remaining.min().unwrap_or(1).clamp(1, self.settings.block_size)
    }
}
