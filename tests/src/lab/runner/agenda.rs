//! What is going to happen, in order of time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use gateway_core::Time;

use super::{Reading, Talk};

/// Something that happens at a time of its own.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A request arrives.
    Arrival(usize),
    /// A reading reaches a gateway.
    Delivery(Box<Reading>),
    /// A gateway asks another one for its news, or gets them.
    Talk(Box<Talk>),
    /// A fault of the scenario.
    Fault(usize),
    /// A gateway reads an engine's page.
    Reading(Reading),
    /// Samples are taken.
    Sample,
    /// The orchestrator takes an endpoint that died off its list.
    Unlisting(usize),
    /// A gateway looks at its queue.
    Wake(usize),
}

/// A queue by time; what is added first for a time comes first.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: BinaryHeap<Entry>,
    added: u64,
}

#[derive(Debug)]
struct Entry {
    at: Time,
    order: u64,
    happening: Happening,
}

impl Agenda {
    pub(super) fn add(&mut self, at: Time, happening: Happening) {
        self.added += 1;
        self.entries.push(Entry { at, order: self.added, happening });
    }

    pub(super) fn next_at(&self) -> Option<Time> {
        self.entries.peek().map(|entry| entry.at)
    }

    pub(super) fn pop(&mut self) -> Option<(Time, Happening)> {
        self.entries.pop().map(|entry| (entry.at, entry.happening))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest: a binary heap gives the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}
