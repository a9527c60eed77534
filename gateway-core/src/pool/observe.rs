//! What arrives about endpoints: scrapes, probes, orders.

use std::sync::Arc;

use super::residency::Residency;
use super::row::{AdapterSlots, Row};
use super::{Drain, EndpointId, Pool, Probe};
use crate::signals::{GpuSignals, Signals};
use crate::time::Time;

impl Pool {
    /// Takes a reading of the engine's page that arrived at `now`.
    ///
    /// Values that are not finite or negative are taken as missing. A reading
    /// of an unknown endpoint (it has just left) is ignored.
    pub fn observe(&mut self, id: EndpointId, signals: &Signals, now: Time) {
        let Some(slot) = self.slot(id) else {
            return;
        };
        if self.rows[slot].absent {
            return;
        }
        self.settle_whole(slot, now);
        self.close_batches(slot, now);
        let endpoint = &mut self.endpoints[slot];
        endpoint.reading += 1;
        endpoint.read = Some(now);
        read_adapters(&mut self.residency, slot as u32, &endpoint.signals, signals);
        endpoint.signals.clone_from(signals);
        self.company.observe(signals, self.rows[slot].own.in_flight);
        let share = self.unexplained_share();
        take_reading(&mut self.rows[slot], signals, share, now);
        self.refresh_speed(slot, now);
    }

    /// Share of what makes a KV cache grow, known prompts aside, that is taken as others' work.
    ///
    /// Where most of a prompt is found in the prefix cache, its blocks come without work and
    /// growth says little: hence the third power. What peers send is told, not guessed.
    fn unexplained_share(&self) -> f64 {
        let others = if self.guests.is_empty() { 1.0 } else { self.company.others() };
        self.computed_share().powi(3) * others
    }

    /// Takes figures of the endpoint's GPUs.
    ///
    /// A DCGM exporter keeps showing the last XID error for ever, so what counts is the
    /// moment at which a code appears or changes; from then the endpoint is left out
    /// for [`xid_window`](super::PoolSettings::xid_window), or until the code
    /// is gone. A code found at the first look is taken as new.
    pub fn observe_gpu(&mut self, id: EndpointId, gpu: &GpuSignals, now: Time) {
        let Some(slot) = self.slot(id) else {
            return;
        };
        let before = self.endpoints[slot].gpu.xid;
        match gpu.xid {
            Some(0) => self.rows[slot].fault_until = Time::ZERO,
            Some(code) if before != Some(code) => {
                self.rows[slot].fault_until = now + self.settings.xid_window;
            }
            _ => {}
        }
        self.endpoints[slot].gpu = GpuSignals { xid: gpu.xid.or(before), ..*gpu };
        self.refresh(slot);
    }

    /// Takes the result of an active health probe. Counts and what was learnt stay as they are.
    pub fn set_probe(&mut self, id: EndpointId, probe: Probe, now: Time) {
        if let Some(slot) = self.slot(id) {
            self.rows[slot].probe_failing = probe == Probe::Failing;
            self.refresh_speed(slot, now);
        }
    }

    /// Stops or resumes giving the endpoint new requests.
    pub fn set_draining(&mut self, id: EndpointId, draining: Drain) {
        if let Some(slot) = self.slot(id) {
            self.rows[slot].draining = draining == Drain::On;
            self.refresh(slot);
        }
    }

    /// Takes the names of all adapters that the endpoint serves now, as its list of
    /// models tells. A request for one of them goes to no endpoint that has told its
    /// adapters and does not have it.
    pub fn set_adapters(&mut self, id: EndpointId, names: &[Arc<str>]) {
        if let Some(slot) = self.slot(id).filter(|&slot| !self.rows[slot].absent) {
            self.listings.set(slot as u32, names);
        }
    }

    /// Notes that the engine has started anew: its caches and its queue are empty.
    /// Until the next reading it counts as not yet scraped.
    pub fn restarted(&mut self, id: EndpointId, now: Time) {
        if let Some(slot) = self.slot(id) {
            self.forget(slot);
            self.rows[slot].seen = now;
            self.refresh(slot);
        }
    }
}

fn read_adapters(residency: &mut Residency, slot: u32, old: &Signals, new: &Signals) {
    residency.observe(slot, old.adapters.as_ref(), new.adapters.as_ref());
}

fn take_reading(row: &mut Row, signals: &Signals, share: f64, now: Time) {
    let (before, seconds) = (row.kv_used(), now.since(row.seen).as_secs_f64());
    row.seen = row.seen.max(now);
    row.scraped_waiting = sane(signals.waiting);
    row.scraped_running = sane(signals.running);
    row.kv_usage = sane(signals.kv_usage).map(|usage| usage.min(1.0));
    row.kv_tokens = signals
        .blocks
        .zip(signals.block_size)
        .map(|(blocks, size)| f64::from(blocks) * f64::from(size))
        .filter(|&tokens| tokens > 0.0);
    row.adapters = signals.adapters.as_ref().map(|adapters| AdapterSlots {
        max: adapters.max,
        active: (adapters.running.len() + adapters.waiting.len()) as u32,
    });
    if let Some(before) = before {
        row.note_growth(before, seconds, share, now);
    }
    row.own.fresh_tokens = 0;
    row.own.fresh_waiting = 0;
    row.own.fresh_running = 0;
    row.own.departed = 0;
}

/// Counts beyond this are nonsense, not load.
const MOST_REQUESTS: f64 = 1e9;

fn sane(value: Option<f64>) -> Option<f64> {
    value.filter(|value| (0.0..=MOST_REQUESTS).contains(value))
}
