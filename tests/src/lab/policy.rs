//! What every policy under test implements.
//!
//! A policy stands where a gateway stands. [`Sight`] is all that a gateway can see;
//! what it remembers (in-flight tokens, a prefix index, sessions) it keeps itself,
//! from what [`Policy::picked`] and the other hooks tell it. One policy value is one gateway
//! replica.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use gateway_core::peer::Report;
use gateway_core::{Signals, Time};

use super::request::LabRequest;
use super::scenario::{EngineSpec, Exchange};
use crate::engine::Engine;

/// A request on its way through a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Names the request in every hook.
    pub number: usize,
    /// The request; cheap to clone for a policy that holds it.
    pub request: &'a Arc<LabRequest>,
    /// Endpoints that have failed it already and must not be named again.
    pub tried: &'a [usize],
}

/// What a policy decides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// It waits in the gateway; [`Policy::release`] will name it (late binding).
    Hold,
    /// It goes to this endpoint now.
    Send(usize),
    /// It is refused.
    Shed,
}

/// How a request ended, as the gateway sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// The answer was complete.
    Completed {
        /// Its length.
        output_tokens: u32,
        /// Prompt tokens that came from the prefix cache, as the engine's usage says.
        cached_tokens: u32,
    },
    /// The endpoint refused the connection or died.
    Failed,
}

/// What a gateway sees when it decides.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// The time.
    pub now: Time,
    /// By endpoint number.
    pub endpoints: &'a [Seen],
    /// The engines as they are. No gateway sees them; only the clairvoyant may look.
    pub truth: &'a [Engine],
}

/// One endpoint as a gateway sees it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The last reading of its page, unchanged.
    pub signals: Option<Arc<Signals>>,
    /// When that reading arrived.
    pub read: Time,
    /// Whether the orchestrator lists it as ready (a dead one stays listed for a while).
    pub ready: bool,
    /// This gateway's requests in flight there.
    pub in_flight: u32,
    /// Of these, without a first token yet.
    pub unanswered: u32,
    /// Prompt tokens of those without a first token.
    pub unanswered_tokens: u64,
}

/// A routing policy, as one gateway replica runs it. The runner calls every hook in
/// order of time.
pub trait Policy {
    /// Decides on a request that has just arrived, or whose last endpoint failed it.
    fn decide(&mut self, asked: Asked<'_>, sight: &Sight<'_>, rng: &mut Rng) -> Decision;

    /// Names a held request that may go now, or is refused now, and where to. Asked after
    /// every event until it answers `None`; an answer of [`Decision::Hold`] is taken as `None`.
    fn release(&mut self, _sight: &Sight<'_>, _rng: &mut Rng) -> Option<(usize, Decision)> {
        None
    }

    /// When [`Self::release`] wants to be asked even if nothing else happens.
    fn wake(&self) -> Option<Time> {
        None
    }

    /// The request was sent to `endpoint`.
    fn picked(&mut self, _asked: Asked<'_>, _endpoint: usize, _now: Time) {}

    /// The first token of the answer was seen.
    fn first_token(&mut self, _number: usize, _endpoint: usize, _now: Time) {}

    /// The request ended at `endpoint`.
    fn finished(&mut self, _number: usize, _endpoint: usize, _ending: Ending, _now: Time) {}

    /// The orchestrator lists the endpoint (again). At the start all are listed.
    fn listed(&mut self, _endpoint: usize, _now: Time) {}

    /// The orchestrator has taken the endpoint off its list.
    fn unlisted(&mut self, _endpoint: usize, _now: Time) {}

    /// The engine has started anew: its queue and its caches are empty.
    fn restarted(&mut self, _endpoint: usize, _now: Time) {}

    /// A reading of an engine's page arrived.
    fn scraped(&mut self, _endpoint: usize, _signals: &Signals, _now: Time) {}

    /// What it tells another gateway that has heard everything before number `since`; `None` when
    /// it tells nothing.
    fn report(&mut self, _since: u64, _now: Time) -> Option<Report> {
        None
    }

    /// A report of the gateway `peer` arrived, which was written at `_written`.
    fn heard(&mut self, _peer: usize, _report: &Report, _written: Time, _now: Time) {}
}

/// What a policy may know of the fleet when a gateway starts: what is in its configuration.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The engines. Speeds are for the clairvoyant; a gateway knows how many there are
    /// and the flags they were started with.
    pub fleet: &'a [EngineSpec],
    /// Time between two readings of one engine's page.
    pub scrape_interval: Duration,
    /// How gateways tell each other what they do, if they do.
    pub exchange: Option<Exchange>,
}

/// A policy by name, and how to start a gateway with it.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// How often it reads the engines' pages unless the scenario says otherwise.
    pub scrape_interval: Duration,
    /// Starts one replica.
    pub start: fn(&Setup<'_>) -> Box<dyn Policy>,
}
