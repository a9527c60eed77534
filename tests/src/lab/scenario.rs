//! What is tried: a fleet, the requests that come to it, and what goes wrong.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::Time;

use super::request::LabRequest;
use crate::engine::{Engine, Settings};
use crate::profile::Profile;

/// One experiment, complete: nothing in a run comes from elsewhere.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name on the command line and in results.
    pub name: String,
    /// The engines, by endpoint number.
    pub fleet: Vec<EngineSpec>,
    /// The requests.
    pub sessions: Vec<Session>,
    /// How the gateway's view of the engines comes about.
    pub scraping: Scraping,
    /// What goes wrong, in order of time.
    pub faults: Vec<Fault>,
    /// Gateways side by side, each with a state of its own.
    pub replicas: usize,
    /// How gateways tell each other what they do; `None` when they do not know of each other.
    pub exchange: Option<Exchange>,
    /// Time to first token within which an answer is good.
    pub target: Duration,
    /// Requests that arrive earlier are served but not counted.
    pub warm_up: Duration,
    /// Time after the warm-up in which arrivals count. Later turns of sessions are served
    /// but not counted, for the load falls when no new sessions come.
    pub length: Duration,
}

impl Scenario {
    /// Whether an endpoint is not there from the beginning: the first that happens to it
    /// is that it comes up.
    #[must_use]
    pub fn joins_later(&self, endpoint: usize) -> bool {
        let first = self.faults.iter().find(|fault| fault.endpoint == endpoint);
        first.is_some_and(|fault| fault.kind == FaultKind::Up)
    }
}

/// An engine of the fleet.
#[derive(Clone, Debug)]
pub struct EngineSpec {
    /// Its speed.
    pub profile: Profile,
    /// How it was started.
    pub settings: Settings,
}

impl EngineSpec {
    /// The engine, idle and with an empty cache.
    #[must_use]
    pub fn start(&self) -> Engine {
        Engine::new(self.profile.clone(), self.settings.clone())
    }
}

/// Requests of which each waits for the answer to the one before. An independent
/// request is a session of one turn.
#[derive(Clone, Debug)]
pub struct Session {
    /// When the first request arrives.
    pub start: Time,
    /// The requests, first one first.
    pub turns: Vec<Turn>,
}

/// A request of a session.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Time from the end of the answer before to this request; ignored for the first.
    pub pause: Duration,
    /// The request.
    pub request: Arc<LabRequest>,
}

impl Session {
    /// A request that waits for nobody.
    #[must_use]
    pub fn single(start: Time, request: LabRequest) -> Self {
        Self { start, turns: vec![Turn { pause: Duration::ZERO, request: Arc::new(request) }] }
    }
}

/// How readings of the engines' pages reach a gateway.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scraping {
    /// Time between two readings of one engine; a policy may bring its own.
    pub interval: Option<Duration>,
    /// Age of a reading when it arrives.
    pub delay: Duration,
    /// Share of readings that never arrive, 0 to 1.
    pub loss: f64,
}

impl Default for Scraping {
    /// Each policy's own interval, 2 ms old on arrival, none lost.
    fn default() -> Self {
        Self { interval: None, delay: Duration::from_millis(2), loss: 0.0 }
    }
}

/// How gateways read each other's reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// Time between two questions of one gateway to another.
    pub interval: Duration,
    /// Age of a report when it arrives.
    pub delay: Duration,
}

impl Default for Exchange {
    /// As often as the daemon does by default, and as old on arrival as engines' pages.
    fn default() -> Self {
        Self { interval: Duration::from_millis(25), delay: Duration::from_millis(2) }
    }
}

/// Something that goes wrong, or right again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// When.
    pub at: Time,
    /// At which endpoint.
    pub endpoint: usize,
    /// What.
    pub kind: FaultKind,
}

/// What happens to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// It dies: requests there fail, connections are refused, its page is gone.
    Down,
    /// Its page cannot be read any more; it serves on.
    MetricsOff,
    /// Its page can be read again.
    MetricsOn,
    /// It is back, or there for the first time: idle, with an empty cache.
    Up,
}
