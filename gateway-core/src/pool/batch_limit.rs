//! How many sequences an engine's batch holds, learnt from what its steps leave behind.
//!
//! Engines do not tell their limit (`max_num_seqs` of vLLM). It shows when the batch is full:
//! a step begins, prompts wait, they would fit into the step's tokens, and yet it computes only
//! as many as have ended before. What then runs is the limit, the same number step after
//! step. Anything else that leaves prompts behind (a long prompt, a step's tokens) gives
//! numbers that differ, or steps that were too large to tell.

use std::time::Duration;

use crate::time::Time;

/// Steps in a row that have to agree before a limit is believed.
const AGREEING: u32 = 4;

/// They agree while none runs more than the first, or less by more than this share and one.
const TOLERANCE: f64 = 0.02;

/// How long a limit is believed before it is put to the test again.
const TRUSTED: Duration = Duration::from_secs(30);

/// What a step did, as far as this gateway sees.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StepSeen {
    /// Uncached prompt tokens of the prompts that it completed.
    pub(super) tokens: f64,
    /// The same of the longest of them, of which earlier steps may have computed a part.
    pub(super) longest: f64,
    /// Prompts that were there when it began and that it did not complete.
    pub(super) left: u32,
    /// Uncached prompt tokens of those.
    pub(super) left_tokens: f64,
    /// Requests that ran at its end.
    pub(super) running: f64,
}

impl StepSeen {
    /// Adds the first prompt that was completed; `running` counts it.
    pub(super) fn add_first(&mut self, tokens: u32, running: f64) {
        let tokens = f64::from(tokens);
        self.tokens += tokens;
        self.longest = self.longest.max(tokens);
        self.running = self.running.max(running);
    }

    /// Adds another one, which was left so far.
    pub(super) fn add(&mut self, tokens: u32, running: f64) {
        self.left = self.left.saturating_sub(1);
        self.left_tokens = (self.left_tokens - f64::from(tokens)).max(0.0);
        self.add_first(tokens, running);
    }
}

/// The limit of one engine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BatchLimit {
    /// What ran at the end of the first of the latest steps that agree; a batch that grows has
    /// not reached its limit.
    first: f64,
    agreeing: u32,
    known: Option<f64>,
    confirmed: Time,
    /// Tokens that one step can certainly compute, for one has.
    step_tokens: f64,
}

impl BatchLimit {
    /// Learns from a step that ended at `now`.
    pub(super) fn learn(&mut self, step: &StepSeen, now: Time) {
        self.step_tokens = self.step_tokens.max(step.tokens - step.longest);
        if step.left == 0 {
            if self.known.is_some_and(|known| step.running > known + slack(known)) {
                *self = Self { step_tokens: self.step_tokens, ..Self::default() };
            }
            return;
        }
        let next = step.left_tokens / f64::from(step.left);
        if step.tokens + next > self.step_tokens {
            return;
        }
        if (self.first - slack(self.first)..=self.first).contains(&step.running) {
            self.agreeing += 1;
        } else {
            (self.first, self.agreeing) = (step.running, 1);
        }
        if self.agreeing >= AGREEING {
            (self.known, self.confirmed) = (Some(self.first), now);
        }
    }

    /// A limit that is known.
    #[cfg(test)]
    pub(super) fn of(limit: f64, confirmed: Time) -> Self {
        Self { known: Some(limit), confirmed, ..Self::default() }
    }

    /// Sequences that a full batch has; `None` while no full batch was seen.
    pub(super) fn known(&self) -> Option<f64> {
        self.known
    }

    /// Whether it is time to see if more than that would run.
    pub(super) fn is_doubted(&self, now: Time) -> bool {
        now.since(self.confirmed) > TRUSTED
    }
}

fn slack(size: f64) -> f64 {
    TOLERANCE * size + 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_origin(Duration::from_secs(seconds))
    }

    /// A step that completed `tokens` of two equal prompts and left five of 500 tokens.
    fn full(running: f64, tokens: f64) -> StepSeen {
        StepSeen { tokens, longest: tokens / 2.0, left: 5, left_tokens: 2_500.0, running }
    }

    /// A step that computed three prompts of 2,000 tokens and left nobody.
    const LARGE: StepSeen =
        StepSeen { tokens: 6_000.0, longest: 2_000.0, left: 0, left_tokens: 0.0, running: 3.0 };

    fn learnt(steps: &[StepSeen]) -> BatchLimit {
        let mut limit = BatchLimit::default();
        limit.learn(&LARGE, at(0));
        for step in steps {
            limit.learn(step, at(1));
        }
        limit
    }

    #[test]
    fn steps_that_leave_prompts_at_the_same_number_show_the_limit() {
        let steps = [255.0, 256.0, 256.0, 254.0].map(|running| full(running, 900.0));
        assert_eq!(learnt(&steps).known(), None);
        let limit = learnt(&[&steps[..], &[full(254.0, 400.0)]].concat());
        assert_eq!(limit.known(), Some(256.0));
        assert!(!limit.is_doubted(at(31)) && limit.is_doubted(at(32)));
    }

    #[test]
    fn a_batch_that_grows_has_no_limit() {
        let steps: Vec<_> = (0..50).map(|more| full(100.0 + f64::from(more), 900.0)).collect();
        assert_eq!(learnt(&steps).known(), None);
    }

    #[test]
    fn steps_without_room_for_the_next_prompt_say_nothing() {
        assert_eq!(learnt(&[full(256.0, 3_600.0); 9]).known(), None);
        assert_eq!(learnt(&[full(256.0, 3_400.0); 9]).known(), Some(256.0));
    }

    #[test]
    fn a_larger_batch_that_leaves_nobody_refutes_the_limit() {
        let mut limit = learnt(&[full(100.0, 900.0); 4]);
        limit.learn(&StepSeen { running: 103.0, ..LARGE }, at(40));
        assert_eq!(limit.known(), Some(100.0));
        limit.learn(&StepSeen { running: 104.0, ..LARGE }, at(40));
        assert_eq!(limit.known(), None);
    }

    #[test]
    fn first_tokens_of_a_step_take_prompts_off_those_it_left() {
        let mut step = StepSeen { left: 2, left_tokens: 800.0, ..StepSeen::default() };
        step.add_first(300, 7.0);
        step.add(500, 8.0);
        let sum =
            StepSeen { tokens: 800.0, longest: 500.0, left: 1, left_tokens: 300.0, running: 8.0 };
        assert_eq!(step, sum);
    }
}
