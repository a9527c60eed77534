//! Prompts that are held back while a batch is full, so that they start together.
//!
//! A step that starts prompts takes longer, however many start. An engine whose batch is
//! full starts one whenever one ends, and so pays that price in every step: it gets
//! through less the more it is asked for. Held back until a lot of places is free,
//! prompts start together, one step pays, and who waits is served sooner.
//!
//! A held request has been picked and reserved like any other; only its sending waits. The
//! order of one endpoint's requests stays that of their picks. Where anything is in doubt
//! (no limit learnt, no readings, requests of others there, an adapter, an answer whose first
//! token will not be seen, an endpoint idle) it is sent at once.

use std::time::Duration;

use super::filter::IfStale;
use super::lease::LeaseId;
use super::ledger::{Entry, Stage};
use super::row::Row;
use super::{EndpointId, Pool, Scraping};
use crate::policy::{Lots, PolicySettings, PredictedSettings};
use crate::request::{Answer, RequestView};
use crate::time::Time;

/// Places of a batch for each one in a lot. What stays empty meanwhile is half of that.
const PLACES_PER_ONE: f64 = 32.0;

/// A smaller lot is not worth waiting for.
const LEAST_LOT: f64 = 2.0;

/// An engine that has no more than so many times this gateway's requests, and [`FEW`], has no
/// others: a reading may be old.
const OTHERS: f64 = 1.1;

/// Requests that may have ended since a reading.
const FEW: f64 = 2.0;

/// Where a batch gets no emptier for so long, the next lot goes anyway and waits in the engine.
const LONGEST_SHUT: Duration = Duration::from_secs(3);

impl Row {
    /// Requests in the running batch, prompts that are being computed aside.
    pub(super) fn at_work(&self) -> f64 {
        let own = f64::from(self.own.in_flight - self.own.prefilling);
        self.running.unwrap_or(0.0).max(own)
    }

    /// This gateway's requests in the engine.
    fn sent(&self) -> f64 {
        f64::from(self.own.here() - self.own.held)
    }

    /// Requests in the engine, running or waiting, as far as it tells.
    fn told(&self) -> Option<f64> {
        Some(self.waiting? + self.running?)
    }

    /// Whether all that the engine has comes from this gateway: else others take the places that
    /// are kept free, and prompts are left behind for theirs. Not when it does not tell.
    pub(super) fn is_ours(&self) -> bool {
        self.told().is_some_and(|told| told <= OTHERS * self.sent() + FEW)
    }
}

/// Whether requests go to an endpoint whose batch may be full.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Valve {
    /// Since when nothing goes there and the engine gets no emptier.
    shut: Option<Time>,
    /// The fewest requests that were in the engine since then.
    fewest: f64,
    /// Requests in the engine up to which it stays open, if these are more than its limit.
    raised: f64,
    /// Whether it stays open beyond the limit, to see if there still is one.
    testing: bool,
}

impl Valve {
    /// Whether requests have to wait, with so many `inside` an engine that runs at most `limit`.
    fn is_shut(&mut self, inside: f64, limit: f64, doubted: bool, now: Time) -> bool {
        let lot = (limit / PLACES_PER_ONE).floor();
        if lot < LEAST_LOT {
            *self = Self::default();
            return false;
        }
        if let Some(since) = self.shut {
            if inside < self.fewest {
                (self.shut, self.fewest) = (Some(now), inside);
            }
            if inside + lot <= limit {
                self.testing = doubted;
            } else if now.since(since) >= LONGEST_SHUT {
                self.raised = inside + lot;
            } else {
                return true;
            }
            self.shut = None;
        }
        self.testing &= doubted;
        let tested = if self.testing { limit + lot + 2.0 } else { 0.0 };
        let is_full = inside >= limit.max(self.raised).max(tested);
        if is_full {
            *self = Self { shut: Some(now), fewest: inside, ..Self::default() };
        }
        is_full
    }
}

/// Whether a request may wait in the gateway after its pick: not for an adapter besides, and
/// only if its first token will be seen.
pub(super) fn can_wait(request: &RequestView<'_>) -> bool {
    request.adapter.is_none() && request.answer == Answer::Streamed
}

impl Pool {
    /// Whether a request that was picked for `slot` has to wait for a lot.
    pub(super) fn must_hold(
        &mut self,
        slot: u32,
        request: &RequestView<'_>,
        candidates: &[u32],
        now: Time,
    ) -> bool {
        let waits = self.rows[slot as usize].own.held_for_lots() > 0 || self.is_shut(slot, now);
        can_wait(request) && waits && !self.has_idle(candidates)
    }

    /// Whether one of the candidates has nothing to do.
    pub(super) fn has_idle(&self, candidates: &[u32]) -> bool {
        candidates.iter().any(|&slot| self.digests[slot as usize].is_idle())
    }

    /// Whether requests for `slot` have to wait now.
    fn is_shut(&mut self, slot: u32, now: Time) -> bool {
        let row = &self.rows[slot as usize];
        let may_wait = self.forms_lots() && row.is_ours() && self.serves(slot, now);
        let inside = row.sent().max(row.told().unwrap_or(0.0));
        let endpoint = &mut self.endpoints[slot as usize];
        match endpoint.batch_limit.known() {
            Some(limit) if may_wait => {
                let doubted = endpoint.batch_limit.is_doubted(now);
                endpoint.valve.is_shut(inside, limit, doubted, now)
            }
            _ => false,
        }
    }

