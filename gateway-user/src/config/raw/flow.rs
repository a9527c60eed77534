//! Flow control as it is written.

use serde::{Deserialize, Serialize};

use super::super::at::At;
use super::super::scalar::{Size, Span};

/// Written, even empty, it turns queueing on.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct FlowControl {
    /// Hard bound of this gateway's requests at one endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_in_flight_per_endpoint: Option<At<u32>>,
    /// Waiting requests at which an engine is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue_depth: Option<At<u32>>,
    /// KV-cache use at which an engine is full, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kv_usage: Option<At<f64>>,
    /// Longest time that lower priorities get nothing at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) starvation_limit: Option<At<Span>>,
    pub(crate) bands: Bands,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Bands {
    pub(crate) critical: Band,
    pub(crate) standard: Band,
    pub(crate) sheddable: Band,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Band {
    pub(crate) max_requests: usize,
    pub(crate) max_bytes: Size,
    /// Longest wait.
    pub(crate) timeout: At<Span>,
    pub(crate) order: Order,
}

impl Default for Band {
    fn default() -> Self {
        Self {
            max_requests: 5000,
            max_bytes: Size(1_000_000_000),
            timeout: At::of(Span::secs(60)),
            order: Order::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Order {
    #[default]
    Fifo,
    Edf,
}
