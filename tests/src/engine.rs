//! A model server's engine as a pure state machine.
//!
//! It follows vLLM's scheduler: continuous batching, prompts computed in chunks
//! that share each step's token budget with decoding, a paged KV cache with
//! prefix reuse and preemption by recomputation, and a limited number of `LoRA`
//! slots. Nothing here reads a clock: the caller says what time it is, so the
//! same engine serves behind a socket and under a virtual clock.
//!
//! The engine works in *steps*. The content of a step is decided when it starts,
//! its duration comes from the [`Profile`], and its effects appear when it ends.
//! Requests that arrive meanwhile wait for the next one. Where nobody asks for
//! every token, up to a block's worth of identical decode steps is taken as one
//! stretch with a closed-form duration; results are the same to the nanosecond.

use std::collections::{HashMap, VecDeque};

use gateway_core::Time;

mod adapter;
mod blocks;
mod complete;
mod forecast;
mod request;
mod schedule;
mod sequence;
mod settings;
mod stats;
mod step;
#[cfg(test)]
mod tests;

pub use forecast::Forecast;
pub use request::{
    AdapterId, Ended, EngineRequest, Event, EventKind, FinishReason, RequestId, TooLarge,
};
pub use settings::{EventDetail, PrefixCaching, Settings};
pub use stats::{Load, Stats};

use crate::profile::Profile;
use adapter::AdapterSlots;
use blocks::BlockPool;
use sequence::{Sequence, Sequences, Slot};
use step::{Planned, Step};

/// One engine: the scheduler, its KV cache and its `LoRA` slots.
///
/// Time given to any method must not go backwards between calls.
#[derive(Debug)]
pub struct Engine {
    profile: Profile,
    settings: Settings,
    sequences: Sequences,
    slots: HashMap<RequestId, Slot>,
    next_id: u64,
    waiting: VecDeque<Slot>,
    running: Vec<Slot>,
    blocks: BlockPool,
    adapters: AdapterSlots,
    step: Option<Step>,
    /// The last step's list, kept for its memory.
    spare: Vec<Planned>,
    events: Vec<Event>,
    stats: Stats,
}

impl Engine {
    /// An idle engine with an empty cache.
    #[must_use]
    pub fn new(profile: Profile, mut settings: Settings) -> Self {
        // With nothing of one of these the engine would wait for ever.
        settings.max_num_seqs = settings.max_num_seqs.max(1);
        settings.max_num_batched_tokens = settings.max_num_batched_tokens.max(1);
        settings.block_size = settings.block_size.max(1);
        let capacity = settings.kv_blocks.unwrap_or_else(|| profile.kv_blocks(settings.block_size));
        Self {
            sequences: Sequences::default(),
            slots: HashMap::new(),
            next_id: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
            blocks: BlockPool::new(capacity),
            adapters: AdapterSlots::new(settings.max_loras),
            step: None,
            spare: Vec::new(),
            events: Vec::new(),
            stats: Stats::default(),
            profile,
            settings,
        }
    }

    /// Queues a request at `now`; an idle engine starts on it at once.
    ///
    /// # Errors
    ///
    /// [`TooLarge`] when prompt and output together exceed the whole KV cache, so
    /// that the request could never run.
    pub fn submit(&mut self, now: Time, request: EngineRequest) -> Result<RequestId, TooLarge> {
        let needed = self.settings.blocks_for(request.prompt_tokens + request.output_tokens);
        if needed > self.blocks.capacity() {
            return Err(TooLarge { needed, capacity: self.blocks.capacity() });
        }
        self.catch_up(now);
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let slot = self.sequences.insert(Sequence::new(id, request, now));
        self.slots.insert(id, slot);
        self.waiting.push_back(slot);
        self.replan(now);
        Ok(id)
    }

    /// Ends a request early and frees all it held; false when it is not here any more.
    pub fn abort(&mut self, now: Time, id: RequestId) -> bool {
        self.catch_up(now);
        let Some(slot) = self.slots.get(&id).copied() else { return false };
        if let Some(step) = &mut self.step {
            step.forget(slot);
        }
        self.waiting.retain(|waiting| *waiting != slot);
        if self.running.contains(&slot) {
            self.running.retain(|running| *running != slot);
            self.vacate(slot);
        }
        self.remove(slot);
        self.stats.aborted += 1;
        self.replan(now);
        true
    }

    /// When something will next happen by itself; `None` while idle.
    ///
    /// [`Self::advance`] called with this time yields at least one change of state,
    /// though not always an event.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        let pending = self.events.first().map(|event| event.at);
        pending.or_else(|| self.step.as_ref().map(Step::end))
    }

    /// Runs the engine up to `now` and appends what happened to `events`, in order.
    pub fn advance(&mut self, now: Time, events: &mut Vec<Event>) {
        self.catch_up(now);
        events.append(&mut self.events);
    }

    /// Requests that are here, running or waiting.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.len()
    }

    /// The engine's load at this moment, as its metrics would tell it.
    #[must_use]
    pub fn load(&self) -> Load {
        let adapter_of = |slot: &Slot| self.sequences[*slot].request.adapter;
        let deferred = self
            .waiting
            .iter()
            .filter_map(adapter_of)
            .filter(|adapter| !self.adapters.admits(*adapter))
            .count();
        Load {
            running: self.running.len(),
            waiting_for_capacity: self.waiting.len() - deferred,
            waiting_deferred: deferred,
            kv_blocks: self.blocks.capacity(),
            kv_blocks_used: self.blocks.used(),
            running_adapters: distinct(self.running.iter().filter_map(adapter_of)),
            waiting_adapters: distinct(self.waiting.iter().filter_map(adapter_of)),
        }
    }

    /// What the engine has done since it was made.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The profile this engine runs with.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The settings this engine runs with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Forgets every cached prefix that no running request holds.
    pub fn clear_prefix_cache(&mut self) {
        self.blocks.forget_cached();
    }

    /// A change of the set of requests: the current step ends as planned, nothing
    /// beyond it is certain any more, and an idle engine starts.
    fn replan(&mut self, now: Time) {
        match &mut self.step {
            Some(step) => step.cut(),
            None => self.begin_step(step::picoseconds(now)),
        }
    }

    /// Completes every step that ends by `now`.
    fn catch_up(&mut self, now: Time) {
        let now = step::picoseconds(now);
        while let Some(mut step) = self.step.take() {
            let done = step.completed_by(now);
            if done == 0 {
                self.step = Some(step);
                return;
            }
            self.complete(&step, done);
            let end = step.shorten(done);
            if step.is_over() {
                self.spare = step.planned;
                self.begin_step(end);
            } else {
                self.step = Some(step);
            }
        }
    }

    /// Takes a sequence's blocks and adapter away from it.
    fn vacate(&mut self, slot: Slot) {
        let sequence = &mut self.sequences[slot];
        // The tail goes first, so that it is evicted before the prefix it builds on.
        for block in sequence.blocks.drain(..).rev() {
            self.blocks.release(block);
        }
        if let Some(adapter) = sequence.request.adapter {
            self.adapters.release(adapter);
        }
    }

    fn remove(&mut self, slot: Slot) -> Sequence {
        let sequence = self.sequences.remove(slot);
        self.slots.remove(&sequence.id);
        sequence
    }
}

/// The adapters in order of first appearance.
fn distinct(adapters: impl Iterator<Item = AdapterId>) -> Vec<AdapterId> {
    let mut seen = Vec::new();
    for adapter in adapters {
        if !seen.contains(&adapter) {
            seen.push(adapter);
        }
    }
    seen
}
