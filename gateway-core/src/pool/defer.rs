//! Long prompts that give way.
//!
//! Most prompts are short, and a few hold much of the work: of lengths as chats have them the
//! longest hundredth holds a tenth. Engines serve first come, first served, so whoever comes
//! behind such a prompt waits for as long as dozens of others take. Here it waits itself while
//! its endpoint has others to compute: it is served later by a few times what it takes to
//! compute, and everybody else sooner (shortest processing time first, with a limit).
//!
//! It has been picked and reserved like any other. Its work counts in the picks of other long
//! prompts only, for the short ones overtake it. In doubt (an adapter, an answer whose first
//! token will not be seen, an idle endpoint) it is sent at once.

use std::time::Duration;

use super::Pool;
use super::hold::can_wait;
use super::lease::LeaseId;
use super::ledger::Stage;
use super::row::Row;
use crate::peer::Sent;
use crate::policy::{PolicySettings, PredictedSettings};
use crate::request::RequestView;
use crate::score::Scene;
use crate::time::Time;

/// A prompt gives way if every endpoint has so many times as much to compute of it as of a
/// typical one.
const LONG: f64 = 8.0;

/// Shorter prompts do not give way, however short the others are: engines compute as many
/// tokens within some hundred milliseconds.
const LEAST: u32 = 1_024;

/// It does so until the prompts before it are shorter than it is by this factor.
const CLEAR: f64 = 0.2;

/// It does so for at most so many times what it takes to compute.
const PATIENCE: f64 = 16.0;

/// A request that gives way, and what the peers will be told when it does no longer.
#[derive(Clone, Debug)]
pub(super) struct Deferred {
    lease: LeaseId,
    untold: Option<Sent>,
}

impl Row {
    /// Uncached tokens of the prompts that are computed before one that would come now.
    fn tokens_ahead(&self, typical_tokens: f64) -> f64 {
        self.own.queued_tokens() as f64 + self.foreign() * typical_tokens
    }
}

impl Pool {
    /// Whether a request with so many tokens to compute, wherever it goes, is one of those that
    /// give way.
    pub(super) fn may_defer(&self, request: &RequestView<'_>, least_uncached: u32) -> bool {
        let typical = self.typical_tokens.unwrap_or(0.0);
        let is_long = least_uncached > LEAST && f64::from(least_uncached) > LONG * typical;
        is_long && can_wait(request) && !self.longest_deferral().is_zero()
    }

    /// Until when a request that was picked for `slot` gives way; `None` when it does not.
    pub(super) fn patience(
        &self,
        scene: &Scene<'_>,
        slot: u32,
        candidates: &[u32],
        now: Time,
    ) -> Option<Time> {
        let tokens = scene.uncached_tokens(slot);
        if !scene.gives_way || self.is_clear(slot, tokens) || self.has_idle(candidates) {
            return None;
        }
        let seconds = self.rows[slot as usize].speed[1] / 1e3 * f64::from(tokens);
        let longest = self.longest_deferral();
        let patience = Duration::try_from_secs_f64(PATIENCE * seconds).unwrap_or(longest);
        Some(now + patience.min(longest))
    }

    /// Requests that give way now.
    #[must_use]
    pub fn deferred(&self) -> u32 {
        self.rows.iter().map(|row| row.own.deferred).sum()
    }

    /// Enters a request that gives way.
    pub(super) fn defer(&mut self, slot: u32, lease: LeaseId, untold: Option<Sent>) {
        self.endpoints[slot as usize].deferred.push(Deferred { lease, untold });
        if !self.deferring.contains(&slot) {
            self.deferring.push(slot);
        }
    }

    /// Lets those go on that have given way for long enough, or to everybody: from now on they
    /// are held as any other.
    pub(super) fn resume_due(&mut self, now: Time) {
        let mut at = 0;
        while let Some(&slot) = self.deferring.get(at) {
            let mut next = 0;
            while next < self.endpoints[slot as usize].deferred.len() {
                if self.has_given_way(slot, next, now) {
                    let deferred = self.endpoints[slot as usize].deferred.remove(next);
                    self.resume(slot, deferred, now);
                } else {
                    next += 1;
                }
            }
            if next == 0 {
                self.deferring.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Whether the deferred request at `place` need not wait any longer, or has ended.
    fn has_given_way(&mut self, slot: u32, place: usize, now: Time) -> bool {
        let LeaseId { place, serial } = self.endpoints[slot as usize].deferred[place].lease;
        let Some(entry) = self.ledger.open(place, serial) else { return true };
        let Stage::Deferred { until } = entry.stage else { return true };
        let tokens = entry.tokens;
        now >= until
            || self.longest_deferral().is_zero()
            || self.is_clear(slot, tokens)
            || !self.serves(slot, now)
    }

    fn resume(&mut self, slot: u32, deferred: Deferred, now: Time) {
        let Deferred { lease, untold } = deferred;
        let Some(entry) = self.ledger.open(lease.place, lease.serial) else { return };
        if !matches!(entry.stage, Stage::Deferred { .. }) {
            return;
        }
        entry.stage = Stage::Held;
        let waited = now.since(entry.picked).as_secs_f64();
        let digest = &self.digests[slot as usize];
        entry.predicted = waited + digest.time_to_first_token(entry.tokens, now.seconds());
        self.rows[slot as usize].resume(entry.tokens);
        self.refresh(slot as usize);
        self.tell_sent(lease, untold, now);
        self.hold(slot, lease);
    }

    /// Whether next to nobody would wait for a prompt of so many `tokens`.
    fn is_clear(&self, slot: u32, tokens: u32) -> bool {
        let ahead = self.rows[slot as usize].tokens_ahead(self.typical_tokens.unwrap_or(0.0));
        ahead <= CLEAR * f64::from(tokens)
    }

    fn longest_deferral(&self) -> Duration {
        match &self.settings.policy {
            PolicySettings::Predicted(PredictedSettings { max_deferral, .. }) => *max_deferral,
            _ => Duration::ZERO,
        }
    }
}
