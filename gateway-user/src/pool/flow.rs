//! Who may go on to an endpoint, who waits, and who is sent away.
//!
//! The core orders the queue; this file keeps the waiting requests themselves. A
//! request is bound to an endpoint when it leaves the queue, by whoever makes
//! room and under the same lock, so that no newcomer can take the room from it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::Time;
use gateway_core::admission::{
    Admission, Band, Capacity, Offer, Queueing, Reason, Ticket, TicketId, retry_after,
};
use gateway_core::pool::{self, End, LeaseId, NoEndpoint, Room};
use gateway_core::retry::{Attempt, Decision, RetryBudget};
use tokio::sync::oneshot;

use super::hold::{self, Held, Place};
use super::{Demand, Pool, Reservation, Shared, State};
use crate::config::PoolConfig;
use crate::metrics::Metrics;
use crate::proxy::error::ProxyError;

/// What flow control needs of a request.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    /// As an `InferenceObjective` has it.
    pub(crate) priority: i32,
    /// Whom the tokens are charged to.
    pub(crate) flow: Arc<str>,
    /// Estimated length of the prompt.
    pub(crate) prompt_tokens: u64,
    /// Estimated work, prompt and answer.
    pub(crate) tokens: u64,
    /// Bytes of the body that are held.
    pub(crate) bytes: u64,
}

/// A request that has an endpoint.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) reservation: Reservation,
    /// How long it waited, if it did.
    pub(crate) queued: Option<Duration>,
}

/// The queue and the retry budget of a pool.
#[derive(Debug)]
pub(super) struct Flow {
    held: Held,
    admission: Admission,
    queueing: Queueing,
    waiting: HashMap<TicketId, Waiter>,
    retries: RetryBudget,
}

/// A request in the queue.
#[derive(Debug)]
struct Waiter {
    demand: Demand,
    answer: oneshot::Sender<Result<Place, NoEndpoint>>,
}

/// What became of a request that asked.
enum Asked {
    Picked(Place),
    Queued(TicketId, oneshot::Receiver<Result<Place, NoEndpoint>>),
}

impl Flow {
    pub(super) fn new(config: &PoolConfig) -> Self {
        Self {
            held: Held::default(),
            admission: Admission::new(config.admission.clone()),
            queueing: config.admission.queueing,
            waiting: HashMap::new(),
            retries: RetryBudget::new(config.retry.budget),
        }
    }

    pub(super) fn reconfigure(&mut self, config: &PoolConfig) {
        self.admission.reconfigure(config.admission.clone());
        self.queueing = config.admission.queueing;
        self.retries.reconfigure(config.retry.budget);
    }

    /// Requests that wait for room.
    pub(super) fn queued(&self) -> usize {
        self.admission.len()
    }

    /// Notes that a request has ended, sent or not.
    pub(super) fn ended(&mut self, lease: LeaseId) {
        self.held.forget(lease);
    }

    /// Corrects what a flow was charged by what its request was worth.
    pub(super) fn served(&mut self, class: &Class, actual: u64) {
        self.admission.served(class.priority, &class.flow, class.tokens, actual);
    }

    /// Lets held requests go that are due, and queued ones while there is room.
    pub(super) fn dispatch(
        &mut self,
        pool: &mut pool::Pool,
        random: &mut fastrand::Rng,
        now: Time,
    ) {
        self.held.release(pool, now);
        while !self.admission.is_empty() && capacity(pool, now) == Capacity::Free {
            let Some(id) = self.admission.next(now) else { return };
            let Some(waiter) = self.waiting.remove(&id) else { continue };
            let picked = pool.pick(&waiter.demand.view(), now, random);
            let placed = picked.map(|pick| self.held.place(pick));
            if let Err(Ok(unwanted)) = waiter.answer.send(placed) {
                // Its client went away a moment ago.
                self.held.forget(unwanted.pick.lease.id());
                pool.finish(unwanted.pick.lease, End::NotSent, now);
            }
        }
    }

    fn ask(
        &mut self,
        pool: &mut pool::Pool,
        random: &mut fastrand::Rng,
        now: Time,
        demand: &Demand,
        class: &Class,
    ) -> Result<Asked, ProxyError> {
        // A pool that neither queues nor knows a sheddable band is never asked for
        // its room: that costs a look at every endpoint.
        let looks = self.queueing == Queueing::On || Band::of(class.priority) == Band::Sheddable;
        let free = if looks { capacity(pool, now) } else { Capacity::Free };
        match self.admission.offer(now, ticket(class), free) {
            Offer::Admit => match pool.pick(&demand.view(), now, random) {
                Ok(pick) => return Ok(Asked::Picked(self.held.place(pick))),
                Err(NoEndpoint::Full) => {}
                Err(other) => return Err(ProxyError::NoEndpoint(other.to_string())),
            },
            Offer::Queued(id) => return Ok(self.wait(id, demand)),
            Offer::Shed(shed) => {
                let cause = match shed.reason {
                    Reason::QueueFull => "queue-full",
                    Reason::Saturated => "shed",
                };
                return Err(exhausted(shed.ahead, pool, random, now, cause));
            }
        }
        // Every endpoint is at its own bound, whatever the pool's mean load says.
        if self.queueing == Queueing::On
            && let Offer::Queued(id) = self.admission.offer(now, ticket(class), Capacity::Full)
        {
            return Ok(self.wait(id, demand));
        }
        let ahead = self.admission.ahead_of(class.priority);
        Err(exhausted(ahead, pool, random, now, "pool-full"))
    }

