//! What a server remembers of its requests, for tests to read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A request as it arrived.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoggedRequest {
    /// Method, target and headers as sent.
    pub head: super::Head,
    /// The body, without transfer encoding.
    pub body: Vec<u8>,
}

/// Totals of one server; gauges say so.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) accepted: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) inference: AtomicU64,
    pub(super) completed: AtomicU64,
    pub(super) aborted: AtomicU64,
    pub(super) struck: AtomicU64,
    pub(super) scrapes: AtomicU64,
}

/// A reading of a server's totals.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct Counters {
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Requests read, of every kind.
    pub requests: u64,
    /// Requests for inference.
    pub inference_requests: u64,
    /// Inference requests answered in full.
    pub completed: u64,
    /// Inference requests whose client went away.
    pub aborted: u64,
    /// Requests struck by an ordered failure.
    pub struck: u64,
    /// Readings of `/metrics`.
    pub scrapes: u64,
}

impl Totals {
    pub(super) fn read(&self) -> Counters {
        let read = |total: &AtomicU64| total.load(Ordering::Relaxed);
        Counters {
            connections_accepted: read(&self.accepted),
            connections_open: read(&self.open),
            requests: read(&self.requests),
            inference_requests: read(&self.inference),
            completed: read(&self.completed),
            aborted: read(&self.aborted),
            struck: read(&self.struck),
            scrapes: read(&self.scrapes),
        }
    }
}

/// Adds one to a total.
pub(super) fn count(total: &AtomicU64) {
    total.fetch_add(1, Ordering::Relaxed);
}

/// Counts an open connection until it drops.
#[must_use = "the connection counts as open only while the guard lives"]
pub(super) struct OpenConnection<'a>(&'a Totals);

impl<'a> OpenConnection<'a> {
    pub(super) fn new(totals: &'a Totals) -> Self {
        count(&totals.accepted);
        count(&totals.open);
        Self(totals)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
