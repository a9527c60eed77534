//! A pool as written becomes a pool as run.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::admission::{AdmissionSettings, BandSettings, Bands, Order, Queueing};
use gateway_core::engine::Engine;
use gateway_core::health::EjectionSettings;
use gateway_core::pool::{FailureMode, PoolSettings, PrefixSettings, SaturationSettings, Scraping};
use gateway_core::retry::{BudgetSettings, Retry, RetrySettings};
use gateway_core::route::PoolNames;

use super::super::Switch;
use super::super::at::At;
use super::super::error::ConfigError;
use super::super::scalar::Span;
use super::super::switch::Section;
use super::super::{address, raw};
use super::{EndpointConfig, EngineKind, GpuConfig, HealthConfig, PoolConfig, Timeouts, signals};

/// Port of an engine that is given without one: what vLLM listens on.
const ENGINE_PORT: u16 = 8000;
/// Port of a GPU exporter that is given without one.
const DCGM_PORT: u16 = 9400;

/// Copies the top level's timeouts to pools that have none of their own, so that a dump
/// shows what holds, and places to what is written without a list's brackets.
pub(in crate::config) fn fill_in(source: &mut raw::Config) {
    let place = source.listen.place;
    for address in &mut source.listen.value.0 {
        address.place = address.place.or(place);
    }
    let defaults = Timeouts::default();
    let top = &mut source.timeouts;
    for (slot, default) in [
        (&mut top.connect, defaults.connect),
        (&mut top.first_byte, defaults.first_byte),
        (&mut top.idle, defaults.idle),
        (&mut top.request, defaults.request),
    ] {
        slot.get_or_insert(At::of(Span(default)));
    }
    for pool in &mut source.pools {
        let pool = &mut pool.value;
        let own = &mut pool.timeouts;
        for (slot, default) in [
            (&mut own.connect, &top.connect),
            (&mut own.first_byte, &top.first_byte),
            (&mut own.idle, &top.idle),
        ] {
            if slot.is_none() {
                slot.clone_from(default);
            }
        }
        if own.request.is_none() && pool.route_timeout.is_none() {
            own.request.clone_from(&top.request);
        }
    }
}

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
                ejection: ejection(&raw.ejection)?,
                saturation: saturation(raw.flow_control.as_ref())?,
                max_in_flight: max_in_flight(raw.flow_control.as_ref())?,
                xid_window: positive("xidWindow", &raw.dcgm.xid_window)?,
                slow_start: optional(raw.slow_start.as_ref()),
            },
            admission: admission(raw.flow_control.as_ref())?,
            retry: retry(&raw.retry)?,
            metrics,
            gpu: GpuConfig { interval: positive("interval", &raw.dcgm.interval)? },
            health: health(&raw.health)?,
            session_header: header.transpose()?,
            max_request_body_bytes: body.0,
            timeouts: timeouts(raw)?,
            api_key: raw.api_key.as_ref().map(|key| key.resolve(key.place)).transpose()?,
            debug_headers,
            delayed_acks: delayed_acks(raw, engine),
        })
    }
}

