//! One step, or a stretch of identical decode steps, on its way.
//!
//! Durations are whole picoseconds: fine enough that costs per token are
//! integers, so that the time of many steps is a closed formula with no rounding
//! in between.

use std::time::Duration;

use gateway_core::Time;

use super::sequence::Slot;

/// A sequence's part in a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) slot: Slot,
    pub(super) tokens: u32,
}

/// Work that has started and not ended.
#[derive(Debug)]
pub(super) struct Step {
    /// Start, in picoseconds since the caller's origin.
    pub(super) start: u64,
    /// Duration of the first step.
    pub(super) first: u64,
    /// How much longer each further step takes: the KV cache to read grows.
    pub(super) growth: u64,
    /// How many identical steps.
    pub(super) steps: u32,
    pub(super) planned: Vec<Planned>,
}

impl Step {
    /// When the last step ends, rounded up to the clock's unit.
    pub(super) fn end(&self) -> Time {
        time(self.end_of(self.steps))
    }

    /// End of the first `steps` steps, in picoseconds.
    pub(super) fn end_of(&self, steps: u32) -> u64 {
        let steps = u64::from(steps);
        let growing = steps * steps.saturating_sub(1) / 2 * self.growth;
        self.start + steps * self.first + growing
    }

    /// How many steps have ended at `now` (picoseconds).
    pub(super) fn completed_by(&self, now: u64) -> u32 {
        if self.end_of(self.steps) <= now {
            return self.steps;
        }
        (1..self.steps).rev().find(|steps| self.end_of(*steps) <= now).unwrap_or(0)
    }

    /// Drops `done` completed steps from the front; returns when the last of them ended.
    pub(super) fn shorten(&mut self, done: u32) -> u64 {
        self.start = self.end_of(done);
        self.first += u64::from(done) * self.growth;
        self.steps -= done;
        self.start
    }

    pub(super) fn is_over(&self) -> bool {
        self.steps == 0
    }

    /// Ends the stretch with the step that is under way.
    pub(super) fn cut(&mut self) {
        self.steps = self.steps.min(1);
    }

    /// Drops a sequence that is gone; the step still takes its time.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.planned.retain(|planned| planned.slot != slot);
    }
}

/// A moment in picoseconds.
pub(super) fn picoseconds(time: Time) -> u64 {
    time.as_nanos().saturating_mul(1000)
}

/// The first moment of the clock that is not before `picoseconds`.
pub(super) fn time(picoseconds: u64) -> Time {
    Time::from_origin(Duration::from_nanos(picoseconds.div_ceil(1000)))
}
