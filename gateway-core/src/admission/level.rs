//! Waiting requests of one priority, shared fairly among flows.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, 1996) in tokens: each flow has
//! a counter of the tokens it was charged, and the flow with the least is next. A flow
//! that comes, or comes back, starts at the level's virtual time, the counter of whoever
//! was served last: it cannot use what it did not use before. Counters live only
//! while somebody waits; without contention there is nothing to share.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::TicketId;
use crate::Time;

/// Flows told apart. Names come from clients, so they are bounded: when this
/// many wait at once, newcomers share one flow.
const MAX_FLOWS: usize = 1024;

/// Name of the flow that newcomers share; no header can carry it.
const REST: &str = "\n";

/// Place in a flow's queue: what it is ordered by, then arrival.
type Key = (Time, TicketId);

#[derive(Clone, Debug)]
pub(super) struct Level {
    flows: HashMap<Arc<str>, Flow>,
    /// Flows with requests waiting: least charged first, then least recently served.
    ready: BTreeSet<(u64, u64, Arc<str>)>,
    virtual_time: u64,
    turns: u64,
    waiting: usize,
    last_turn: Time,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    queue: BTreeSet<Key>,
    /// Tokens charged, in the level's virtual time.
    counter: u64,
    /// Part of it that may be given back, as its requests are not yet accounted for.
    open: u64,
    /// When it was served last.
    turn: u64,
}

impl Level {
    pub(super) fn new(now: Time) -> Self {
        Self {
            flows: HashMap::new(),
            ready: BTreeSet::new(),
            virtual_time: 0,
            turns: 0,
            waiting: 0,
            last_turn: now,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// When somebody was served last, or began to wait.
    pub(super) fn last_turn(&self) -> Time {
        self.last_turn
    }

    /// Adds a request; returns the flow that it stands in.
    pub(super) fn push(&mut self, flow: &Arc<str>, key: Key) -> Arc<str> {
        let name = self.seat(flow);
        let flow = self.flows.entry(Arc::clone(&name)).or_default();
        if flow.queue.is_empty() {
            flow.counter = flow.counter.max(self.virtual_time);
            self.ready.insert((flow.counter, flow.turn, Arc::clone(&name)));
        }
        flow.queue.insert(key);
        self.waiting += 1;
        name
    }

    /// The flow itself, or the shared one when too many are told apart.
    fn seat(&mut self, flow: &Arc<str>) -> Arc<str> {
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(flow) {
            self.flows.retain(|_, flow| !flow.queue.is_empty());
            if self.flows.len() >= MAX_FLOWS {
                return REST.into();
            }
        }
        Arc::clone(flow)
    }

    /// Whose turn it is.
    pub(super) fn first(&self) -> Option<TicketId> {
        let (_, _, name) = self.ready.first()?;
        self.flows.get(name)?.queue.first().map(|(_, id)| *id)
    }

    pub(super) fn remove(&mut self, name: &Arc<str>, key: Key) {
        let Some(flow) = self.flows.get_mut(name) else { return };
        if flow.queue.remove(&key) {
            self.waiting -= 1;
            if flow.queue.is_empty() {
                self.ready.remove(&(flow.counter, flow.turn, Arc::clone(name)));
            }
        }
    }

    /// Charges a flow for the request that is about to leave it.
    pub(super) fn charge(&mut self, name: &Arc<str>, tokens: u64, now: Time) {
        self.last_turn = now;
        self.turns += 1;
        let turn = self.turns;
        let virtual_time = &mut self.virtual_time;
        Self::update(&mut self.flows, &mut self.ready, name, |flow| {
            *virtual_time = flow.counter.max(*virtual_time);
            // A request that costs nothing could be repeated for ever.
            let tokens = tokens.max(1);
            flow.counter = flow.counter.saturating_add(tokens);
            flow.open = flow.open.saturating_add(tokens);
            flow.turn = turn;
        });
    }

    /// Replaces `charged` by `actual`. No more is given back than is open: a
    /// charge from before the level was last empty is forgotten already.
    pub(super) fn correct(&mut self, name: &str, charged: u64, actual: u64) {
        Self::update(&mut self.flows, &mut self.ready, name, |flow| {
            let settled = charged.max(1).min(flow.open);
            flow.open -= settled;
            let more = actual.saturating_sub(charged);
            let less = charged.saturating_sub(actual).min(settled);
            flow.counter = flow.counter.saturating_add(more).saturating_sub(less);
        });
    }

    /// Changes a flow and keeps its place in `ready` right.
    fn update(
        flows: &mut HashMap<Arc<str>, Flow>,
        ready: &mut BTreeSet<(u64, u64, Arc<str>)>,
        name: &str,
        change: impl FnOnce(&mut Flow),
    ) {
        let Some((name, _)) = flows.get_key_value(name) else { return };
        let name = Arc::clone(name);
        let Some(flow) = flows.get_mut(&name) else { return };
        let waits = ready.remove(&(flow.counter, flow.turn, Arc::clone(&name)));
        change(flow);
        if waits {
            ready.insert((flow.counter, flow.turn, name));
        }
    }
}
