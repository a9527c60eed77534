//! A pool as it is written.

use gateway_core::policy::Lots;
use serde::{Deserialize, Serialize};

use super::super::at::At;
use super::super::scalar::{Size, Span};
use super::super::secret::SecretSource;
use super::super::switch::Section;
use super::super::{Datapath, SteeringMode, Switch};
use super::{Dcgm, Endpoint, FlowControl, Metrics};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Pool {
    pub(crate) name: At<String>,
    /// Absent: whatever its engines say they serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model_name: Option<At<String>>,
    pub(crate) aliases: Vec<At<String>>,
    pub(crate) served_names: Vec<At<String>>,
    pub(crate) lora_adapters: Vec<At<String>>,
    pub(crate) engine_type: At<String>,
    pub(crate) endpoints: Vec<At<Endpoint>>,
    pub(crate) metrics: Section<Metrics>,
    pub(crate) dcgm: Dcgm,
    /// Default: `weighted` when there are weights, else `predicted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<At<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weights: Option<At<Weights>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) predicted: Option<At<Predicted>>,
    pub(crate) prefix: Prefix,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_affinity: Option<SessionAffinity>,
    pub(crate) max_request_body_bytes: At<Size>,
    pub(crate) timeouts: Timeouts,
    /// The inference gateway resource's name for `timeouts.request`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) route_timeout: Option<At<Span>>,
    pub(crate) retry: Section<Retry>,
    pub(crate) health: Section<Health>,
    pub(crate) ejection: Section<Ejection>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flow_control: Option<FlowControl>,
    pub(crate) failure_mode: FailureMode,
    /// How long a new endpoint's share grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slow_start: Option<At<Span>>,
    /// Sent to the engines in place of the client's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_key: Option<At<SecretSource>>,
    /// Default: on for engines that are known to switch Nagle's algorithm off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delayed_acks: Option<Switch>,
    /// How streamed answers go to clients.
    pub(crate) datapath: Datapath,
    /// Whether `sk_msg` may be used where the kernel then answers `FIONREAD` with 0.
    pub(crate) accept_broken_fionread: bool,
    /// Address and port that clients on this node connect to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) virtual_ip: Option<At<String>>,
    /// What becomes of their connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<At<SteeringMode>>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            name: At::default(),
            model_name: None,
            aliases: Vec::new(),
            served_names: Vec::new(),
            lora_adapters: Vec::new(),
            engine_type: At::of("vllm".to_owned()),
            endpoints: Vec::new(),
            metrics: Section::default(),
            dcgm: Dcgm::default(),
            policy: None,
            weights: None,
            predicted: None,
            prefix: Prefix::default(),
            session_affinity: None,
            max_request_body_bytes: At::of(Size(256 << 20)),
            timeouts: Timeouts::default(),
            route_timeout: None,
            retry: Section::default(),
            health: Section::default(),
            ejection: Section::default(),
            flow_control: None,
            failure_mode: FailureMode::default(),
            slow_start: None,
            api_key: None,
            delayed_acks: None,
            datapath: Datapath::default(),
            accept_broken_fionread: false,
            virtual_ip: None,
            mode: None,
        }
    }
}

/// Absent weights are 0 once any is written; written weights imply `weighted`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Weights {
    pub(crate) queue: f64,
    pub(crate) kv_cache: f64,
    pub(crate) prefix: f64,
    pub(crate) lru: f64,
    pub(crate) lora_affinity: f64,
    pub(crate) running_requests: f64,
    pub(crate) predicted_latency: f64,
    pub(crate) token_load: f64,
    pub(crate) session_affinity: f64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Predicted {
    pub(crate) harm_price: f64,
    pub(crate) adapter_load: Span,
    pub(crate) adapter_slot: Span,
    pub(crate) preemption: Span,
    pub(crate) leave_session: Span,
    pub(crate) exploration: f64,
    pub(crate) start_in_lots: Switch,
    pub(crate) max_deferral: Span,
}

impl Default for Predicted {
    fn default() -> Self {
        let core = gateway_core::policy::PredictedSettings::default();
        Self {
            harm_price: core.harm_price,
            adapter_load: Span(core.adapter_load),
            adapter_slot: Span(core.adapter_slot),
            preemption: Span(core.preemption),
            leave_session: Span(core.leave_session),
            exploration: core.exploration,
            start_in_lots: match core.lots {
                Lots::Off => Switch::Off,
                Lots::On => Switch::On,
            },
            max_deferral: Span(core.max_deferral),
        }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Prefix {
    pub(crate) block_tokens: At<u32>,
    pub(crate) max_blocks: At<usize>,
    /// Blocks remembered per endpoint.
    pub(crate) capacity_blocks: At<usize>,
}

impl Default for Prefix {
    fn default() -> Self {
        let core = gateway_core::pool::PrefixSettings::default();
        Self {
            block_tokens: At::of(core.block_tokens),
            max_blocks: At::of(core.max_blocks),
            capacity_blocks: At::of(core.capacity_blocks_per_endpoint),
        }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct SessionAffinity {
    pub(crate) header: At<String>,
}

impl Default for SessionAffinity {
    fn default() -> Self {
        Self { header: At::of("x-session-id".to_owned()) }
    }
}

/// Absent here, a pool's is the top level's, and the top level's a default.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Timeouts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connect: Option<At<Span>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_byte: Option<At<Span>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idle: Option<At<Span>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<At<Span>>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Retry {
    /// Attempts beyond the first.
    pub(crate) attempts: u32,
    pub(crate) budget_percent: u32,
    pub(crate) min_retries_per_second: u32,
    pub(crate) on: Vec<At<RetryOn>>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 2,
            budget_percent: 20,
            min_retries_per_second: 3,
            on: ["connect", "close", "502", "503"]
                .map(|on| At::of(RetryOn(on.to_owned())))
                .to_vec(),
        }
    }
}

/// `connect`, `close` or a status of 500 to 599.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct RetryOn(pub(crate) String);

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Health {
    pub(crate) path: At<String>,
    pub(crate) interval: At<Span>,
    pub(crate) timeout: At<Span>,
    /// Failures in a row that take an endpoint out.
    pub(crate) failures: At<u32>,
    /// Successes in a row that bring it back.
    pub(crate) successes: At<u32>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            path: At::of("/health".to_owned()),
            interval: At::of(Span::secs(5)),
            timeout: At::of(Span::secs(2)),
            failures: At::of(3),
            successes: At::of(1),
        }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Ejection {
    pub(crate) consecutive_failures: At<u32>,
    pub(crate) base: At<Span>,
    pub(crate) max: At<Span>,
    pub(crate) max_percent: At<u8>,
}

impl Default for Ejection {
    fn default() -> Self {
        let core = gateway_core::health::EjectionSettings::default();
        Self {
            consecutive_failures: At::of(core.consecutive_failures),
            base: At::of(Span(core.base)),
            max: At::of(Span(core.max)),
            max_percent: At::of(core.max_percent),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) enum FailureMode {
    #[default]
    FailClosed,
    FailOpen,
}
