//! Flow control: who goes on, who waits, who is refused.
//!
//! While the pool is full, requests wait here rather than in the engines: here
//! the order can still change, and the endpoint is chosen when there is room, with
//! what is known then. Three rules order them: a higher priority goes first;
//! within a priority, flows (tenants) share by tokens; within a flow, by time or deadline.
//!
//! A request that is offered ends in exactly one of four ways: admitted (at once
//! or by [`Admission::next`]), shed, expired, cancelled.

mod level;
mod settings;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use settings::{AdmissionSettings, Band, BandSettings, Bands, Order, Queueing};

use crate::Time;
use level::Level;

/// A request that asks to go on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ticket {
    /// As `InferenceObjective` has it: higher is more urgent, 0 is usual.
    pub priority: i32,
    /// Whom it is charged to: tenant, key or fairness header.
    pub flow: Arc<str>,
    /// Estimated work: tokens of the prompt and of the answer.
    pub tokens: u64,
    /// Bytes of the body that are held while it waits.
    pub bytes: u64,
    /// When the client gives up, if it says so; the band's limit holds as well.
    pub deadline: Option<Time>,
}

/// Names a waiting request; never reused.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TicketId(u64);

/// Whether the pool can take one more request now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Capacity {
    /// It can.
    Free,
    /// It cannot.
    Full,
}

/// What becomes of a request that was offered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Offer {
    /// It goes on at once.
    Admit,
    /// It waits, until [`Admission::next`] or [`Admission::expire`] names it.
    Queued(TicketId),
    /// It is refused.
    Shed(Shed),
}

/// Why a request is refused, and behind how many it would have waited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shed {
    /// Why.
    pub reason: Reason,
    /// Requests waiting that would have gone first; see [`retry_after`].
    pub ahead: usize,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// Its band's queue is full.
    QueueFull,
    /// It is sheddable, and the pool has no room to spare.
    Saturated,
}

/// The queues of one pool.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    settings: AdmissionSettings,
    /// Waiting requests, oldest first.
    tickets: BTreeMap<TicketId, Waiting>,
    /// Most urgent priority first. A level exists while somebody waits in it.
    levels: BTreeMap<Reverse<i32>, Level>,
    deadlines: BTreeSet<(Time, TicketId)>,
    usage: [Usage; 3],
    /// Past the deadline, and not yet named by [`Admission::expire`].
    overdue: Vec<TicketId>,
    next_id: u64,
}

#[derive(Clone, Debug)]
struct Waiting {
    ticket: Ticket,
    /// Where it stands in its level.
    flow: Arc<str>,
    order: Time,
    since: Time,
    deadline: Time,
}

