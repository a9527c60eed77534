//! Cache-aware routing of SMG 1.13, over HTTP.
//!
//! Source: `policies/cache_aware.rs`, `policies/least_load.rs` and `worker/monitor.rs`, with
//! the defaults of its command line. What the released program does beyond the source that could be
//! had was asked of the program itself, with workers that answer when they are told to. It has the
//! tree of its ancestors ([`CacheAware`](super::CacheAware)) but another idea of load.
//!
//! - **Overloaded** workers are left out: those that had 8 requests waiting, or a KV cache 0.8
//!   full, at the last poll of the engines' pages, every 10 s. When all are, the one with the
//!   fewest requests in flight gets the request, and the tree does not hear of it.
//! - **Hit**, when more than 0.3 of the prompt is in the tree: the workers that hold the
//!   match, without those that are **hot**: more than 1.5 times the mean of requests in flight, and
//!   above it by more than twice its square root (rounded up; at least 4, at most 64). When all
//!   holders are hot: all workers that are not.
//! - **Miss**: all workers.
//! - Among these the one with the shortest **expected wait** as of the last poll:
//!
//!   `(there + sent since) · 1024 tokens / 2000 tokens/s + 0.15 s · k/(1 − k)`
//!
//!   where `there` is what runs and waits at the worker by its page, or what this router has in flight
//!   there if that is more, and `k` is the usage of the KV cache. Over HTTP it knows no prompt's tokens, so each counts as
//!   1,024; vLLM's page says no tokens per second, so each worker is taken to be as fast as the
//!   others. What ended since the poll does not count. Equals are drawn.
//! - A worker without a page while others have one waits as long as the best of those, and half a
//!   second for each request in flight. When nobody has one: the fewest requests in flight.
//!
//! So between two polls it deals requests out until all have had as many, whatever engines have
//! done with them. A slow engine is noticed up to ten seconds late.

use std::time::Duration;

use fastrand::Rng;
use gateway_core::Time;

use super::candidates;
use super::tree::Tree;
use crate::lab::policy::{Asked, Decision, Policy, Setup, Sight};
use crate::lab::request::BLOCK_TOKENS;

/// `--cache-threshold`.
const CACHE_THRESHOLD: f64 = 0.3;
/// `--balance-abs-threshold`: most requests above the mean that a holder may have in flight.
const BALANCE_ABS: f64 = 64.0;
/// So many requests above the mean it may have in any case.
const LEAST_MARGIN: f64 = 4.0;
/// `--balance-rel-threshold`.
const BALANCE_REL: f64 = 1.5;
/// `--worker-overload-waiting-requests`.
const OVERLOADED_WAITING: f64 = 8.0;
/// `--worker-overload-token-usage`.
const OVERLOADED_KV_USAGE: f64 = 0.8;
/// `--load-monitor-interval`.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// What a request is taken to wait for at a worker, in seconds: 1,024 tokens at 2,000
/// per second.
const REQUEST_SECONDS: f64 = 1024.0 / 2000.0;
/// Price of a KV cache half full, in seconds.
const KV_PRESSURE: f64 = 0.15;

/// How often readings come in; a poll takes the last of each. Its own poll reads all pages at one
/// moment, the lab's readings have phases.
pub(super) const SCRAPE_INTERVAL: Duration = Duration::from_millis(50);

/// A worker at the first poll, which comes before the first request.
const IDLE: Load = Load { there: 0.0, waiting: 0.0, kv_usage: 0.0 };

/// The router.
#[derive(Debug)]
pub struct Smg {
    tree: Tree,
    /// As of the last poll; `None` for a worker whose page was not there.
    polled: Vec<Option<Load>>,
    /// Requests sent to each worker since.
    sent: Vec<u32>,
    /// When the next poll is due; unknown before the first request.
    next_poll: Option<Time>,
    /// Whether the last request found everybody overloaded and went past the policy.
    is_bypassed: bool,
}

/// What a worker's page said.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Requests that run or wait, by the page or by this router's own count.
    there: f64,
    waiting: f64,
    kv_usage: f64,
}

impl Smg {
    /// A router that has polled once, when nobody had anything to do.
    #[must_use]
    pub fn new(setup: &Setup<'_>) -> Self {
        let workers = setup.fleet.len();
        Self {
            tree: Tree::default(),
            polled: vec![Some(IDLE); workers],
            sent: vec![0; workers],
            next_poll: None,
            is_bypassed: false,
        }
    }

    /// Polls if it is time to. Polls begin when the router does, at some time before the first
    /// request, so the next one is due at any time within an interval of that.
    fn poll(&mut self, sight: &Sight<'_>, rng: &mut Rng) {
        let due =
            *self.next_poll.get_or_insert_with(|| sight.now + POLL_INTERVAL.mul_f64(rng.f64()));
        if sight.now < due {
            return;
        }
        let mut next = due;
        while next <= sight.now {
            next += POLL_INTERVAL;
        }
        self.next_poll = Some(next);
        self.take(sight);
    }

