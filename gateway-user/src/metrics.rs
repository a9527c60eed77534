//! What the daemon counts.
//!
//! Two sets of names: ours (`inference_gateway_*`), and the inference
//! extension's (`inference_objective_*`, `inference_pool_*`) with its labels and
//! buckets, so that existing dashboards keep working. Handles are resolved once
//! per pool and model; the request path only increments. Gauges that describe
//! endpoints are sampled when somebody asks ([`sample`]), so those of endpoints
//! that are gone disappear by themselves.

use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    TextEncoder,
};

pub mod model;
mod registrar;
pub mod sample;

use registrar::Registrar;

/// The extension's latency buckets, seconds (5 ms to 1 h).
const LATENCY: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0,
    1200.0, 1800.0, 2700.0, 3600.0,
];
/// The extension's buckets for the time per output token, seconds.
const PER_TOKEN: &[f64] = &[
    0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5,
    0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.5, 6.0, 12.0, 18.0, 24.0, 30.0, 36.0, 48.0, 60.0, 90.0, 120.0,
    180.0, 270.0, 360.0,
];
/// The extension's buckets for a scheduling decision, widened downwards: ours take microseconds.
const DECISION: &[f64] = &[
    0.000_001, 0.000_002, 0.000_005, 0.000_01, 0.000_02, 0.000_05, 0.0001, 0.0002, 0.0005, 0.001,
    0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
];

/// Every metric of the daemon, in a registry of its own.
///
/// Cloning shares the counters.
#[derive(Clone, Debug)]
pub struct Metrics {
    registrar: Registrar,
    /// Answers that the gateway gave itself, by reason.
    pub local_replies: IntCounterVec,
    /// Client connections, by HTTP version.
    pub connections: IntGaugeVec,
    /// Bytes of request bodies held in memory.
    pub buffered_bytes: IntGauge,
    /// 1 for what the kernel does, by path: `splice`, `sk_msg`, `steering`.
    pub kernel: IntGaugeVec,
    /// Scrapes, by pool and result.
    pub scrapes: IntCounterVec,
    /// Reports asked of other gateways, by result.
    pub peer_reports: IntCounterVec,
    /// Bytes of those that were taken.
    pub peer_report_bytes: IntCounter,
    /// Picks, by pool and endpoint.
    pub picks: IntCounterVec,
    /// Connections that the kernel sent to an endpoint, by pool and endpoint.
    pub steered: IntCounterVec,
    /// Repeated attempts, by pool and reason.
    pub retries: IntCounterVec,
    /// Configuration reloads, by result.
    pub reloads: IntCounterVec,
    /// Time to decide, seconds: the extension's name.
    pub decision: HistogramVec,
    /// Time in the gateway's queue, seconds.
    pub queue_wait: HistogramVec,
    pub(crate) by_model: model::Families,
    pub(crate) sampled: sample::Families,
}

