//! Gauges read from the pools when the metrics page is asked for.

use gateway_core::Time;
use gateway_core::pool::EndpointView;
use prometheus::{GaugeVec, Opts};

use super::registrar::Registrar;
use crate::peers::{Board, Standing};
use crate::readiness::is_serving;

/// Gauges of pools and endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Families {
    kv_usage: GaugeVec,
    queue: GaugeVec,
    running: GaugeVec,
    ready: GaugeVec,
    per_pod_queue: GaugeVec,
    in_flight: GaugeVec,
    in_flight_tokens: GaugeVec,
    endpoint_kv_usage: GaugeVec,
    endpoint_state: GaugeVec,
    signal_age: GaugeVec,
    peer_requests: GaugeVec,
    peer_up: GaugeVec,
    peer_age: GaugeVec,
    queued: GaugeVec,
    deferred: GaugeVec,
    index_blocks: GaugeVec,
}

/// What one pool looks like at this moment.
#[derive(Debug)]
pub(crate) struct PoolSample<'a> {
    pub(crate) pool: &'a str,
    pub(crate) endpoints: Vec<EndpointView>,
    pub(crate) queued: usize,
    pub(crate) deferred: usize,
}

impl Families {
    pub(super) fn register(r: &mut Registrar) -> Result<Self, prometheus::Error> {
        const POOL: &[&str] = &["name"];
        const ENDPOINT: &[&str] = &["pool", "endpoint"];
        let mut gauge =
            |name, help, labels: &[&str]| r.add(GaugeVec::new(Opts::new(name, help), labels)?);
        Ok(Self {
            kv_usage: gauge(
                "inference_pool_average_kv_cache_utilization",
                "Mean KV-cache use of fresh endpoints, 0 to 1",
                POOL,
            )?,
            queue: gauge(
                "inference_pool_average_queue_size",
                "Mean engine queue of fresh endpoints",
                POOL,
            )?,
            running: gauge(
                "inference_pool_average_running_requests",
                "Mean running batch of fresh endpoints",
                POOL,
            )?,
            ready: gauge("inference_pool_ready_pods", "Endpoints that may be picked", POOL)?,
            per_pod_queue: gauge(
                "inference_pool_per_pod_queue_size",
                "Engine queue of each endpoint",
                &["name", "model_server_pod"],
            )?,
            in_flight: gauge(
                "inference_gateway_endpoint_in_flight_requests",
                "Requests this gateway has at an endpoint",
                ENDPOINT,
            )?,
            in_flight_tokens: gauge(
                "inference_gateway_endpoint_in_flight_tokens",
                "Uncached prompt tokens this gateway has at an endpoint that have not been prefilled",
                ENDPOINT,
            )?,
            endpoint_kv_usage: gauge(
                "inference_gateway_endpoint_kv_cache_usage",
                "KV-cache use of an endpoint, 0 to 1",
                ENDPOINT,
            )?,
            endpoint_state: gauge(
                "inference_gateway_endpoint_state",
                "1 for the state an endpoint is in",
                &["pool", "endpoint", "state"],
            )?,
            signal_age: gauge(
                "inference_gateway_endpoint_signal_age_seconds",
                "Age of an endpoint's latest signals",
                ENDPOINT,
            )?,
            peer_requests: gauge(
                "inference_gateway_endpoint_peer_requests",
                "Requests that other gateways tell to have at an endpoint",
                ENDPOINT,
            )?,
            peer_up: gauge(
                "inference_gateway_peer_up",
                "1 for another gateway whose reports are read, 0 for an address without one",
                &["peer"],
            )?,
            peer_age: gauge(
                "inference_gateway_peer_report_age_seconds",
                "Age of another gateway's latest report",
                &["peer"],
            )?,
            queued: gauge(
                "inference_gateway_queued_requests",
                "Requests that wait in the gateway, in its queue or for their lots",
                &["pool"],
            )?,
            deferred: gauge(
                "inference_gateway_deferred_requests",
                "Long prompts that wait in the gateway for shorter ones",
                &["pool"],
            )?,
            index_blocks: gauge(
                "inference_gateway_prefix_index_blocks",
                "Blocks of prompts the prefix index holds for an endpoint",
                ENDPOINT,
            )?,
        })
    }

    /// Replaces every gauge by what `samples` say.
    pub(crate) fn update(&self, samples: &[PoolSample<'_>]) {
        self.reset();
        for sample in samples {
            let pool = sample.pool;
            let fresh: Vec<&EndpointView> =
                sample.endpoints.iter().filter(|endpoint| is_serving(endpoint)).collect();
            let mean = |of: fn(&EndpointView) -> Option<f64>| {
                let values: Vec<f64> = fresh.iter().filter_map(|endpoint| of(endpoint)).collect();
                (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
            };
            let set = |gauge: &GaugeVec, labels: &[&str], value: Option<f64>| {
                // Missing stays missing: a pool without fresh endpoints has no load, not none.
                if let Some(value) = value {
                    gauge.with_label_values(labels).set(value);
                }
            };
            set(&self.kv_usage, &[pool], mean(|e| e.signals.kv_usage));
            set(&self.queue, &[pool], mean(|e| e.signals.waiting));
            set(&self.running, &[pool], mean(|e| e.signals.running));
            set(&self.ready, &[pool], Some(fresh.len() as f64));
            set(&self.queued, &[pool], Some(sample.queued as f64));
            set(&self.deferred, &[pool], Some(sample.deferred as f64));
            for endpoint in &sample.endpoints {
                let labels = &[pool, &*endpoint.name];
                set(&self.per_pod_queue, labels, endpoint.signals.waiting);
                set(&self.endpoint_kv_usage, labels, endpoint.signals.kv_usage);
                set(&self.in_flight, labels, Some(f64::from(endpoint.in_flight_requests)));
                set(&self.in_flight_tokens, labels, Some(endpoint.in_flight_tokens as f64));
                set(&self.peer_requests, labels, Some(f64::from(endpoint.peer_requests)));
                set(&self.index_blocks, labels, Some(endpoint.indexed_blocks as f64));
                set(&self.signal_age, labels, endpoint.signal_age.map(|age| age.as_secs_f64()));
                let state = &[pool, &*endpoint.name, endpoint.state.name()];
                set(&self.endpoint_state, state, Some(1.0));
            }
        }
    }

    /// Replaces the gauges of other gateways. What is no peer (this gateway itself, or one
    /// that is named twice) has none.
    pub(crate) fn update_peers(&self, board: &Board, now: Time) {
        self.peer_up.reset();
        self.peer_age.reset();
        for (address, entry) in board.entries() {
            let up = match entry.standing {
                Standing::Itself | Standing::Twice => continue,
                Standing::Up(_) => 1.0,
                Standing::Down => 0.0,
            };
            let peer = &[&*address.to_string()];
            self.peer_up.with_label_values(peer).set(up);
            if let Some(heard) = entry.heard {
                self.peer_age.with_label_values(peer).set(now.since(heard).as_secs_f64());
            }
        }
    }

    fn reset(&self) {
        for gauge in [
            &self.kv_usage,
            &self.queue,
            &self.running,
            &self.ready,
            &self.per_pod_queue,
            &self.in_flight,
            &self.in_flight_tokens,
            &self.endpoint_kv_usage,
            &self.endpoint_state,
            &self.signal_age,
            &self.peer_requests,
            &self.queued,
            &self.deferred,
            &self.index_blocks,
        ] {
            gauge.reset();
        }
    }
}