    fn forms_lots(&self) -> bool {
        let wanted = matches!(
            &self.settings.policy,
            PolicySettings::Predicted(PredictedSettings { lots: Lots::On, .. })
        );
        // Only readings tell when others have left, and only they come regularly.
        wanted && self.settings.scraping == Scraping::On
    }

    pub(super) fn serves(&self, slot: u32, now: Time) -> bool {
        let row = &self.rows[slot as usize];
        let is_fresh = !self.is_stale(row, now) || self.if_stale(now) == IfStale::Keep;
        !row.absent && row.obstacle(now).is_none() && is_fresh
    }

    /// Whether an endpoint may serve. A held request whose endpoint may not is picked anew.
    #[must_use]
    pub fn is_serving(&self, id: EndpointId, now: Time) -> bool {
        self.slot(id).is_some_and(|slot| self.serves(slot as u32, now))
    }

    /// Enters a request that waits for its lot.
    pub(super) fn hold(&mut self, slot: u32, lease: LeaseId) {
        let held = &mut self.endpoints[slot as usize].held;
        held.push_back(lease);
        if !self.holding.contains(&slot) {
            self.holding.push(slot);
        }
    }

    /// The next held request whose time has come: it counts as sent, and has to be sent now.
    /// Asked after whatever happens to the pool, until it answers `None`.
    pub fn next_due(&mut self, now: Time) -> Option<LeaseId> {
        self.resume_due(now);
        let mut at = 0;
        while let Some(&slot) = self.holding.get(at) {
            match self.first_held(slot) {
                None => {
                    self.holding.swap_remove(at);
                }
                Some(_) if self.is_shut(slot, now) => at += 1,
                Some(lease) => {
                    self.endpoints[slot as usize].held.pop_front();
                    self.dispatch(lease, now);
                    return Some(lease);
                }
            }
        }
        None
    }

    /// Requests that wait for their lots.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.rows.iter().map(|row| row.own.held_for_lots()).sum()
    }

    /// The first that still waits at `slot`.
    fn first_held(&mut self, slot: u32) -> Option<LeaseId> {
        while let Some(&lease) = self.endpoints[slot as usize].held.front() {
            let entry = self.ledger.open(lease.place, lease.serial);
            if entry.is_some_and(|entry| entry.stage == Stage::Held) {
                return Some(lease);
            }
            self.endpoints[slot as usize].held.pop_front();
        }
        None
    }

    /// Enters a held request as sent at `now`.
    pub(super) fn dispatch(&mut self, lease: LeaseId, now: Time) {
        let Some(entry) = self.ledger.open(lease.place, lease.serial) else { return };
        let slot = entry.slot as usize;
        match entry.stage {
            Stage::Deferred { .. } => self.rows[slot].resume(entry.tokens),
            Stage::Held => {}
            Stage::Decode | Stage::Prefill => return,
        }
        entry.stage = Stage::Prefill;
        entry.sent = now;
        entry.reading = self.endpoints[slot].reading;
        let tokens = entry.tokens;
        self.rows[slot].dispatch(tokens, now);
        self.refresh(slot);
    }

    /// Takes out a request that ended before it was sent.
    pub(super) fn withdraw(&mut self, entry: &Entry) {
        let row = &mut self.rows[entry.slot as usize];
        if entry.stage != Stage::Held {
            row.resume(entry.tokens);
        }
        row.withdraw(entry.tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::from_origin(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_full_batch_shuts_the_valve_until_a_lot_of_places_is_free() {
        let mut valve = Valve::default();
        let mut is_shut = |inside| valve.is_shut(inside, 256.0, false, at(0));
        assert!(!is_shut(255.0));
        assert!(is_shut(256.0) && is_shut(249.0));
        assert!(!is_shut(248.0) && !is_shut(255.0));
        assert!(is_shut(256.0));
    }

    #[test]
    fn small_batches_are_not_worth_waiting_for() {
        assert!(!Valve::default().is_shut(70.0, 63.0, false, at(0)));
        assert!(Valve::default().is_shut(70.0, 64.0, false, at(0)));
    }

    #[test]
    fn a_batch_that_gets_no_emptier_gets_its_lot_anyway() {
        let mut valve = Valve::default();
        assert!(valve.is_shut(300.0, 256.0, false, at(0)));
        // As long as it gets emptier, there is no hurry.
        assert!(valve.is_shut(290.0, 256.0, false, at(2_900)));
        assert!(valve.is_shut(290.0, 256.0, false, at(5_800)));
        for more in 0..8 {
            assert!(!valve.is_shut(290.0 + f64::from(more), 256.0, false, at(5_900)));
        }
        assert!(valve.is_shut(298.0, 256.0, false, at(5_900)));
    }

    #[test]
    fn a_doubted_limit_is_tested_once_there_is_room() {
        let mut valve = Valve::default();
        assert!(valve.is_shut(256.0, 256.0, true, at(0)));
        assert!(!valve.is_shut(248.0, 256.0, true, at(1)));
        assert!(!valve.is_shut(265.0, 256.0, true, at(2)));
        // Confirmed: what is beyond the limit waits there.
        assert!(valve.is_shut(265.0, 256.0, false, at(3)));
    }
}
