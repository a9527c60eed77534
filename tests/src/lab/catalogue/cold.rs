//! Gateways that have just started: nothing is learnt, no cache holds anything, and what
//! comes first counts.

use std::time::Duration;

use fastrand::Rng;
use gateway_core::Time;

use super::adversity::{eight_gateways, eight_peers};
use super::announced::shared_prefix;
use super::{Entry, engines};
use crate::lab::scenario::{Scenario, Session};
use crate::lab::workload::{Rhythm, Text};
use crate::profile::{Gpu, Model};

const PREFIX: Entry = Entry {
    name: "cold_prefix_8b",
    about: "long system prompts on 4 equal GPUs, 10 s after a cold start",
    fleet: || engines(4, Gpu::H100, Model::B8, None),
    sessions: shared_prefix,
    target: Duration::from_secs(2),
    loads: &[0.7],
    twist: ten_seconds_in,
};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "cold_mixed_8b",
        about: "the demo: 20 s from a cold start on two generations, half with common beginnings",
        fleet: || {
            let mut fleet = engines(3, Gpu::H100, Model::B8, None);
            fleet.extend(engines(3, Gpu::A10G, Model::B8, None));
            fleet
        },
        sessions: demo,
        target: Duration::from_secs(2),
        loads: &[0.8],
        twist: |scenario| count(scenario, Duration::ZERO, Duration::from_secs(20)),
    },
    PREFIX,
    Entry {
        name: "replicas_8_cold_8b",
        about: "cold_prefix_8b through 8 gateways that do not know of each other",
        twist: |scenario| {
            ten_seconds_in(scenario);
            eight_gateways(scenario);
        },
        ..PREFIX
    },
    Entry {
        name: "peers_8_cold_8b",
        about: "cold_prefix_8b through 8 gateways that tell each other",
        twist: |scenario| {
            ten_seconds_in(scenario);
            eight_peers(scenario);
        },
        ..PREFIX
    },
];

fn ten_seconds_in(scenario: &mut Scenario) {
    count(scenario, Duration::from_secs(10), Duration::from_secs(50));
}

/// Counts requests from `warm_up` on, for `length`, and lets none come later.
fn count(scenario: &mut Scenario, warm_up: Duration, length: Duration) {
    scenario.warm_up = warm_up;
    scenario.length = length;
    let end = Time::from_origin(warm_up + length);
    scenario.sessions.retain(|session| session.start < end);
}

/// What `cargo xtask demo` sends, in tokens.
fn demo(rate: f64, length: Duration, rng: &mut Rng) -> Vec<Session> {
    const SYSTEM_TOKENS: u32 = 600;
    // The applications are the same whatever the seed.
    let mut authors = Rng::with_seed(6);
    let systems: [Text; 6] = std::array::from_fn(|_| Text::new(SYSTEM_TOKENS, &mut authors));
    let moments = Rhythm::Poisson.moments(rate, length, rng);
    let single = |at| {
        let (mut text, system) = if rng.bool() {
            let mut text = systems[rng.usize(..systems.len())].clone();
            text.cut_to(SYSTEM_TOKENS);
            (text, SYSTEM_TOKENS)
        } else {
            (Text::default(), 0)
        };
        let is_short = rng.u8(..10) < 8;
        let own = if is_short { rng.u32(50..400) } else { rng.u32(800..2_400) };
        text.grow_to(system + own, rng);
        Session::single(at, text.request(system + own, rng.u32(16..96), None))
    };
    moments.into_iter().map(single).collect()
}
