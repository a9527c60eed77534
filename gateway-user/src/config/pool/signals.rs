//! What a pool reads from its engines, and how it decides by it.

use gateway_core::engine::{CustomMapping, Engine, Mapping, Series};
use gateway_core::policy::{Lots, PolicySettings, PredictedSettings, Weights};

use super::super::Switch;
use super::super::at::At;
use super::super::error::ConfigError;
use super::super::raw;
use super::super::switch::Section;
use super::convert::positive;
use super::{EngineKind, MetricsConfig};

pub(super) fn engine(name: &At<String>) -> Result<EngineKind, ConfigError> {
    if **name == "custom" {
        return Ok(EngineKind::Custom);
    }
    name.parse().map(EngineKind::Known).map_err(|_| {
        let known = Engine::ALL.map(Engine::name).join(", ");
        let fix = format!("use one of {known}, or custom with metrics.mapping");
        ConfigError::at(name, format!("unknown engine type `{}`", &**name), fix)
    })
}

pub(super) fn metrics(
    raw: &raw::Pool,
    engine: EngineKind,
) -> Result<Option<MetricsConfig>, ConfigError> {
    let Section::On(metrics) = &raw.metrics else { return Ok(None) };
    let mapping = match (engine, &metrics.mapping) {
        (EngineKind::Known(engine), None) => Mapping::of(engine),
        (EngineKind::Custom, Some(mapping)) => custom(mapping)?,
        (EngineKind::Custom, None) => {
            let fix = "add metrics.mapping, or write `metrics: off`";
            return Err(ConfigError::at(&raw.engine_type, "a custom engine has no mapping", fix));
        }
        (EngineKind::Known(engine), Some(mapping)) => {
            let problem = format!("engine type {} has a mapping already", engine.name());
            return Err(ConfigError::at(mapping, problem, "drop it, or use `engineType: custom`"));
        }
    };
    let interval = positive("interval", &metrics.interval)?;
    let idle_interval = positive("idleInterval", &metrics.idle_interval)?;
    let stale = &metrics.stale_after;
    if stale.0 <= idle_interval.max(interval) {
        let problem = format!("staleAfter {} is not longer than the intervals", stale.value);
        let fix = "make it at least twice idleInterval, or every endpoint will be stale";
        return Err(ConfigError::at(stale, problem, fix));
    }
    Ok(Some(MetricsConfig {
        path: path(&metrics.path)?,
        interval,
        idle_interval: idle_interval.max(interval),
        timeout: positive("timeout", &metrics.timeout)?,
        mapping,
    }))
}

fn custom(mapping: &At<raw::Mapping>) -> Result<Mapping, ConfigError> {
    let raw = &mapping.value;
    let custom = CustomMapping {
        waiting: series(raw.queued_requests_spec.as_ref())?,
        running: series(raw.running_requests_spec.as_ref())?,
        kv_usage: series(raw.kv_usage_spec.as_ref())?,
        lora: series(raw.lora_spec.as_ref())?,
        block_size: series(raw.block_size_spec.as_ref())?,
        blocks: series(raw.blocks_spec.as_ref())?,
        preemptions: series(raw.preemptions_spec.as_ref())?,
        cache_info: None,
    };
    if custom == CustomMapping::default() {
        let fix = "name at least queuedRequestsSpec, or write `metrics: off`";
        return Err(ConfigError::at(mapping, "the mapping is empty", fix));
    }
    Ok(Mapping::custom(custom))
}

fn series(spec: Option<&At<String>>) -> Result<Option<Series>, ConfigError> {
    let Some(spec) = spec else { return Ok(None) };
    spec.parse().map(Some).map_err(|_| {
        let problem = format!("`{}` is not a series", &**spec);
        ConfigError::at(spec, problem, "write name or name{label=value}")
    })
}