/// What a band holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Requests waiting.
    pub requests: usize,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl Admission {
    /// Empty queues.
    #[must_use]
    pub fn new(settings: AdmissionSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Changes the bounds. Who waits already keeps place and deadline.
    pub fn reconfigure(&mut self, settings: AdmissionSettings) {
        self.settings = settings;
    }

    /// Takes a request that has just arrived.
    pub fn offer(&mut self, now: Time, ticket: Ticket, capacity: Capacity) -> Offer {
        let band = Band::of(ticket.priority);
        let queueing = self.settings.queueing == Queueing::On;
        let alone = self.tickets.is_empty();
        if capacity == Capacity::Full && band == Band::Sheddable && !(queueing && alone) {
            return self.shed(Reason::Saturated, &ticket);
        }
        // With queueing just turned off some may still wait; newcomers do not join them.
        if !queueing || (capacity == Capacity::Free && alone) {
            return Offer::Admit;
        }
        let bounds = self.settings.bands.of(band);
        let usage = self.usage[band as usize];
        let fits = usage.requests < bounds.max_requests
            && usage.bytes.saturating_add(ticket.bytes) <= bounds.max_bytes;
        if fits {
            Offer::Queued(self.push(now, ticket))
        } else {
            self.shed(Reason::QueueFull, &ticket)
        }
    }

    fn shed(&self, reason: Reason, ticket: &Ticket) -> Offer {
        Offer::Shed(Shed { reason, ahead: self.ahead_of(ticket.priority) })
    }

    /// Requests that would go before a new one of this priority.
    #[must_use]
    pub fn ahead_of(&self, priority: i32) -> usize {
        self.levels.range(..=Reverse(priority)).map(|(_, level)| level.len()).sum()
    }

    fn push(&mut self, now: Time, ticket: Ticket) -> TicketId {
        let id = TicketId(self.next_id);
        self.next_id += 1;
        let band = Band::of(ticket.priority);
        let bounds = self.settings.bands.of(band);
        let limit = now + bounds.timeout;
        let deadline = ticket.deadline.map_or(limit, |deadline| deadline.min(limit));
        let order = match bounds.order {
            Order::Edf => deadline,
            Order::Fifo => now,
        };
        let usage = &mut self.usage[band as usize];
        usage.requests += 1;
        usage.bytes += ticket.bytes;
        let level = self.levels.entry(Reverse(ticket.priority)).or_insert_with(|| Level::new(now));
        let flow = level.push(&ticket.flow, (order, id));
        self.deadlines.insert((deadline, id));
        self.tickets.insert(id, Waiting { ticket, flow, order, since: now, deadline });
        id
    }

    /// Whose turn it is, now that the pool has room for one more; its tokens are
    /// charged to its flow. Who is past the deadline has no turn and is left to
    /// [`Admission::expire`].
    pub fn next(&mut self, now: Time) -> Option<TicketId> {
        self.sweep(now);
        let limit = self.settings.starvation_limit;
        let starved = limit.and_then(|limit| {
            let waits = |level: &Level| now.since(level.last_turn());
            let (priority, level) = self.levels.iter().max_by_key(|(_, level)| waits(level))?;
            (waits(level) >= limit).then_some(*priority)
        });
        let priority = starved.or_else(|| self.levels.keys().next().copied())?;
        let id = self.levels.get(&priority)?.first()?;
        let waiting = self.tickets.get(&id)?;
        let level = self.levels.get_mut(&priority)?;
        level.charge(&waiting.flow, waiting.ticket.tokens, now);
        self.remove(id);
        Some(id)
    }

    /// Those whose time is up; each is named once.
    #[must_use = "they have left the queue and must be answered"]
    pub fn expire(&mut self, now: Time) -> Vec<TicketId> {
        self.sweep(now);
        std::mem::take(&mut self.overdue)
    }

    /// When [`Admission::expire`] will have somebody to name.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Takes out a request whose client is gone. Says whether it was still there.
    pub fn cancel(&mut self, id: TicketId) -> bool {
        let overdue = self.overdue.len();
        self.overdue.retain(|other| *other != id);
        self.remove(id).is_some() || self.overdue.len() < overdue
    }

    /// Corrects what a flow was charged by what its request turned out to be worth,
    /// or by what an aborted answer had delivered.
    pub fn served(&mut self, priority: i32, flow: &str, charged: u64, actual: u64) {
        if let Some(level) = self.levels.get_mut(&Reverse(priority)) {
            level.correct(flow, charged, actual);
        }
    }

    /// Requests waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// What a band holds.
    #[must_use]
    pub fn usage(&self, band: Band) -> Usage {
        self.usage[band as usize]
    }

    /// How long the one waits that waits longest.
    #[must_use]
    pub fn longest_wait(&self, now: Time) -> Duration {
        let oldest = self.tickets.first_key_value();
        oldest.map_or(Duration::ZERO, |(_, waiting)| now.since(waiting.since))
    }

    /// Moves those whose time is up out of the queues.
    fn sweep(&mut self, now: Time) {
        while let Some(&(deadline, id)) = self.deadlines.first() {
            if deadline > now {
                return;
            }
            self.remove(id);
            self.overdue.push(id);
        }
    }

    fn remove(&mut self, id: TicketId) -> Option<Waiting> {
        let waiting = self.tickets.remove(&id)?;
        self.deadlines.remove(&(waiting.deadline, id));
        let ticket = &waiting.ticket;
        let usage = &mut self.usage[Band::of(ticket.priority) as usize];
        usage.requests -= 1;
        usage.bytes -= ticket.bytes;
        let priority = Reverse(ticket.priority);
        if let Some(level) = self.levels.get_mut(&priority) {
            level.remove(&waiting.flow, (waiting.order, id));
            if level.is_empty() {
                self.levels.remove(&priority);
            }
        }
        Some(waiting)
    }
}

/// Bounds of the advice in `Retry-After`.
const RETRY_AFTER: std::ops::RangeInclusive<f64> = 1.0..=60.0;

/// How long a refused client should wait: until those `ahead` of it are served at `rate`
/// requests per second, and up to a quarter longer by `jitter` (uniform in 0..1),
/// so that the refused do not all return together. Whole seconds, 1 to 60; 60
/// when nothing is being served.
#[must_use]
pub fn retry_after(ahead: usize, rate: f64, jitter: f64) -> Duration {
    let wait = (ahead as f64 + 1.0) / rate.max(0.0) * (1.0 + 0.25 * jitter.clamp(0.0, 1.0));
    // A rate that is not a number ends as the longest wait, too.
    let seconds = if wait.is_nan() { *RETRY_AFTER.end() } else { wait.ceil() };
    Duration::from_secs_f64(seconds.clamp(*RETRY_AFTER.start(), *RETRY_AFTER.end()))
}

#[cfg(test)]
mod tests;
