//! What gateways tell each other of a pool they share.
//!
//! Each gateway knows its own requests exactly and those of others only as far as an
//! engine's page shows them: late, without their tokens, and without their prefixes. So
//! gateways read each other's news, as they read the engines' pages. A request
//! that a peer sent is then known like an own one: it counts in the queue of its endpoint,
//! its prompt is remembered as held there, and its first token teaches how fast the
//! endpoint is.
//!
//! News have sequence numbers, and a reader names the one it wants next. When
//! those are gone, or when it has never asked, it gets everything that is open and replaces what
//! it knew: a report that is lost costs nothing but time. Moments are told as ages, so
//! no two clocks have to agree. No prompt is told, only hashes of its blocks.

use std::sync::Arc;
use std::time::Duration;

use crate::request::Answer;

/// Names a gateway process; another one after a restart.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PeerId(pub u64);

/// Whether a pool keeps news for other gateways.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Peers {
    /// It does: they will ask.
    Known,
    /// It does not.
    #[default]
    Unknown,
}

/// Blocks of a prompt that are told at most: 8 thousand tokens on the default grid. Who has
/// so much of a prompt has most of its rest.
pub const TOLD_BLOCKS: usize = 512;

/// What a gateway tells of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The sequence number to ask from next.
    pub next: u64,
    /// What the news are to be added to.
    pub scope: Scope,
    /// Tokens per block; hashes of another grid mean nothing to the reader.
    pub block_tokens: u32,
    /// Oldest first.
    pub news: Vec<News>,
}

/// What the news of a [`Report`] are to be added to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// To what was told before.
    Since,
    /// To nothing: requests told of before that are not among the news have ended.
    Whole,
}

/// Something that happened to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct News {
    /// Names the request among all of its gateway.
    pub request: u64,
    /// How long ago.
    pub age: Duration,
    /// What.
    pub what: Event,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It is over, however it ended.
    Ended,
    /// Its first token was seen.
    FirstToken,
    /// It was sent to an endpoint.
    Sent(Sent),
}

/// A request as its gateway sent it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// Name of the endpoint in the pool.
    pub endpoint: Arc<str>,
    /// Estimated prompt length in tokens.
    pub prompt_tokens: u32,
    /// Of these, tokens that were not expected in the endpoint's cache.
    pub uncached_tokens: u32,
    /// Whether its first token will be seen.
    pub answer: Answer,
    /// Chained hashes of the prompt's first blocks.
    pub blocks: Arc<[u64]>,
}