/// vLLM and SGLang serve through uvicorn, which switches Nagle's algorithm off.
fn delayed_acks(raw: &raw::Pool, engine: EngineKind) -> Switch {
    raw.delayed_acks.map_or_else(
        || match engine {
            EngineKind::Known(Engine::Sglang | Engine::Vllm) => Switch::On,
            _ => Switch::Off,
        },
        |given| given.0,
    )
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

fn ejection(raw: &Section<raw::Ejection>) -> Result<EjectionSettings, ConfigError> {
    let Section::On(raw) = raw else {
        return Ok(EjectionSettings { consecutive_failures: 0, ..EjectionSettings::default() });
    };
    if *raw.max_percent > 100 {
        let problem = format!("maxPercent is {}", *raw.max_percent);
        return Err(ConfigError::at(&raw.max_percent, problem, "give a number from 0 to 100"));
    }
    let base = positive("base", &raw.base)?;
    if raw.max.0 < base {
        let problem = format!("max {} is less than base {}", raw.max.value, raw.base.value);
        return Err(ConfigError::at(&raw.max, problem, "make max the longer one"));
    }
    Ok(EjectionSettings {
        consecutive_failures: *raw.consecutive_failures,
        base,
        max: raw.max.0,
        max_percent: *raw.max_percent,
    })
}

fn saturation(raw: Option<&raw::FlowControl>) -> Result<SaturationSettings, ConfigError> {
    let defaults = SaturationSettings::default();
    let Some(raw) = raw else { return Ok(defaults) };
    if let Some(depth) = raw.queue_depth.as_ref().filter(|depth| ***depth == 0) {
        let fix = "give at least 1; an engine is full when this many wait in it";
        return Err(ConfigError::at(depth, "queueDepth is 0", fix));
    }
    let in_range = |usage: f64| usage > 0.0 && usage <= 1.0;
    if let Some(usage) = raw.kv_usage.as_ref().filter(|usage| !in_range(***usage)) {
        let problem = format!("kvUsage is {}", **usage);
        return Err(ConfigError::at(
            usage,
            problem,
            "give a share above 0 and up to 1, such as 0.8",
        ));
    }
    Ok(SaturationSettings {
        queue_depth: raw.queue_depth.as_deref().copied().unwrap_or(defaults.queue_depth),
        kv_usage: raw.kv_usage.as_deref().copied().unwrap_or(defaults.kv_usage),
        ..defaults
    })
}

fn max_in_flight(raw: Option<&raw::FlowControl>) -> Result<Option<u32>, ConfigError> {
    let Some(most) = raw.and_then(|raw| raw.max_in_flight_per_endpoint.as_ref()) else {
        return Ok(None);
    };
    if **most == 0 {
        let fix = "give at least 1, or leave it out for no bound";
        return Err(ConfigError::at(most, "maxInFlightPerEndpoint is 0", fix));
    }
    Ok(Some(**most))
}

fn admission(raw: Option<&raw::FlowControl>) -> Result<AdmissionSettings, ConfigError> {
    let Some(raw) = raw else { return Ok(AdmissionSettings::default()) };
    Ok(AdmissionSettings {
        queueing: Queueing::On,
        bands: Bands {
            critical: band(&raw.bands.critical)?,
            standard: band(&raw.bands.standard)?,
            sheddable: band(&raw.bands.sheddable)?,
        },
        starvation_limit: optional(raw.starvation_limit.as_ref()),
    })
}

fn band(raw: &raw::Band) -> Result<BandSettings, ConfigError> {
    Ok(BandSettings {
        max_requests: raw.max_requests,
        max_bytes: raw.max_bytes.0,
        timeout: positive("timeout", &raw.timeout)?,
        order: match raw.order {
            raw::Order::Edf => Order::Edf,
            raw::Order::Fifo => Order::Fifo,
        },
    })
}

fn retry(raw: &Section<raw::Retry>) -> Result<RetrySettings, ConfigError> {
    let Section::On(raw) = raw else {
        return Ok(RetrySettings { retries: 0, ..RetrySettings::default() });
    };
    let mut settings = RetrySettings {
        retries: raw.attempts,
        budget: BudgetSettings {
            percent: raw.budget_percent,
            min_per_second: raw.min_retries_per_second,
        },
        on_connect: Retry::Off,
        on_close: Retry::Off,
        on_status: Vec::new(),
    };
    for on in &raw.on {
        match (&*on.0, on.0.parse::<u16>()) {
            ("connect", _) => settings.on_connect = Retry::On,
            ("close", _) => settings.on_close = Retry::On,
            (_, Ok(status @ 500..=599)) => settings.on_status.push(status),
            _ => {
                let problem = format!("`{}` is nothing that can be retried", on.0);
                let fix = "use connect, close or a status from 500 to 599";
                return Err(ConfigError::at(on, problem, fix));
            }
        }
    }
    Ok(settings)
}

fn health(raw: &Section<raw::Health>) -> Result<Option<HealthConfig>, ConfigError> {
    let Section::On(raw) = raw else { return Ok(None) };
    for (name, count) in [("failures", &raw.failures), ("successes", &raw.successes)] {
        if **count == 0 {
            let fix = "give at least 1; write `health: off` for no probes";
            return Err(ConfigError::at(count, format!("{name} is 0"), fix));
        }
    }
    Ok(Some(HealthConfig {
        path: signals::path(&raw.path)?,
        interval: positive("interval", &raw.interval)?,
        timeout: positive("timeout", &raw.timeout)?,
        failures: *raw.failures,
        successes: *raw.successes,
    }))
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
fn optional(value: Option<&At<Span>>) -> Option<Duration> {
    value.map(|span| span.0).filter(|duration| !duration.is_zero())
}

/// A duration that must not be zero.
pub(super) fn positive(name: &str, value: &At<Span>) -> Result<Duration, ConfigError> {
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
