//! Reports of gateways on their way to other gateways.

use std::time::Duration;

use gateway_core::Time;
use gateway_core::peer::Report;

use super::World;
use super::agenda::Happening;
use super::gateway::rng;

/// One gateway reading another one's reports.
#[derive(Clone, Debug)]
pub(super) struct Talk {
    reader: usize,
    teller: usize,
    interval: Duration,
    /// The number that it asks from.
    since: u64,
    /// What it is told; filled in on the way.
    report: Option<Report>,
}

impl World<'_> {
    /// Each gateway asks each other one in turn, at a phase of its own.
    pub(super) fn expect_talks(&mut self, seed: u64) {
        let Some(exchange) = self.scenario.exchange else { return };
        let interval = exchange.interval;
        for reader in 0..self.gateways.len() {
            for teller in (0..self.gateways.len()).filter(|&teller| teller != reader) {
                let stream = (reader << 16 | teller) as u64 | 1 << 41;
                let phase = interval.mul_f64(rng(seed, stream).f64());
                let talk = Talk { reader, teller, interval, since: 0, report: None };
                self.agenda.add(Time::from_origin(phase), Happening::Talk(Box::new(talk)));
            }
        }
    }

    /// A report is written, or it arrives and the next one will be asked for.
    pub(super) fn talk(&mut self, mut talk: Talk) {
        let Some(exchange) = self.scenario.exchange else { return };
        if let Some(report) = talk.report.take() {
            let written = self.now - exchange.delay;
            let reader = &mut self.gateways[talk.reader];
            reader.policy.heard(talk.teller, &report, written, self.now);
            talk.since = report.next;
            self.release(talk.reader);
            let next = self.now + talk.interval.saturating_sub(exchange.delay);
            self.agenda.add(next, Happening::Talk(Box::new(talk)));
            return;
        }
        let teller = &mut self.gateways[talk.teller];
        talk.report = teller.policy.report(talk.since, self.now);
        if talk.report.is_some() {
            let at = self.now + exchange.delay;
            self.agenda.add(at, Happening::Talk(Box::new(talk)));
        }
    }
}
