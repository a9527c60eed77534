//! What endpoints are called in the kernel, and how busy they are.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gateway_common::address::SocketAddress;
use gateway_common::steer::{CANDIDATES, Candidate, ENDPOINTS, Endpoint, Pool};
use gateway_core::pool::{EndpointId, EndpointState, EndpointView};

/// Scores are in thousandths of a request.
const UNIT: f64 = 1000.0;

/// Places of endpoints in the kernel's maps. A place keeps its endpoint as long as it is
/// there, because the kernel counts picks by place.
#[derive(Debug, Default)]
pub(super) struct Board {
    places: HashMap<(Arc<str>, EndpointId), Place>,
    free: Vec<u32>,
    next: u32,
}

#[derive(Debug)]
struct Place {
    number: u32,
    /// Picks that the engine's own figures know of.
    seen: u32,
    /// Age of those figures.
    age: Option<Duration>,
    /// Whether it was there since [`Board::forget_absent`].
    present: bool,
}

/// An endpoint as the kernel is to see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    candidate: Candidate,
    row: Endpoint,
}

impl Entry {
    /// Its place in the kernel's maps.
    pub(super) fn place(&self) -> u32 {
        self.candidate.endpoint
    }
}

impl Board {
    /// An endpoint's entry; `None` when there are too many. `picks` tells the picks of a
    /// place, modulo 2^32.
    pub(super) fn enter(
        &mut self,
        pool: &Arc<str>,
        view: &EndpointView,
        address: SocketAddress,
        picks: impl Fn(u32) -> u32,
    ) -> Option<Entry> {
        let key = (Arc::clone(pool), view.id);
        if !self.places.contains_key(&key) {
            let number = self.free.pop().or_else(|| {
                let number = self.next;
                self.next += u32::from(number < ENDPOINTS);
                (number < ENDPOINTS).then_some(number)
            })?;
            let place = Place { number, seen: picks(number), age: None, present: true };
            self.places.insert(key.clone(), place);
        }
        let place = self.places.get_mut(&key)?;
        place.present = true;
        // Only a new reading can know of the picks before it. Without readings the score
        // is our own requests, and picks count until the next one is published.
        if view.signal_age.is_none() || view.signal_age < place.age {
            place.seen = picks(place.number);
        }
        place.age = view.signal_age;
        let step = UNIT / view.weight;
        let score = (load(view) * step).min(f64::from(u32::MAX / 2)) as u32;
        Some(Entry {
            candidate: Candidate {
                address,
                endpoint: place.number,
                score,
                step: step as u32,
                seen: place.seen,
            },
            row: Endpoint {
                address,
                pool: 0,
                score,
                weight: (view.weight * UNIT) as u32,
                state: state(view.state),
            },
        })
    }

    /// Frees the places of endpoints that were not entered since the last time.
    pub(super) fn forget_absent(&mut self) -> Vec<u32> {
        let mut absent = Vec::new();
        self.places.retain(|_, place| {
            let present = std::mem::take(&mut place.present);
            if !present {
                absent.push(place.number);
            }
            present
        });
        self.free.extend(&absent);
        absent
    }
}

/// Requests there: what the engine says, or ours if it has not heard of all of them.
fn load(view: &EndpointView) -> f64 {
    let theirs = view.signals.running.unwrap_or(0.0) + view.signals.waiting.unwrap_or(0.0);
    theirs.max(f64::from(view.in_flight_requests))
}

fn state(state: EndpointState) -> u32 {
    match state {
        EndpointState::Serving => Endpoint::SERVING,
        EndpointState::Draining => Endpoint::DRAINING,
        EndpointState::Ejected { .. }
        | EndpointState::GpuFault
        | EndpointState::ProbeFailing
        | EndpointState::Stale => Endpoint::OUT,
    }
}

/// A pool of those that serve, the least busy first; and all of them for people.
pub(super) fn pool(id: u32, mut entries: Vec<Entry>) -> (Pool, Vec<(u32, Endpoint)>) {
    let rows =
        entries.iter().map(|entry| (entry.candidate.endpoint, Endpoint { pool: id, ..entry.row }));
    let rows = rows.collect();
    entries.retain(|entry| entry.row.state == Endpoint::SERVING);
    if entries.len() > CANDIDATES {
        entries.sort_by_key(|entry| entry.candidate.score);
        entries.truncate(CANDIDATES);
    }
    let mut pool = empty(id, Pool::CONNECTION);
    pool.count = entries.len() as u32;
    for (candidate, entry) in pool.candidates.iter_mut().zip(entries) {
        *candidate = entry.candidate;
    }
    (pool, rows)
}

