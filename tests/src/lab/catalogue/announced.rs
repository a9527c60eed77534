//! The scenarios with which such gateways are announced: mixed GPU generations, bursts,
//! common prefixes, and a uniform, steady fleet on which nothing is to be won.

use std::time::Duration;

use fastrand::Rng;

use super::{Entry, LOADS, engines, plain};
use crate::lab::scenario::{EngineSpec, Session};
use crate::lab::workload::{Length, Rhythm, Text, zipf};
use crate::profile::{Gpu, Model};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "mixed_8b",
        about: "8B on four generations of GPUs, chat-like requests",
        fleet: mixed_8b,
        sessions: chat,
        target: Duration::from_secs(2),
        loads: LOADS,
        twist: plain,
    },
    Entry {
        name: "mixed_32b",
        about: "32B on three generations of GPUs, chat-like requests",
        fleet: mixed_32b,
        sessions: chat,
        target: Duration::from_secs(3),
        loads: LOADS,
        twist: plain,
    },
    Entry {
        name: "bursty_70b",
        about: "70B on two generations, bursts at four times the rate of the lulls",
        fleet: bursty_70b,
        sessions: bursts,
        target: Duration::from_secs(5),
        loads: LOADS,
        twist: plain,
    },
    Entry {
        name: "bursty_235b",
        about: "235B on equal nodes, bursts at four times the rate of the lulls",
        fleet: equal_235b,
        sessions: bursts,
        target: Duration::from_secs(5),
        loads: LOADS,
        twist: plain,
    },
    Entry {
        name: "announced_mixed_8b",
        about: "8B on the GPUs of the announcement, H100 and A10G, chat-like requests",
        fleet: announced_8b,
        sessions: chat,
        target: Duration::from_secs(2),
        loads: LOADS,
        twist: plain,
    },
    Entry {
        name: "announced_mixed_32b",
        about: "32B on the GPUs of the announcement, chat-like requests",
        fleet: announced_32b,
        sessions: chat,
        target: Duration::from_secs(3),
        loads: LOADS,
        twist: plain,
    },
    Entry {
        name: "announced_bursty_70b",
        about: "70B on the GPUs of the announcement, bursts at four times the rate of the lulls",
        fleet: announced_70b,
        sessions: bursts,
        target: Duration::from_secs(5),
        loads: LOADS,
        twist: plain,
    },
    Entry {
        name: "shared_prefix_8b",
        about: "8B on equal GPUs, 64 long system prompts of unequal popularity",
        fleet: equal_8b,
        sessions: shared_prefix,
        target: Duration::from_secs(2),
        loads: LOADS,
        twist: plain,
    },
    Entry {
        name: "uniform_235b",
        about: "235B on equal nodes, equal requests at an even pace",
        fleet: equal_235b,
        sessions: uniform,
        target: Duration::from_secs(2),
        loads: LOADS,
        twist: plain,
    },
];

/// One p5.48xlarge and one g5.48xlarge, each GPU with a model of its own.
fn announced_8b() -> Vec<EngineSpec> {
    [engines(8, Gpu::H100, Model::B8, None), engines(8, Gpu::A10G, Model::B8, None)].concat()
}

/// Two p5.48xlarge with four models each, two g5.48xlarge with two.
fn announced_32b() -> Vec<EngineSpec> {
    [engines(8, Gpu::H100, Model::B32, None), engines(4, Gpu::A10G, Model::B32, None)].concat()
}

/// Two p5.48xlarge and two g5.48xlarge with a model each.
fn announced_70b() -> Vec<EngineSpec> {
    let on = |gpu| engines(2, gpu, Model::B70, Some(8));
    [on(Gpu::H100), on(Gpu::A10G)].concat()
}

pub(super) fn mixed_8b() -> Vec<EngineSpec> {
    [Gpu::H100, Gpu::A100, Gpu::L40S, Gpu::A10G]
        .into_iter()
        .flat_map(|gpu| engines(4, gpu, Model::B8, None))
        .collect()
}

fn mixed_32b() -> Vec<EngineSpec> {
    [Gpu::H200, Gpu::A100, Gpu::L40S]
        .into_iter()
        .flat_map(|gpu| engines(4, gpu, Model::B32, None))
        .collect()
}

fn bursty_70b() -> Vec<EngineSpec> {
    let mut fleet = engines(4, Gpu::H100, Model::B70, Some(8));
    fleet.extend(engines(4, Gpu::A100, Model::B70, Some(4)));
    fleet
}

pub(super) fn equal_8b() -> Vec<EngineSpec> {
    engines(8, Gpu::H100, Model::B8, None)
}

fn equal_235b() -> Vec<EngineSpec> {
    engines(8, Gpu::H100, Model::B235, None)
}

pub(super) const CHAT_PROMPT: Length =
    Length { median: 400.0, spread: 1.1, least: 16, most: 16_000 };
pub(super) const CHAT_ANSWER: Length = Length { median: 120.0, spread: 0.8, least: 4, most: 1_024 };

/// Independent chat-like requests with nothing in common.
pub(super) fn chat(rate: f64, length: Duration, rng: &mut Rng) -> Vec<Session> {
    strangers(Rhythm::Poisson, CHAT_PROMPT, CHAT_ANSWER, rate, length, rng)
}

fn bursts(rate: f64, length: Duration, rng: &mut Rng) -> Vec<Session> {
    let rhythm =
        Rhythm::Bursts { high: Duration::from_secs(5), low: Duration::from_secs(15), ratio: 4.0 };
    strangers(rhythm, CHAT_PROMPT, CHAT_ANSWER, rate, length, rng)
}

fn uniform(rate: f64, length: Duration, rng: &mut Rng) -> Vec<Session> {
    let prompt = Length { median: 1_000.0, spread: 0.05, least: 800, most: 1_200 };
    let answer = Length { median: 150.0, spread: 0.05, least: 120, most: 180 };
    strangers(Rhythm::Steady, prompt, answer, rate, length, rng)
}

fn strangers(
    rhythm: Rhythm,
    prompt: Length,
    answer: Length,
    rate: f64,
    length: Duration,
    rng: &mut Rng,
) -> Vec<Session> {
    let moments = rhythm.moments(rate, length, rng);
    let single = |at| {
        let (prompt, answer) = (prompt.draw(rng), answer.draw(rng));
        Session::single(at, Text::new(prompt, rng).request(prompt, answer, None))
    };
    moments.into_iter().map(single).collect()
}

/// Applications with a long system prompt each, and short questions after it.
pub(super) fn shared_prefix(rate: f64, length: Duration, rng: &mut Rng) -> Vec<Session> {
    const QUESTION: Length = Length { median: 150.0, spread: 0.8, least: 16, most: 2_000 };
    // The applications are the same whatever the seed, so that capacity is too.
    let mut authors = Rng::with_seed(64);
    let mut system = |_| {
        let tokens = authors.u32(1_000..4_000);
        (tokens, Text::new(tokens, &mut authors))
    };
    let systems: Vec<(u32, Text)> = (0..64).map(&mut system).collect();
    let moments = Rhythm::Poisson.moments(rate, length, rng);
    let single = |at| {
        let (system, text) = &systems[zipf(64, 0.9, rng) as usize];
        let (prompt, answer) = (system + QUESTION.draw(rng), CHAT_ANSWER.draw(rng));
        // Where the question begins within a block, that block is its own.
        let mut text = text.clone();
        text.cut_to(*system);
        text.grow_to(prompt, rng);
        Session::single(at, text.request(prompt, answer, None))
    };
    moments.into_iter().map(single).collect()
}
