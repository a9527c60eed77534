//! When would a request get its first token, if it joined this engine now?
//!
//! The answer of somebody who knows everything about the engine: its queue, the progress
//! and the future length of every answer, what is cached. A forecast runs the scheduler's
//! rules ahead on a light copy of the engine's state, for a true copy would have to
//! copy the whole block table for each question. Nothing that arrives later is in it.
//!
//! It is exact as long as the KV cache does not fill up on the way. The copy counts blocks
//! instead of keeping them, so it misses two things then: which cached prefix is lost
//! to an allocation, and when a shared block is free again. Both make it too hopeful, by
//! about a fifth of the wait in a cache that is always full.

use std::collections::VecDeque;

use gateway_core::Time;

use super::Engine;
use super::adapter::{AdapterSlots, Residence};
use super::request::EngineRequest;
use super::sequence::{Sequence, Slot};
use super::settings::PrefixCaching;
use super::step::{self, Step};
use crate::block_map::BlockSet;
use crate::profile::StepWork;

#[cfg(test)]
mod tests;

/// What a request may expect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Forecast {
    /// When its first token will exist.
    pub first_token: Time,
    /// Prompt tokens that it will find in the prefix cache.
    pub cached_tokens: u32,
}

impl Engine {
    /// The forecast for a request submitted at `now`; `None` when the first token would come
    /// after `limit` or never.
    #[must_use]
    pub fn forecast(&self, now: Time, request: &EngineRequest, limit: Time) -> Option<Forecast> {
        let needed = self.settings.blocks_for(request.prompt_tokens + request.output_tokens);
        if needed > self.blocks.capacity() {
            return None;
        }
        let mut shadow = Shadow::of(self, step::picoseconds(now));
        shadow.waiting.push_back(Part { is_asked: true, ..Part::new(request) });
        shadow.run(step::picoseconds(limit))
    }
}

/// A sequence, as far as the schedule depends on it.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    request: &'a EngineRequest,
    computed: u32,
    generated: u32,
    /// Blocks held.
    blocks: u32,
    /// Of these, blocks that are free once this sequence is gone.
    own: u32,
    /// Tokens computed in the step under way.
    planned: u32,
    cached: u32,
    is_asked: bool,
}

/// The engine's state, run ahead.
struct Shadow<'a> {
    engine: &'a Engine,
    /// Picoseconds.
    now: u64,
    /// End of the step under way.
    step_end: Option<u64>,
    running: Vec<Part<'a>>,
    waiting: VecDeque<Part<'a>>,
    free: u32,
    adapters: AdapterSlots,
    /// Hashes of blocks that were cached since.
    learned: BlockSet,
    /// Hashes of idle blocks that are held since.
    taken: BlockSet,
}

impl<'a> Shadow<'a> {
    fn of(engine: &'a Engine, now: u64) -> Self {
        let part = |slot: &Slot| Part::of(engine, &engine.sequences[*slot]);
        let mut shadow = Self {
            engine,
            now,
            step_end: None,
            running: engine.running.iter().map(part).collect(),
            waiting: engine.waiting.iter().map(part).collect(),
            free: engine.blocks.free(),
            adapters: engine.adapters.clone(),
            learned: BlockSet::default(),
            taken: BlockSet::default(),
        };
        if let Some(step) = &engine.step {
            shadow.resume(step);
        }
        shadow
    }

    /// Takes up the engine's step, of which some may be over without having been applied.
    fn resume(&mut self, step: &Step) {
        let done = step.completed_by(self.now);
        let is_over = done == step.steps;
        self.step_end = Some(step.end_of(if is_over { done } else { done + 1 }));
        let earlier = if is_over { done - 1 } else { done };
        for planned in &step.planned {
            let at = self.engine.running.iter().position(|slot| *slot == planned.slot);
            let Some(part) = at.map(|at| &mut self.running[at]) else { continue };
            part.planned = planned.tokens;
            part.computed += earlier;
            part.generated += earlier;
            let wanted = self.engine.settings.blocks_for(part.computed + part.planned);
            let missing = wanted.saturating_sub(part.blocks);
            part.hold_new(missing);
            self.free = self.free.saturating_sub(missing);
        }
    }

