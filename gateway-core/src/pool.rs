//! A pool of endpoints: what is known of each, and who gets the next request.
//!
//! One mutable, pure state machine. The daemon keeps it in a mutex held for
//! microseconds; the routing lab drives it directly. A pick and its reservation
//! are one step, so that no two requests see the same stale picture.
//!
//! A request's path: [`Pool::pick`] filters, rates, chooses and reserves;
//! [`Pool::first_token`] takes its prompt off the queue and learns how long that took;
//! [`Pool::finish`] gives the reservation back. Signals come in beside it by
//! [`Pool::observe`] and its like, and [`Pool::explain`] shows what a pick would do.

mod account;
mod batch;
mod batch_limit;
mod defer;
pub(crate) mod digest;
mod endpoint;
mod explain;
mod filter;
mod guests;
mod hold;
mod journal;
pub mod lease;
mod ledger;
mod listings;
mod membership;
mod observe;
mod pick;
mod queue;
mod rate;
pub(crate) mod rendezvous;
pub(crate) mod residency;
mod room;
pub(crate) mod row;
mod sessions;
pub mod settings;
mod slots;
pub mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub use lease::{End, Failure, Lease, LeaseId, NoEndpoint, Pick};
pub use settings::{FailureMode, PoolSettings, PrefixSettings, SaturationSettings, Scraping};
pub use view::{EndpointState, EndpointView, Explained, Explanation, Room, SpeedView, Verdict};

use crate::peer::{PeerId, Peers};
use crate::policy::Rotation;
use crate::policy::slowness::Slowness;
use crate::policy::speed::{Coefficients, Speed};
use crate::prefix::index::Index;
use crate::score::no_hit_lru::ColdOrder;
use digest::{Digest, Gate, Signs};
use endpoint::Endpoint;
use guests::Guests;
use journal::Journal;
use ledger::Ledger;
use listings::Listings;
use pick::Scratch;
use rate::Rate;
use rendezvous::Company;
use residency::Residency;
use row::Row;
use sessions::Sessions;

/// Names an endpoint of a pool for as long as the process lives; never reused.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct EndpointId(pub u32);

/// An endpoint as configuration or discovery names it.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSpec {
    /// Unique in the pool, for example `10.0.0.1:8000`.
    pub name: Arc<str>,
    /// Capacity hint relative to the others; 1 is typical. Values that are not finite
    /// and positive are taken as 1.
    pub weight: f64,
}

/// Result of an active health probe.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Probe {
    /// The endpoint must not be used.
    Failing,
    /// The endpoint may be used.
    #[default]
    Passing,
}

/// Whether an endpoint is to take new requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Drain {
    /// It takes new requests.
    #[default]
    Off,
    /// It finishes what it has.
    On,
}

/// A pool of endpoints.
///
/// Columns are indexed by *slot*, a small number that is reused; an [`EndpointId`]
/// is not. An endpoint that leaves while requests are in flight keeps its slot,
/// hidden, until the last of them has ended, so that counts never drift when an
/// endpoint flaps.
#[derive(Debug)]
pub struct Pool {
    settings: PoolSettings,
    rows: Vec<Row>,
    gates: Vec<Gate>,
    digests: Vec<Digest>,
    signs: Vec<Signs>,
    /// How full each endpoint is for admission; 1 and above is full.
    loads: Vec<f32>,
    endpoints: Vec<Endpoint>,
    by_name: HashMap<Arc<str>, u32>,
    by_id: HashMap<EndpointId, u32>,
    vacant: Vec<u32>,
    next_id: u32,
    ledger: Ledger,
    prefixes: Index,
    residency: Residency,
    listings: Listings,
    sessions: Sessions,
    cold: ColdOrder,
    rotation: Rotation,
    /// Speed of an endpoint of weight 1, learnt from all.
    typical: Speed,
    /// Time of a whole answer at an endpoint of weight 1, by prompt and output.
    whole: Speed,
    /// How long answers took compared with that, at any endpoint.
    slowness: Slowness,
    /// Mean uncached prompt tokens of a request; `None` before the first.
    typical_tokens: Option<f64>,
    /// Mean prompt tokens of a request, cached ones included.
    typical_prompt: Option<f64>,
    finished: Rate,
    /// Slots at which requests are held back.
    holding: Vec<u32>,
    /// Slots at which long prompts give way.
    deferring: Vec<u32>,
    company: Company,
    /// What the peers may read of this gateway's requests.
    journal: Journal,
    /// Requests of peers that answer.
    guests: HashMap<PeerId, Guests>,
    /// Time within which what peers have done is usually known here; zero without any.
    lag: Duration,
    /// Per slot, what stands for its endpoint in a draw.
    lots: Vec<u64>,
    /// The next slot whose whole answers are looked after.
    hand: usize,
    scratch: Scratch,
}

