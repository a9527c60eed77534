//! What a pick hands out, and how it ends.

use std::time::Duration;

use super::EndpointId;

/// Where a request goes. Room there is already reserved.
#[derive(Debug)]
#[must_use = "the reservation holds until the lease is given to `Pool::finish`"]
pub struct Pick {
    /// The endpoint to send to.
    pub endpoint: EndpointId,
    /// The reservation; hand it to [`Pool::finish`](super::Pool::finish).
    pub lease: Lease,
    /// Time to first token that the pool expects there, whatever the policy.
    pub predicted_ttft: Option<Duration>,
    /// Prompt tokens that the endpoint probably has in its cache.
    pub cached_tokens: u32,
    /// Endpoints that passed the filters.
    pub candidates: u32,
    /// Whether it must not be sent before [`Pool::next_due`](super::Pool::next_due) names it.
    pub held: bool,
}

/// A reservation at an endpoint. Not `Clone`: what it reserved is given back
/// exactly once, by [`Pool::finish`](super::Pool::finish), which consumes it.
#[derive(Debug)]
#[must_use = "the reservation holds until the lease is given to `Pool::finish`"]
pub struct Lease {
    /// The endpoint that was picked.
    pub(super) endpoint: EndpointId,
    /// Place in the pool's table of leases.
    pub(super) place: u32,
    /// Which user of that place this is; places are reused, serials are not.
    pub(super) serial: u64,
}

/// Names a lease, for one that is held back; never reused.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LeaseId {
    pub(super) place: u32,
    pub(super) serial: u64,
}

impl Lease {
    /// Its name.
    #[must_use]
    pub const fn id(&self) -> LeaseId {
        LeaseId { place: self.place, serial: self.serial }
    }

    /// The endpoint that the reservation is at.
    #[must_use]
    pub const fn endpoint(&self) -> EndpointId {
        self.endpoint
    }
}

/// Why no endpoint could be picked.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoEndpoint {
    /// The pool has no endpoint at all.
    #[error("the pool has no endpoint; add one or wait for discovery")]
    Empty,
    /// Endpoints exist, none may serve. Each is counted under its first reason,
    /// in the order draining, failing, faulty, ejected, stale.
    #[error(
        "none of the pool's endpoints can serve: {stale} stale, {ejected} ejected, \
         {draining} draining, {failing} failing probes, {faulty} with GPU faults"
    )]
    NoneReady {
        /// Signals older than the threshold.
        stale: u32,
        /// Out because of consecutive failures.
        ejected: u32,
        /// Finishing their requests before they leave.
        draining: u32,
        /// Active health probe fails.
        failing: u32,
        /// A GPU reported a fresh XID error.
        faulty: u32,
    },
    /// Every endpoint that may serve has failed this request already.
    #[error("every endpoint that can serve has failed this request already")]
    AllTried,
    /// Every endpoint that may serve is at its bound of requests in flight.
    #[error("every endpoint is at its bound of requests in flight; retry later or raise it")]
    Full,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// The client went away; says nothing of the endpoint.
    Cancelled,
    /// The answer was complete.
    Completed {
        /// Tokens of the answer, as the engine counted them or as events seen.
        output_tokens: u32,
    },
    /// The endpoint failed the request.
    Failed(Failure),
    /// The request never left the gateway; nothing is learnt, nothing is cached.
    NotSent,
}

/// How an endpoint failed a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// No connection could be made.
    Connect,
    /// The connection broke, or its bytes were not HTTP.
    Reset,
    /// The endpoint answered with this error status.
    Status(u16),
    /// No answer, or no next byte, in time.
    Timeout,
}
