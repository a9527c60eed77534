//! What one decision sees.

use crate::policy::speed::Features;
use crate::pool::digest::{Digest, Signs};
use crate::pool::rendezvous::Home;
use crate::pool::residency::Holders;
use crate::pool::row::Row;
use crate::request::RequestView;
use crate::score::lora_affinity::{self, Standing};
use crate::time::Time;

use std::time::Duration;

/// The request and everything known of the endpoints, for one decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) request: &'a RequestView<'a>,
    pub(crate) now: Time,
    /// The same in seconds.
    pub(crate) seconds: f64,
    pub(crate) rows: &'a [Row],
    pub(crate) digests: &'a [Digest],
    pub(crate) signs: &'a [Signs],
    /// Per slot, blocks of the prompt held.
    pub(crate) matched: &'a [u32],
    /// Least prompt tokens that any endpoint is expected to have to compute.
    pub(crate) least_uncached: u32,
    /// Whether the prompt is so long that it gives way to others.
    pub(crate) gives_way: bool,
    /// Where other gateways are expected to have put the prompt.
    pub(crate) rendezvous: Option<Home>,
    pub(crate) block_tokens: u32,
    /// Most blocks that are looked at.
    pub(crate) max_blocks: usize,
    /// Who has the adapter, when one is asked for.
    pub(crate) holders: Option<&'a Holders>,
    pub(crate) session: Option<u32>,
    /// Uncached prompt tokens of a typical request.
    pub(crate) typical_tokens: f64,
    pub(crate) slow_start: Option<Duration>,
}

impl<'a> Scene<'a> {
    pub(crate) fn row(&self, slot: u32) -> &'a Row {
        &self.rows[slot as usize]
    }

    #[inline]
    pub(crate) fn digest(&self, slot: u32) -> &'a Digest {
        &self.digests[slot as usize]
    }

    #[inline]
    pub(crate) fn signs(&self, slot: u32) -> &'a Signs {
        &self.signs[slot as usize]
    }

    /// Blocks of the prompt that count.
    pub(crate) fn blocks(&self) -> u32 {
        self.request.blocks.len().min(self.max_blocks) as u32
    }

    pub(crate) fn matched(&self, slot: u32) -> u32 {
        self.matched[slot as usize]
    }

    /// The slot of the session's endpoint.
    pub(crate) fn session_home(&self) -> Option<u32> {
        self.session
    }

    /// Prompt tokens that the endpoint probably has cached.
    pub(crate) fn cached_tokens(&self, slot: u32) -> u32 {
        self.matched(slot).saturating_mul(self.block_tokens).min(self.request.prompt_tokens)
    }

    /// Prompt tokens that the endpoint has to compute.
    pub(crate) fn uncached_tokens(&self, slot: u32) -> u32 {
        self.request.prompt_tokens - self.cached_tokens(slot)
    }

    /// The same where other gateways may have put it in the cache already.
    #[inline]
    pub(crate) fn expected_uncached(&self, slot: u32) -> u32 {
        match self.rendezvous {
            Some(home) if home.slot == slot => home.uncached(self.uncached_tokens(slot)),
            _ => self.uncached_tokens(slot),
        }
    }

    /// Whether the adapter asked for would have to be loaded.
    pub(crate) fn must_load_adapter(&self, slot: u32) -> bool {
        self.request.adapter.is_some()
            && !self.holders.is_some_and(|holders| holders.resident(slot))
    }

    /// Whether the adapter asked for would have to wait until another one is no longer in
    /// use: it is not there, and every slot is taken by one that is.
    pub(crate) fn must_await_adapter_slot(&self, slot: u32) -> bool {
        let known = self.holders.is_some_and(|holders| holders.in_use(slot));
        !known && self.row(slot).adapters.is_some_and(|slots| slots.active >= slots.max)
    }

    /// Score of [`lora_affinity`].
    pub(crate) fn adapter_score(&self, slot: u32) -> f64 {
        if self.request.adapter.is_none() {
            return 1.0;
        }
        let standing = match self.holders {
            Some(holders) if holders.running.contains(slot) => Standing::Running,
            Some(holders) if holders.waiting.contains(slot) => Standing::Waiting,
            _ => Standing::Absent,
        };
        lora_affinity::score(standing, self.row(slot).adapters)
    }

    /// What this request's time to first token depends on.
    pub(crate) fn features(&self, slot: u32) -> Features {
        self.row(slot).features(self.uncached_tokens(slot))
    }

    /// Predicted time to first token in seconds, loading an adapter aside.
    #[inline]
    pub(crate) fn predicted_ttft(&self, slot: u32) -> f64 {
        self.digest(slot).time_to_first_token(self.uncached_tokens(slot), self.seconds)
    }

    /// What an endpoint's cost is multiplied by while it starts slowly: 10 to 1.
    #[inline]
    pub(crate) fn handicap(&self, slot: u32) -> f64 {
        if self.slow_start.is_some() { self.ramp(slot).recip() } else { 1.0 }
    }

    /// How much of its full share an endpoint should get, 0.1 to 1.
    #[inline]
    pub(crate) fn ramp(&self, slot: u32) -> f64 {
        self.slow_start.map_or(1.0, |slow_start| {
            let age = self.now.since(self.row(slot).joined).as_secs_f64();
            let share = age / slow_start.as_secs_f64();
            if share.is_finite() { share.clamp(0.1, 1.0) } else { 1.0 }
        })
    }
}
