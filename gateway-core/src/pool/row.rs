//! What a decision reads of each endpoint: one compact row.
//!
//! A pick scans the rows of all endpoints, so a row holds numbers only; names,
//! whole signals and what is learnt live in [`Endpoint`](super::endpoint::Endpoint).
//!
//! # Merging own requests with scraped figures
//!
//! A reading of an engine's page is a picture of the past. What this gateway has
//! done since is known exactly and counts on top: requests sent since the
//! reading are added, requests that the reading showed and that have ended are
//! taken off. Requests sent *before* the reading are in the picture already and are not
//! counted twice, except when the picture holds fewer requests than this gateway
//! alone has there: then some were still on their way when it was taken.

use std::time::Duration;

use super::{EndpointId, EndpointState};
use crate::policy::speed::{Coefficients, Features, PRIOR};
use crate::time::Time;

/// Seconds of a decode step that no engine is much faster than.
const SHORTEST_STEP: f64 = 0.015;

/// Longest time for which others' prompts are believed to be computed after a reading.
const MOST_FOREIGN: Duration = Duration::from_secs(10);

/// KV-cache use up to which nobody waits for blocks.
const MOST_FILLED: f64 = 0.9;

/// One endpoint's numbers.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: EndpointId,
    /// Nobody lives here, or its endpoint has left and only leases remain.
    pub(crate) absent: bool,
    pub(crate) draining: bool,
    pub(crate) probe_failing: bool,
    /// Last reading, or joining.
    pub(crate) seen: Time,
    pub(crate) ejected_until: Time,
    pub(crate) fault_until: Time,
    pub(crate) joined: Time,
    /// Finite and positive.
    pub(crate) weight: f64,
    /// As scraped.
    pub(crate) scraped_waiting: Option<f64>,
    pub(crate) scraped_running: Option<f64>,
    /// Requests in the engine's queue, merged; `None` when the engine does not tell.
    pub(crate) waiting: Option<f64>,
    /// Requests in the running batch, merged; `None` when the engine does not tell.
    pub(crate) running: Option<f64>,
    pub(crate) kv_usage: Option<f64>,
    /// Tokens that the KV cache holds.
    pub(crate) kv_tokens: Option<f64>,
    pub(crate) adapters: Option<AdapterSlots>,
    pub(crate) own: Own,
    /// Learnt, blended with the pool's typical values.
    pub(crate) speed: Coefficients,
    /// How little is known of its speed: 1 nothing, towards 0 much.
    pub(crate) doubt: f64,
    /// How many times as long as at an idle endpoint queued work takes.
    pub(crate) pace: f64,
    /// Prompts that one step computes at most; infinite while no limit has been seen.
    pub(crate) step_limit: f64,
    /// Since when the engine's current step runs, as far as this gateway sees: the last first
    /// token, or the pick that found no other of its requests.
    pub(crate) busy_since: Time,
    /// Until when prompts of other gateways are being computed, as far as the KV cache's
    /// growth tells.
    pub(crate) foreign_until: Time,
}

/// LoRA slots of an engine, as scraped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct AdapterSlots {
    pub(crate) max: u32,
    /// Running plus waiting adapters.
    pub(crate) active: u32,
}

/// Requests at an endpoint that are known one by one: this gateway's own, and those that its
/// peers tell of.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Own {
    pub(crate) in_flight: u32,
    /// Of these, without a first token yet.
    pub(crate) prefilling: u32,
    /// Uncached prompt tokens of those.
    pub(crate) prefill_tokens: u64,
    /// Of these, those that are held back, and not in the engine.
    pub(crate) held: u32,
    /// Uncached prompt tokens of those.
    pub(crate) held_tokens: u64,
    /// Of those, those that give way: who comes now is served before them.
    pub(crate) deferred: u32,
    /// Uncached prompt tokens of those.
    pub(crate) deferred_tokens: u64,
    /// Of these requests, those that the engine's current step computes: they were there when
    /// it began.
    pub(crate) stepping: u32,
    /// Uncached prompt tokens of those.
    pub(crate) step_tokens: u64,
    /// Of these requests, those that were there before the engine's current step began, for
    /// certain: sent before the last first token.
    pub(crate) overdue: u32,
    /// Uncached prompt tokens of those.
    pub(crate) overdue_tokens: u64,
    /// Sent since the last reading, without a first token yet.
    pub(crate) fresh_waiting: u32,
    /// Sent since the last reading, with a first token.
    pub(crate) fresh_running: u32,
    /// Uncached prompt tokens of those that got their first token since the last reading.
    pub(crate) fresh_tokens: u64,
    /// Sent before the last reading and ended since.
    pub(crate) departed: u32,
    /// Of all in flight, those of peers.
    pub(crate) guests: u32,
    /// Of all uncached prompt tokens without a first token, those of peers.
    pub(crate) guest_tokens: u64,
}

