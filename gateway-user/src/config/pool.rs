//! One pool: the core's settings for it, and what the daemon needs to run it.

mod convert;
mod failure;
mod fill;
mod flow;
mod signals;
mod steering;

use std::time::Duration;

use gateway_core::admission::AdmissionSettings;
use gateway_core::engine::{Engine, Mapping};
use gateway_core::pool::PoolSettings;
use gateway_core::retry::RetrySettings;
use gateway_core::route::PoolNames;

use super::address::{HttpAddress, Scheme};
use super::{Datapath, Secret, SteeringMode, Switch};
pub(super) use convert::{header_name, positive};
pub(super) use fill::fill_in;

/// One pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Unique name in configuration, metrics and logs.
    pub name: String,
    /// Names that lead to it.
    pub names: PoolNames,
    /// What its engines are.
    pub engine: EngineKind,
    /// Its model servers; may be empty.
    pub endpoints: Vec<EndpointConfig>,
    /// How the core decides.
    pub settings: PoolSettings,
    /// How the core queues.
    pub admission: AdmissionSettings,
    /// What the core retries.
    pub retry: RetrySettings,
    /// How engines are scraped; `None` when they are not.
    pub metrics: Option<MetricsConfig>,
    /// How GPU exporters are scraped, where endpoints have one.
    pub gpu: GpuConfig,
    /// How engines are probed; `None` when they are not.
    pub health: Option<HealthConfig>,
    /// Lower-case name of the header that carries the session, when the pool has
    /// affinity.
    pub session_header: Option<String>,
    /// Largest body it takes, bytes.
    pub max_request_body_bytes: u64,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Sent to the engines in place of the client's credentials.
    pub api_key: Option<Secret>,
    /// Whether answers name the endpoint they came from.
    pub debug_headers: bool,
    /// Whether the kernel may delay acknowledging streamed chunks.
    pub delayed_acks: Switch,
    /// How streamed answers go.
    pub datapath: Datapath,
    /// Whether sockets may be enrolled for `sk_msg` on a kernel that then tells their owners
    /// of nothing to read (`FIONREAD`).
    pub accept_broken_fionread: bool,
    /// What is done about connections to its virtual address, if it has one.
    pub steering: Option<SteeringConfig>,
}

/// What is done about connections to a virtual address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SteeringConfig {
    /// The virtual address.
    pub address: std::net::SocketAddr,
    /// Where they go.
    pub mode: SteeringMode,
}

/// What a pool's engines are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EngineKind {
    /// Described by a mapping of the operator's own.
    Custom,
    /// One we know.
    Known(Engine),
}

impl EngineKind {
    /// Name in configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Custom => "custom",
            Self::Known(engine) => engine.name(),
        }
    }
}

/// A model server.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointConfig {
    /// `host:port`; unique in the pool.
    pub name: String,
    /// How it is spoken to.
    pub scheme: Scheme,
    /// Name, IPv4 or bare IPv6 address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Capacity relative to the others; finite and above 0.
    pub weight: f64,
    /// Where its GPU exporter's page is.
    pub dcgm: Option<HttpAddress>,
}

/// How engines are scraped.
#[derive(Clone, Debug)]
pub struct MetricsConfig {
    /// Path of the page.
    pub path: String,
    /// Time between two readings of one engine.
    pub interval: Duration,
    /// The same while nothing is in flight in the pool.
    pub idle_interval: Duration,
    /// Time that a reading may take.
    pub timeout: Duration,
    /// Which series are which.
    pub mapping: Mapping,
}

/// How GPU exporters are scraped.
#[derive(Clone, Copy, Debug)]
pub struct GpuConfig {
    /// Time between two readings.
    pub interval: Duration,
}

/// How engines are probed.
#[derive(Clone, Debug)]
pub struct HealthConfig {
    /// Path that answers 200 when all is well.
    pub path: String,
    /// Time between two probes of one engine.
    pub interval: Duration,
    /// Time that a probe may take.
    pub timeout: Duration,
    /// Failures in a row after which the engine is left out; at least 1.
    pub failures: u32,
    /// Successes in a row after which it is back; at least 1.
    pub successes: u32,
}

/// How long things may take. What is turned off is [`Timeouts::NEVER`], so that callers
/// need no case for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timeouts {
    /// To connect to an engine. A first packet that a busy engine dropped is sent again
    /// after 1 s and 3 s.
    pub connect: Duration,
    /// From the end of the request to the first byte of an answer.
    pub first_byte: Duration,
    /// Between two pieces of an answer.
    pub idle: Duration,
    /// For all of a request.
    pub request: Duration,
}

impl Timeouts {
    /// Ten years: longer than any process lives, and no clock overflows.
    pub const NEVER: Duration = Duration::from_hours(10 * 365 * 24);
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(4),
            first_byte: Duration::from_mins(10),
            idle: Duration::from_mins(2),
            request: Duration::from_mins(30),
        }
    }
}

/// Tokens that an answer is taken to have when the client does not bound it; what
/// it really has corrects the account afterwards.
const ASSUMED_OUTPUT_TOKENS: u32 = 256;

impl PoolConfig {
    /// Tokens that an answer is taken to have when the client does not bound it.
    #[must_use]
    pub fn assumed_output_tokens(&self) -> u32 {
        ASSUMED_OUTPUT_TOKENS
    }
}
