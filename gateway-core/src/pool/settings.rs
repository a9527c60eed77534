//! How a pool decides: every knob, with its default and its unit.

use std::time::Duration;

use crate::health::EjectionSettings;
use crate::peer::Peers;
use crate::policy::PolicySettings;
use crate::prefix::hash::DEFAULT_MAX_BLOCKS;

/// Settings of one pool. `Default` is what a pool without configuration gets.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    /// How the endpoint is chosen among those that may serve.
    pub policy: PolicySettings,
    /// Whether endpoints are scraped at all; without scraping none goes stale.
    pub scraping: Scraping,
    /// Age at which signals are too old to route by; the endpoint is left out
    /// until a fresh reading arrives.
    pub stale_after: Duration,
    /// What to do while every endpoint that could serve is stale.
    pub failure_mode: FailureMode,
    /// The index of who holds which prefix.
    pub prefix: PrefixSettings,
    /// Passive health: leaving out endpoints that keep failing.
    pub ejection: EjectionSettings,
    /// Hard bound of this gateway's requests in flight at one endpoint.
    pub max_in_flight: Option<u32>,
    /// When an endpoint counts as full for admission.
    pub saturation: SaturationSettings,
    /// How long after a GPU's XID error the endpoint is left out.
    pub xid_window: Duration,
    /// How long a new endpoint's share grows until it is a full member.
    pub slow_start: Option<Duration>,
    /// Whether other gateways send to the same endpoints and read what this one does.
    pub peers: Peers,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            policy: PolicySettings::default(),
            scraping: Scraping::On,
            stale_after: Duration::from_secs(2),
            failure_mode: FailureMode::Closed,
            prefix: PrefixSettings::default(),
            ejection: EjectionSettings::default(),
            max_in_flight: None,
            saturation: SaturationSettings::default(),
            xid_window: Duration::from_mins(5),
            slow_start: None,
            peers: Peers::Unknown,
        }
    }
}

/// Whether the pool's endpoints are scraped.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Scraping {
    /// No signals are expected; endpoints are judged by own requests alone.
    Off,
    /// Signals arrive by [`observe`](super::Pool::observe).
    #[default]
    On,
}

/// What to do while every endpoint that could serve is stale.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FailureMode {
    /// Refuse: nothing is known, and the request may wait or be retried.
    #[default]
    Closed,
    /// Route by the last known signals and own requests in flight.
    Open,
}

/// The index of who holds which prefix (see [`crate::prefix::index`]).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PrefixSettings {
    /// Tokens per block of the pool's grid.
    pub block_tokens: u32,
    /// Blocks of a prompt that are looked at; the rest is taken as not cached.
    pub max_blocks: usize,
    /// Blocks remembered per endpoint, least recently used first to go.
    pub capacity_blocks_per_endpoint: usize,
}

impl Default for PrefixSettings {
    fn default() -> Self {
        Self {
            block_tokens: 16,
            max_blocks: DEFAULT_MAX_BLOCKS,
            capacity_blocks_per_endpoint: 31_250,
        }
    }
}

/// When an endpoint counts as full, after the extension's utilization detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SaturationSettings {
    /// Waiting requests at which an endpoint is full.
    pub queue_depth: u32,
    /// KV-cache use, 0 to 1, at which an endpoint is full.
    pub kv_usage: f64,
    /// Requests sent since the last reading that an endpoint without a queue
    /// is trusted to take at once. Without this allowance a fast model
    /// would look full between two readings; without a bound a burst would
    /// all go on one old picture.
    pub burst: u32,
}

impl Default for SaturationSettings {
    fn default() -> Self {
        Self { queue_depth: 5, kv_usage: 0.8, burst: 16 }
    }
}
