//! The Gateway API Inference Extension's endpoint picker, and llm-d's.
//!
//! Source: kubernetes-sigs/gateway-api-inference-extension v1.5 and llm-d-router 0.9,
//! `pkg/epp`. The score of an endpoint is the sum of weight times score over the scorers
//! (each clamped to 0..1); the highest wins and equals are shuffled. With `q` the waiting
//! requests among the candidates:
//!
//! | scorer | formula |
//! |---|---|
//! | queue | (max q − q) / (max q − min q); 1 when all are equal |
//! | kv-cache-utilization | 1 − usage |
//! | prefix-cache | matched blocks / blocks of the prompt |
//! | lora-affinity | 1 if the adapter runs; else 0.8 if running + waiting < max; else 0.6 if it waits; else 0 |
//! | no-hit-lru | 0.5 if any endpoint matched; else 1 − rank/(n − 1), never used first, then longest unused |
//!
//! A signal that was never read counts as zero and one that is old counts as it was: the
//! default profile has no filter for staleness. There is no account of the requests that
//! the picker itself has sent since the last reading.

use std::time::Duration;

use fastrand::Rng;
use gateway_core::Signals;
use gateway_core::Time;

use super::candidates;
use super::index::BlockIndex;
use crate::lab::policy::{Asked, Decision, Policy, Setup, Sight};
use crate::lab::request::{BLOCK_TOKENS, LabRequest};

/// Default of `--refresh-metrics-interval`.
pub(super) const SCRAPE_INTERVAL: Duration = Duration::from_millis(50);

/// Weights of the scorers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weights {
    /// `queue-scorer`.
    pub queue: f64,
    /// `kv-cache-utilization-scorer`.
    pub kv_cache: f64,
    /// `prefix-cache-scorer`.
    pub prefix: f64,
    /// `lora-affinity-scorer`.
    pub lora: f64,
    /// `no-hit-lru-scorer`.
    pub no_hit_lru: f64,
}

impl Weights {
    /// The extension's built-in default.
    pub const EXTENSION: Self =
        Self { queue: 2.0, kv_cache: 2.0, prefix: 3.0, lora: 0.0, no_hit_lru: 0.0 };
    /// llm-d's "optimized baseline".
    pub const LLM_D: Self =
        Self { queue: 2.0, kv_cache: 2.0, prefix: 3.0, lora: 0.0, no_hit_lru: 2.0 };
    /// The default with `LoRA` affinity switched on.
    pub const LLM_D_LORA: Self =
        Self { queue: 2.0, kv_cache: 2.0, prefix: 3.0, lora: 2.0, no_hit_lru: 0.0 };
}

/// How a prompt is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Blocks of the lab in one block here.
    pub factor: usize,
    /// Blocks that are looked at.
    pub most: usize,
    /// Whether a last block that is not full counts.
    pub partial: Partial,
}

/// What becomes of a last block that is not full.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Partial {
    /// It is a block like any other.
    Counted,
    /// It is no block.
    Dropped,
}

impl Grid {
    /// `autoTune` takes the engine's block of 16 tokens; 256 blocks are looked at.
    pub const EXTENSION: Self = Self { factor: 1, most: 256, partial: Partial::Dropped };
    /// Blocks of at least 64 tokens, 2,048 of them, a partial one included.
    pub const LLM_D: Self = Self { factor: 4, most: 2048, partial: Partial::Counted };

    /// The prompt's blocks on this grid.
    fn blocks(&self, request: &LabRequest) -> Vec<u64> {
        let chain = request.prompt_blocks();
        let mut blocks: Vec<u64> = chain
            .chunks(self.factor)
            .filter(|part| part.len() == self.factor || self.partial == Partial::Counted)
            .filter_map(|part| part.last().copied())
            .collect();
        blocks.truncate(self.most);
        blocks
    }
}

/// Blocks per endpoint that the index remembers (`lruCapacityPerServer`) until the engine
/// has told how many it has.
const DEFAULT_CAPACITY: usize = 31_250;

/// The picker.
#[derive(Debug)]
pub struct Extension {
    weights: Weights,
    grid: Grid,
    index: BlockIndex,
    /// When each endpoint last got a request that nobody had cached; 0 is never.
    cold_use: Vec<u64>,
    cold_clock: u64,
}

impl Extension {
    /// A picker that knows nothing yet.
    #[must_use]
    pub fn new(setup: &Setup<'_>, weights: Weights, grid: Grid) -> Self {
        let endpoints = setup.fleet.len();
        Self {
            weights,
            grid,
            index: BlockIndex::new(endpoints, DEFAULT_CAPACITY),
            cold_use: vec![0; endpoints],
            cold_clock: 0,
        }
    }