impl Own {
    /// Requests in flight that are this gateway's.
    pub(crate) fn here(&self) -> u32 {
        self.in_flight - self.guests
    }

    /// Requests that are held back until a lot of places is free.
    pub(crate) fn held_for_lots(&self) -> u32 {
        self.held - self.deferred
    }

    /// Requests without a first token that are served before one that would come now.
    pub(crate) fn queued(&self) -> u32 {
        self.prefilling - self.deferred
    }

    /// Uncached prompt tokens of those.
    pub(crate) fn queued_tokens(&self) -> u64 {
        self.prefill_tokens - self.deferred_tokens
    }
}

impl Row {
    pub(crate) fn new(id: EndpointId, weight: f64, now: Time) -> Self {
        Self {
            id,
            absent: false,
            draining: false,
            probe_failing: false,
            seen: now,
            ejected_until: Time::ZERO,
            fault_until: Time::ZERO,
            joined: now,
            weight,
            scraped_waiting: None,
            scraped_running: None,
            waiting: None,
            running: None,
            kv_usage: None,
            kv_tokens: None,
            adapters: None,
            own: Own::default(),
            speed: PRIOR,
            doubt: 1.0,
            pace: 1.0,
            step_limit: f64::INFINITY,
            busy_since: now,
            foreign_until: Time::ZERO,
        }
    }

    /// Merges the last reading with what this gateway has done since.
    pub(crate) fn merge(&mut self) {
        let own = &self.own;
        self.running = self.scraped_running.map(|running| {
            (running - f64::from(own.departed)).max(0.0) + f64::from(own.fresh_running)
        });
        self.waiting = self.scraped_waiting.map(|waiting| {
            let sent = f64::from(own.here() - own.held);
            let unseen = self.running.map_or(0.0, |running| sent - waiting - running);
            waiting + f64::from(own.fresh_waiting).max(unseen)
        });
    }

    /// What the time to first token of a request with `uncached` prompt tokens to compute
    /// depends on, when nothing is queued before it.
    pub(crate) fn features(&self, uncached: u32) -> Features {
        let decoding = f64::from(self.own.in_flight - self.own.prefilling);
        let running = self.running.unwrap_or(decoding);
        [1.0, f64::from(uncached) / 1e3, running, 0.0]
    }

    /// Requests of others in the engine's queue, as far as it tells.
    pub(crate) fn foreign(&self) -> f64 {
        let own = f64::from(self.own.prefilling - self.own.held);
        self.waiting.map_or(0.0, |waiting| (waiting - own).max(0.0))
    }

    /// Whether a request would find others before it.
    pub(crate) fn has_queue(&self) -> bool {
        self.own.queued() > 0 || self.foreign() >= 0.5
    }

    /// The first reason not to serve, staleness aside.
    pub(crate) fn obstacle(&self, now: Time) -> Option<EndpointState> {
        if self.draining {
            Some(EndpointState::Draining)
        } else if self.probe_failing {
            Some(EndpointState::ProbeFailing)
        } else if now < self.fault_until {
            Some(EndpointState::GpuFault)
        } else if now < self.ejected_until {
            Some(EndpointState::Ejected { until: self.ejected_until })
        } else {
            None
        }
    }

    /// Tokens in the KV cache, as scraped.
    pub(crate) fn kv_used(&self) -> Option<f64> {
        Some(self.kv_usage? * self.kv_tokens?)
    }

    /// Whether the KV cache has room for so many tokens; not when the engine does not tell.
    pub(crate) fn has_cache_for(&self, tokens: f64) -> bool {
        let filled = self.kv_usage.zip(self.kv_tokens).map(|(usage, all)| usage + tokens / all);
        filled.is_some_and(|filled| filled < MOST_FILLED)
    }

