//! The work before a request that would come now.
//!
//! An engine computes in one step whatever waits when the step begins, as far as its
//! limits (tokens of a step, sequences of a batch, room in the KV cache) let it, and starting
//! prompts costs a step the same however many start. So prompts that wait together cost
//! their tokens and one start, and where a limit was seen, one start for as many prompts as
//! steps have computed lately.

use super::row::Row;
use crate::policy::speed::dot;
use crate::time::Time;

/// A request that comes so soon after a step began still counts as a part of it: an engine
/// that was decoding ends that step first.
const JOINS: f64 = 0.01;

/// Work before a request, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Queue {
    /// Of the step that computes own prompts, from its beginning; 0 when there is none.
    pub(crate) step: f64,
    /// Requests that wait for a later step.
    pub(crate) count: f64,
    /// Of prompts that wait, and of starting the steps before the one that would compute
    /// the request.
    pub(crate) waiting: f64,
    /// Of starting the step that would compute the request.
    pub(crate) start: f64,
    /// Of each of its tokens.
    pub(crate) per_token: f64,
}

impl Row {
    /// What a request would have to wait for.
    ///
    /// Queued are this gateway's own unanswered prompts, which are known, and what the
    /// engine reports beyond those, which is taken as typical prompts.
    pub(super) fn queue(&self, typical_tokens: f64) -> Queue {
        let start = dot(&self.speed, &self.features(0));
        let per_token = self.speed[1] / 1e3;
        if !self.has_queue() {
            return Queue { step: 0.0, count: 0.0, waiting: 0.0, start, per_token };
        }
        let pace = self.pace.max(1.0);
        let (start, per_token) = (pace * start, pace * per_token);
        let own = &self.own;
        let stepping = f64::from(own.stepping);
        let share = if stepping > self.step_limit { self.step_limit / stepping } else { 1.0 };
        let step_tokens = own.step_tokens as f64 * share;
        let step = if own.stepping == 0 { 0.0 } else { start + per_token * step_tokens };
        let count = (f64::from(own.queued()) + self.foreign() - stepping * share).max(0.0);
        let tokens = own.queued_tokens() as f64 + self.foreign() * typical_tokens - step_tokens;
        let steps = ((count + 1.0) / self.step_limit).max(1.0);
        let waiting = (steps - 1.0) * start + per_token * tokens.max(0.0);
        Queue { step, count, waiting, start, per_token }
    }

    /// Enters a prompt that is sent at `now`.
    pub(super) fn enqueue(&mut self, tokens: u32, now: Time) {
        self.hold(tokens);
        self.dispatch(tokens, now);
    }

    /// Enters a prompt that is not sent yet.
    pub(super) fn hold(&mut self, tokens: u32) {
        let own = &mut self.own;
        own.in_flight += 1;
        own.prefilling += 1;
        own.prefill_tokens += u64::from(tokens);
        own.held += 1;
        own.held_tokens += u64::from(tokens);
    }

    /// Takes out a prompt that was never sent.
    pub(super) fn withdraw(&mut self, tokens: u32) {
        let own = &mut self.own;
        own.in_flight = own.in_flight.saturating_sub(1);
        own.prefilling = own.prefilling.saturating_sub(1);
        own.prefill_tokens = own.prefill_tokens.saturating_sub(u64::from(tokens));
        own.held = own.held.saturating_sub(1);
        own.held_tokens = own.held_tokens.saturating_sub(u64::from(tokens));
    }

    /// Enters a prompt that is not sent yet, and gives way to others.
    pub(super) fn defer(&mut self, tokens: u32) {
        self.hold(tokens);
        self.own.deferred += 1;
        self.own.deferred_tokens += u64::from(tokens);
    }

    /// A held prompt gives way no longer.
    pub(super) fn resume(&mut self, tokens: u32) {
        self.own.deferred = self.own.deferred.saturating_sub(1);
        self.own.deferred_tokens = self.own.deferred_tokens.saturating_sub(u64::from(tokens));
    }

    /// Sends a held prompt at `now`.
    pub(super) fn dispatch(&mut self, tokens: u32, now: Time) {
        self.own.held = self.own.held.saturating_sub(1);
        self.own.held_tokens = self.own.held_tokens.saturating_sub(u64::from(tokens));
        let alone = self.own.prefilling - self.own.held == 1;
        let elapsed = now.since(self.busy_since).as_secs_f64();
        let joins = alone || elapsed < JOINS.min(self.queue(0.0).step);
        if alone {
            self.busy_since = self.busy_since.max(now);
        }
        let own = &mut self.own;
        own.fresh_waiting += 1;
        if joins {
            own.stepping += 1;
            own.step_tokens += u64::from(tokens);
        }
    }

    /// Takes out a prompt that was sent at `sent`.
    pub(super) fn dequeue(&mut self, tokens: u32, sent: Time) {
        let own = &mut self.own;
        own.prefilling = own.prefilling.saturating_sub(1);
        own.prefill_tokens = own.prefill_tokens.saturating_sub(u64::from(tokens));
        own.fresh_tokens += u64::from(tokens);
        if sent < self.busy_since {
            own.overdue = own.overdue.saturating_sub(1);
            own.overdue_tokens = own.overdue_tokens.saturating_sub(u64::from(tokens));
        }
        if sent.since(self.busy_since).as_secs_f64() < JOINS {
            own.stepping = own.stepping.saturating_sub(1);
            own.step_tokens = own.step_tokens.saturating_sub(u64::from(tokens));
        }
    }

