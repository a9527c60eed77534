//! Cache-aware routing of SGLang's model gateway, of SMG, and of vllm-project/router.
//!
//! Source: `policies/cache_aware.rs` in each, with the defaults of their command lines. The
//! load of a worker is this router's own requests in flight there.
//!
//! - **Imbalanced** when `max − min > 64` and `max > 1.5 · min`: the least loaded
//!   worker.
//! - **Hit** when more than 0.3 of the prompt is in the tree: a worker that holds the match;
//!   the three differ in which ([`OnHit`]).
//! - **Miss**: the least loaded worker (older versions: the one with the smallest tree).
//!
//! They also differ in who is the least loaded among equals: anyone in `sglang-router`,
//! the first of the list in `vllm-router`, the one that served least in SMG. On an idle
//! fleet that is most of the decision.
//!
//! The tree learns where each prompt went, whatever the reason.

use std::collections::HashMap;

use fastrand::Rng;
use gateway_core::Time;

use super::candidates;
use super::tree::Tree;
use crate::lab::policy::{Asked, Decision, Policy, Setup, Sight};
use crate::lab::request::BLOCK_TOKENS;

/// `--cache-threshold`.
const CACHE_THRESHOLD: f64 = 0.3;
/// `--balance-abs-threshold`.
const BALANCE_ABS: u32 = 64;
/// `--balance-rel-threshold`.
const BALANCE_REL: f64 = 1.5;

/// Which holder of a matched prefix gets the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnHit {
    /// The worker that the tree's node names (`sglang-router` 0.3).
    FirstHolder,
    /// The least loaded of all that hold it, unless that has far more than the mean: then
    /// the least loaded of all workers (SMG 1.13). This gate per pick replaces the check for
    /// imbalance.
    LeastLoadedHolder,
    /// The worker of the request's session if it names one that is known; else as
    /// [`Self::FirstHolder`] (vllm-project/router). A worker that is gone is taken out of the tree.
    SessionThenFirstHolder,
}

/// The router.
#[derive(Debug)]
pub struct CacheAware {
    on_hit: OnHit,
    tree: Tree,
    served: Vec<u64>,
    sessions: HashMap<u64, usize>,
}

impl CacheAware {
    /// A router that has seen nothing yet.
    #[must_use]
    pub fn new(setup: &Setup<'_>, on_hit: OnHit) -> Self {
        Self {
            on_hit,
            tree: Tree::default(),
            served: vec![0; setup.fleet.len()],
            sessions: HashMap::new(),
        }
    }

    fn least_loaded(&self, sight: &Sight<'_>, among: &[usize], rng: &mut Rng) -> Option<usize> {
        let least = among.iter().map(|&at| sight.endpoints[at].in_flight).min();
        let equals = among.iter().copied();
        let mut equals = equals.filter(|&at| Some(sight.endpoints[at].in_flight) == least);
        match self.on_hit {
            OnHit::FirstHolder => rng.choice(equals.collect::<Vec<_>>()),
            OnHit::LeastLoadedHolder => equals.min_by_key(|&at| (self.served[at], at)),
            OnHit::SessionThenFirstHolder => equals.next(),
        }
    }

    fn is_imbalanced(sight: &Sight<'_>, candidates: &[usize]) -> bool {
        let loads = candidates.iter().map(|&at| sight.endpoints[at].in_flight);
        let (least, most) = (loads.clone().min().unwrap_or(0), loads.max().unwrap_or(0));
        most - least > BALANCE_ABS && f64::from(most) > BALANCE_REL * f64::from(least)
    }

    /// SMG's gate: whether a holder's load is above both 1.5 times the mean and the mean
    /// plus a margin of 64, or of two standard deviations of so many requests if that is
    /// less, but no less than 4.
    fn is_overloaded(sight: &Sight<'_>, candidates: &[usize], endpoint: usize) -> bool {
        let total: u32 = candidates.iter().map(|&at| sight.endpoints[at].in_flight).sum();
        let mean = f64::from(total) / candidates.len() as f64;
        let load = f64::from(sight.endpoints[endpoint].in_flight);
        let margin = (2.0 * mean.sqrt()).max(4.0).min(f64::from(BALANCE_ABS));
        load > mean * BALANCE_REL && load > mean + margin
    }

    /// Where the request goes; nothing is remembered.
    pub(super) fn choose(
        &self,
        asked: &Asked<'_>,
        sight: &Sight<'_>,
        candidates: &[usize],
        rng: &mut Rng,
    ) -> Option<usize> {
        let least = self.least_loaded(sight, candidates, rng);
        let gated = self.on_hit == OnHit::LeastLoadedHolder;
        if !gated && Self::is_imbalanced(sight, candidates) {
            return least;
        }
        if self.on_hit == OnHit::SessionThenFirstHolder {
            let session = asked.request.session.and_then(|session| self.sessions.get(&session));
            if let Some(endpoint) = session.copied().filter(|at| candidates.contains(at)) {
                return Some(endpoint);
            }
        }
        let found = self.tree.find(asked.request.prompt_blocks());
        let matched = found.blocks as f64 * f64::from(BLOCK_TOKENS);
        if matched / f64::from(asked.request.prompt_tokens().max(1)) <= CACHE_THRESHOLD {
            return least;
        }
        if gated {
            let holders: Vec<usize> =
                found.tenants.iter().copied().filter(|at| candidates.contains(at)).collect();
            let holder = self.least_loaded(sight, &holders, rng);
            return holder.filter(|&at| !Self::is_overloaded(sight, candidates, at)).or(least);
        }
        let named = found.tenants.first().copied().filter(|at| candidates.contains(at));
        named.or(candidates.first().copied())
    }
}

impl Policy for CacheAware {
    fn decide(&mut self, asked: Asked<'_>, sight: &Sight<'_>, rng: &mut Rng) -> Decision {
        let candidates = candidates(&asked, sight);
        self.choose(&asked, sight, &candidates, rng).map_or(Decision::Shed, Decision::Send)
    }

    fn picked(&mut self, asked: Asked<'_>, endpoint: usize, _now: Time) {
        self.served[endpoint] += 1;
        self.tree.insert(endpoint, asked.request.prompt_blocks());
        if let Some(session) = asked.request.session {
            self.sessions.insert(session, endpoint);
        }
    }

    fn unlisted(&mut self, endpoint: usize, _now: Time) {
        if self.on_hit == OnHit::SessionThenFirstHolder {
            self.tree.remove(endpoint);
            self.sessions.retain(|_, at| *at != endpoint);
        }
    }
}