/// A pool whose connections all go to the gateway; nowhere, if it cannot be reached.
pub(super) fn to_gateway(id: u32, gateway: Option<SocketAddress>) -> Pool {
    match gateway {
        Some(gateway) => Pool { gateway, ..empty(id, Pool::REQUEST) },
        None => empty(id, Pool::CONNECTION),
    }
}

fn empty(id: u32, mode: u32) -> Pool {
    let candidates = [Candidate::default(); CANDIDATES];
    Pool { id, mode, generation: 0, count: 0, gateway: SocketAddress::default(), candidates }
}

/// Whether connections can go to the same places by either.
pub(super) fn same_members(one: &Pool, other: &Pool) -> bool {
    let members = |pool: &Pool| pool.candidates.map(|candidate| candidate.address);
    one.mode == other.mode
        && one.count == other.count
        && one.gateway == other.gateway
        && members(one) == members(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_core::Time;
    use gateway_core::pool::{EndpointSpec, Pool as CorePool, PoolSettings};

    fn view(weight: f64) -> EndpointView {
        let mut core = CorePool::new(PoolSettings::default());
        let now = Time::from_origin(Duration::ZERO);
        core.set_endpoints(&[EndpointSpec { name: "a".into(), weight }], now);
        let mut view = core.endpoints(now).remove(0);
        view.state = EndpointState::Serving;
        view
    }

    fn enter(board: &mut Board, view: &EndpointView, picks: u32) -> Entry {
        board.enter(&"pool".into(), view, SocketAddress::default(), |_| picks).unwrap()
    }

    #[test]
    fn a_score_is_the_requests_there_over_the_weight() {
        let mut view = view(2.0);
        view.in_flight_requests = 3;
        view.signals.running = Some(4.0);
        view.signals.waiting = Some(2.0);
        let entry = enter(&mut Board::default(), &view, 0);
        assert_eq!((entry.candidate.score, entry.candidate.step), (3000, 500));
    }

    #[test]
    fn picks_are_known_to_a_reading_that_came_after_them() {
        let (mut board, mut view) = (Board::default(), view(1.0));
        view.signal_age = Some(Duration::from_millis(40));
        assert_eq!(enter(&mut board, &view, 5).candidate.seen, 5);
        view.signal_age = Some(Duration::from_millis(45));
        assert_eq!(enter(&mut board, &view, 9).candidate.seen, 5);
        view.signal_age = Some(Duration::from_millis(1));
        assert_eq!(enter(&mut board, &view, 9).candidate.seen, 9);
    }

    #[test]
    fn an_endpoint_that_drains_is_shown_and_not_chosen() {
        let mut view = view(1.0);
        view.state = EndpointState::Draining;
        let entry = enter(&mut Board::default(), &view, 0);
        let (pool, rows) = pool(7, vec![entry]);
        assert_eq!(pool.count, 0);
        assert_eq!((rows[0].1.state, rows[0].1.pool), (Endpoint::DRAINING, 7));
    }

    #[test]
    fn places_of_those_who_left_are_used_again() {
        let (mut board, view) = (Board::default(), view(1.0));
        assert_eq!(enter(&mut board, &view, 0).candidate.endpoint, 0);
        assert_eq!(board.forget_absent(), Vec::<u32>::new());
        assert_eq!(board.forget_absent(), [0]);
        assert_eq!(enter(&mut board, &view, 0).candidate.endpoint, 0);
    }

    #[test]
    fn of_too_many_the_least_busy_are_offered() {
        let mut board = Board::default();
        let entries = (0..100).map(|number| {
            let mut view = view(1.0);
            view.id = EndpointId(number);
            view.in_flight_requests = 100 - number;
            enter(&mut board, &view, 0)
        });
        let (pool, rows) = pool(0, entries.collect());
        assert_eq!((pool.count as usize, rows.len()), (CANDIDATES, 100));
        assert!(pool.candidates.iter().all(|candidate| candidate.score <= 64_000));
    }
}
