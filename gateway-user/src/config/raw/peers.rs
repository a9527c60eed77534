//! The other gateways in front of the same engines, as they are written.

use serde::{Deserialize, Serialize};

use super::super::at::At;
use super::super::scalar::Span;

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Peers {
    /// Their admin ports, `host:port`.
    pub(crate) addresses: Vec<At<String>>,
    pub(crate) interval: At<Span>,
    /// Interval while nothing is in flight.
    pub(crate) idle_interval: At<Span>,
    pub(crate) stale_after: At<Span>,
}

impl Default for Peers {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            interval: At::of(Span::millis(25)),
            idle_interval: At::of(Span::secs(1)),
            stale_after: At::of(Span::secs(2)),
        }
    }
}
