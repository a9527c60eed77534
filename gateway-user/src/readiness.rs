//! Whether the daemon is alive, and whether it should get requests.
//!
//! Alive never depends on anybody else. Ready means: not draining, and at least
//! one pool has an endpoint that may be picked.

use bytes::Bytes;
use serde_json::json;

use crate::drain::Phase;
use crate::gateway::Gateway;
use crate::proxy::reply::Reply;

/// The process answers, so it is alive.
pub(crate) fn live() -> Reply {
    Reply::full(200, "text/plain; charset=utf-8", Bytes::from_static(b"ok\n"))
}

/// 200 when requests can be served, 503 with the reason when not.
pub(crate) fn ready(gateway: &Gateway) -> Reply {
    let body = match state(gateway) {
        Ok(()) => {
            return Reply::full(200, "text/plain; charset=utf-8", Bytes::from_static(b"ok\n"));
        }
        Err(reason) => Bytes::from(format!("not ready: {reason}\n")),
    };
    Reply::full(503, "text/plain; charset=utf-8", body)
}

/// Readiness with all there is to say about it.
pub(crate) fn verbose(gateway: &Gateway) -> Reply {
    let state = state(gateway);
    let site = gateway.site.load();
    let pools: Vec<_> = site
        .pools
        .iter()
        .map(|pool| {
            let endpoints = pool.endpoints();
            let serving = endpoints.iter().filter(|endpoint| is_serving(endpoint)).count();
            json!({"pool": &**pool.name(), "endpoints": endpoints.len(), "serving": serving})
        })
        .collect();
    let body = json!({
        "ready": state.is_ok(),
        "reason": state.as_ref().err(),
        "pools": pools,
        "datapath": {
            "user": "on",
            "kernel": gateway.kernel_path(),
            "sk_msg": gateway.sk_msg(),
            "steering": gateway.steering(),
        },
    });
    let status = if state.is_ok() { 200 } else { 503 };
    Reply::full(status, "application/json", Bytes::from(body.to_string()))
}

pub(crate) fn is_serving(endpoint: &gateway_core::pool::EndpointView) -> bool {
    endpoint.state == gateway_core::pool::EndpointState::Serving
}

fn state(gateway: &Gateway) -> Result<(), String> {
    if gateway.drain.phase() != Phase::Serving {
        return Err("draining".to_owned());
    }
    let site = gateway.site.load();
    let usable = |pool: &std::sync::Arc<crate::pool::Pool>| pool.endpoints().iter().any(is_serving);
    if site.pools.iter().any(usable) { Ok(()) } else { Err("no endpoint can serve".to_owned()) }
}
