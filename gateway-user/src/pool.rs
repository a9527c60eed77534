//! A pool as the daemon runs it: the core's decisions, behind a short lock.
//!
//! Picking and reserving are one step under one mutex, so that two requests in
//! the same millisecond never see the same stale picture. The lock is held for
//! the few microseconds of a decision and never across an await; everything that
//! need not be decided (addresses, configuration) is published beside it and read
//! without a lock. `docs/decisions/0003-one-lock-per-pool.md` has the numbers.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use gateway_core::body::RequestFacts;
use gateway_core::peer::Report;
use gateway_core::pool::{self, End, EndpointId, EndpointSpec, EndpointView, Explanation, Lease};
use gateway_core::prefix::hash;
use gateway_core::request::Answer;
use gateway_core::route::Route;
use gateway_core::{RequestView, Time};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::config::{EndpointConfig, PoolConfig, Scheme};
use crate::endpoint::Endpoint;
use crate::metrics::Metrics;
use crate::metrics::model::ModelMetrics;
use crate::tls::{Roots, Tls};

pub(crate) mod flow;
mod hold;
pub(crate) mod reservation;

use flow::Class;
pub(crate) use reservation::Reservation;

/// Models of one pool that get metrics of their own; the rest share `other`.
const MODELS: usize = 1000;

/// How long after its last request a pool counts as active.
const QUIET_AFTER: Duration = Duration::from_secs(1);

/// A pool under one configuration. A reload makes a new one around the same
/// shared state.
#[derive(Debug)]
pub struct Pool {
    /// Its part of the configuration.
    pub config: PoolConfig,
    /// What outlives a reload.
    pub(crate) shared: Arc<Shared>,
}

/// What a pool knows; kept over reloads.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: Arc<str>,
    clock: Clock,
    state: Mutex<State>,
    endpoints: ArcSwap<Vec<Arc<Endpoint>>>,
    /// Rung when a request is picked while the pool was quiet, so that scraping
    /// is back at full speed at once.
    pub(crate) woken: Notify,
    in_flight: AtomicUsize,
    /// When the last request ended, in nanoseconds since the origin.
    last_end: AtomicU64,
    models: Mutex<HashMap<ModelKey, Arc<ModelMetrics>>>,
}

/// The client's name for a model, the engine's, and the priority.
type ModelKey = (Arc<str>, Arc<str>, i32);

/// What the lock protects.
#[derive(Debug)]
struct State {
    pool: pool::Pool,
    flow: flow::Flow,
    random: fastrand::Rng,
}

/// What a request asks of a pool, kept by value so that it can wait in a queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demand {
    pub(crate) adapter: Option<Arc<str>>,
    pub(crate) prompt_tokens: u32,
    pub(crate) max_output_tokens: Option<u32>,
    pub(crate) blocks: Arc<[u64]>,
    pub(crate) session: Option<u64>,
    pub(crate) tried: Vec<EndpointId>,
    pub(crate) answer: Answer,
}

impl Demand {
    pub(crate) fn view(&self) -> RequestView<'_> {
        RequestView {
            adapter: self.adapter.as_deref(),
            prompt_tokens: self.prompt_tokens,
            max_output_tokens: self.max_output_tokens,
            blocks: &self.blocks,
            session: self.session,
            tried: &self.tried,
            answer: self.answer,
        }
    }
}

impl Pool {
    /// A pool that starts from nothing.
    #[must_use]
    pub fn new(config: PoolConfig, clock: Clock) -> Self {
        let shared = Arc::new(Shared {
            name: config.name.as_str().into(),
            clock,
            state: Mutex::new(State {
                pool: pool::Pool::new(config.settings.clone()),
                flow: flow::Flow::new(&config),
                random: fastrand::Rng::new(),
            }),
            endpoints: ArcSwap::default(),
            woken: Notify::new(),
            in_flight: AtomicUsize::new(0),
            last_end: AtomicU64::new(0),
            models: Mutex::default(),
        });
        let pool = Self { config, shared };
        pool.apply_endpoints();
        pool
    }

    /// This pool under a new configuration: what was learnt stays.
    #[must_use]
    pub fn reconfigured(&self, config: PoolConfig) -> Self {
        let pool = Self { config, shared: Arc::clone(&self.shared) };
        {
            let mut state = pool.shared.lock();
            state.pool.reconfigure(pool.config.settings.clone());
            state.flow.reconfigure(&pool.config);
        }
        pool.apply_endpoints();
        pool
    }

    fn apply_endpoints(&self) {
        let specs: Vec<EndpointSpec> = self
            .config
            .endpoints
            .iter()
            .map(|endpoint| EndpointSpec {
                name: endpoint.name.as_str().into(),
                weight: endpoint.weight,
            })
            .collect();
        let now = self.shared.clock.now();
        let ids = self.shared.lock().pool.set_endpoints(&specs, now);
        let roots: LazyCell<Roots> = LazyCell::new(Roots::system);
        let endpoints = ids
            .iter()
            .zip(&self.config.endpoints)
            .map(|(id, config)| Arc::new(endpoint(*id, config, &roots)))
            .collect();
        self.shared.endpoints.store(Arc::new(endpoints));
        // Newcomers may have room for those who wait.
        self.shared.with(|_, _| ());
    }