    fn wait(&mut self, id: TicketId, demand: &Demand) -> Asked {
        let (answer, receiver) = oneshot::channel();
        self.waiting.insert(id, Waiter { demand: demand.clone(), answer });
        Asked::Queued(id, receiver)
    }
}

impl Pool {
    /// Waits for room, picks an endpoint and reserves it.
    ///
    /// # Errors
    ///
    /// [`ProxyError::Exhausted`] when the request is shed or waited too long,
    /// [`ProxyError::NoEndpoint`] when nobody could serve it.
    pub(crate) async fn admit(
        &self,
        demand: &Demand,
        class: &Class,
        attempt: u32,
        metrics: &Metrics,
    ) -> Result<Admitted, ProxyError> {
        let shared = &self.shared;
        let now = shared.clock.now();
        let asked = {
            let mut state = shared.lock();
            let State { pool, flow, random } = &mut *state;
            if attempt == 0 {
                flow.retries.request(now);
            }
            let asked = flow.ask(pool, random, now, demand, class)?;
            flow.held.release(pool, now);
            asked
        };
        match asked {
            Asked::Picked(place) => {
                let took = shared.clock.now().since(now);
                metrics.decision.with_label_values::<&str>(&[]).observe(took.as_secs_f64());
                let is_held = place.due.is_some();
                let reservation = self.reserve(place, class).await;
                let queued = is_held.then(|| self.note_wait(now, metrics));
                Ok(Admitted { reservation, queued })
            }
            Asked::Queued(id, receiver) => {
                let queued = Queued { shared, id, receiver };
                let place = queued.wait(self.longest_wait(class), class).await;
                let reserved = match place {
                    Ok(place) => Ok(self.reserve(place, class).await),
                    Err(error) => Err(error),
                };
                let queued = Some(self.note_wait(now, metrics));
                Ok(Admitted { reservation: reserved?, queued })
            }
        }
    }

    /// A reservation that may be sent: who is held waits for the lot.
    async fn reserve(&self, place: Place, class: &Class) -> Reservation {
        let Place { pick, due } = place;
        let reservation = Reservation::new(Arc::clone(&self.shared), pick, class.clone());
        if let Some(due) = due {
            hold::wait(&self.shared, due).await;
        }
        reservation
    }

    /// How long a request has waited that asked at `since`.
    fn note_wait(&self, since: Time, metrics: &Metrics) -> Duration {
        let waited = self.shared.clock.now().since(since);
        metrics.queue_wait.with_label_values(&[&*self.shared.name]).observe(waited.as_secs_f64());
        waited
    }

    fn longest_wait(&self, class: &Class) -> Duration {
        self.config.admission.bands.of(Band::of(class.priority)).timeout
    }

    /// Whether a failed attempt may be repeated; takes from the budget if so.
    pub(crate) fn decide_retry(&self, attempt: &Attempt) -> Decision {
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        let jitter = state.random.f64();
        self.config.retry.decide(attempt, &mut state.flow.retries, now, jitter)
    }
}

/// A place in the queue; dropping it leaves the queue.
struct Queued<'a> {
    shared: &'a Arc<Shared>,
    id: TicketId,
    receiver: oneshot::Receiver<Result<Place, NoEndpoint>>,
}

impl Queued<'_> {
    async fn wait(mut self, longest: Duration, class: &Class) -> Result<Place, ProxyError> {
        match tokio::time::timeout(longest, &mut self.receiver).await {
            Ok(Ok(Ok(place))) => Ok(place),
            Ok(Ok(Err(NoEndpoint::Full)) | Err(_)) | Err(_) => {
                let now = self.shared.clock.now();
                let mut state = self.shared.lock();
                let State { pool, flow, random } = &mut *state;
                let ahead = flow.admission.ahead_of(class.priority);
                Err(exhausted(ahead, pool, random, now, "queue-timeout"))
            }
            Ok(Ok(Err(other))) => Err(ProxyError::NoEndpoint(other.to_string())),
        }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        let State { pool, flow, .. } = &mut *state;
        flow.admission.cancel(self.id);
        flow.waiting.remove(&self.id);
        // A pick may have crossed with the departure.
        self.receiver.close();
        if let Ok(Ok(place)) = self.receiver.try_recv() {
            flow.held.forget(place.pick.lease.id());
            pool.finish(place.pick.lease, End::NotSent, now);
        }
    }
}

fn ticket(class: &Class) -> Ticket {
    Ticket {
        priority: class.priority,
        flow: Arc::clone(&class.flow),
        tokens: class.tokens,
        bytes: class.bytes,
        deadline: None,
    }
}

/// A pool without any endpoint that may serve is not full but broken: its requests
/// are let through to be told so.
fn capacity(pool: &pool::Pool, now: Time) -> Capacity {
    match pool.room(now) {
        Room::Full { .. } => Capacity::Full,
        Room::None | Room::Open { .. } => Capacity::Free,
    }
}

fn exhausted(
    ahead: usize,
    pool: &pool::Pool,
    random: &mut fastrand::Rng,
    now: Time,
    cause: &'static str,
) -> ProxyError {
    let retry_after = retry_after(ahead, pool.drain_rate(now), random.f64());
    ProxyError::Exhausted { retry_after, cause }
}
