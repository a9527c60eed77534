//! What a decision knows of a request.

use crate::pool::EndpointId;

/// One request, as the policies see it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestView<'a> {
    /// LoRA adapter asked for, when the target model is one.
    pub adapter: Option<&'a str>,
    /// Estimated prompt length in tokens.
    pub prompt_tokens: u32,
    /// Upper bound of the answer in tokens, when the client gave one.
    pub max_output_tokens: Option<u32>,
    /// Chained hashes of the prompt's full blocks, first block first (see
    /// [`crate::prefix`]). Already seeded with model and adapter.
    pub blocks: &'a [u64],
    /// Hash of the session key, when session affinity applies.
    pub session: Option<u64>,
    /// Endpoints that have failed this request already and must not be picked.
    pub tried: &'a [EndpointId],
    /// Whether the answer comes as a stream, so that its first token will be seen.
    pub answer: Answer,
}

/// Hash of a session key, for [`RequestView::session`].
#[must_use]
pub fn session_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh64::xxh64(key, 0)
}

/// How the client wants its answer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Answer {
    /// Token by token.
    #[default]
    Streamed,
    /// In one piece at the end.
    Whole,
}
