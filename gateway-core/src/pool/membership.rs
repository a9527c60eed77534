//! Who belongs to the pool.

use std::collections::HashSet;

use super::batch_limit::BatchLimit;
use super::digest::{Digest, Gate, Signs};
use super::endpoint::Endpoint;
use super::row::Row;
use super::{EndpointId, EndpointSpec, Pool, rendezvous};
use crate::time::Time;

impl Pool {
    /// Makes `specs` the pool's endpoints. Level-triggered: the same list again
    /// changes nothing.
    ///
    /// An endpoint with a known name keeps its id and all that is known of it. One
    /// that is not listed leaves; its requests still finish safely. Returns the ids
    /// in the order of `specs`.
    pub fn set_endpoints(&mut self, specs: &[EndpointSpec], now: Time) -> Vec<EndpointId> {
        let ids: Vec<_> = specs.iter().map(|spec| self.join(spec, now)).collect();
        let stay: HashSet<_> = ids.iter().copied().collect();
        for slot in 0..self.rows.len() {
            if !self.rows[slot].absent && !stay.contains(&self.rows[slot].id) {
                self.leave(slot);
            }
        }
        ids
    }

    fn join(&mut self, spec: &EndpointSpec, now: Time) -> EndpointId {
        let weight = if spec.weight.is_finite() && spec.weight > 0.0 { spec.weight } else { 1.0 };
        let known = self.by_name.get(&spec.name).map(|&slot| slot as usize);
        let slot = known.unwrap_or_else(|| self.settle_in(spec, weight, now));
        let row = &mut self.rows[slot];
        row.weight = weight;
        if row.absent {
            row.absent = false;
            row.joined = now;
            row.seen = now;
        }
        let id = row.id;
        self.refresh_speed(slot, now);
        id
    }

    /// Gives a new endpoint a slot.
    fn settle_in(&mut self, spec: &EndpointSpec, weight: f64, now: Time) -> usize {
        let id = EndpointId(self.next_id);
        self.next_id += 1;
        let row = Row::new(id, weight, now);
        let lot = rendezvous::lot(&spec.name);
        let endpoint = Endpoint { name: spec.name.clone(), ..Endpoint::default() };
        let slot = if let Some(slot) = self.vacant.pop() {
            self.rows[slot as usize] = row;
            self.endpoints[slot as usize] = endpoint;
            self.lots[slot as usize] = lot;
            slot
        } else {
            self.gates.push(Gate::of(&row));
            self.digests.push(Digest::default());
            self.signs.push(Signs::default());
            self.loads.push(0.0);
            self.rows.push(row);
            self.endpoints.push(endpoint);
            self.lots.push(lot);
            self.rows.len() as u32 - 1
        };
        self.by_name.insert(spec.name.clone(), slot);
        self.by_id.insert(id, slot);
        slot as usize
    }

    fn leave(&mut self, slot: usize) {
        self.forget(slot);
        let row = &mut self.rows[slot];
        row.absent = true;
        row.draining = false;
        row.probe_failing = false;
        self.refresh(slot);
        self.vacate_if_idle(slot);
    }

    /// Frees the slot of an endpoint that has left once nothing is in flight there.
    pub(super) fn vacate_if_idle(&mut self, slot: usize) {
        let row = &self.rows[slot];
        if row.absent && row.own.in_flight == 0 {
            self.by_id.remove(&row.id);
            self.by_name.remove(&self.endpoints[slot].name);
            self.vacant.push(slot as u32);
        }
    }

    /// Forgets what the engine at `slot` holds and what it said last.
    pub(super) fn forget(&mut self, slot: usize) {
        self.prefixes.forget(slot as u32);
        self.cold.forget(slot as u32);
        let endpoint = &mut self.endpoints[slot];
        let last = std::mem::take(&mut endpoint.signals);
        endpoint.read = None;
        endpoint.batch_limit = BatchLimit::default();
        self.residency.forget(slot as u32, last.adapters.as_ref());
        self.listings.forget(slot as u32);
        self.rows[slot].forget_reading();
        self.refresh(slot);
    }
}
