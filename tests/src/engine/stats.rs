//! What an engine can tell about itself.

use super::request::AdapterId;
use crate::histogram::Histogram;

/// The engine at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Load {
    /// Sequences in the batch.
    pub running: usize,
    /// Requests that wait for a place in the batch or for KV blocks.
    pub waiting_for_capacity: usize,
    /// Requests that wait for a `LoRA` slot.
    pub waiting_deferred: usize,
    /// KV blocks in all.
    pub kv_blocks: u32,
    /// KV blocks held by running sequences.
    pub kv_blocks_used: u32,
    /// Adapters of running sequences, in order of first appearance.
    pub running_adapters: Vec<AdapterId>,
    /// Adapters of waiting requests, in order of first appearance.
    pub waiting_adapters: Vec<AdapterId>,
}

impl Load {
    /// All waiting requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting_for_capacity + self.waiting_deferred
    }

    /// Share of the KV cache in use, 0 to 1.
    #[must_use]
    pub fn kv_usage(&self) -> f64 {
        f64::from(self.kv_blocks_used) / f64::from(self.kv_blocks.max(1))
    }
}

/// Totals since the engine was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Requests ended by [`super::Engine::abort`].
    pub aborted: u64,
    /// Requests that ran to their end.
    pub finished: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Adapters loaded.
    pub adapter_loads: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_queries: u64,
    /// Prompt tokens found there.
    pub prefix_hits: u64,
    /// Tokens computed per step.
    pub step_tokens: Histogram,
}

/// Bucket bounds of vLLM's `iteration_tokens_total`.
pub(crate) const STEP_TOKENS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

impl Default for Stats {
    fn default() -> Self {
        Self {
            aborted: 0,
            finished: 0,
            generation_tokens: 0,
            adapter_loads: 0,
            preemptions: 0,
            prefix_queries: 0,
            prefix_hits: 0,
            step_tokens: Histogram::new(STEP_TOKENS),
        }
    }
}
