//! Policies that every load balancer has.
//!
//! As a Kubernetes Service or Envoy has them: over endpoints that are listed as ready,
//! counting only the balancer's own requests.

use fastrand::Rng;

use super::candidates;
use crate::lab::policy::{Asked, Decision, Policy, Sight};

/// Any endpoint, each as likely.
#[derive(Clone, Copy, Debug)]
pub struct Random;

impl Policy for Random {
    fn decide(&mut self, asked: Asked<'_>, sight: &Sight<'_>, rng: &mut Rng) -> Decision {
        rng.choice(candidates(&asked, sight)).map_or(Decision::Shed, Decision::Send)
    }
}

/// One after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl Policy for RoundRobin {
    fn decide(&mut self, asked: Asked<'_>, sight: &Sight<'_>, _rng: &mut Rng) -> Decision {
        let candidates = candidates(&asked, sight);
        let following = candidates.iter().find(|endpoint| **endpoint >= self.next);
        let Some(&endpoint) = following.or(candidates.first()) else { return Decision::Shed };
        self.next = endpoint + 1;
        Decision::Send(endpoint)
    }
}

/// The endpoint with the fewest requests in flight; among equals, any.
#[derive(Clone, Copy, Debug)]
pub struct LeastRequest;

impl Policy for LeastRequest {
    fn decide(&mut self, asked: Asked<'_>, sight: &Sight<'_>, rng: &mut Rng) -> Decision {
        let mut candidates = candidates(&asked, sight);
        rng.shuffle(&mut candidates);
        let least = candidates.into_iter().min_by_key(|&at| sight.endpoints[at].in_flight);
        least.map_or(Decision::Shed, Decision::Send)
    }
}

/// Of two different endpoints drawn at random, the one with fewer requests in flight.
#[derive(Clone, Copy, Debug)]
pub struct PowerOfTwo;

impl Policy for PowerOfTwo {
    fn decide(&mut self, asked: Asked<'_>, sight: &Sight<'_>, rng: &mut Rng) -> Decision {
        let drawn = rng.choose_multiple(candidates(&asked, sight), 2);
        let least = drawn.into_iter().min_by_key(|&at| sight.endpoints[at].in_flight);
        least.map_or(Decision::Shed, Decision::Send)
    }
}
