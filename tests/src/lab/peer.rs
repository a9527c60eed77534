//! The policies that others ship, each written from its published formula.
//!
//! They are here to be beaten fairly: with their own defaults, their own reading interval
//! and the index they keep themselves. Where a document and the code of a peer differ, the
//! code counts. Text is known to the lab only as blocks of 16 tokens, so an index of
//! characters becomes one of blocks; that is finer than any prefix the scenarios share.
//!
//! What is left out: limits on tenants, retries and circuit breakers, because the runner
//! repeats a failed request itself and the same for all; and the eviction of
//! router trees of 64 million characters, which no run fills.

use std::time::Duration;

use super::policy::{Asked, Contender, Sight};

mod cache_aware;
mod extension;
mod index;
mod plain;
mod smg;
#[cfg(test)]
mod tests;
mod tree;

pub use cache_aware::{CacheAware, OnHit};
pub use extension::{Extension, Grid, Weights};
pub use plain::{LeastRequest, PowerOfTwo, Random, RoundRobin};
pub use smg::Smg;

/// For policies that do not look at what engines say.
const SELDOM: Duration = Duration::from_secs(1);

/// Every peer.
pub const CONTENDERS: [Contender; 10] = [
    Contender { name: "random", scrape_interval: SELDOM, start: |_| Box::new(Random) },
    Contender {
        name: "round_robin",
        scrape_interval: SELDOM,
        start: |_| Box::new(RoundRobin::default()),
    },
    Contender { name: "least_request", scrape_interval: SELDOM, start: |_| Box::new(LeastRequest) },
    Contender { name: "power_of_two", scrape_interval: SELDOM, start: |_| Box::new(PowerOfTwo) },
    Contender {
        name: "extension",
        scrape_interval: extension::SCRAPE_INTERVAL,
        start: |setup| Box::new(Extension::new(setup, Weights::EXTENSION, Grid::EXTENSION)),
    },
    Contender {
        name: "llm_d",
        scrape_interval: extension::SCRAPE_INTERVAL,
        start: |setup| Box::new(Extension::new(setup, Weights::LLM_D, Grid::LLM_D)),
    },
    Contender {
        name: "llm_d_lora",
        scrape_interval: extension::SCRAPE_INTERVAL,
        start: |setup| Box::new(Extension::new(setup, Weights::LLM_D_LORA, Grid::LLM_D)),
    },
    Contender {
        name: "cache_aware",
        scrape_interval: SELDOM,
        start: |_| Box::new(CacheAware::new(OnHit::FirstHolder)),
    },
    Contender {
        name: "smg",
        scrape_interval: smg::SCRAPE_INTERVAL,
        start: |setup| Box::new(Smg::new(setup)),
    },
    Contender {
        name: "vllm_router",
        scrape_interval: SELDOM,
        start: |_| Box::new(CacheAware::new(OnHit::SessionThenFirstHolder)),
    },
];

/// Endpoints that may get the request, ascending.
fn candidates(asked: &Asked<'_>, sight: &Sight<'_>) -> Vec<usize> {
    let may =
        |endpoint: &usize| sight.endpoints[*endpoint].ready && !asked.tried.contains(endpoint);
    (0..sight.endpoints.len()).filter(may).collect()
}