    /// Notes how the KV cache has grown over `seconds` since the last reading. This `share` of
    /// what is unexplained is taken as tokens that had to be computed.
    ///
    /// Engines count a prompt that is being computed as running, not as waiting, so another
    /// gateway's prompts are seen neither in the queue nor in the own account; but their
    /// blocks are there. What known prompts and decoding explain is taken off.
    pub(crate) fn note_growth(&mut self, before: f64, seconds: f64, share: f64, now: Time) {
        let Some(used) = self.kv_used() else { return };
        let running = self.scraped_running.unwrap_or(0.0);
        let decoded = running * seconds / SHORTEST_STEP;
        let own = self.own.prefill_tokens + self.own.fresh_tokens;
        let foreign = (used - before - decoded - own as f64).max(0.0) * share;
        let computing = Duration::try_from_secs_f64(foreign / 1e3 * self.speed[1]);
        let from = self.foreign_until.max(now);
        self.foreign_until = (from + computing.unwrap_or_default()).min(now + MOST_FOREIGN);
    }

    /// Forgets what the last reading said.
    pub(crate) fn forget_reading(&mut self) {
        self.foreign_until = Time::ZERO;
        self.scraped_waiting = None;
        self.scraped_running = None;
        self.kv_usage = None;
        self.kv_tokens = None;
        self.adapters = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(waiting: f64, running: f64, own: Own) -> (Option<f64>, Option<f64>) {
        let mut row = Row {
            scraped_waiting: Some(waiting),
            scraped_running: Some(running),
            own,
            ..Row::new(EndpointId(1), 1.0, Time::ZERO)
        };
        row.merge();
        (row.waiting, row.running)
    }

    #[test]
    fn requests_sent_since_the_reading_count_on_top() {
        let own = Own { in_flight: 4, fresh_waiting: 3, fresh_running: 1, ..Own::default() };
        assert_eq!(merged(2.0, 10.0, own), (Some(5.0), Some(11.0)));
    }

    #[test]
    fn requests_that_the_reading_shows_are_not_counted_twice() {
        let own = Own { in_flight: 12, ..Own::default() };
        assert_eq!(merged(2.0, 10.0, own), (Some(2.0), Some(10.0)));
    }

    #[test]
    fn requests_on_their_way_while_the_page_was_written_count_as_waiting() {
        let own = Own { in_flight: 4, ..Own::default() };
        assert_eq!(merged(0.0, 1.0, own), (Some(3.0), Some(1.0)));
    }

    #[test]
    fn ended_requests_leave_the_running_batch_but_never_below_zero() {
        let departed = |departed| Own { departed, ..Own::default() };
        assert_eq!(merged(0.0, 2.0, departed(1)), (Some(0.0), Some(1.0)));
        assert_eq!(merged(0.0, 2.0, departed(5)), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn a_missing_signal_stays_missing_whatever_we_have_there() {
        let mut row = Row::new(EndpointId(1), 1.0, Time::ZERO);
        row.own.in_flight = 7;
        row.own.fresh_waiting = 7;
        row.merge();
        assert_eq!((row.waiting, row.running), (None, None));
    }

    /// Half a second after a reading of 10,000 tokens there are 14,000.
    fn grown(own: Own, share: f64) -> f64 {
        let now = Time::from_origin(Duration::from_secs(7));
        let mut row = Row {
            kv_usage: Some(0.14),
            kv_tokens: Some(100_000.0),
            scraped_running: Some(15.0),
            speed: [0.0, 0.2, 0.0, 0.0],
            own,
            ..Row::new(EndpointId(1), 1.0, Time::ZERO)
        };
        row.note_growth(10_000.0, 0.5, share, now);
        row.foreign_until.since(now).as_secs_f64()
    }

    #[test]
    fn growth_that_nobody_here_explains_is_anothers_prompt() {
        // 500 of the tokens are decoded ones.
        assert!((grown(Own::default(), 1.0) - 3.5 * 0.2).abs() < 1e-9);
        assert!((grown(Own::default(), 0.5) - 3.5 * 0.2 / 2.0).abs() < 1e-9);
    }

    #[test]
    fn growth_by_own_prompts_says_nothing_of_others() {
        let own = Own { prefill_tokens: 3_000, fresh_tokens: 600, ..Own::default() };
        assert_eq!(grown(own, 1.0), 0.0);
    }
}