    fn run(mut self, limit: u64) -> Option<Forecast> {
        loop {
            if let Some(end) = self.step_end.take() {
                self.now = end;
                if let Some(forecast) = self.complete(1) {
                    return Some(forecast);
                }
            }
            if self.now > limit || !self.begin_step() {
                return None;
            }
        }
    }

    /// Plans the next step, or a stretch of like ones; false when nothing can ever run.
    fn begin_step(&mut self) -> bool {
        let mut budget = self.engine.settings.max_num_batched_tokens;
        let mut work = StepWork::default();
        if !self.plan_running(&mut budget) {
            self.plan_waiting(&mut budget, &mut work);
        }
        for part in self.running.iter().filter(|part| part.planned > 0) {
            if part.is_decoding() {
                work.decoding += 1;
                work.kv_tokens += u64::from(part.computed);
            } else {
                work.prefill_tokens += part.planned;
            }
        }
        if work.decoding == 0 && work.prefill_tokens == 0 {
            return false;
        }
        let profile = &self.engine.profile;
        let (first, growth) = (
            profile.step_picoseconds(&work),
            profile.kv_read_picoseconds(u64::from(work.decoding)),
        );
        // All but the last step of a stretch are applied at once.
        let others = u64::from(self.stretch(&work) - 1);
        if others > 0 {
            self.now += others * first + others * (others - 1) / 2 * growth;
            self.complete(others as u32);
            let mut budget = self.engine.settings.max_num_batched_tokens;
            self.plan_running(&mut budget);
        }
        self.step_end = Some(self.now + first + others * growth);
        true
    }

    /// Steps that are like this one: nobody ends, nobody can join, blocks suffice.
    fn stretch(&self, work: &StepWork) -> u32 {
        let decodes = work.prefill_tokens == 0 && work.prompts_started == 0;
        if !decodes || (self.free as usize) < self.running.len() {
            return 1;
        }
        let remaining = self.running.iter().map(Part::remaining).min().unwrap_or(1);
        remaining.clamp(1, self.engine.settings.block_size)
    }

    /// True when a sequence had to be preempted.
    fn plan_running(&mut self, budget: &mut u32) -> bool {
        let mut preempted = false;
        let mut next = 0;
        while next < self.running.len() {
            let part = self.running[next];
            let tokens = part.uncomputed().min(*budget);
            if tokens == 0 {
                break;
            }
            let wanted = self.engine.settings.blocks_for(part.computed + tokens);
            let missing = wanted.saturating_sub(part.blocks);
            if missing <= self.free {
                self.free -= missing;
                self.running[next].hold_new(missing);
                self.running[next].planned = tokens;
                *budget -= tokens;
                next += 1;
            } else if let Some(mut victim) = self.running.pop() {
                self.vacate(&victim);
                (victim.computed, victim.blocks, victim.own, victim.planned) = (0, 0, 0, 0);
                self.waiting.push_front(victim);
                preempted = true;
            }
        }
        preempted
    }

    fn plan_waiting(&mut self, budget: &mut u32, work: &mut StepWork) {
        let settings = &self.engine.settings;
        let mut next = 0;
        while *budget > 0 && self.running.len() < settings.max_num_seqs {
            let Some(mut part) = self.waiting.get(next).copied() else { break };
            let adapter = part.request.adapter;
            if adapter.is_some_and(|adapter| !self.adapters.admits(adapter)) {
                next += 1;
                continue;
            }
            let (cached, idle) = self.cached_prefix(&part);
            let needed = settings.blocks_for(part.tokens()) - cached;
            if needed + idle > self.free {
                break;
            }
            self.waiting.remove(next);
            if adapter.map(|adapter| self.adapters.acquire(adapter)) == Some(Residence::Loaded) {
                work.adapter_loads += 1;
            }
            work.prompts_started += 1;
            self.hold_cached(&mut part, cached, idle);
            part.planned = part.uncomputed().min(*budget);
            *budget -= part.planned;
            let missing = settings.blocks_for(part.computed + part.planned) - part.blocks;
            self.free -= missing;
            part.hold_new(missing);
            self.running.push(part);
        }
    }

