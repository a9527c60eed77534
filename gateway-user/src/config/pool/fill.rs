//! Writes out what a configuration implies, so that a dump shows what holds.

use gateway_core::policy::{PolicySettings, Weights};
use gateway_core::pool::SaturationSettings;

use super::super::at::At;
use super::super::raw;
use super::super::scalar::Span;
use super::Timeouts;

/// Writes out what is implied: timeouts of the top level, the policy and its
/// numbers, and the place of what is written without a list's brackets.
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
        fill_in_policy(pool);
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

fn fill_in_policy(pool: &mut raw::Pool) {
    if pool.policy.is_none() && pool.weights.is_some() {
        pool.policy = Some(At::of("weighted".to_owned()));
    }
    let default = || At::of(PolicySettings::default().name().to_owned());
    match pool.policy.get_or_insert_with(default).as_str() {
        "predicted" => drop(pool.predicted.get_or_insert_default()),
        "weighted" => drop(pool.weights.get_or_insert_with(|| At::of(Weights::default().into()))),
        _ => {}
    }
    if let Some(flow) = &mut pool.flow_control {
        let default = SaturationSettings::default();
        flow.queue_depth.get_or_insert(At::of(default.queue_depth));
        flow.kv_usage.get_or_insert(At::of(default.kv_usage));
    }
}

impl From<Weights> for raw::Weights {
    fn from(core: Weights) -> Self {
        Self {
            queue: core.queue,
            kv_cache: core.kv_cache,
            prefix: core.prefix,
            lru: core.no_hit_lru,
            lora_affinity: core.lora_affinity,
            running_requests: core.running_requests,
            predicted_latency: core.predicted_latency,
            token_load: core.token_load,
            session_affinity: core.session_affinity,
        }
    }
}