    /// Name in configuration, metrics and logs.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.shared.name
    }

    /// The key that engines of this pool want, if they want one.
    pub(crate) fn engine_key(&self) -> Option<&str> {
        self.config.api_key.as_deref()
    }

    /// Addresses of the endpoints, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> Arc<Vec<Arc<Endpoint>>> {
        self.shared.endpoints.load_full()
    }

    pub(crate) fn has_address(&self, authority: &str) -> bool {
        self.shared.endpoints.load().iter().any(|endpoint| &*endpoint.authority == authority)
    }

    /// Every endpoint with its state, for metrics and people.
    #[must_use]
    pub fn endpoints(&self) -> Vec<EndpointView> {
        let now = self.shared.clock.now();
        self.shared.lock().pool.endpoints(now)
    }

    /// Why a request would go where it would go.
    #[must_use]
    pub fn explain(&self, request: &RequestView<'_>) -> Explanation {
        let now = self.shared.clock.now();
        self.shared.lock().pool.explain(request, now)
    }

    /// What has happened to its requests from number `since` on, for other gateways.
    pub(crate) fn report(&self, since: u64) -> Report {
        let now = self.shared.clock.now();
        self.shared.lock().pool.report(since, now)
    }

    /// Chained hashes of a prompt's blocks, on this pool's grid.
    pub(crate) fn blocks(&self, facts: &RequestFacts, route: &Route) -> Arc<[u64]> {
        let mut blocks = facts.prefix(&route.target, route.adapter.as_deref());
        // A token is taken as four bytes, as everywhere in the field.
        let block_bytes = self.config.settings.prefix.block_tokens as usize * 4;
        hash::coarsen(&mut blocks, block_bytes / hash::DEFAULT_BLOCK_BYTES);
        blocks.into()
    }

    /// Tells which adapters an endpoint serves.
    pub(crate) fn set_adapters(&self, authority: &str, adapters: &[Arc<str>]) {
        let endpoints = self.shared.endpoints.load();
        if let Some(at) = endpoints.iter().find(|endpoint| &*endpoint.authority == authority) {
            self.shared.with(|core, _| core.set_adapters(at.id, adapters));
        }
    }

    /// Requests that wait in the gateway, for room or for their lots.
    #[must_use]
    pub fn queued(&self) -> usize {
        let state = self.shared.lock();
        state.flow.queued() + state.pool.held() as usize
    }

    /// Long prompts that wait in the gateway for shorter ones.
    #[must_use]
    pub fn deferred(&self) -> usize {
        self.shared.lock().pool.deferred() as usize
    }

    /// Metrics of one model in this pool.
    pub(crate) fn model_metrics(
        &self,
        metrics: &Metrics,
        model: &Arc<str>,
        target: &Arc<str>,
        priority: i32,
    ) -> Arc<ModelMetrics> {
        let mut models = self.shared.models.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (Arc::clone(model), Arc::clone(target), priority);
        if let Some(known) = models.get(&key) {
            return Arc::clone(known);
        }
        // Names come from clients where a pool takes any model, so they are bounded.
        let (model, target) =
            if models.len() < MODELS { (&**model, &**target) } else { ("other", "other") };
        let resolved =
            Arc::new(metrics.by_model.resolve(&self.shared.name, model, target, priority));
        if models.len() < MODELS {
            models.insert(key, Arc::clone(&resolved));
        }
        resolved
    }
}

/// An endpoint as it is configured. The system's certificate authorities are read
/// only where somebody needs them.
fn endpoint(id: EndpointId, config: &EndpointConfig, roots: &LazyCell<Roots>) -> Endpoint {
    let endpoint = Endpoint::new(id, &config.host, config.port);
    match config.scheme {
        Scheme::Http => endpoint,
        Scheme::Https => endpoint.over(Tls::new(&config.host, roots)),
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The core has no state that a panic could leave half changed and that the
        // next call would not put right; losing a whole pool to it would be worse.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `change` on the core, then lets queued requests go if it made room.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut pool::Pool, Time) -> T) -> T {
        let now = self.clock.now();
        let mut state = self.lock();
        let result = change(&mut state.pool, now);
        let State { pool, flow, random } = &mut *state;
        flow.dispatch(pool, random, now);
        result
    }

    /// Whether requests are in flight, or were a moment ago.
    pub(crate) fn is_active(&self) -> bool {
        let last = Duration::from_nanos(self.last_end.load(Ordering::Relaxed));
        self.in_flight.load(Ordering::Relaxed) > 0
            || self.clock.now().since(Time::from_origin(last)) < QUIET_AFTER
    }

    /// A request was picked: scraping must be back at full speed at once.
    fn started(&self) {
        if !self.is_active() {
            self.woken.notify_waiters();
        }
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives a reservation back. `worth` is what the flow is charged for, in tokens.
    fn finish(&self, lease: Lease, end: End, class: &Class, worth: u64) {
        self.last_end.store(self.clock.now().as_nanos(), Ordering::Relaxed);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        let now = self.clock.now();
        let mut state = self.lock();
        state.flow.ended(lease.id());
        state.pool.finish(lease, end, now);
        state.flow.served(class, worth);
        let State { pool, flow, random } = &mut *state;
        flow.dispatch(pool, random, now);
    }

    /// The address of an endpoint, unless it has just left.
    pub(crate) fn endpoint(&self, id: EndpointId) -> Option<Arc<Endpoint>> {
        self.endpoints.load().iter().find(|endpoint| endpoint.id == id).cloned()
    }
}
