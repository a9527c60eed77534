//! What goes wrong with endpoints.

use std::time::Duration;

use super::World;
use super::agenda::Happening;
use crate::lab::scenario::{Fault, FaultKind};

/// Time until the orchestrator takes a dead endpoint off its list: a Kubernetes readiness
/// probe with default period (10 s) and one failure.
const UNLISTED_AFTER: Duration = Duration::from_secs(10);

impl World<'_> {
    pub(super) fn strike(&mut self, fault: Fault) {
        let Fault { endpoint, kind, .. } = fault;
        match kind {
            FaultKind::Down => self.take_down(endpoint),
            FaultKind::MetricsOff => self.standing[endpoint].page = false,
            FaultKind::MetricsOn => self.standing[endpoint].page = true,
            FaultKind::Up => self.bring_up(endpoint),
        }
    }

    fn take_down(&mut self, endpoint: usize) {
        let standing = &mut self.standing[endpoint];
        standing.up = false;
        let lost = std::mem::take(&mut standing.requests);
        self.engines[endpoint] = self.scenario.fleet[endpoint].start();
        self.agenda.add(self.now + UNLISTED_AFTER, Happening::Unlisting(endpoint));
        for number in lost.into_values() {
            self.fail(number, endpoint);
        }
    }

    fn bring_up(&mut self, endpoint: usize) {
        let standing = &mut self.standing[endpoint];
        standing.up = true;
        standing.incarnation += 1;
        for number in 0..self.gateways.len() {
            let gateway = &mut self.gateways[number];
            if !gateway.seen[endpoint].ready {
                gateway.seen[endpoint].ready = true;
                gateway.policy.listed(endpoint, self.now);
                self.release(number);
            }
        }
    }

    pub(super) fn unlist(&mut self, endpoint: usize) {
        if self.standing[endpoint].up {
            return; // back in time
        }
        for number in 0..self.gateways.len() {
            let gateway = &mut self.gateways[number];
            gateway.seen[endpoint].ready = false;
            gateway.seen[endpoint].signals = None;
            gateway.policy.unlisted(endpoint, self.now);
            self.release(number);
        }
    }
}
