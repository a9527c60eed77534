//! Engines' pages on their way to the gateways.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::Time;
use gateway_core::signals::{Adapters, Signals};

use super::agenda::Happening;
use super::gateway::rng;
use super::{SAMPLING, World};
use crate::engine::{AdapterId, Engine};
use crate::lab::outcome::Sample;
use crate::lab::request::adapter_name;

/// One gateway's readings of one engine's page.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    gateway: usize,
    endpoint: usize,
    interval: Duration,
    /// Decides which readings are lost.
    rng: fastrand::Rng,
    /// What was read; filled in on the way.
    signals: Option<Arc<Signals>>,
    incarnation: u32,
}

impl World<'_> {
    /// Each gateway reads each engine's page in turn, at a phase of its own.
    pub(super) fn expect_readings(&mut self, interval: Duration, seed: u64) {
        for gateway in 0..self.gateways.len() {
            for endpoint in 0..self.engines.len() {
                let stream = (gateway << 16 | endpoint) as u64 | 1 << 40;
                let mut rng = rng(seed, stream);
                let phase = interval.mul_f64(rng.f64());
                let reading =
                    Reading { gateway, endpoint, interval, rng, signals: None, incarnation: 0 };
                self.agenda.add(Time::from_origin(phase), Happening::Reading(reading));
            }
        }
    }

    /// A gateway reads an engine's page: what it says now arrives after the delay.
    pub(super) fn read(&mut self, mut reading: Reading) {
        let standing = &self.standing[reading.endpoint];
        let lost = reading.rng.f64() < self.scenario.scraping.loss;
        if standing.up && standing.page && !lost {
            let signals = signals(&self.engines[reading.endpoint], self.has_adapters);
            let delivery = Reading {
                signals: Some(Arc::new(signals)),
                incarnation: standing.incarnation,
                ..reading.clone()
            };
            let at = self.now + self.scenario.scraping.delay;
            self.agenda.add(at, Happening::Delivery(Box::new(delivery)));
        }
        let next = self.now + reading.interval;
        self.agenda.add(next, Happening::Reading(reading));
    }

    /// A reading reaches its gateway.
    pub(super) fn deliver(&mut self, reading: Reading) {
        let Reading { gateway: number, endpoint, signals, incarnation, .. } = reading;
        let Some(signals) = signals else { return };
        let gateway = &mut self.gateways[number];
        if gateway.incarnations[endpoint] < incarnation {
            gateway.incarnations[endpoint] = incarnation;
            gateway.policy.restarted(endpoint, self.now);
        }
        gateway.policy.scraped(endpoint, &signals, self.now);
        gateway.seen[endpoint].signals = Some(signals);
        gateway.seen[endpoint].read = self.now;
        self.release(number);
    }

    pub(super) fn sample(&mut self) {
        for (endpoint, engine) in self.engines.iter().enumerate() {
            let load = engine.load();
            self.run.samples.push(Sample {
                at: self.now,
                endpoint,
                waiting: load.waiting() as u32,
                running: load.running as u32,
            });
        }
        self.agenda.add(self.now + SAMPLING, Happening::Sample);
    }
}

/// What the engine's page says.
fn signals(engine: &Engine, has_adapters: bool) -> Signals {
    let load = engine.load();
    let settings = engine.settings();
    Signals {
        waiting: Some(load.waiting() as f64),
        running: Some(load.running as f64),
        kv_usage: Some(load.kv_usage()),
        adapters: has_adapters.then(|| Adapters {
            max: settings.max_loras as u32,
            running: names(&load.running_adapters),
            waiting: names(&load.waiting_adapters),
        }),
        block_size: Some(settings.block_size),
        blocks: Some(load.kv_blocks),
        preemptions: Some(engine.stats().preemptions as f64),
    }
}

fn names(adapters: &[AdapterId]) -> Vec<String> {
    let mut names: Vec<String> = adapters.iter().map(|id| adapter_name(*id)).collect();
    names.sort_unstable();
    names
}
