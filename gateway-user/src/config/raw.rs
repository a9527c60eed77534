//! The configuration as it is written: the schema, its names and its defaults.
//!
//! File and flags both end here, so that there is one conversion and one place for
//! a default. Field names are camelCase because the same schema becomes a Kubernetes
//! resource; `docs/decisions/0001-camel-case-configuration.md`.

mod endpoint;
mod flow;
mod peers;
mod pool;
mod scrape;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use endpoint::Endpoint;
pub(crate) use flow::{Band, FlowControl, Order};
pub(crate) use peers::Peers;
pub(crate) use pool::{
    Ejection, FailureMode, Health, Pool, Predicted, Prefix, Retry, SessionAffinity, Timeouts,
    Weights,
};
pub(crate) use scrape::{Dcgm, Mapping, Metrics};

use super::at::At;
use super::scalar::{Size, Span};
use super::secret::SecretSource;
use super::switch::{Section, Several};
use super::{Level, LogFormat, Switch};

/// The whole file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Addresses to serve clients on.
    pub(crate) listen: At<Several<At<String>>>,
    pub(crate) admin: Admin,
    /// `none`, or API keys. Must be written on an address that others can reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auth: Option<At<Section<Auth>>>,
    /// Threads that serve clients; 0 is one per core.
    pub(crate) workers: u16,
    pub(crate) log: Log,
    pub(crate) limits: Limits,
    pub(crate) drain: Drain,
    /// Other gateways in front of the same engines.
    pub(crate) peers: Peers,
    /// Headers that may carry a client's request id, first match first.
    pub(crate) request_id_headers: Vec<At<String>>,
    /// Whether answers name the endpoint they came from.
    pub(crate) debug_headers: bool,
    /// Defaults for pools.
    pub(crate) timeouts: Timeouts,
    pub(crate) pools: Vec<At<Pool>>,
    pub(crate) rewrites: Vec<At<Rewrite>>,
    /// Pool of requests that name no model, or an unknown one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_pool: Option<At<String>>,
    /// Priorities by the name that clients send in a header.
    pub(crate) objectives: BTreeMap<String, i32>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: At::of(Several(vec![At::of("127.0.0.1:8080".to_owned())])),
            admin: Admin::default(),
            auth: None,
            workers: 0,
            log: Log::default(),
            limits: Limits::default(),
            drain: Drain::default(),
            peers: Peers::default(),
            request_id_headers: ["x-request-id", "x-correlation-id", "x-trace-id", "request-id"]
                .map(|name| At::of(name.to_owned()))
                .to_vec(),
            debug_headers: false,
            timeouts: Timeouts::default(),
            pools: Vec::new(),
            rewrites: Vec::new(),
            default_pool: None,
            objectives: BTreeMap::new(),
        }
    }
}

impl From<String> for At<String> {
    fn from(value: String) -> Self {
        Self::of(value)
    }
}

/// Where operators look in: metrics, health, decisions.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Admin {
    pub(crate) listen: At<String>,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: At::of("127.0.0.1:9090".to_owned()) }
    }
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Auth {
    pub(crate) api_keys: Vec<At<ApiKey>>,
}

/// `#[serde(flatten)]` would buffer the fields and lose their lines, so the fields of
/// [`SecretSource`] are repeated.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ApiKey {
    pub(crate) name: At<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<At<super::Secret>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_env: Option<At<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<At<String>>,
    /// Names it may ask for; empty is all.
    pub(crate) models: Vec<String>,
}

impl ApiKey {
    pub(crate) fn source(&self) -> SecretSource {
        SecretSource {
            key: self.key.clone(),
            key_env: self.key_env.clone(),
            key_file: self.key_file.clone(),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Log {
    pub(crate) level: Level,
    pub(crate) format: LogFormat,
    pub(crate) access: Switch,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Largest request line and headers.
    pub(crate) head_bytes: At<Size>,
    /// Memory for all bodies being received.
    pub(crate) buffered_bytes: At<Size>,
    /// Connections of clients.
    pub(crate) connections: At<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: At::of(Size(64 << 10)),
            buffered_bytes: At::of(Size(512 << 20)),
            connections: At::of(20_000),
        }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Drain {
    /// Time for load balancers to notice that we are no longer ready.
    pub(crate) settle: Span,
    /// Time for requests in flight to finish.
    pub(crate) deadline: Span,
}

impl Default for Drain {
    fn default() -> Self {
        Self { settle: Span::secs(5), deadline: Span::secs(180) }
    }
}

/// A rule of `InferenceModelRewrite`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Rewrite {
    /// Any of these; empty is any name.
    pub(crate) matches: Vec<Match>,
    pub(crate) targets: Vec<Target>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Match {
    pub(crate) model: ModelMatch,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ModelMatch {
    #[serde(default, rename = "type")]
    pub(crate) kind: MatchKind,
    pub(crate) value: String,
}

/// The extension defines no other.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) enum MatchKind {
    #[default]
    Exact,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Target {
    /// All targets have one or none has; without, all weigh the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<u32>,
    pub(crate) model_rewrite: String,
}
