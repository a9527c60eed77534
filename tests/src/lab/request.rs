//! A request as the lab knows it: the truth, and the part of it that a gateway sees.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{AdapterId, EngineRequest};

/// Tokens per block of [`EngineRequest::block_hashes`] everywhere in the lab.
///
/// It is vLLM's block and the gateway's default grid, so that a gateway's idea of a
/// prefix and the engine's are the same, as they are for equal text.
pub const BLOCK_TOKENS: u32 = 16;

/// One request of a scenario.
#[derive(Clone, Debug, Default)]
pub struct LabRequest {
    /// What the engine will do. Its output length and the hashes beyond the prompt are
    /// known to nobody before the answer; only the clairvoyant may read them.
    pub engine: EngineRequest,
    /// Upper bound of the answer that the client names, in tokens.
    pub max_output_tokens: Option<u32>,
    /// Name of the adapter that [`EngineRequest::adapter`] numbers.
    pub adapter: Option<Arc<str>>,
    /// Which of the scenario's models is asked for.
    pub model: u32,
    /// Who asks, for fairness among flows.
    pub tenant: u32,
    /// Conversation or agent run it belongs to; names the session where a client would.
    pub session: Option<u64>,
    /// Priority as `InferenceObjective` has it: 0 is usual, higher more urgent.
    pub priority: i32,
    /// Time to first token within which the answer counts for goodput; `None` takes the
    /// scenario's.
    pub target: Option<Duration>,
}

/// Name of an adapter, in requests and on engines' pages.
#[must_use]
pub fn adapter_name(id: AdapterId) -> String {
    format!("adapter-{:02}", id.0)
}

impl LabRequest {
    /// Chained hashes of the prompt's full blocks: what a gateway computes from its text.
    #[must_use]
    pub fn prompt_blocks(&self) -> &[u64] {
        let full = (self.engine.prompt_tokens / BLOCK_TOKENS) as usize;
        &self.engine.block_hashes[..full.min(self.engine.block_hashes.len())]
    }

    /// Length of the prompt in tokens.
    #[must_use]
    pub fn prompt_tokens(&self) -> u32 {
        self.engine.prompt_tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_the_answer_are_hidden_from_the_gateway() {
        let engine = EngineRequest {
            prompt_tokens: 40,
            output_tokens: 40,
            block_hashes: vec![1, 2, 3, 4],
            ..EngineRequest::default()
        };
        let request = LabRequest { engine, ..LabRequest::default() };
        assert_eq!(request.prompt_blocks(), [1, 2]);
    }
}
