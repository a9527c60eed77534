//! The table of leases: what each reserved, and what is left of it.
//!
//! A lease itself is a ticket with a place and a serial. The state lives here, so that
//! a first token reported twice, or a lease of an endpoint that has left,
//! changes nothing.

use super::EndpointId;
use super::lease::Lease;
use crate::policy::speed::Features;
use crate::time::Time;

/// One request in flight.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) serial: u64,
    pub(super) origin: Origin,
    pub(super) slot: u32,
    pub(super) endpoint: EndpointId,
    pub(super) stage: Stage,
    /// Uncached prompt tokens reserved.
    pub(super) tokens: u32,
    /// The endpoint's reading when it was sent.
    pub(super) reading: u64,
    pub(super) picked: Time,
    /// When it was sent: at once, or when its lot was due.
    pub(super) sent: Time,
    /// What the prediction was made from.
    pub(super) features: Features,
    /// Seconds of work that end with its first token, others' share included.
    pub(super) work: f64,
    /// Seconds of a step that starts prompts, their tokens aside.
    pub(super) start: f64,
    pub(super) found: Found,
    /// Predicted time to first token, seconds.
    pub(super) predicted: f64,
    pub(super) lesson: Lesson,
}

/// Whose request it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    /// This gateway's.
    Here,
    /// Another one's, which told of it.
    Peer,
}

impl Entry {
    /// Whether only its end will be seen.
    pub(super) fn is_whole(&self) -> bool {
        self.lesson == Lesson::WholeTime
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    Decode,
    /// It gives way to shorter ones, and has not been sent yet.
    Deferred {
        /// For so long at most.
        until: Time,
    },
    /// It has not been sent yet.
    Held,
    Prefill,
}

impl Stage {
    /// Whether it waits in the gateway.
    pub(super) fn is_unsent(self) -> bool {
        matches!(self, Self::Deferred { .. } | Self::Held)
    }
}

/// What a request found at its endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Found {
    /// Nothing stood before it.
    Idle,
    /// Others waited or were being computed.
    Queue,
}

/// What a request can teach of the endpoint's speed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Lesson {
    /// Its first token will be seen.
    FirstToken,
    /// Nothing: an adapter had to be loaded first.
    Nothing,
    /// Only its end will be seen.
    WholeTime,
}

/// All leases of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    serial: u64,
}

impl Ledger {
    /// Enters a request; `entry.serial` is filled in.
    pub(super) fn enter(&mut self, mut entry: Entry) -> Lease {
        self.serial += 1;
        entry.serial = self.serial;
        let endpoint = entry.endpoint;
        let place = if let Some(place) = self.free.pop() {
            self.entries[place as usize] = Some(entry);
            place
        } else {
            self.entries.push(Some(entry));
            self.entries.len() as u32 - 1
        };
        Lease { endpoint, place, serial: self.serial }
    }

    /// The entry of a lease that is still open.
    pub(super) fn open(&mut self, place: u32, serial: u64) -> Option<&mut Entry> {
        self.entries.get_mut(place as usize)?.as_mut().filter(|entry| entry.serial == serial)
    }

    /// Closes a lease.
    pub(super) fn close(&mut self, lease: &Lease) -> Option<Entry> {
        self.open(lease.place, lease.serial)?;
        self.free.push(lease.place);
        self.entries[lease.place as usize].take()
    }

    /// All open ones.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
    }

    /// Number of open leases.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.iter().flatten().count()
    }
}
