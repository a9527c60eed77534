//! The configuration, valid by construction.
//!
//! A file or the flags become the schema in `raw`, and that becomes [`Config`] in
//! one pass (`site`, `pool`). Nothing is checked again later: whoever holds a
//! `Config` holds addresses that parse, pools that routes agree on, durations that
//! are not zero. An error names the thing, the fix and the line.

mod address;
pub(crate) mod at;
mod error;
mod locate;
mod peers;
mod pool;
pub(crate) mod raw;
pub(crate) mod scalar;
pub(crate) mod secret;
mod site;
pub(crate) mod switch;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use gateway_core::route::RouteTable;
use serde::{Deserialize, Serialize};

use crate::args::Overrides;

pub use address::{HttpAddress, Scheme};
pub use error::ConfigError;
pub use peers::PeersConfig;
pub use pool::{
    EndpointConfig, EngineKind, GpuConfig, HealthConfig, MetricsConfig, PoolConfig, SteeringConfig,
    Timeouts,
};
pub use secret::Secret;

/// Everything an operator can say.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to serve clients on; at least one.
    pub listen: Vec<SocketAddr>,
    /// Address for operators.
    pub admin: SocketAddr,
    /// Who may send requests.
    pub auth: Auth,
    /// Threads that serve clients; `None` is one per core.
    pub workers: Option<NonZeroUsize>,
    /// What is logged, and how.
    pub log: LogConfig,
    /// Bounds that hold over all pools.
    pub limits: Limits,
    /// How the process stops.
    pub drain: DrainConfig,
    /// Other gateways in front of the same engines; `None` when none is known.
    pub peers: Option<PeersConfig>,
    /// Lower-case names of headers that may carry a request id, first match first.
    pub request_id_headers: Vec<String>,
    /// Whether answers name the endpoint they came from.
    pub debug_headers: bool,
    /// Pools, in the order that `routes` calls them by.
    pub pools: Vec<PoolConfig>,
    /// Model names to pools.
    pub routes: RouteTable,
    objectives: BTreeMap<String, i32>,
    /// Flags that go before the file.
    overrides: Overrides,
    /// Where all this comes from, with every default filled in.
    source: raw::Config,
}

/// Who may send requests.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Whoever has one of these.
    ApiKeys(Vec<ApiKey>),
    /// Anybody.
    None,
}

/// A client's key.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// Name in logs and metrics, and the flow that fairness charges.
    pub name: String,
    /// The key itself.
    pub key: Secret,
    /// Models it may ask for; empty is all.
    pub models: Vec<String>,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug)]
pub struct LogConfig {
    /// Least urgent events that are logged.
    pub level: Level,
    /// How they look.
    pub format: LogFormat,
    /// Whether finished requests are logged.
    pub access: Switch,
}

/// Least urgent events that are logged.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// Something is broken.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What an operator wants to know.
    #[default]
    Info,
    /// What a developer wants to know.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// All, most urgent first.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// Name in configuration and in filters of the `tracing` crate.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// How events look.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// Objects, one a line.
    Json,
    /// For people.
    #[default]
    Text,
}

/// How streamed answers go to clients.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Datapath {
    /// Below the sockets where that is possible.
    #[default]
    Auto,
    /// The same, and the daemon says so when it is not possible.
    Splice,
    /// From socket to socket where the endpoint is on this node, else as `splice`.
    SkMsg,
    /// Through the daemon.
    User,
}

/// What becomes of a connection to a pool's virtual address.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SteeringMode {
    /// It goes to this gateway, which looks at each request.
    #[default]
    Request,
    /// It goes to an endpoint for as long as it lasts.
    Connection,
}

impl SteeringMode {
    /// Name in configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Connection => "connection",
        }
    }
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Switch {
    /// It is not.
    Off,
    /// It is.
    #[default]
    On,
}

/// Bounds that hold over all pools.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest request line and headers together, bytes.
    pub head_bytes: usize,
    /// Memory for all bodies that are being received, bytes.
    pub buffered_bytes: u64,
    /// Connections of clients.
    pub connections: usize,
}

/// How the process stops.
#[derive(Clone, Copy, Debug)]
pub struct DrainConfig {
    /// Time between not being ready any more and refusing connections, for load
    /// balancers to notice. May be zero.
    pub settle: Duration,
    /// Time that requests in flight are given to finish. May be zero.
    pub deadline: Duration,
}

/// Largest file that is read, bytes.
const MAX_FILE: u64 = 64 << 20;

impl Config {
    /// Reads a configuration. Keys that it takes from the environment or from files
    /// are read now.
    ///
    /// # Errors
    ///
    /// The first mistake found, with its line.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::parse_under(text, &Overrides::default())
    }

    /// Reads a configuration, and puts `overrides` over it.
    ///
    /// # Errors
    ///
    /// As [`Config::parse`].
    pub fn parse_under(text: &str, overrides: &Overrides) -> Result<Self, ConfigError> {
        Source::parse(text)?.under(overrides)
    }

    /// Reads a later version of the same file, under the same flags.
    ///
    /// # Errors
    ///
    /// As [`Config::parse`].
    pub fn reread(&self, text: &str) -> Result<Self, ConfigError> {
        Self::parse_under(text, &self.overrides)
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// As [`Config::parse`], or when the file cannot be read; names the file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&Source::read(path)?).map_err(|error| error.in_file(path))
    }

    /// The configuration as YAML, all defaults filled in and keys left out.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(&self.source)
            .unwrap_or_else(|error| format!("# the configuration cannot be written: {error}\n"))
    }

    /// Priority of an `InferenceObjective`; 0 when it is unknown, as the
    /// inference extension has it.
    #[must_use]
    pub fn priority_of(&self, objective: &str) -> i32 {
        self.objectives.get(objective).copied().unwrap_or(0)
    }
}

/// A configuration that is written but not yet checked, so that flags can change it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source(pub(crate) raw::Config);

impl Source {
    pub(crate) fn parse(text: &str) -> Result<Self, ConfigError> {
        // An empty file has no document in it; nothing in it is nothing set.
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        let mut track = serde_path_to_error::Track::new();
        serde_saphyr::with_deserializer_from_str_with_options(text, options(), |yaml| {
            raw::Config::deserialize(serde_path_to_error::Deserializer::new(yaml, &mut track))
        })
        .map(Self)
        .map_err(|error| ConfigError::syntax(text, &error, &track.path()))
    }

    /// The text of a file.
    pub(crate) fn read(path: &Path) -> Result<String, ConfigError> {
        let read = || {
            let mut text = String::new();
            std::fs::File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
            Ok(text)
        };
        read().map_err(|error| ConfigError::read(path, error))
    }

    pub(crate) fn under(mut self, overrides: &Overrides) -> Result<Config, ConfigError> {
        overrides.apply(&mut self.0)?;
        let config = Config::try_from(self)?;
        Ok(Config { overrides: overrides.clone(), ..config })
    }
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::Options {
        // The bound is the file's size; thousands of endpoints are no attack.
        budget: None,
        // A snippet could show a key.
        with_snippet: false,
        ..serde_saphyr::Options::default()
    }
}

#[cfg(test)]
mod tests;
