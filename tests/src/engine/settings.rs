//! What an operator chooses when starting an engine.

/// Scheduler settings, named as vLLM's flags are.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Most sequences in one batch.
    pub max_num_seqs: usize,
    /// Most tokens computed in one step, prefill and decode together.
    pub max_num_batched_tokens: u32,
    /// Tokens per KV block.
    pub block_size: u32,
    /// KV blocks; `None` derives them from the profile's memory.
    pub kv_blocks: Option<u32>,
    /// Whether finished prefixes stay in the cache for reuse.
    pub prefix_caching: PrefixCaching,
    /// `LoRA` adapters that can be resident at once.
    pub max_loras: usize,
    /// How finely events are reported.
    pub events: EventDetail,
}

/// Whether blocks are found again by their hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PrefixCaching {
    /// Every prompt is computed in full.
    Off,
    /// Full blocks are shared by hash.
    On,
}

/// How finely an engine reports progress.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventDetail {
    /// One event per generated token, as a streaming server needs.
    EveryToken,
    /// Only the first token and the end, as an experiment needs; much faster.
    FirstAndLast,
}

impl Default for Settings {
    /// vLLM's defaults for an online server on a large GPU.
    fn default() -> Self {
        Self {
            max_num_seqs: 256,
            max_num_batched_tokens: 8192,
            block_size: 16,
            kv_blocks: None,
            prefix_caching: PrefixCaching::On,
            max_loras: 4,
            events: EventDetail::EveryToken,
        }
    }
}

impl Settings {
    /// Blocks that hold `tokens` tokens.
    #[must_use]
    pub fn blocks_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.block_size)
    }
}
