//! Where signals come from, as it is written.

use serde::{Deserialize, Serialize};

use super::super::at::At;
use super::super::scalar::Span;

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Metrics {
    pub(crate) path: At<String>,
    pub(crate) interval: At<Span>,
    /// Interval while nothing is in flight.
    pub(crate) idle_interval: At<Span>,
    pub(crate) timeout: At<Span>,
    pub(crate) stale_after: At<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mapping: Option<At<Mapping>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            path: At::of("/metrics".to_owned()),
            interval: At::of(Span::millis(50)),
            idle_interval: At::of(Span::secs(1)),
            timeout: At::of(Span::secs(1)),
            stale_after: At::of(Span::secs(2)),
            mapping: None,
        }
    }
}

/// Series of an engine that is not built in; keys are the inference extension's.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_field_names, reason = "they are the extension's")]
pub(crate) struct Mapping {
    pub(crate) queued_requests_spec: Option<At<String>>,
    pub(crate) running_requests_spec: Option<At<String>>,
    pub(crate) kv_usage_spec: Option<At<String>>,
    pub(crate) lora_spec: Option<At<String>>,
    pub(crate) block_size_spec: Option<At<String>>,
    pub(crate) blocks_spec: Option<At<String>>,
    pub(crate) preemptions_spec: Option<At<String>>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Dcgm {
    pub(crate) interval: At<Span>,
    /// How long an endpoint is left out after an XID error.
    pub(crate) xid_window: At<Span>,
}

impl Default for Dcgm {
    fn default() -> Self {
        Self { interval: At::of(Span::secs(1)), xid_window: At::of(Span::secs(300)) }
    }
}
