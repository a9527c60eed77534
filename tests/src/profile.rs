//! How fast a GPU serves a model.
//!
//! Figures are midpoints of the latency profiles that the llm-d inference
//! simulator publishes (docs/latency-profiles.md there: time to first token at 256
//! prompt tokens, inter-token latency at batch size one, prefill overhead and time
//! per token, KV bytes per token, slow-down under load). `catalogue` has one entry
//! per row and says how the entries without a row are scaled.
//!
//! A step costs the sum of its prefill part and its decode part. Real kernels
//! overlap a little, but the sum has the effect that matters to routing: prompts
//! slow down everyone who is being answered.

use std::time::Duration;

mod catalogue;
#[cfg(test)]
mod tests;

pub use catalogue::{Gpu, Model, NoProfile};

/// The cost model of one engine: a model on one or more GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name for people, such as `8b on h100`.
    pub name: String,
    /// Time that starting prompts adds to a step, however many start.
    pub prefill_overhead: Duration,
    /// Time per prompt token computed.
    pub prefill_per_token: Duration,
    /// Time of a decode step with one sequence and a short context.
    pub decode: Duration,
    /// Time that each further sequence adds to a decode step.
    pub decode_per_sequence: Duration,
    /// Time to read one token's KV, in picoseconds.
    pub kv_read_per_token_picoseconds: u64,
    /// Tokens whose KV fits beside the weights.
    pub kv_tokens: u64,
    /// Time to load an adapter; the batch waits for it.
    pub adapter_load: Duration,
}

/// What one step computes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StepWork {
    /// Prompts whose first chunk is in the step.
    pub prompts_started: u32,
    /// Prompt tokens computed.
    pub prefill_tokens: u32,
    /// Sequences that gain one token.
    pub decoding: u32,
    /// Context of those sequences, in tokens.
    pub kv_tokens: u64,
    /// Adapters loaded first.
    pub adapter_loads: u32,
}

impl Profile {
    /// The profile of `model` on `gpu`, on the smallest number of GPUs in the catalogue.
    ///
    /// # Errors
    ///
    /// [`NoProfile`] when the model does not fit on such GPUs.
    pub fn of(gpu: Gpu, model: Model) -> Result<Self, NoProfile> {
        catalogue::profile(gpu, model, None)
    }

    /// The profile of `model` on `gpus` GPUs of one kind (tensor parallel).
    ///
    /// # Errors
    ///
    /// [`NoProfile`] when the catalogue has no such combination.
    pub fn tensor_parallel(gpu: Gpu, model: Model, gpus: u32) -> Result<Self, NoProfile> {
        catalogue::profile(gpu, model, Some(gpus))
    }

    /// Duration of a step in picoseconds; never zero.
    #[must_use]
    pub fn step_picoseconds(&self, work: &StepWork) -> u64 {
        let mut total = u64::from(work.prefill_tokens) * picoseconds(self.prefill_per_token);
        total += u64::from(work.adapter_loads) * picoseconds(self.adapter_load);
        if work.prompts_started > 0 {
            total += picoseconds(self.prefill_overhead);
        }
        if work.decoding > 0 {
            let others = u64::from(work.decoding - 1);
            total += picoseconds(self.decode) + others * picoseconds(self.decode_per_sequence);
            total += self.kv_read_picoseconds(work.kv_tokens);
        }
        total.max(1)
    }

    /// Time to read the KV of `tokens` tokens, in picoseconds.
    #[must_use]
    pub fn kv_read_picoseconds(&self, tokens: u64) -> u64 {
        tokens * self.kv_read_per_token_picoseconds
    }

    /// KV blocks of `block_size` tokens that fit into memory.
    #[must_use]
    pub fn kv_blocks(&self, block_size: u32) -> u32 {
        u32::try_from(self.kv_tokens / u64::from(block_size.max(1))).unwrap_or(u32::MAX)
    }

    /// Time to first token of a lone, uncached prompt that fits into one step.
    #[must_use]
    pub fn time_to_first_token(&self, prompt_tokens: u32) -> Duration {
        self.prefill_overhead + self.prefill_per_token * prompt_tokens
    }
}

/// A duration in picoseconds; 200 days fit.
fn picoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 1000) * 1000
}
