//! Cache-aware routing of SGLang's model gateway and of vllm-project/router.
//!
//! Source: `policies/cache_aware.rs` in each, with the defaults of their command lines. The
//! load of a worker is this router's own requests in flight there. What became of it in SMG is in
//! [`Smg`](super::Smg).
//!
//! - **Imbalanced** when `max − min > 64` and `max > 1.5 · min`: the least loaded
//!   worker.
//! - **Hit** when more than 0.3 of the prompt is in the tree: a worker that holds the match;
//!   the two differ in which ([`OnHit`]).
//! - **Miss**: the least loaded worker (older versions: the one with the smallest tree).
//!
//! They also differ in who is the least loaded among equals: anyone in `sglang-router`,
//! the first of the list in `vllm-router`. On an idle fleet that is most of the decision.
//!
//! The tree learns where each prompt went, whatever the reason.

use std::collections::HashMap;

use fastrand::Rng;
use gateway_core::Time;

use super::candidates;
use super::tree::Tree;
use crate::lab::policy::{Asked, Decision, Policy, Sight};
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
    /// The worker of the request's session if it names one that is known; else as
    /// [`Self::FirstHolder`] (vllm-project/router). A worker that is gone is taken out of the tree.
    SessionThenFirstHolder,
}

/// The router.
#[derive(Debug)]
pub struct CacheAware {
    on_hit: OnHit,
    tree: Tree,
    sessions: HashMap<u64, usize>,
}

impl CacheAware {
    /// A router that has seen nothing yet.
    #[must_use]
    pub fn new(on_hit: OnHit) -> Self {
        Self { on_hit, tree: Tree::default(), sessions: HashMap::new() }
    }

    fn least_loaded(&self, sight: &Sight<'_>, among: &[usize], rng: &mut Rng) -> Option<usize> {
        let least = among.iter().map(|&at| sight.endpoints[at].in_flight).min();
        let equals = among.iter().copied();
        let mut equals = equals.filter(|&at| Some(sight.endpoints[at].in_flight) == least);
        match self.on_hit {
            OnHit::FirstHolder => rng.choice(equals.collect::<Vec<_>>()),
            OnHit::SessionThenFirstHolder => equals.next(),
        }
    }

    fn is_imbalanced(sight: &Sight<'_>, candidates: &[usize]) -> bool {
        let loads = candidates.iter().map(|&at| sight.endpoints[at].in_flight);
        let (least, most) = (loads.clone().min().unwrap_or(0), loads.max().unwrap_or(0));
        most - least > BALANCE_ABS && f64::from(most) > BALANCE_REL * f64::from(least)
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
        if Self::is_imbalanced(sight, candidates) {
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
