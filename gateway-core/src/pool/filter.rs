//! Filters: who may take this request.
//!
//! A pick asks the [`Gate`](super::digest::Gate)s, which answer in two comparisons. Only when
//! nobody is left, or somebody asks why, are the rows themselves looked at.

use super::listings::Listed;
use super::row::Row;
use super::{EndpointState, FailureMode, NoEndpoint, Pool, Scraping};
use crate::request::RequestView;
use crate::time::Time;

/// Why a filter dropped an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Dropped {
    /// It does not serve the adapter, and another one does.
    AdapterMissing,
    /// It may serve nobody.
    State(EndpointState),
    /// It has failed this request.
    Tried,
    /// It is at its bound of requests in flight.
    Full,
}

impl Dropped {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AdapterMissing => "adapter_missing",
            Self::State(state) => state.name(),
            Self::Tried => "tried",
            Self::Full => "full",
        }
    }
}

/// What to do with endpoints whose signals are too old.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum IfStale {
    Drop,
    Keep,
}

impl Pool {
    /// The first filter that drops an endpoint.
    pub(super) fn dropped(
        &self,
        slot: u32,
        request: &RequestView<'_>,
        now: Time,
        if_stale: IfStale,
    ) -> Option<Dropped> {
        let row = &self.rows[slot as usize];
        if let Some(state) = row.obstacle(now) {
            return Some(Dropped::State(state));
        }
        if if_stale == IfStale::Drop && self.is_stale(row, now) {
            return Some(Dropped::State(EndpointState::Stale));
        }
        self.unfit(slot, request, self.listed(request))
    }

    fn listed(&self, request: &RequestView<'_>) -> Option<Listed<'_>> {
        request.adapter.and_then(|adapter| self.listings.of(adapter))
    }

    /// Why an endpoint that may serve cannot take this request.
    fn unfit(
        &self,
        slot: u32,
        request: &RequestView<'_>,
        listed: Option<Listed<'_>>,
    ) -> Option<Dropped> {
        if listed.is_some_and(|listed| listed.lacks(slot)) {
            return Some(Dropped::AdapterMissing);
        }
        let row = &self.rows[slot as usize];
        if request.tried.contains(&row.id) {
            return Some(Dropped::Tried);
        }
        let full = |most| row.own.here() >= most;
        self.settings.max_in_flight.is_some_and(full).then_some(Dropped::Full)
    }

    /// Why there is no candidate.
    fn refusal(&self, request: &RequestView<'_>, now: Time) -> NoEndpoint {
        let if_stale = self.if_stale(now);
        let mut tally = Tally::default();
        for slot in self.present() {
            if let Some(dropped) = self.dropped(slot as u32, request, now, if_stale) {
                tally.count(dropped);
            }
        }
        tally.verdict()
    }

    pub(super) fn is_stale(&self, row: &Row, now: Time) -> bool {
        self.settings.scraping == Scraping::On && now.since(row.seen) > self.settings.stale_after
    }

    /// What to do with stale endpoints at `now`: they are used without scraping, and when
    /// the pool fails open and none of those that could serve is fresh.
    pub(super) fn if_stale(&self, now: Time) -> IfStale {
        let ready =
            |row: &Row| !row.absent && row.obstacle(now).is_none() && !self.is_stale(row, now);
        match (self.settings.scraping, self.settings.failure_mode) {
            (Scraping::Off, _) => IfStale::Keep,
            (_, FailureMode::Open) if !self.rows.iter().any(ready) => IfStale::Keep,
            _ => IfStale::Drop,
        }
    }

    /// The oldest reading that may still be routed by.
    pub(super) fn oldest_useful(&self, if_stale: IfStale, now: Time) -> Time {
        match if_stale {
            IfStale::Drop => now - self.settings.stale_after,
            IfStale::Keep => Time::ZERO,
        }
    }

    /// Writes the slots that pass every filter to `candidates`, ascending.
    pub(super) fn sift(
        &self,
        request: &RequestView<'_>,
        now: Time,
        candidates: &mut Vec<u32>,
    ) -> Result<(), NoEndpoint> {
        let oldest = self.oldest_useful(self.if_stale(now), now);
        candidates.clear();
        let gates = self.gates.iter().enumerate();
        candidates.extend(
            gates
                .filter(|(_, gate)| gate.open_from <= now && gate.seen >= oldest)
                .map(|(slot, _)| slot as u32),
        );
        let listed = self.listed(request);
        let any_unfit = !request.tried.is_empty() || self.settings.max_in_flight.is_some();
        if any_unfit || listed.is_some() {
            candidates.retain(|&slot| self.unfit(slot, request, listed).is_none());
        }
        if candidates.is_empty() {
            return Err(self.refusal(request, now));
        }
        Ok(())
    }
}

/// Counts why endpoints were dropped.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    stale: u32,
    ejected: u32,
    draining: u32,
    failing: u32,
    faulty: u32,
    tried: u32,
    full: u32,
}

impl Tally {
    fn count(&mut self, dropped: Dropped) {
        let counter = match dropped {
            // Another one serves it, and is counted for what keeps that one out.
            Dropped::AdapterMissing => return,
            Dropped::Full => &mut self.full,
            Dropped::Tried => &mut self.tried,
            Dropped::State(EndpointState::Draining) => &mut self.draining,
            Dropped::State(EndpointState::Ejected { .. }) => &mut self.ejected,
            Dropped::State(EndpointState::GpuFault) => &mut self.faulty,
            Dropped::State(EndpointState::ProbeFailing) => &mut self.failing,
            Dropped::State(EndpointState::Serving | EndpointState::Stale) => &mut self.stale,
        };
        *counter += 1;
    }

    fn verdict(self) -> NoEndpoint {
        let Self { stale, ejected, draining, failing, faulty, tried, full } = self;
        if full > 0 {
            NoEndpoint::Full
        } else if tried > 0 {
            NoEndpoint::AllTried
        } else if stale + ejected + draining + failing + faulty == 0 {
            NoEndpoint::Empty
        } else {
            NoEndpoint::NoneReady { stale, ejected, draining, failing, faulty }
        }
    }
}
