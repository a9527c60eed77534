//! Where gateways that do not know of each other send what is new to them.
//!
//! A gateway knows the prefixes of its own requests only. With eight of them each system
//! prompt would be computed by as many endpoints before they know better. So where nobody is
//! known to hold a prompt's beginning, all gateways expect it at the same endpoint: the
//! one that wins a draw made of the first block and the endpoint's name (rendezvous hashing;
//! Thaler and Ravishankar, *IEEE/ACM Transactions on Networking* 6(1), 1998). How much
//! they expect there follows from how much of the load comes from others, and from how much
//! of prompts is usually found in caches.

use xxhash_rust::xxh64::xxh64;

use super::Pool;
use crate::request::RequestView;
use crate::signals::Signals;

/// Each reading makes earlier ones count this much: seconds, with a few endpoints.
const KEEP: f64 = 0.999;

/// Requests for which it is assumed that prompts have beginnings in common.
const ASSUMED: f64 = 20.0;

/// Share of a prompt that is assumed to be found in caches before anything is known.
const ASSUMED_SHARE: f64 = 0.9;

/// Shares below this are not worth looking for an endpoint.
const LEAST_SHARE: f64 = 0.05;

/// The endpoint at which others are expected to have put a prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Home {
    pub(crate) slot: u32,
    /// Share of the prompt that is expected to be held there, 0 to 1.
    pub(crate) share: f64,
}

impl Home {
    /// What is expected to be left to compute there of a prompt of `tokens`.
    #[inline]
    pub(crate) fn uncached(self, tokens: u32) -> u32 {
        (f64::from(tokens) * (1.0 - self.share)) as u32
    }
}

/// How much of the endpoints' load is this gateway's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Company {
    own: f64,
    all: f64,
    /// Requests picked for.
    picks: f64,
}

impl Company {
    /// Takes a reading of an endpoint where `in_flight` requests are this gateway's.
    pub(super) fn observe(&mut self, signals: &Signals, in_flight: u32) {
        let there =
            signals.running.zip(signals.waiting).map(|(running, waiting)| running + waiting);
        let Some(there) = there.filter(|there| there.is_finite() && *there >= 0.0) else { return };
        self.own = self.own * KEEP + f64::from(in_flight).min(there);
        self.all = self.all * KEEP + there;
    }

    /// Notes that a request was picked for.
    pub(super) fn count_pick(&mut self) {
        self.picks += 1.0;
    }

    /// Share of others in the load, 0 to 1; 0 while there is none.
    pub(super) fn others(&self) -> f64 {
        if self.all < 1.0 { 0.0 } else { (1.0 - self.own / self.all).clamp(0.0, 1.0) }
    }
}

/// What stands for an endpoint in the draw: the same at every gateway.
pub(super) fn lot(name: &str) -> u64 {
    xxh64(name.as_bytes(), 0)
}

impl Pool {
    /// Where other gateways are expected to have put a prompt of which no endpoint is known to
    /// hold anything.
    pub(super) fn rendezvous(
        &self,
        request: &RequestView<'_>,
        candidates: &[u32],
        longest: u32,
    ) -> Option<Home> {
        let first = *request.blocks.first().filter(|_| longest == 0)?;
        let assumed = ASSUMED_SHARE * (-self.company.picks / ASSUMED).exp();
        let reused = (1.0 - self.computed_share() + assumed).clamp(0.0, 1.0);
        let share = reused * self.company.others();
        if share < LEAST_SHARE {
            return None;
        }
        let winner = candidates.iter().max_by_key(|&&slot| mix(first ^ self.lots[slot as usize]));
        winner.map(|&slot| Home { slot, share })
    }
}

/// Spreads every bit of `seed` over all bits (the finaliser of `MurmurHash3`).
fn mix(seed: u64) -> u64 {
    let seed = (seed ^ seed >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let seed = (seed ^ seed >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    seed ^ seed >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    fn company(in_flight: u32, running: f64) -> Company {
        let mut company = Company::default();
        let signals = Signals { running: Some(running), waiting: Some(0.0), ..Signals::default() };
        (0..100).for_each(|_| company.observe(&signals, in_flight));
        company
    }

    #[test]
    fn a_gateway_alone_has_no_company() {
        assert_eq!(Company::default().others(), 0.0);
        assert_eq!(company(9, 9.0).others(), 0.0);
        assert_eq!(company(12, 9.0).others(), 0.0);
        assert_eq!(company(0, 0.0).others(), 0.0);
    }

    #[test]
    fn one_of_eight_sees_seven_eighths_of_others() {
        assert!((company(3, 24.0).others() - 0.875).abs() < 1e-9);
    }

    #[test]
    fn a_missing_signal_says_nothing_of_others() {
        let mut company = company(3, 24.0);
        company.observe(&Signals { running: Some(f64::NAN), ..Signals::default() }, 100);
        company.observe(&Signals { waiting: Some(4.0), ..Signals::default() }, 100);
        assert!((company.others() - 0.875).abs() < 1e-9);
    }
}