    /// Blocks of the sequence's prefix that are cached, and how many of them are idle.
    fn cached_prefix(&self, part: &Part<'_>) -> (u32, u32) {
        if self.engine.settings.prefix_caching == PrefixCaching::Off {
            return (0, 0);
        }
        let (mut cached, mut idle) = (0, 0);
        let most = (part.tokens() - 1) / self.engine.settings.block_size;
        for hash in part.request.block_hashes.iter().take(most as usize) {
            match self.engine.blocks.find(*hash) {
                Some(block) => {
                    let is_idle = self.engine.blocks.is_free(block) && !self.taken.contains(hash);
                    idle += u32::from(is_idle);
                }
                None if self.learned.contains(hash) => {}
                None => break,
            }
            cached += 1;
        }
        (cached, idle)
    }

    fn hold_cached(&mut self, part: &mut Part<'_>, cached: u32, idle: u32) {
        self.taken.extend(&part.request.block_hashes[..cached as usize]);
        self.free -= idle;
        (part.blocks, part.own) = (cached, idle);
        part.computed = cached * self.engine.settings.block_size;
        if part.generated == 0 {
            part.cached = part.computed;
        }
    }

    /// Applies `steps` steps that end now; answers when the first token asked for is there.
    fn complete(&mut self, steps: u32) -> Option<Forecast> {
        let size = self.engine.settings.block_size;
        let mut first_token = None;
        let mut finished = Vec::new();
        for (at, part) in self.running.iter_mut().enumerate().filter(|(_, part)| part.planned > 0) {
            let before = part.computed / size;
            part.computed += if part.is_decoding() { steps } else { part.planned };
            part.planned = 0;
            let full = (part.computed / size) as usize;
            let known = &part.request.block_hashes;
            self.learned.extend(&known[(before as usize).min(known.len())..full.min(known.len())]);
            if part.computed < part.tokens() {
                continue;
            }
            if part.is_asked {
                let at = step::time(self.now);
                first_token = Some(Forecast { first_token: at, cached_tokens: part.cached });
            }
            part.generated += steps;
            if part.generated >= part.request.output_tokens {
                finished.push(at);
            }
        }
        for at in finished.into_iter().rev() {
            let part = self.running.remove(at);
            self.vacate(&part);
        }
        first_token
    }

    fn vacate(&mut self, part: &Part<'_>) {
        self.free += part.own;
        for hash in part.request.block_hashes.iter().take(part.blocks as usize) {
            self.taken.remove(hash);
        }
        if let Some(adapter) = part.request.adapter {
            self.adapters.release(adapter);
        }
    }
}

impl<'a> Part<'a> {
    fn new(request: &'a EngineRequest) -> Self {
        Self {
            request,
            computed: 0,
            generated: 0,
            blocks: 0,
            own: 0,
            planned: 0,
            cached: 0,
            is_asked: false,
        }
    }

    fn of(engine: &Engine, sequence: &'a Sequence) -> Self {
        let own = sequence.blocks.iter().filter(|block| !engine.blocks.is_shared(**block)).count();
        Self {
            computed: sequence.computed,
            generated: sequence.generated,
            blocks: sequence.blocks.len() as u32,
            own: own as u32,
            ..Self::new(&sequence.request)
        }
    }

    fn hold_new(&mut self, blocks: u32) {
        self.blocks += blocks;
        self.own += blocks;
    }

    fn tokens(&self) -> u32 {
        self.request.prompt_tokens.max(1) + self.generated
    }

    fn uncomputed(&self) -> u32 {
        self.tokens() - self.computed
    }

    fn is_decoding(&self) -> bool {
        self.generated > 0 && self.uncomputed() == 1
    }

    fn remaining(&self) -> u32 {
        self.request.output_tokens.saturating_sub(self.generated)
    }
}