    /// Takes the last reading of each worker.
    pub(super) fn take(&mut self, sight: &Sight<'_>) {
        for (endpoint, seen) in sight.endpoints.iter().enumerate() {
            let page = seen.signals.as_ref().filter(|_| seen.ready);
            self.polled[endpoint] = page.map(|page| {
                let waiting = page.waiting.unwrap_or(0.0);
                let there = waiting + page.running.unwrap_or(0.0);
                Load {
                    there: there.max(f64::from(seen.in_flight)),
                    waiting,
                    kv_usage: page.kv_usage.unwrap_or(0.0),
                }
            });
            if page.is_some() {
                self.sent[endpoint] = 0;
            }
        }
    }

    /// Where the request goes; nothing is remembered.
    pub(super) fn choose(
        &self,
        asked: &Asked<'_>,
        sight: &Sight<'_>,
        ready: &[usize],
        rng: &mut Rng,
    ) -> Option<usize> {
        let candidates = self.not_overloaded(ready);
        if candidates.is_empty() {
            let load = |at: &usize| sight.endpoints[*at].in_flight;
            let least = ready.iter().map(load).min();
            let equals = ready.iter().copied().filter(|at| Some(load(at)) == least);
            return rng.choice(equals.collect::<Vec<_>>());
        }
        let candidates = &candidates[..];
        let found = self.tree.find(asked.request.prompt_blocks());
        let matched = found.blocks as f64 * f64::from(BLOCK_TOKENS);
        let is_hit = matched / f64::from(asked.request.prompt_tokens().max(1)) > CACHE_THRESHOLD;
        let holds = |at: &usize| is_hit && found.tenants.contains(at);
        let holders: Vec<usize> = candidates.iter().copied().filter(holds).collect();
        if holders.is_empty() {
            return self.soonest(sight, candidates, rng);
        }
        let cool = |among: &[usize]| -> Vec<usize> {
            among.iter().copied().filter(|&at| !is_hot(sight, candidates, at)).collect()
        };
        let choices = [cool(&holders), cool(candidates)];
        let among = choices.iter().find(|among| !among.is_empty());
        self.soonest(sight, among.map_or(candidates, Vec::as_slice), rng)
    }

    fn not_overloaded(&self, ready: &[usize]) -> Vec<usize> {
        ready.iter().copied().filter(|&at| !self.is_overloaded(at)).collect()
    }

    /// Whether a worker was overloaded at the last poll.
    fn is_overloaded(&self, endpoint: usize) -> bool {
        self.polled[endpoint].is_some_and(|load| {
            load.waiting >= OVERLOADED_WAITING || load.kv_usage >= OVERLOADED_KV_USAGE
        })
    }

    /// The worker with the shortest expected wait; equals are drawn.
    fn soonest(&self, sight: &Sight<'_>, among: &[usize], rng: &mut Rng) -> Option<usize> {
        let known = among.iter().filter_map(|&at| self.expected_wait(at));
        let best_known = known.reduce(f64::min);
        let wait = |at: usize| match (self.expected_wait(at), best_known) {
            (Some(wait), _) => wait,
            (None, Some(best)) => best + f64::from(sight.endpoints[at].in_flight) * REQUEST_SECONDS,
            (None, None) => f64::from(sight.endpoints[at].in_flight),
        };
        let waits: Vec<f64> = among.iter().map(|&at| wait(at)).collect();
        let least = waits.iter().copied().fold(f64::INFINITY, f64::min);
        let equals = among.iter().zip(&waits).filter(|(_, wait)| **wait <= least);
        rng.choice(equals.map(|(at, _)| *at).collect::<Vec<_>>())
    }

    /// In seconds; `None` without a page.
    pub(super) fn expected_wait(&self, endpoint: usize) -> Option<f64> {
        let load = self.polled[endpoint]?;
        let usage = load.kv_usage.clamp(0.0, 0.999);
        let requests = load.there + f64::from(self.sent[endpoint]);
        Some(requests * REQUEST_SECONDS + KV_PRESSURE * usage / (1.0 - usage))
    }
}

/// Whether a worker has too many requests in flight to get one for its cache's sake.
fn is_hot(sight: &Sight<'_>, candidates: &[usize], endpoint: usize) -> bool {
    let total: u32 = candidates.iter().map(|&at| sight.endpoints[at].in_flight).sum();
    let mean = f64::from(total) / candidates.len().max(1) as f64;
    let margin = (2.0 * mean.sqrt()).ceil().clamp(LEAST_MARGIN, BALANCE_ABS);
    let load = f64::from(sight.endpoints[endpoint].in_flight);
    load > mean * BALANCE_REL && load > mean + margin
}

impl Policy for Smg {
    fn decide(&mut self, asked: Asked<'_>, sight: &Sight<'_>, rng: &mut Rng) -> Decision {
        self.poll(sight, rng);
        let candidates = candidates(&asked, sight);
        self.is_bypassed = self.not_overloaded(&candidates).is_empty();
        self.choose(&asked, sight, &candidates, rng).map_or(Decision::Shed, Decision::Send)
    }

    fn picked(&mut self, asked: Asked<'_>, endpoint: usize, _now: Time) {
        if self.is_bypassed {
            return;
        }
        self.sent[endpoint] += 1;
        self.tree.insert(endpoint, asked.request.prompt_blocks());
    }

    fn unlisted(&mut self, endpoint: usize, _now: Time) {
        self.tree.remove(endpoint);
        self.polled[endpoint] = None;
        self.sent[endpoint] = 0;
    }
}
