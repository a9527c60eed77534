//! Flags about the process itself, which go before a file.

use std::net::Ipv6Addr;

use clap::{ArgAction, Args};

use crate::config::ConfigError;
use crate::config::at::At;
use crate::config::raw;
use crate::config::scalar::Span;
use crate::config::secret::Secret;
use crate::config::switch::{Section, Several};
use crate::config::{Level, LogFormat, Switch};

/// Flags about the process itself. They hold over every version of the file.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Process")]
pub struct Overrides {
    /// Address to serve clients on; other than loopback needs --api-key or --auth-none
    /// [default: 127.0.0.1].
    #[arg(long, env = "INFERENCE_GATEWAY_HOST")]
    pub host: Option<String>,
    /// Port to serve clients on [default: 8080].
    #[arg(long, env = "INFERENCE_GATEWAY_PORT", value_parser = port)]
    pub port: Option<Port>,
    /// Address of metrics, health and status [default: 127.0.0.1].
    #[arg(long, env = "INFERENCE_GATEWAY_PROMETHEUS_HOST")]
    pub prometheus_host: Option<String>,
    /// Port of metrics, health and status [default: 9090].
    #[arg(long, env = "INFERENCE_GATEWAY_PROMETHEUS_PORT")]
    pub prometheus_port: Option<u16>,
    /// Threads that serve clients; 0 is one per core.
    #[arg(long, env = "INFERENCE_GATEWAY_WORKERS")]
    pub workers: Option<u16>,
    /// Key that clients must send. Others on this machine can see it in the list of
    /// processes; the environment variable or a file's keyFile hides it.
    #[arg(long, env = "INFERENCE_GATEWAY_API_KEY", hide_env_values = true, value_parser = super::secret)]
    pub api_key: Option<Secret>,
    /// Let everybody in.
    #[arg(long, env = "INFERENCE_GATEWAY_AUTH_NONE", conflicts_with = "api_key", action = ArgAction::SetTrue)]
    pub auth_none: bool,
    /// Least urgent events that are logged [default: info].
    #[arg(long, env = "INFERENCE_GATEWAY_LOG_LEVEL", value_parser = level)]
    pub log_level: Option<Level>,
    /// Log objects, one a line.
    #[arg(long, env = "INFERENCE_GATEWAY_LOG_JSON", action = ArgAction::SetTrue)]
    pub log_json: bool,
    /// Log no finished requests.
    #[arg(long, env = "INFERENCE_GATEWAY_DISABLE_ACCESS_LOG", action = ArgAction::SetTrue)]
    pub disable_access_log: bool,
    /// Headers that may carry a request's id, first match first.
    #[arg(long, env = "INFERENCE_GATEWAY_REQUEST_ID_HEADERS", num_args = 1.., value_delimiter = ',')]
    pub request_id_headers: Vec<String>,
    /// Seconds that requests in flight are given to finish at a stop [default: 180].
    #[arg(long, env = "INFERENCE_GATEWAY_SHUTDOWN_GRACE_PERIOD_SECS", value_name = "SECONDS")]
    pub shutdown_grace_period_secs: Option<u64>,
}

/// A port, or none after all.
///
/// Kubernetes sets `INFERENCE_GATEWAY_PORT=tcp://10.96.0.7:8080` in the pods of a
/// namespace that has a service named `inference-gateway`. That is not meant for us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Port(Option<u16>);

fn port(text: &str) -> Result<Port, std::num::ParseIntError> {
    if text.starts_with("tcp://") { Ok(Port(None)) } else { text.parse().map(Some).map(Port) }
}

/// A level's name; `warning` is what Python's routers call it.
fn level(name: &str) -> Result<Level, String> {
    let name = if name == "warning" { "warn" } else { name };
    Level::ALL.into_iter().find(|level| level.name() == name).ok_or_else(|| {
        let known = Level::ALL.map(Level::name).join(", ");
        format!("unknown level; known levels: {known}")
    })
}

impl Overrides {
    /// Writes what was given over what stands in `config`.
    pub(crate) fn apply(&self, config: &mut raw::Config) -> Result<(), ConfigError> {
        let port = self.port.and_then(|port| port.0);
        if self.host.is_some() || port.is_some() {
            let address = join(self.host.as_deref(), port, 8080);
            config.listen = At::of(Several(vec![At::of(address)]));
        }
        if self.prometheus_host.is_some() || self.prometheus_port.is_some() {
            let address = join(self.prometheus_host.as_deref(), self.prometheus_port, 9090);
            config.admin.listen = At::of(address);
        }
        if let Some(key) = &self.api_key {
            let key = raw::ApiKey {
                name: At::of("api-key".to_owned()),
                key: Some(At::of(key.clone())),
                ..raw::ApiKey::default()
            };
            let auth = raw::Auth { api_keys: vec![At::of(key)] };
            config.auth = Some(At::of(Section::On(auth)));
        }
        if self.auth_none {
            if let Some(At { value: Section::On(_), place: Some(place) }) = &config.auth {
                let fix = "drop the flag, or the section";
                let problem = "--auth-none contradicts the keys in the file";
                return Err(ConfigError::placed(Some(*place), problem, fix));
            }
            config.auth = Some(At::of(Section::Off));
        }
        if self.log_json {
            config.log.format = LogFormat::Json;
        }
        if self.disable_access_log {
            config.log.access = Switch::Off;
        }
        if !self.request_id_headers.is_empty() {
            config.request_id_headers =
                self.request_id_headers.iter().map(|name| At::of(name.clone())).collect();
        }
        if let Some(seconds) = self.shutdown_grace_period_secs {
            config.drain.deadline = Span::secs(seconds);
        }
        config.workers = self.workers.unwrap_or(config.workers);
        config.log.level = self.log_level.unwrap_or(config.log.level);
        Ok(())
    }
}

fn join(host: Option<&str>, port: Option<u16>, default_port: u16) -> String {
    let (host, port) = (host.unwrap_or("127.0.0.1"), port.unwrap_or(default_port));
    match host.parse::<Ipv6Addr>() {
        Ok(ip) => format!("[{ip}]:{port}"),
        Err(_) => format!("{host}:{port}"),
    }
}
