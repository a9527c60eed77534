//! Runs engines on the real clock.
//!
//! The engines sit behind one lock, held for microseconds. A task sleeps until the
//! next engine event, runs the engines up to now and hands each event to the
//! request it belongs to; a submission wakes it early.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::Time;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::latency::Latencies;
use super::options::Options;
use crate::engine::{Engine, EngineRequest, Event, EventKind, Load, RequestId, Stats, TooLarge};

/// Progress of one of a request's choices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Which choice.
    pub(super) choice: usize,
    pub(super) kind: EventKind,
}

/// One data-parallel engine and what its metrics need.
#[derive(Debug)]
struct Rank {
    engine: Engine,
    latencies: Latencies,
    subscribers: HashMap<RequestId, Subscriber>,
}

#[derive(Debug)]
struct Subscriber {
    choice: usize,
    to: UnboundedSender<Progress>,
    last_token: Time,
}

/// The engines of one server.
#[derive(Debug)]
pub(super) struct Driver {
    ranks: Mutex<Vec<Rank>>,
    changed: Notify,
    started: Instant,
    time_scale: f64,
}

/// A request in an engine; dropping it aborts what is not finished.
#[must_use = "the request runs only while this lives"]
pub(super) struct Running {
    driver: Arc<Driver>,
    rank: usize,
    id: RequestId,
}

impl Driver {
    pub(super) fn new(options: &Options) -> Self {
        let rank = || Rank {
            engine: Engine::new(options.profile.clone(), options.engine.clone()),
            latencies: Latencies::default(),
            subscribers: HashMap::new(),
        };
        Self {
            ranks: Mutex::new((0..options.ranks.max(1)).map(|_| rank()).collect()),
            changed: Notify::new(),
            started: Instant::now(),
            time_scale: options.time_scale.max(f64::MIN_POSITIVE),
        }
    }

    /// Runs the engines until dropped.
    pub(super) async fn run(&self) {
        loop {
            let next = self.turn();
            let changed = self.changed.notified();
            match next {
                Some(next) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(self.instant(next)) => {}
                        () = changed => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// Queues one choice of a request at the engine with the least to do.
    pub(super) fn submit(
        self: &Arc<Self>,
        request: EngineRequest,
        choice: usize,
        to: UnboundedSender<Progress>,
    ) -> Result<Running, TooLarge> {
        let (now, mut ranks) = (self.now(), self.lock());
        let (index, rank) = ranks
            .iter_mut()
            .enumerate()
            .min_by_key(|(_, rank)| rank.engine.in_flight())
            .ok_or(TooLarge { needed: 0, capacity: 0 })?;
        let id = rank.engine.submit(now, request)?;
        rank.subscribers.insert(id, Subscriber { choice, to, last_token: now });
        drop(ranks);
        self.changed.notify_one();
        Ok(Running { driver: Arc::clone(self), rank: index, id })
    }

    /// Reads every engine at one moment.
    pub(super) fn read<T>(
        &self,
        mut reading: impl FnMut(&Load, &Stats, &Latencies) -> T,
    ) -> Vec<T> {
        self.turn();
        let ranks = self.lock();
        let read = |rank: &Rank| reading(&rank.engine.load(), rank.engine.stats(), &rank.latencies);
        ranks.iter().map(read).collect()
    }

    /// Empties the prefix caches, as a restart would.
    pub(super) fn clear_prefix_caches(&self) {
        self.lock().iter_mut().for_each(|rank| rank.engine.clear_prefix_cache());
    }

    /// Brings every engine up to now; says when to come again.
    fn turn(&self) -> Option<Time> {
        let (now, mut ranks) = (self.now(), self.lock());
        let mut events = Vec::new();
        for rank in &mut *ranks {
            rank.engine.advance(now, &mut events);
            events.drain(..).for_each(|event| rank.deliver(event));
        }
        ranks.iter().filter_map(|rank| rank.engine.next_event()).min()
    }

    fn now(&self) -> Time {
        Time::from_origin(self.started.elapsed().mul_f64(self.time_scale))
    }

    fn instant(&self, time: Time) -> Instant {
        let real = time.since_origin().as_secs_f64() / self.time_scale;
        self.started + Duration::try_from_secs_f64(real).unwrap_or(Duration::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rank>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rank {
    fn deliver(&mut self, event: Event) {
        let Some(subscriber) = self.subscribers.get_mut(&event.request) else { return };
        if event.kind == EventKind::Token {
            self.latencies.inter_token.observe(event.at.since(subscriber.last_token).as_secs_f64());
        }
        subscriber.last_token = event.at;
        // A receiver that is gone is about to drop its `Running`.
        let progress = Progress { choice: subscriber.choice, kind: event.kind };
        let _gone = subscriber.to.send(progress);
        if let EventKind::Finished(ended) = event.kind {
            self.latencies.observe(&ended, event.at);
            self.subscribers.remove(&event.request);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = self.driver.now();
        let mut ranks = self.driver.lock();
        let rank = &mut ranks[self.rank];
        if rank.subscribers.remove(&self.id).is_some() {
            rank.engine.abort(now, self.id);
            drop(ranks);
            self.driver.changed.notify_one();
        }
    }
}
