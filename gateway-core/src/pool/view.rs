//! What people and metrics see of a pool.

use std::sync::Arc;
use std::time::Duration;

use super::EndpointId;
use crate::signals::{GpuSignals, Signals};
use crate::time::Time;

/// Whether an endpoint may serve, and if not, the first reason why.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EndpointState {
    /// It finishes what it has and takes nothing new.
    Draining,
    /// It failed too often in a row and is out until then.
    Ejected {
        /// When it returns by itself.
        until: Time,
    },
    /// One of its GPUs reported a fresh XID error.
    GpuFault,
    /// Its active health probe fails.
    ProbeFailing,
    /// It takes requests.
    Serving,
    /// Its signals are too old.
    Stale,
}

impl EndpointState {
    /// Stable name, for labels and the status page.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Draining => "draining",
            Self::Ejected { .. } => "ejected",
            Self::GpuFault => "gpu_fault",
            Self::ProbeFailing => "probe_failing",
            Self::Serving => "serving",
            Self::Stale => "stale",
        }
    }
}

/// One endpoint, for metrics, the status page and the kernel's maps.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointView {
    /// Identity in the pool.
    pub id: EndpointId,
    /// Name as configured or discovered.
    pub name: Arc<str>,
    /// Capacity hint, 1 is typical.
    pub weight: f64,
    /// Whether it may serve.
    pub state: EndpointState,
    /// Last reading of the engine's page, however old.
    pub signals: Signals,
    /// Age of that reading; `None` before the first.
    pub signal_age: Option<Duration>,
    /// Last GPU figures.
    pub gpu: GpuSignals,
    /// This gateway's requests in flight there.
    pub in_flight_requests: u32,
    /// Uncached prompt tokens of those that have not answered yet.
    pub in_flight_tokens: u64,
    /// Requests in flight there that peers tell of.
    pub peer_requests: u32,
    /// Uncached prompt tokens of those that have not answered yet.
    pub peer_tokens: u64,
    /// Requests sent there since it joined.
    pub picks: u64,
    /// Failures in a row that count towards ejection.
    pub consecutive_failures: u32,
    /// Prompt blocks that the prefix index remembers it to hold.
    pub indexed_blocks: u64,
    /// What was learnt of its speed.
    pub speed: SpeedView,
}

/// What was learnt of an endpoint's speed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpeedView {
    /// Prompt tokens computed per second.
    pub prefill_tokens_per_second: f64,
    /// Time to first token of an empty prompt on an idle endpoint.
    pub overhead: Duration,
    /// Answers this was learnt from; old ones count less.
    pub samples: f64,
    /// Mean absolute difference of predicted and actual time to first token.
    pub mean_error: Duration,
    /// Mean of actual minus predicted time to first token, seconds.
    pub bias_seconds: f64,
}

/// Whether the pool can take one more request, for admission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Room {
    /// Every endpoint that may serve is full.
    Full {
        /// Mean load of the endpoints; 1 and above is full.
        saturation: f64,
    },
    /// No endpoint may serve.
    None,
    /// At least one endpoint can take a request.
    Open {
        /// Mean load of the endpoints; 1 and above is full.
        saturation: f64,
    },
}

impl Room {
    /// Mean load of the endpoints; 1 (full) when none may serve, as in the
    /// extension's utilization detector.
    #[must_use]
    pub const fn saturation(self) -> f64 {
        match self {
            Self::Full { saturation } | Self::Open { saturation } => saturation,
            Self::None => 1.0,
        }
    }
}

/// Why a request would go where it would go.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Name of the policy.
    pub policy: &'static str,
    /// Every endpoint of the pool, in id order.
    pub endpoints: Vec<Explained>,
    /// The endpoints one of which a pick would take now, chosen at random;
    /// empty when there is none.
    pub winners: Vec<EndpointId>,
}

/// One endpoint's part in an [`Explanation`].
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// Identity in the pool.
    pub id: EndpointId,
    /// Name as configured or discovered.
    pub name: Arc<str>,
    /// Last reading of the engine's page.
    pub signals: Signals,
    /// This gateway's requests in flight there.
    pub in_flight_requests: u32,
    /// Requests in flight there that peers tell of.
    pub peer_requests: u32,
    /// Prompt tokens of this request that it probably has cached.
    pub cached_tokens: u32,
    /// What became of it.
    pub verdict: Verdict,
}

/// What became of an endpoint in a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A filter dropped it; the text is a stable name.
    Dropped(&'static str),
    /// It was rated; the highest total wins.
    Rated {
        /// Each part by its name. For `weighted` the scores before weighting, 0 to 1;
        /// for `predicted` the seconds that make up the cost.
        scores: Vec<(&'static str, f64)>,
        /// What endpoints are compared by. For `predicted`, minus the cost in seconds.
        total: f64,
    },
}