    /// The candidates' total scores, in their order.
    pub(super) fn scores(
        &self,
        request: &LabRequest,
        sight: &Sight<'_>,
        candidates: &[usize],
    ) -> Vec<f64> {
        let blocks = self.grid.blocks(request);
        let matched = self.index.matches(&blocks);
        let signals = |endpoint: usize| sight.endpoints[endpoint].signals.as_ref();
        let waiting = |endpoint: usize| signals(endpoint).and_then(|s| s.waiting).unwrap_or(0.0);
        let queues = candidates.iter().map(|&endpoint| waiting(endpoint));
        let least = queues.clone().fold(f64::INFINITY, f64::min);
        let most = queues.fold(0.0, f64::max);
        let is_cold = candidates.iter().all(|&endpoint| matched[endpoint] == 0);
        let ranks = is_cold.then(|| self.cold_ranks(candidates));
        let score = |(place, &endpoint): (usize, &usize)| {
            let queue =
                if most > least { (most - waiting(endpoint)) / (most - least) } else { 1.0 };
            let usage = signals(endpoint).and_then(|s| s.kv_usage).unwrap_or(0.0);
            let prefix = matched[endpoint] as f64 / blocks.len().max(1) as f64;
            let lora = lora_affinity(request, signals(endpoint).map(AsRef::as_ref));
            let lru = ranks.as_ref().map_or(0.5, |ranks| ranks[place]);
            self.weights.queue * queue
                + self.weights.kv_cache * (1.0 - usage).clamp(0.0, 1.0)
                + self.weights.prefix * prefix.min(1.0)
                + self.weights.lora * lora
                + self.weights.no_hit_lru * lru
        };
        candidates.iter().enumerate().map(score).collect()
    }

    /// `no-hit-lru` of a request that no candidate has cached.
    fn cold_ranks(&self, candidates: &[usize]) -> Vec<f64> {
        let mut places: Vec<usize> = (0..candidates.len()).collect();
        places.sort_by_key(|&place| self.cold_use[candidates[place]]);
        let last = candidates.len().saturating_sub(1).max(1) as f64;
        let mut ranks = vec![0.0; candidates.len()];
        for (rank, place) in places.into_iter().enumerate() {
            ranks[place] = 1.0 - rank as f64 / last;
        }
        ranks
    }
}

impl Policy for Extension {
    fn decide(&mut self, asked: Asked<'_>, sight: &Sight<'_>, rng: &mut Rng) -> Decision {
        let candidates = candidates(&asked, sight);
        let scores = self.scores(asked.request, sight, &candidates);
        let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let winners = candidates.iter().zip(&scores).filter(|(_, score)| **score >= best);
        rng.choice(winners.map(|(endpoint, _)| *endpoint).collect::<Vec<_>>())
            .map_or(Decision::Shed, Decision::Send)
    }

    fn picked(&mut self, asked: Asked<'_>, endpoint: usize, _now: Time) {
        let blocks = self.grid.blocks(asked.request);
        let is_cold = self.index.matches(&blocks).iter().all(|matched| *matched == 0);
        if is_cold {
            self.cold_clock += 1;
            self.cold_use[endpoint] = self.cold_clock;
        }
        self.index.insert(endpoint, &blocks);
    }

    fn scraped(&mut self, endpoint: usize, signals: &Signals, _now: Time) {
        if let (Some(blocks), Some(size)) = (signals.blocks, signals.block_size) {
            let tokens = u64::from(blocks) * u64::from(size);
            let per_block = u64::from(BLOCK_TOKENS) * self.grid.factor as u64;
            self.index.set_capacity(endpoint, (tokens / per_block) as usize);
        }
    }

    fn unlisted(&mut self, endpoint: usize, _now: Time) {
        self.index.forget(endpoint);
    }
}

fn lora_affinity(request: &LabRequest, signals: Option<&Signals>) -> f64 {
    let Some(adapters) = signals.and_then(|signals| signals.adapters.as_ref()) else {
        return 0.0;
    };
    let among = |names: &[String]| {
        request.adapter.as_deref().is_some_and(|wanted| names.iter().any(|name| name == wanted))
    };
    if among(&adapters.running) {
        1.0
    } else if adapters.running.len() + adapters.waiting.len() < adapters.max as usize {
        0.8
    } else if among(&adapters.waiting) {
        0.6
    } else {
        0.0
    }
}
