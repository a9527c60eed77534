//! One request inside the engine, and the table of all of them.

use std::ops::{Index, IndexMut};

use gateway_core::Time;

use super::blocks::BlockIndex;
use super::request::{Ended, EngineRequest, RequestId};

/// Where a sequence lives in the table; reused after it is removed.
pub(super) type Slot = u32;

#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) id: RequestId,
    pub(super) request: EngineRequest,
    pub(super) blocks: Vec<BlockIndex>,
    /// Tokens whose KV is in the cache.
    pub(super) computed: u32,
    pub(super) generated: u32,
    pub(super) cached: u32,
    pub(super) preemptions: u32,
    pub(super) arrived: Time,
    pub(super) scheduled: Option<Time>,
    pub(super) first_token: Option<Time>,
}

impl Sequence {
    pub(super) fn new(id: RequestId, mut request: EngineRequest, arrived: Time) -> Self {
        request.prompt_tokens = request.prompt_tokens.max(1);
        Self {
            id,
            request,
            blocks: Vec::new(),
            computed: 0,
            generated: 0,
            cached: 0,
            preemptions: 0,
            arrived,
            scheduled: None,
            first_token: None,
        }
    }

    /// Tokens that exist: the prompt and what was generated.
    pub(super) fn tokens(&self) -> u32 {
        self.request.prompt_tokens + self.generated
    }

    /// Tokens that must be computed before the next one can be sampled.
    pub(super) fn uncomputed(&self) -> u32 {
        self.tokens() - self.computed
    }

    /// Whether its next step only extends it by one token.
    pub(super) fn is_decoding(&self) -> bool {
        self.generated > 0 && self.uncomputed() == 1
    }

    /// Tokens still to be generated.
    pub(super) fn remaining(&self) -> u32 {
        self.request.output_tokens - self.generated
    }

    pub(super) fn ended(&self, now: Time) -> Ended {
        Ended {
            reason: self.request.finish,
            arrived: self.arrived,
            scheduled: self.scheduled.unwrap_or(now),
            first_token: self.first_token.unwrap_or(now),
            prompt_tokens: self.request.prompt_tokens,
            cached_tokens: self.cached,
            output_tokens: self.generated,
            preemptions: self.preemptions,
        }
    }
}

/// Sequences by slot, so that the scheduler's lists are plain integers.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    slots: Vec<Option<Sequence>>,
    vacant: Vec<Slot>,
}

impl Sequences {
    pub(super) fn insert(&mut self, sequence: Sequence) -> Slot {
        if let Some(slot) = self.vacant.pop() {
            self.slots[slot as usize] = Some(sequence);
            return slot;
        }
        self.slots.push(Some(sequence));
        self.slots.len() as Slot - 1
    }

    /// # Panics
    ///
    /// When the slot is vacant: the scheduler's lists hold occupied slots only.
    pub(super) fn remove(&mut self, slot: Slot) -> Sequence {
        self.vacant.push(slot);
        let sequence = self.slots[slot as usize].take();
        sequence.unwrap_or_else(|| vacant(slot))
    }
}

impl Index<Slot> for Sequences {
    type Output = Sequence;

    fn index(&self, slot: Slot) -> &Sequence {
        self.slots[slot as usize].as_ref().unwrap_or_else(|| vacant(slot))
    }
}

impl IndexMut<Slot> for Sequences {
    fn index_mut(&mut self, slot: Slot) -> &mut Sequence {
        self.slots[slot as usize].as_mut().unwrap_or_else(|| vacant(slot))
    }
}

fn vacant(slot: Slot) -> ! {
    panic!("slot {slot} is vacant")
}
