//! The kernel's counts of connections per endpoint.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::maps::{Array, MapData};
use gateway_common::steer::ENDPOINTS;

/// The counts, and whose they are. Places are used again by other endpoints and the kernel
/// only ever counts up, so a place's count begins where the last endpoint's ended.
pub struct Picks {
    counts: Array<MapData, u64>,
    owners: Mutex<BTreeMap<u32, Owner>>,
}

/// Who has a place.
struct Owner {
    pool: Arc<str>,
    endpoint: Arc<str>,
    /// What the kernel had counted before.
    before: u64,
}

/// Connections that the kernel has sent to an endpoint since it has its place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Picked {
    /// Its pool's name.
    pub pool: Arc<str>,
    /// Its own name.
    pub endpoint: Arc<str>,
    /// How many.
    pub connections: u64,
}

impl Picks {
    pub(super) fn new(counts: Array<MapData, u64>) -> Self {
        Self { counts, owners: Mutex::default() }
    }

    /// Connections sent to a place, whoever had it.
    #[must_use]
    pub fn at(&self, place: u32) -> u64 {
        debug_assert!(place < ENDPOINTS, "places are given by us");
        self.counts.get(&place, 0).unwrap_or(0)
    }

    /// An endpoint has a place; nothing new when it has it already.
    pub fn own(&self, place: u32, pool: &Arc<str>, endpoint: &Arc<str>) {
        self.lock().entry(place).or_insert_with(|| Owner {
            pool: Arc::clone(pool),
            endpoint: Arc::clone(endpoint),
            before: self.at(place),
        });
    }

    /// A place is free again.
    pub fn disown(&self, place: u32) {
        self.lock().remove(&place);
    }

    /// The counts of all endpoints that have a place, by place.
    #[must_use]
    pub fn read(&self) -> Vec<Picked> {
        let owners = self.lock();
        let read = owners.iter().map(|(place, owner)| Picked {
            pool: Arc::clone(&owner.pool),
            endpoint: Arc::clone(&owner.endpoint),
            connections: self.at(*place).saturating_sub(owner.before),
        });
        read.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Owner>> {
        // Every method leaves the owners whole.
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Picks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.read()).finish()
    }
}
