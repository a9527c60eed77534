//! The daemon's state as JSON, for the status page and `inference-gateway status`.

use gateway_core::pool::{EndpointState, EndpointView};
use serde::Serialize;

use crate::drain::Phase;
use crate::gateway::Gateway;

/// Everything the status page shows.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    version: &'static str,
    uptime_seconds: f64,
    ready: bool,
    phase: &'static str,
    /// Why the kernel carries no answer, if it does not.
    datapath: Datapath,
    /// Other gateways in front of the same engines.
    peers: Vec<PeerStatus>,
    pools: Vec<PoolStatus>,
}

#[derive(Debug, Serialize)]
struct PeerStatus {
    address: String,
    state: &'static str,
    report_age_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Datapath {
    user: &'static str,
    kernel: String,
    sk_msg: String,
    steering: String,
}

#[derive(Debug, Serialize)]
struct PoolStatus {
    name: String,
    model: Option<String>,
    policy: &'static str,
    queued: usize,
    /// Long prompts that give way to others.
    deferred: usize,
    endpoints: Vec<EndpointStatus>,
}

#[derive(Debug, Serialize)]
struct EndpointStatus {
    name: String,
    state: &'static str,
    returns_in_seconds: Option<f64>,
    weight: f64,
    waiting: Option<f64>,
    running: Option<f64>,
    kv_usage: Option<f64>,
    adapters: Vec<String>,
    signal_age_seconds: Option<f64>,
    gpu_utilization: Option<f64>,
    xid: Option<u32>,
    in_flight: u32,
    in_flight_tokens: u64,
    /// Requests of other gateways there, as they tell.
    peer_requests: u32,
    peer_tokens: u64,
    picks: u64,
    consecutive_failures: u32,
    prefill_tokens_per_second: f64,
    overhead_seconds: f64,
    prediction_error_seconds: f64,
}

/// Reads the state now.
pub(crate) fn status(gateway: &Gateway) -> Status {
    let site = gateway.site.load();
    let now = gateway.clock.now();
    let pools: Vec<PoolStatus> = site
        .pools
        .iter()
        .map(|pool| PoolStatus {
            name: pool.name().to_string(),
            model: pool.config.names.model.as_deref().map(str::to_owned),
            policy: pool.config.settings.policy.name(),
            queued: pool.queued(),
            deferred: pool.deferred(),
            endpoints: pool.endpoints().into_iter().map(|view| endpoint(view, now)).collect(),
        })
        .collect();
    let phase = gateway.drain.phase();
    let serving = pools.iter().flat_map(|pool| &pool.endpoints).any(|e| e.state == "serving");
    Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: now.since_origin().as_secs_f64(),
        ready: phase == Phase::Serving && serving,
        phase: match phase {
            Phase::Serving => "serving",
            Phase::Settling => "settling",
            Phase::Draining => "draining",
            Phase::Stopping => "stopping",
        },
        datapath: Datapath {
            user: "on",
            kernel: gateway.kernel_path(),
            sk_msg: gateway.sk_msg(),
            steering: gateway.steering(),
        },
        peers: peers(gateway, now),
        pools,
    }
}

fn peers(gateway: &Gateway, now: gateway_core::Time) -> Vec<PeerStatus> {
    let entries = gateway.peers.entries().into_iter();
    let peers = entries.map(|(address, entry)| PeerStatus {
        address: address.to_string(),
        state: entry.standing.name(),
        report_age_seconds: entry.heard.map(|heard| now.since(heard).as_secs_f64()),
    });
    peers.collect()
}

fn endpoint(view: EndpointView, now: gateway_core::Time) -> EndpointStatus {
    let returns = match view.state {
        EndpointState::Ejected { until } => Some(until.since(now).as_secs_f64()),
        _ => None,
    };
    EndpointStatus {
        name: view.name.to_string(),
        state: view.state.name(),
        returns_in_seconds: returns,
        weight: view.weight,
        waiting: view.signals.waiting,
        running: view.signals.running,
        kv_usage: view.signals.kv_usage,
        adapters: view.signals.adapters.map(|adapters| adapters.running).unwrap_or_default(),
        signal_age_seconds: view.signal_age.map(|age| age.as_secs_f64()),
        gpu_utilization: view.gpu.utilization,
        xid: view.gpu.xid,
        in_flight: view.in_flight_requests,
        in_flight_tokens: view.in_flight_tokens,
        peer_requests: view.peer_requests,
        peer_tokens: view.peer_tokens,
        picks: view.picks,
        consecutive_failures: view.consecutive_failures,
        prefill_tokens_per_second: view.speed.prefill_tokens_per_second,
        overhead_seconds: view.speed.overhead.as_secs_f64(),
        prediction_error_seconds: view.speed.mean_error.as_secs_f64(),
    }
}
