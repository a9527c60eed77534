//! One gateway replica: its policy, and what it sees.

use std::time::Duration;

use fastrand::Rng;
use gateway_core::Time;

use crate::lab::policy::{Contender, Policy, Seen, Setup};
use crate::lab::scenario::Scenario;

pub(super) struct Gateway {
    pub(super) policy: Box<dyn Policy>,
    pub(super) seen: Vec<Seen>,
    /// Starts of each engine, as far as this gateway has noticed.
    pub(super) incarnations: Vec<u32>,
    pub(super) rng: Rng,
    /// When it will next look at its queue.
    pub(super) woken: Option<Time>,
}

impl Gateway {
    pub(super) fn start(
        scenario: &Scenario,
        contender: &Contender,
        scrape_interval: Duration,
        seed: u64,
        number: usize,
    ) -> Self {
        let setup = Setup { fleet: &scenario.fleet, scrape_interval, exchange: scenario.exchange };
        let mut policy = (contender.start)(&setup);
        let mut endpoints = vec![Seen { ready: true, ..Seen::default() }; scenario.fleet.len()];
        for (number, endpoint) in endpoints.iter_mut().enumerate() {
            if scenario.joins_later(number) {
                endpoint.ready = false;
                policy.unlisted(number, Time::ZERO);
            }
        }
        Self {
            policy,
            incarnations: vec![1; endpoints.len()],
            seen: endpoints,
            rng: rng(seed, number as u64),
            woken: None,
        }
    }
}

/// Which gateway a request comes to: any, whatever the policy and the order of arrivals.
pub(super) fn of_request(seed: u64, number: usize, gateways: usize) -> usize {
    rng(seed, number as u64 | 1 << 32).usize(..gateways)
}

/// A stream of random numbers of its own for each `stream`.
pub(super) fn rng(seed: u64, stream: u64) -> Rng {
    let mut rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ stream);
    rng.fork()
}

impl Seen {
    pub(super) fn sent(&mut self, prompt_tokens: u32) {
        self.in_flight += 1;
        self.unanswered += 1;
        self.unanswered_tokens += u64::from(prompt_tokens);
    }

    pub(super) fn answered(&mut self, prompt_tokens: u32) {
        self.unanswered -= 1;
        self.unanswered_tokens -= u64::from(prompt_tokens);
    }
}