impl Pool {
    /// A pool without endpoints.
    #[must_use]
    pub fn new(settings: PoolSettings) -> Self {
        Self {
            prefixes: Index::new(settings.prefix.capacity_blocks_per_endpoint),
            settings,
            rows: Vec::new(),
            gates: Vec::new(),
            digests: Vec::new(),
            signs: Vec::new(),
            loads: Vec::new(),
            endpoints: Vec::new(),
            by_name: HashMap::new(),
            by_id: HashMap::new(),
            vacant: Vec::new(),
            next_id: 1,
            ledger: Ledger::default(),
            residency: Residency::default(),
            listings: Listings::default(),
            sessions: Sessions::default(),
            cold: ColdOrder::default(),
            rotation: Rotation::default(),
            typical: Speed::default(),
            whole: Speed::default(),
            slowness: Slowness::default(),
            typical_tokens: None,
            typical_prompt: None,
            finished: Rate::default(),
            holding: Vec::new(),
            deferring: Vec::new(),
            company: Company::default(),
            journal: Journal::default(),
            guests: HashMap::new(),
            lag: Duration::ZERO,
            lots: Vec::new(),
            hand: 0,
            scratch: Scratch::default(),
        }
    }

    /// Takes new settings. What was learnt, requests in flight and the prefix index stay,
    /// except that a new block size makes the index meaningless and empties it.
    pub fn reconfigure(&mut self, settings: PoolSettings) {
        let capacity = settings.prefix.capacity_blocks_per_endpoint;
        if settings.prefix.block_tokens == self.settings.prefix.block_tokens {
            self.prefixes.set_capacity(capacity);
        } else {
            self.prefixes = Index::new(capacity);
        }
        self.settings = settings;
        if self.settings.peers == Peers::Unknown {
            self.journal.clear();
        }
        for slot in 0..self.rows.len() {
            self.refresh(slot);
        }
    }

    /// The settings in force.
    #[must_use]
    pub const fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// Share of prompt tokens that are not found in a prefix cache.
    fn computed_share(&self) -> f64 {
        let tokens = self.typical_tokens.zip(self.typical_prompt.filter(|&prompt| prompt > 0.0));
        tokens.map_or(1.0, |(computed, prompt)| computed / prompt)
    }

    fn slot(&self, id: EndpointId) -> Option<usize> {
        self.by_id.get(&id).map(|&slot| slot as usize)
    }

    /// What is assumed of an endpoint's speed while its own first tokens have told
    /// little: the pool's typical values, by its weight and by how long its whole answers
    /// take compared with those of others.
    fn assumed(&self, slot: usize) -> Coefficients {
        let factor = self.endpoints[slot].slowness.factor(&self.slowness) / self.rows[slot].weight;
        self.typical.coefficients().map(|seconds| seconds * factor)
    }

    /// Publishes what is known of an endpoint's speed to its row.
    fn refresh_speed(&mut self, slot: usize, now: crate::Time) {
        let assumed = self.assumed(slot);
        let (speed, doubt) = self.endpoints[slot].speed.blended(&assumed, now);
        self.rows[slot].speed = speed;
        self.rows[slot].doubt = doubt;
        self.refresh(slot);
    }

    /// Works out anew what scans read of a row that has changed.
    fn refresh(&mut self, slot: usize) {
        let row = &mut self.rows[slot];
        row.merge();
        self.gates[slot] = Gate::of(row);
        self.signs[slot] = Signs::of(row);
        let load = room::load(row, &self.settings.saturation, self.settings.max_in_flight);
        self.loads[slot] = load as f32;
        self.digests[slot] = Digest::of(row, self.typical_tokens.unwrap_or(0.0));
    }
}

#[cfg(test)]
mod tests;
