//! What the steering programs and the daemon tell each other, and the choice of an
//! endpoint.
//!
//! A *virtual address* stands for a pool. A `connect()` to it goes to the gateway, or to
//! an endpoint of the pool that the kernel chooses by the daemon's scores. The daemon
//! writes everything here but the picks, the origins and the counters.
//!
//! Host byte order, except in fields named `_be`.

use crate::address::SocketAddress;

/// Endpoints a pool may offer the kernel; a power of two. More are left out, best first.
pub const CANDIDATES: usize = 64;
/// Endpoints of all pools together.
pub const ENDPOINTS: u32 = 4096;
/// Virtual addresses.
pub const POOLS: usize = 256;
/// Connections whose virtual address is remembered.
pub const ORIGINS: usize = 64 << 10;
/// How old the daemon's last sign of life may be before connections go where they say, in
/// nanoseconds.
pub const BEAT_LASTS_NS: u64 = 3_000_000_000;

/// Where connections to a virtual address go. Replaced as a whole, so that no choice is
/// made among endpoints of two times.
#[repr(C)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pool {
    /// Its place in the configuration, from 0.
    pub id: u32,
    /// [`Pool::REQUEST`] or [`Pool::CONNECTION`].
    pub mode: u32,
    /// Raised with every replacement.
    pub generation: u32,
    /// Candidates there are; 0 leaves connections as they are.
    pub count: u32,
    /// The gateway, for [`Pool::REQUEST`].
    pub gateway: SocketAddress,
    /// Who may be chosen, for [`Pool::CONNECTION`].
    pub candidates: [Candidate; CANDIDATES],
}

/// An endpoint that may be chosen.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Candidate {
    /// Its address.
    pub address: SocketAddress,
    /// Its place in the maps of endpoints and picks.
    pub endpoint: u32,
    /// How busy it is, in thousandths of a request per unit of weight.
    pub score: u32,
    /// What one more connection adds to that.
    pub step: u32,
    /// Picks (modulo 2^32) that the score knows of.
    pub seen: u32,
}

/// An endpoint, for people.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Endpoint {
    /// Its address.
    pub address: SocketAddress,
    /// Place of its pool in the configuration.
    pub pool: u32,
    /// See [`Candidate::score`].
    pub score: u32,
    /// In thousandths.
    pub weight: u32,
    /// [`Endpoint::FREE`] and so on.
    pub state: u32,
}

/// The virtual address that a connection asked for, by the socket's cookie.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Origin {
    /// What it asked for.
    pub asked: SocketAddress,
    /// Where it went.
    pub went: SocketAddress,
}

/// The daemon's sign of life.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Beat {
    /// When, in nanoseconds of the monotonic clock; 0 when steering is switched off.
    pub at_ns: u64,
    /// The daemon's process id, as it sees it.
    pub pid: u32,
    /// Always 0.
    pub reserved: u32,
}

/// What the programs did, per CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Connections sent to the gateway.
    pub to_gateway: u64,
    /// Connections sent to an endpoint.
    pub to_endpoint: u64,
    /// Left alone because the daemon gave no sign of life.
    pub stale: u64,
    /// Left alone because no endpoint could take them.
    pub empty: u64,
    /// Left alone because they are the daemon's own.
    pub own: u64,
    /// Peers called by their virtual address.
    pub named: u64,
}

impl Pool {
    /// Connections go to the gateway, which looks at each request.
    pub const REQUEST: u32 = 1;
    /// Connections go to an endpoint, for their whole life.
    pub const CONNECTION: u32 = 2;