    /// Notes that a step has ended: what is unanswered is in the next one.
    pub(super) fn begin_step(&mut self, now: Time) {
        if now < self.busy_since {
            return; // told late: a later step is under way
        }
        self.busy_since = now;
        self.own.stepping = self.own.prefilling - self.own.held;
        self.own.step_tokens = self.own.prefill_tokens - self.own.held_tokens;
        self.own.overdue = self.own.stepping;
        self.own.overdue_tokens = self.own.step_tokens;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::pool::EndpointId;
    use crate::pool::digest::Digest;

    fn at(milliseconds: u64) -> Time {
        Time::from_origin(Duration::from_millis(milliseconds))
    }

    fn row() -> Row {
        Row { speed: [0.5, 2.0, 0.25, 0.0], ..Row::new(EndpointId(1), 1.0, Time::ZERO) }
    }

    #[test]
    fn an_idle_engine_starts_at_once() {
        let queue = Queue { step: 0.0, count: 0.0, waiting: 0.0, start: 0.5, per_token: 0.002 };
        assert_eq!(Row { pace: 7.0, ..row() }.queue(1_000.0), queue);
    }

    #[test]
    fn prompts_that_wait_together_start_together() {
        let mut row = row();
        row.enqueue(1_000, at(0));
        for _ in 0..3 {
            row.enqueue(500, at(50));
        }
        let queue = Queue { step: 2.5, count: 3.0, waiting: 3.0, start: 0.5, per_token: 0.002 };
        assert_eq!(row.queue(1_000.0), queue);
        // Two slots' worth is known to fit into a step: two more have to begin before.
        row.step_limit = 2.0;
        assert_eq!(row.queue(1_000.0).waiting, 3.5);
    }

    #[test]
    fn others_prompts_count_as_typical_ones_at_the_pace_of_the_queue() {
        let mut row =
            Row { scraped_waiting: Some(5.0), scraped_running: Some(8.0), pace: 2.0, ..row() };
        row.enqueue(3_000, at(0));
        row.own.fresh_waiting = 0;
        row.merge();
        assert_eq!(row.foreign(), 4.0);
        // Twice 0.5 + 8 x 0.25, and twice 2 s for each thousand tokens.
        let queue = Queue { step: 17.0, count: 4.0, waiting: 16.0, start: 5.0, per_token: 0.004 };
        assert_eq!(row.queue(1_000.0), queue);
    }

    #[test]
    fn a_step_takes_what_is_there_when_it_begins() {
        let mut row = row();
        row.enqueue(1_000, at(0));
        row.enqueue(200, at(4));
        row.enqueue(30, at(40));
        assert_eq!((row.own.stepping, row.own.step_tokens), (2, 1_200));
        row.dequeue(1_000, at(0));
        assert_eq!((row.own.stepping, row.own.step_tokens), (1, 200));
        row.begin_step(at(100));
        assert_eq!((row.own.stepping, row.own.step_tokens), (2, 230));
    }

    prop_compose! {
        /// An endpoint in any state.
        fn any_row()(
            speed in prop::array::uniform3(0.000_1_f64..10.0),
            pace in 0.1_f64..100.0,
            step_limit in prop_oneof![Just(f64::INFINITY), 1.0_f64..50.0],
            waiting in prop::option::of(0.0_f64..50.0),
            before in prop::collection::vec((0_u32..20_000, 0_u64..3_000), 0..20),
            step_began in 0_u64..3_000,
        ) -> Row {
            let mut row = Row {
                speed: [speed[0], speed[1], speed[2], 0.0],
                pace,
                step_limit,
                scraped_waiting: waiting,
                ..Row::new(EndpointId(1), 1.0, Time::ZERO)
            };
            let mut before = before;
            before.sort_by_key(|(_, sent)| *sent);
            let mut begun = false;
            for (tokens, sent) in before {
                if sent > step_began && !begun {
                    begun = true;
                    row.begin_step(at(step_began));
                }
                row.enqueue(tokens, at(sent));
            }
            row.merge();
            row
        }
    }

    proptest! {
        #[test]
        fn more_work_never_makes_an_endpoint_look_faster(
            row in any_row(), tokens in 0_u32..20_000, now in 3_000_u64..20_000, own in 0_u32..9_000,
        ) {
            let mut more = row.clone();
            more.enqueue(tokens, at(now));
            more.merge();
            let predicted = |row: &Row| {
                Digest::of(row, 500.0).time_to_first_token(own, at(now).seconds())
            };
            let (before, after) = (predicted(&row), predicted(&more));
            prop_assert!(after >= before * (1.0 - 1e-9), "{before} then {after}");
        }

        #[test]
        fn an_endpoint_that_is_late_never_looks_faster_for_being_silent_longer(
            row in any_row(), late in 0.0_f64..100.0, longer in 0.0_f64..100.0,
        ) {
            let digest = Digest::of(&row, 500.0);
            let due = row.busy_since.seconds() + row.queue(500.0).step;
            let predicted = |late: f64| digest.time_to_first_token(100, due + late);
            let (before, after) = (predicted(late), predicted(late + longer));
            prop_assert!(after >= before * (1.0 - 1e-9), "{before} then {after}");
        }
    }
}
