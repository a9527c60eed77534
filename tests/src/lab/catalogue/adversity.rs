//! What goes wrong, or gets in the way: adapters that do not all fit, enormous
//! prompts, endpoints that die and come back, signals that come late or not at
//! all, and gateways side by side.

use std::time::Duration;

use fastrand::Rng;
use gateway_core::Time;

use super::announced::{CHAT_ANSWER, CHAT_PROMPT, chat, equal_8b, mixed_8b, shared_prefix};
use super::{Entry, LOADS, USUAL, plain};
use crate::engine::AdapterId;
use crate::lab::scenario::{Exchange, Fault, FaultKind, Scenario, Scraping, Session};
use crate::lab::workload::{Length, Rhythm, Text, zipf};

const TWO_SECONDS: Duration = Duration::from_secs(2);

const BASE: Entry = Entry {
    name: "",
    about: "",
    fleet: mixed_8b,
    sessions: chat,
    target: TWO_SECONDS,
    loads: USUAL,
    twist: plain,
};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "lora_mix_8b",
        about: "20 adapters of unequal popularity, 4 slots per engine, equal GPUs",
        fleet: equal_8b,
        sessions: adapters,
        loads: LOADS,
        ..BASE
    },
    Entry {
        name: "intruder_8b",
        about: "chat-like requests, and one in 60 with 30 to 100 thousand tokens",
        fleet: equal_8b,
        sessions: intruder,
        ..BASE
    },
    Entry {
        name: "failure_8b",
        about: "an endpoint dies and is back cold after a minute, another one joins",
        fleet: equal_8b,
        sessions: shared_prefix,
        twist: |scenario| {
            let fault = |seconds, endpoint, kind| Fault {
                at: Time::from_origin(Duration::from_secs(seconds)),
                endpoint,
                kind,
            };
            scenario.faults = vec![
                fault(90, 2, FaultKind::Down),
                fault(120, 7, FaultKind::Up),
                fault(150, 2, FaultKind::Up),
            ];
        },
        ..BASE
    },
    Entry {
        name: "metrics_late_8b",
        about: "mixed GPUs; engines' pages are read once a second and arrive a second late",
        twist: |scenario| {
            let second = Duration::from_secs(1);
            scenario.scraping = Scraping { interval: Some(second), delay: second, loss: 0.0 };
        },
        ..BASE
    },
    Entry {
        name: "metrics_lost_8b",
        about: "mixed GPUs; two of three readings are lost",
        twist: |scenario| scenario.scraping.loss = 0.67,
        ..BASE
    },
    Entry {
        name: "metrics_gone_8b",
        about: "mixed GPUs; the pages of a quarter of the engines cannot be read for a minute",
        twist: |scenario| {
            for (seconds, kind) in [(90, FaultKind::MetricsOff), (150, FaultKind::MetricsOn)] {
                let at = Time::from_origin(Duration::from_secs(seconds));
                let faults = (0..16).step_by(4).map(|endpoint| Fault { at, endpoint, kind });
                scenario.faults.extend(faults);
            }
        },
        ..BASE
    },
    Entry {
        name: "replicas_8_mixed_8b",
        about: "mixed_8b through 8 gateways that do not know of each other",
        loads: LOADS,
        twist: eight_gateways,
        ..BASE
    },
    Entry {
        name: "replicas_8_prefix_8b",
        about: "shared_prefix_8b through 8 gateways that do not know of each other",
        fleet: equal_8b,
        sessions: shared_prefix,
        loads: LOADS,
        twist: eight_gateways,
        ..BASE
    },
    Entry {
        name: "peers_8_mixed_8b",
        about: "mixed_8b through 8 gateways that tell each other",
        loads: LOADS,
        twist: eight_peers,
        ..BASE
    },
    Entry {
        name: "peers_8_prefix_8b",
        about: "shared_prefix_8b through 8 gateways that tell each other",
        fleet: equal_8b,
        sessions: shared_prefix,
        loads: LOADS,
        twist: eight_peers,
        ..BASE
    },
];

pub(super) fn eight_gateways(scenario: &mut Scenario) {
    scenario.replicas = 8;
}

/// They read each other's reports.
pub(super) fn eight_peers(scenario: &mut Scenario) {
    eight_gateways(scenario);
    scenario.exchange = Some(Exchange::default());
}

/// Each request for one of 20 adapters.
fn adapters(rate: f64, length: Duration, rng: &mut Rng) -> Vec<Session> {
    let moments = Rhythm::Poisson.moments(rate, length, rng);
    let single = |at| {
        let adapter = AdapterId(zipf(20, 0.8, rng));
        let (prompt, answer) = (CHAT_PROMPT.draw(rng), CHAT_ANSWER.draw(rng));
        Session::single(at, Text::new(prompt, rng).request(prompt, answer, Some(adapter)))
    };
    moments.into_iter().map(single).collect()
}

/// Chat-like requests, and now and then a whole book from another tenant.
fn intruder(rate: f64, length: Duration, rng: &mut Rng) -> Vec<Session> {
    const BOOK: Length = Length { median: 50_000.0, spread: 0.3, least: 30_000, most: 100_000 };
    let moments = Rhythm::Poisson.moments(rate, length, rng);
    let single = |at| {
        let is_book = rng.u8(..60) == 0;
        let length = if is_book { BOOK } else { CHAT_PROMPT };
        let (prompt, answer) = (length.draw(rng), CHAT_ANSWER.draw(rng));
        let mut request = Text::new(prompt, rng).request(prompt, answer, None);
        request.tenant = u32::from(is_book);
        // Nobody expects a book to be read in two seconds.
        request.target = is_book.then_some(Duration::from_secs(30));
        Session::single(at, request)
    };
    moments.into_iter().map(single).collect()
}