pub(super) fn policy(raw: &raw::Pool) -> Result<PolicySettings, ConfigError> {
    let named = match &raw.policy {
        Some(name) => name.parse().map_err(|error: gateway_core::policy::UnknownPolicy| {
            let known = gateway_core::policy::POLICY_NAMES.join(", ");
            let problem = format!("unknown policy `{}`", error.name);
            ConfigError::at(name, problem, format!("use one of {known}"))
        })?,
        None if raw.weights.is_some() => PolicySettings::Weighted(Weights::default()),
        None => PolicySettings::default(),
    };
    if let (Some(settings), false) = (&raw.predicted, matches!(named, PolicySettings::Predicted(_)))
    {
        let problem = format!("policy `{named}` does not use `predicted`");
        return Err(ConfigError::at(settings, problem, "drop the section, or change the policy"));
    }
    match (named, &raw.weights) {
        (PolicySettings::Weighted(_), Some(written)) => {
            Ok(PolicySettings::Weighted(weights(written)?))
        }
        (named, Some(written)) => {
            let problem = format!("policy `{named}` does not use weights");
            Err(ConfigError::at(written, problem, "drop them, or write `policy: weighted`"))
        }
        (PolicySettings::Predicted(default), None) => {
            let settings = raw.predicted.as_ref().map(predicted).transpose()?;
            Ok(PolicySettings::Predicted(settings.unwrap_or(default)))
        }
        (named, None) => Ok(named),
    }
}

fn weights(at: &At<raw::Weights>) -> Result<Weights, ConfigError> {
    let raw::Weights {
        queue,
        kv_cache,
        prefix,
        lru,
        lora_affinity,
        running_requests,
        predicted_latency,
        token_load,
        session_affinity,
    } = at.value;
    let all = [
        ("queue", queue),
        ("kvCache", kv_cache),
        ("prefix", prefix),
        ("lru", lru),
        ("loraAffinity", lora_affinity),
        ("runningRequests", running_requests),
        ("predictedLatency", predicted_latency),
        ("tokenLoad", token_load),
        ("sessionAffinity", session_affinity),
    ];
    if let Some((name, weight)) = all.iter().find(|(_, w)| !(w.is_finite() && *w >= 0.0)) {
        let problem = format!("weight {name} is {weight}");
        return Err(ConfigError::at(at, problem, "give a finite number of at least 0"));
    }
    if all.iter().all(|(_, weight)| *weight == 0.0) {
        let fix = "give at least one above 0, or use `policy: random`";
        return Err(ConfigError::at(at, "all weights are 0", fix));
    }
    Ok(Weights {
        queue,
        kv_cache,
        prefix,
        running_requests,
        lora_affinity,
        no_hit_lru: lru,
        token_load,
        predicted_latency,
        session_affinity,
    })
}

fn predicted(at: &At<raw::Predicted>) -> Result<PredictedSettings, ConfigError> {
    let raw = &at.value;
    if !(raw.harm_price.is_finite() && raw.harm_price >= 0.0) {
        let problem = format!("harmPrice is {}", raw.harm_price);
        return Err(ConfigError::at(at, problem, "give a finite number of at least 0"));
    }
    if !(0.0..1.0).contains(&raw.exploration) {
        let problem = format!("exploration is {}", raw.exploration);
        return Err(ConfigError::at(at, problem, "give a share from 0 to below 1"));
    }
    Ok(PredictedSettings {
        harm_price: raw.harm_price,
        adapter_load: raw.adapter_load.0,
        adapter_slot: raw.adapter_slot.0,
        preemption: raw.preemption.0,
        leave_session: raw.leave_session.0,
        exploration: raw.exploration,
        lots: match raw.start_in_lots {
            Switch::Off => Lots::Off,
            Switch::On => Lots::On,
        },
        max_deferral: raw.max_deferral.0,
    })
}

/// A path on an engine.
pub(super) fn path(path: &At<String>) -> Result<String, ConfigError> {
    if path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(path.value.clone());
    }
    let problem = format!("`{}` is not a path", &**path);
    Err(ConfigError::at(path, problem, "write it with a leading slash, such as /metrics"))
}
