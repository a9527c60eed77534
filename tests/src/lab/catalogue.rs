//! The scenarios, by name.
//!
//! An [`Entry`] is a scenario without its load: a fleet, and requests as a function of a
//! rate. What rate is which share of capacity is measured, by [`calibrate`](super::calibrate).

use std::time::Duration;

use fastrand::Rng;

mod adversity;
mod announced;
mod cold;
mod conversations;
mod replay;

use super::scenario::{EngineSpec, Scenario, Scraping, Session};
use crate::engine::{EventDetail, Settings};
use crate::profile::{Gpu, Model, Profile};

/// A scenario without its load.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// The engines.
    pub fleet: fn() -> Vec<EngineSpec>,
    /// Requests at so many per second on average, for so long.
    pub sessions: fn(rate: f64, length: Duration, rng: &mut Rng) -> Vec<Session>,
    /// Time to first token within which an answer is good.
    pub target: Duration,
    /// Loads at which it is usually run, in shares of capacity.
    pub loads: &'static [f64],
    /// What is different about this scenario: faults, replicas, scraping.
    pub twist: fn(&mut Scenario),
}

/// Every scenario.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    let groups = [
        announced::ENTRIES,
        conversations::ENTRIES,
        adversity::ENTRIES,
        cold::ENTRIES,
        replay::ENTRIES,
    ];
    groups.into_iter().flatten()
}

/// Loads of the scenarios that goals are set on: from half idle to more than can be done.
pub const LOADS: &[f64] = &[0.5, 0.7, 0.85, 0.95, 1.1];

/// Loads of the others: busy, all but full, too much.
const USUAL: &[f64] = &[0.7, 0.95, 1.1];

impl Entry {
    /// The scenario with requests from `seed` at `rate` per second.
    #[must_use]
    pub fn scenario(&self, rate: f64, seed: u64, warm_up: Duration, length: Duration) -> Scenario {
        let mut rng = Rng::with_seed(seed);
        let mut scenario = Scenario {
            name: self.name.to_owned(),
            fleet: (self.fleet)(),
            sessions: (self.sessions)(rate, warm_up + length, &mut rng),
            scraping: Scraping::default(),
            faults: Vec::new(),
            replicas: 1,
            exchange: None,
            target: self.target,
            warm_up,
            length,
        };
        (self.twist)(&mut scenario);
        scenario
    }
}

/// `count` engines for `model` on `gpus` GPUs each, or on as few as it needs.
fn engines(count: usize, gpu: Gpu, model: Model, gpus: Option<u32>) -> Vec<EngineSpec> {
    let profile = match gpus {
        Some(gpus) => Profile::tensor_parallel(gpu, model, gpus),
        None => Profile::of(gpu, model),
    };
    // Combinations are constants of this crate; a test starts every fleet.
    let profile = profile.expect("a combination of the catalogue");
    let settings = Settings { events: EventDetail::FirstAndLast, ..Settings::default() };
    vec![EngineSpec { profile, settings }; count]
}

fn plain(_: &mut Scenario) {}
