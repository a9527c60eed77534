//! The routing lab: which policy answers soonest, measured and repeatable.
//!
//! A [`scenario`] is a fleet of simulated engines and the requests that come to it.
//! A [`policy`] stands where a gateway stands: it sees what a gateway can see and names an
//! endpoint for each request. An [`outcome`] is what became of the requests. Everything
//! runs on virtual time and is a function of a seed, so that a result can be had again.

pub mod calibrate;
pub mod catalogue;
pub mod clairvoyant;
pub mod experiment;
mod floor;
pub mod ours;
pub mod outcome;
pub mod peer;
pub mod plan;
pub mod plot;
pub mod policy;
pub mod report;
pub mod request;
pub mod runner;
pub mod scenario;
pub mod trace;
pub mod workload;

/// Every policy: the peers', ours, and the bound.
pub fn contenders() -> impl Iterator<Item = policy::Contender> {
    peer::CONTENDERS.into_iter().chain(ours::CONTENDERS).chain([clairvoyant::CONTENDER])
}