    /// One of the candidates: the less busy of two drawn at random, counting connections
    /// that the scores do not know of yet. So newcomers do not all go where it was empty
    /// at the last look. `picks` tells an endpoint's picks (modulo 2^32).
    #[inline(always)]
    pub fn choose(&self, random: [u32; 2], picks: impl Fn(u32) -> u32) -> Option<&Candidate> {
        let count = self.count;
        if count == 0 || count > CANDIDATES as u32 {
            return None;
        }
        let first = below(random[0], count);
        let one = self.candidate(first);
        if count == 1 {
            return Some(one);
        }
        // One of the others.
        let mut second = first + 1 + below(random[1], count - 1);
        if second >= count {
            second -= count;
        }
        let other = self.candidate(second);
        if other.cost(picks(other.endpoint)) < one.cost(picks(one.endpoint)) {
            return Some(other);
        }
        Some(one)
    }

    /// The candidate of this number, which is below [`CANDIDATES`]. The compiler must not know
    /// that: it would leave the mask out, from which the verifiers of kernels before 6.18 see it.
    #[inline(always)]
    fn candidate(&self, number: u32) -> &Candidate {
        &self.candidates[core::hint::black_box(number) as usize % CANDIDATES]
    }
}

impl Candidate {
    #[inline(always)]
    fn cost(&self, picks: u32) -> u64 {
        let unseen = picks.wrapping_sub(self.seen);
        self.score as u64 + self.step as u64 * unseen as u64
    }
}

/// An even number below `limit`, without a division, after which the verifier would not
/// know the bounds.
#[inline(always)]
fn below(random: u32, limit: u32) -> u32 {
    ((random as u64 * limit as u64) >> 32) as u32
}

impl Endpoint {
    /// Not in use.
    pub const FREE: u32 = 0;
    /// It takes connections.
    pub const SERVING: u32 = 1;
    /// It keeps the connections it has.
    pub const DRAINING: u32 = 2;
    /// It is left out for now: ejected, stale, or failing.
    pub const OUT: u32 = 3;
}

const _: () = {
    assert!(size_of::<Candidate>() == 36);
    assert!(size_of::<Pool>() == 36 + 36 * CANDIDATES);
    assert!(size_of::<Endpoint>() == 36);
    assert!(size_of::<Origin>() == 40);
    assert!(size_of::<Beat>() == 16);
    assert!(size_of::<Counters>() == 48);
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pool(scores: &[u32]) -> Pool {
        let mut candidates = [Candidate::default(); CANDIDATES];
        for (endpoint, (candidate, score)) in candidates.iter_mut().zip(scores).enumerate() {
            *candidate =
                Candidate { endpoint: endpoint as u32, score: *score, step: 1000, ..*candidate };
        }
        let count = scores.len() as u32;
        Pool { id: 0, mode: 2, generation: 1, count, gateway: SocketAddress::default(), candidates }
    }

    proptest! {
        #[test]
        fn the_choice_is_one_of_the_candidates(
            scores in proptest::collection::vec(0..9_u32, 0..=CANDIDATES),
            random in any::<[u32; 2]>(),
        ) {
            let pool = pool(&scores);
            match pool.choose(random, |_| 0) {
                None => prop_assert!(scores.is_empty()),
                Some(choice) => prop_assert!((choice.endpoint as usize) < scores.len()),
            }
        }

        #[test]
        fn of_two_the_less_busy_is_chosen_whatever_is_drawn(
            scores in any::<[u32; 2]>(),
            random in any::<[u32; 2]>(),
        ) {
            let pool = pool(&scores);
            let choice = pool.choose(random, |_| 0).unwrap();
            prop_assert_eq!(choice.score, scores[0].min(scores[1]));
        }
    }

    #[test]
    fn connections_since_the_last_score_count() {
        let pool = pool(&[0, 2500]);
        let with_picks = |picks| pool.choose([0, 0], |of| if of == 0 { picks } else { 0 });
        assert_eq!(with_picks(2).unwrap().endpoint, 0);
        assert_eq!(with_picks(3).unwrap().endpoint, 1);
    }

    #[test]
    fn a_count_that_cannot_be_is_nobody() {
        let mut pool = pool(&[0]);
        pool.count = CANDIDATES as u32 + 1;
        assert_eq!(pool.choose([0, 0], |_| 0), None);
    }
}
