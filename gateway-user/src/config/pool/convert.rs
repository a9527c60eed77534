//! A pool as written becomes a pool as run.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::engine::Engine;
use gateway_core::peer::Peers;
use gateway_core::pool::{FailureMode, PoolSettings, PrefixSettings, Scraping};
use gateway_core::route::PoolNames;

use super::super::Switch;
use super::super::at::At;
use super::super::error::ConfigError;
use super::super::scalar::Span;
use super::super::switch::Section;
use super::super::{address, raw};
use super::{
    EndpointConfig, EngineKind, GpuConfig, PoolConfig, Timeouts, failure, flow, signals, steering,
};

/// Port of an engine that is given without one: what vLLM listens on.
const ENGINE_PORT: u16 = 8000;
/// Port of a GPU exporter that is given without one.
const DCGM_PORT: u16 = 9400;

impl PoolConfig {
    pub(in crate::config) fn convert(
        at: &At<raw::Pool>,
        debug_headers: bool,
    ) -> Result<Self, ConfigError> {
        let raw = &at.value;
        if raw.name.is_empty() {
            let fix = "give it a name; metrics and logs use it";
            return Err(ConfigError::at(at, "a pool has no name", fix));
        }
        let engine = signals::engine(&raw.engine_type)?;
        let metrics = signals::metrics(raw, engine)?;
        let body = &raw.max_request_body_bytes;
        if body.0 == 0 {
            let fix = "give a size, such as 256MiB";
            return Err(ConfigError::at(body, "maxRequestBodyBytes is 0", fix));
        }
        let header = raw.session_affinity.as_ref().map(|affinity| header_name(&affinity.header));
        Ok(Self {
            name: raw.name.value.clone(),
            names: names(raw),
            engine,
            endpoints: endpoints(raw)?,
            settings: PoolSettings {
                policy: signals::policy(raw)?,
                scraping: if metrics.is_some() { Scraping::On } else { Scraping::Off },
                stale_after: stale_after(raw)?,
                failure_mode: match raw.failure_mode {
                    raw::FailureMode::FailClosed => FailureMode::Closed,
                    raw::FailureMode::FailOpen => FailureMode::Open,
                },
                prefix: prefix(&raw.prefix)?,
                ejection: failure::ejection(&raw.ejection)?,
                saturation: flow::saturation(raw.flow_control.as_ref())?,
                max_in_flight: flow::max_in_flight(raw.flow_control.as_ref())?,
                xid_window: positive("xidWindow", &raw.dcgm.xid_window)?,
                slow_start: optional(raw.slow_start.as_ref()),
                peers: Peers::Unknown,
            },
            admission: flow::admission(raw.flow_control.as_ref())?,
            retry: failure::retry(&raw.retry)?,
            metrics,
            gpu: GpuConfig { interval: positive("interval", &raw.dcgm.interval)? },
            health: failure::health(&raw.health)?,
            session_header: header.transpose()?,
            max_request_body_bytes: body.0,
            timeouts: timeouts(raw)?,
            api_key: raw.api_key.as_ref().map(|key| key.resolve(key.place)).transpose()?,
            debug_headers,
            delayed_acks: delayed_acks(raw, engine),
            datapath: raw.datapath,
            accept_broken_fionread: raw.accept_broken_fionread,
            steering: steering::steering(raw)?,
        })
    }
}

/// vLLM and SGLang serve through uvicorn, which switches Nagle's algorithm off.
fn delayed_acks(raw: &raw::Pool, engine: EngineKind) -> Switch {
    raw.delayed_acks.unwrap_or(match engine {
        EngineKind::Known(Engine::Sglang | Engine::Vllm) => Switch::On,
        _ => Switch::Off,
    })
}

fn names(raw: &raw::Pool) -> PoolNames {
    let list = |names: &[At<String>]| -> Vec<Arc<str>> {
        names.iter().map(|name| name.as_str().into()).collect()
    };
    PoolNames {
        model: raw.model_name.as_ref().map(|name| name.as_str().into()),
        aliases: list(&raw.aliases),
        served: list(&raw.served_names),
        adapters: list(&raw.lora_adapters),
    }
}