impl Metrics {
    /// Creates and registers everything.
    ///
    /// # Errors
    ///
    /// Two metrics of one name: a programming error, reported instead of a panic.
    pub fn register() -> Result<Self, prometheus::Error> {
        let mut registrar = Registrar::default();
        let r = &mut registrar;
        let build =
            gauges(r, "inference_gateway_build_info", "Version of this binary", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Ok(Self {
            local_replies: counters(
                r,
                "inference_gateway_local_replies_total",
                "Answers given by the gateway itself, by reason",
                &["reason"],
            )?,
            connections: gauges(
                r,
                "inference_gateway_client_connections",
                "Open client connections",
                &["protocol"],
            )?,
            buffered_bytes: r.add(IntGauge::new(
                "inference_gateway_buffered_bytes",
                "Bytes of unfinished request bodies beyond the per-request allowance",
            )?)?,
            kernel: gauges(
                r,
                "inference_gateway_kernel_path",
                "1 where the kernel does this: `splice`, `sk_msg` or `steering`",
                &["path"],
            )?,
            scrapes: counters(
                r,
                "inference_gateway_scrapes_total",
                "Scrapes of engines' metrics pages",
                &["pool", "result"],
            )?,
            peer_reports: counters(
                r,
                "inference_gateway_peer_reports_total",
                "Reports asked of other gateways",
                &["result"],
            )?,
            peer_report_bytes: r.add(IntCounter::new(
                "inference_gateway_peer_report_bytes_total",
                "Bytes of reports of other gateways",
            )?)?,
            picks: counters(
                r,
                "inference_gateway_picks_total",
                "Requests sent to an endpoint, retries included",
                &["pool", "endpoint"],
            )?,
            steered: counters(
                r,
                "inference_gateway_steered_total",
                "Connections to a pool's virtual address that the kernel sent to an endpoint",
                &["pool", "endpoint"],
            )?,
            retries: counters(
                r,
                "inference_gateway_retries_total",
                "Attempts repeated before the first byte of an answer",
                &["pool", "reason"],
            )?,
            reloads: counters(
                r,
                "inference_gateway_config_reloads_total",
                "Configuration files read again, by result",
                &["result"],
            )?,
            decision: histograms(
                r,
                "inference_extension_scheduler_e2e_duration_seconds",
                "Time to pick an endpoint",
                DECISION,
                &[],
            )?,
            queue_wait: histograms(
                r,
                "inference_gateway_queue_wait_seconds",
                "Time a request waited in the gateway, in its queue, for its lot or for shorter prompts",
                LATENCY,
                &["pool"],
            )?,
            by_model: model::Families::register(r)?,
            sampled: sample::Families::register(r)?,
            registrar,
        })
    }

    /// Every family as a Markdown table: name, type, labels, meaning.
    #[must_use]
    pub fn describe(&self) -> String {
        self.registrar.describe()
    }

    /// The page in the Prometheus text format.
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(16 * 1024);
        if let Err(error) = TextEncoder::new().encode(&self.registrar.gather(), &mut page) {
            tracing::error!(%error, "cannot encode the metrics page");
        }
        page
    }
}

fn counters(
    r: &mut Registrar,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, prometheus::Error> {
    r.add(IntCounterVec::new(Opts::new(name, help), labels)?)
}

fn gauges(
    r: &mut Registrar,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntGaugeVec, prometheus::Error> {
    r.add(IntGaugeVec::new(Opts::new(name, help), labels)?)
}

fn histograms(
    r: &mut Registrar,
    name: &str,
    help: &str,
    buckets: &[f64],
    labels: &[&str],
) -> Result<HistogramVec, prometheus::Error> {
    r.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?)
}

/// 1, 2, 4 ... up to `last`.
fn powers_of_two(first: f64, last: f64) -> Vec<f64> {
    std::iter::successors(Some(first), |bound| Some(bound * 2.0))
        .take_while(|bound| *bound <= last)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_described_whether_it_has_a_value_or_not() {
        let described = Metrics::register().unwrap().describe();
        assert!(described.contains(
            "| `inference_gateway_picks_total` | counter | `pool`, `endpoint` | Requests sent to \
             an endpoint, retries included |\n"
        ));
        let first_token = "`inference_objective_request_ttft_seconds` | histogram | `model_name`, ";
        assert!(described.contains(first_token), "{described}");
        assert!(described.contains("`inference_gateway_buffered_bytes` | gauge |  | "));
    }

    #[test]
    fn the_page_has_both_sets_of_names() {
        let metrics = Metrics::register().unwrap();
        metrics.by_model.resolve("pool", "llama", "llama", 0).requests.inc();
        let page = String::from_utf8(metrics.render()).unwrap();
        assert!(page.contains("inference_gateway_build_info{version="));
        assert!(page.contains(
            "inference_objective_request_total{model_name=\"llama\",priority=\"0\",target_model_name=\"llama\"} 1"
        ));
    }

    #[test]
    fn latency_buckets_reach_an_hour() {
        assert_eq!(LATENCY.last(), Some(&3600.0));
        assert_eq!(powers_of_two(8.0, 1_048_576.0).len(), 18);
    }
}
