//! What goes into an engine and what comes out.

use gateway_core::Time;

/// Names a request within one engine; never reused.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub(super) u64);

/// Names a `LoRA` adapter; the caller keeps the table of names.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AdapterId(pub u32);

/// One request as the scheduler sees it: sizes and identities, no text.
#[derive(Clone, Debug, Default)]
pub struct EngineRequest {
    /// Length of the prompt in tokens; at least one is assumed.
    pub prompt_tokens: u32,
    /// Tokens the model will generate; zero for pooling (embeddings, scores).
    pub output_tokens: u32,
    /// Why generation ends after `output_tokens`.
    pub finish: FinishReason,
    /// Chained hashes of the leading full blocks of prompt plus output, as far as
    /// they are known. Blocks beyond are private and never reused.
    pub block_hashes: Vec<u64>,
    /// The adapter the request needs.
    pub adapter: Option<AdapterId>,
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum FinishReason {
    /// The token limit was reached.
    Length,
    /// The model ended its answer, or a stop string matched.
    #[default]
    Stop,
}

/// Something that happened to a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Event {
    /// When it happened.
    pub at: Time,
    /// To which request.
    pub request: RequestId,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a request, in the order of its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventKind {
    /// It joined the batch; `cached_tokens` of its prompt were in the prefix cache.
    Scheduled {
        /// Tokens that need no computation.
        cached_tokens: u32,
    },
    /// Its first token exists.
    FirstToken,
    /// A further token exists (only with [`super::EventDetail::EveryToken`]).
    Token,
    /// It lost its KV blocks to an older request and will be computed again.
    Preempted,
    /// It ended by itself; an abort makes no event.
    Finished(Ended),
}

/// The whole story of a request that ran to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ended {
    /// Why it ended.
    pub reason: FinishReason,
    /// When it was submitted.
    pub arrived: Time,
    /// When it first joined a batch.
    pub scheduled: Time,
    /// When its first token (or, for pooling, its result) existed.
    pub first_token: Time,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Prompt tokens taken from the prefix cache when it was first scheduled.
    pub cached_tokens: u32,
    /// Tokens generated.
    pub output_tokens: u32,
    /// How often it was preempted.
    pub preemptions: u32,
}

/// A request that this engine could never run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("request needs {needed} KV blocks of {capacity}; shorten prompt or max_tokens")]
pub struct TooLarge {
    /// Blocks for prompt and output.
    pub needed: u32,
    /// Blocks the engine has.
    pub capacity: u32,
}