fn endpoints(raw: &raw::Pool) -> Result<Vec<EndpointConfig>, ConfigError> {
    let mut seen = HashSet::new();
    let mut endpoints = Vec::with_capacity(raw.endpoints.len());
    for at in &raw.endpoints {
        let endpoint = endpoint(at)?;
        if !seen.insert(endpoint.name.clone()) {
            let problem = format!("endpoint `{}` is listed twice", endpoint.name);
            return Err(ConfigError::at(
                at,
                problem,
                "list each once; use weight for a larger one",
            ));
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}

fn endpoint(at: &At<raw::Endpoint>) -> Result<EndpointConfig, ConfigError> {
    let raw = &at.value;
    // Of the short form only the item as a whole knows its place.
    let text = At { value: raw.address.value.clone(), place: raw.address.place.or(at.place) };
    let address = address::HttpAddress::parse(&text, "an engine", ENGINE_PORT)?;
    if !matches!(&*address.path, "/") {
        let problem = format!("`{}` has a path", &*text);
        return Err(ConfigError::at(&text, problem, "drop it; the client's path is passed on"));
    }
    if !(raw.weight.is_finite() && *raw.weight > 0.0) {
        let problem = format!("weight of `{}` is {}", &*text, *raw.weight);
        return Err(ConfigError::at(&raw.weight, problem, "give a number above 0; 1 is usual"));
    }
    let dcgm = raw.dcgm.as_ref().map(|url| {
        let mut address = address::HttpAddress::parse(url, "a GPU exporter", DCGM_PORT)?;
        if address.path == "/" {
            "/metrics".clone_into(&mut address.path);
        }
        Ok(address)
    });
    Ok(EndpointConfig {
        name: address.authority(),
        scheme: address.scheme,
        host: address.host,
        port: address.port,
        weight: *raw.weight,
        dcgm: dcgm.transpose()?,
    })
}

fn stale_after(raw: &raw::Pool) -> Result<Duration, ConfigError> {
    match &raw.metrics {
        Section::Off => Ok(PoolSettings::default().stale_after),
        Section::On(metrics) => positive("staleAfter", &metrics.stale_after),
    }
}

fn prefix(raw: &raw::Prefix) -> Result<PrefixSettings, ConfigError> {
    let tokens = &raw.block_tokens;
    if !(16..=4096).contains(&**tokens) || !tokens.is_multiple_of(16) {
        let problem = format!("blockTokens is {}", **tokens);
        return Err(ConfigError::at(tokens, problem, "give a multiple of 16 up to 4096"));
    }
    if *raw.max_blocks > 4096 {
        let problem = format!("maxBlocks is {}", *raw.max_blocks);
        return Err(ConfigError::at(&raw.max_blocks, problem, "give at most 4096; 0 turns it off"));
    }
    Ok(PrefixSettings {
        block_tokens: **tokens,
        max_blocks: *raw.max_blocks,
        capacity_blocks_per_endpoint: *raw.capacity_blocks,
    })
}

fn timeouts(raw: &raw::Pool) -> Result<Timeouts, ConfigError> {
    let own = &raw.timeouts;
    if let (Some(_), Some(route)) = (&own.request, &raw.route_timeout) {
        let fix = "keep one; they are two names for the same limit";
        return Err(ConfigError::at(route, "routeTimeout and timeouts.request are both set", fix));
    }
    let limit = |value: Option<&At<Span>>| optional(value).unwrap_or(Timeouts::NEVER);
    let connect = own.connect.as_ref().map(|connect| positive("connect", connect)).transpose()?;
    Ok(Timeouts {
        connect: connect.unwrap_or(Timeouts::default().connect),
        first_byte: limit(own.first_byte.as_ref()),
        idle: limit(own.idle.as_ref()),
        request: limit(own.request.as_ref().or(raw.route_timeout.as_ref())),
    })
}

/// A duration of which `0s` means that there is none.
pub(super) fn optional(value: Option<&At<Span>>) -> Option<Duration> {
    value.map(|span| span.0).filter(|duration| !duration.is_zero())
}

/// A duration that must not be zero.
pub(in crate::config) fn positive(name: &str, value: &At<Span>) -> Result<Duration, ConfigError> {
    if value.0.is_zero() {
        let fix = "give a duration above zero, such as 1s";
        return Err(ConfigError::at(value, format!("{name} is 0s"), fix));
    }
    Ok(value.0)
}

/// A header's name, in lower case.
pub(in crate::config) fn header_name(name: &At<String>) -> Result<String, ConfigError> {
    http::HeaderName::from_bytes(name.as_bytes()).map(|name| name.as_str().to_owned()).map_err(
        |_| {
            let problem = format!("`{}` is not a header's name", &**name);
            ConfigError::at(name, problem, "use letters, digits and hyphens")
        },
    )
}
