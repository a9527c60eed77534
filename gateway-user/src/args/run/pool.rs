//! Flags that make up the one pool of a gateway without a file.

use clap::{ArgAction, Args};

use crate::config::ConfigError;
use crate::config::at::At;
use crate::config::raw::{self, Endpoint, FlowControl};
use crate::config::scalar::{Size, Span};
use crate::config::secret::{Secret, SecretSource};
use crate::config::switch::Section;

/// Flags that make up the one pool of a gateway without a file.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Pool (without --config)")]
pub struct PoolFlags {
    /// Model servers: URLs, or host:port; several, or the flag several times.
    #[arg(long, env = "INFERENCE_GATEWAY_WORKER_URLS", num_args = 1.., value_delimiter = ',')]
    pub worker_urls: Vec<String>,
    /// Model that all of them serve. Without it, whatever they say they serve.
    #[arg(long, env = "INFERENCE_GATEWAY_MODEL")]
    pub model: Option<String>,
    /// Engine that they run [default: vllm].
    #[arg(long, env = "INFERENCE_GATEWAY_ENGINE_TYPE")]
    pub engine_type: Option<String>,
    /// How an endpoint is chosen [default: predicted].
    #[arg(long, env = "INFERENCE_GATEWAY_POLICY")]
    pub policy: Option<String>,
    /// Key that the engines are sent in place of the client's.
    #[arg(long, env = "INFERENCE_GATEWAY_WORKER_API_KEY", hide_env_values = true, value_parser = super::super::secret)]
    pub worker_api_key: Option<Secret>,
    /// Seconds that a request may take in all; 0 is no limit [default: 1800].
    #[arg(long, env = "INFERENCE_GATEWAY_REQUEST_TIMEOUT_SECS", value_name = "SECONDS")]
    pub request_timeout_secs: Option<u64>,
    /// Largest request body, bytes or with a unit [default: 256MiB].
    #[arg(long, env = "INFERENCE_GATEWAY_MAX_PAYLOAD_SIZE", value_name = "BYTES")]
    pub max_payload_size: Option<String>,
    /// Requests in flight at all workers together; -1 is no limit [default: -1].
    #[arg(
        long,
        env = "INFERENCE_GATEWAY_MAX_CONCURRENT_REQUESTS",
        value_name = "REQUESTS",
        allow_negative_numbers = true
    )]
    pub max_concurrent_requests: Option<i64>,
    /// Requests that may wait, with --max-concurrent-requests [default: 5000].
    #[arg(long, env = "INFERENCE_GATEWAY_QUEUE_SIZE", value_name = "REQUESTS")]
    pub queue_size: Option<usize>,
    /// Seconds that a request may wait [default: 60].
    #[arg(long, env = "INFERENCE_GATEWAY_QUEUE_TIMEOUT_SECS", value_name = "SECONDS")]
    pub queue_timeout_secs: Option<u64>,
    /// Attempts beyond the first [default: 2].
    #[arg(long, env = "INFERENCE_GATEWAY_RETRY_MAX_RETRIES", value_name = "RETRIES")]
    pub retry_max_retries: Option<u32>,
    /// Never retry.
    #[arg(long, env = "INFERENCE_GATEWAY_DISABLE_RETRIES", action = ArgAction::SetTrue)]
    pub disable_retries: bool,
    /// Failures in a row that eject an endpoint [default: 5].
    #[arg(long, env = "INFERENCE_GATEWAY_CB_FAILURE_THRESHOLD", value_name = "FAILURES")]
    pub cb_failure_threshold: Option<u32>,
    /// Seconds of the first ejection [default: 10].
    #[arg(long, env = "INFERENCE_GATEWAY_CB_TIMEOUT_DURATION_SECS", value_name = "SECONDS")]
    pub cb_timeout_duration_secs: Option<u64>,
    /// Never eject.
    #[arg(long, env = "INFERENCE_GATEWAY_DISABLE_CIRCUIT_BREAKER", action = ArgAction::SetTrue)]
    pub disable_circuit_breaker: bool,
    /// Seconds between two health probes; 0 is no probes [default: 5].
    #[arg(long, env = "INFERENCE_GATEWAY_HEALTH_CHECK_INTERVAL_SECS", value_name = "SECONDS")]
    pub health_check_interval_secs: Option<u64>,
    /// Seconds that a health probe may take [default: 2].
    #[arg(long, env = "INFERENCE_GATEWAY_HEALTH_CHECK_TIMEOUT_SECS", value_name = "SECONDS")]
    pub health_check_timeout_secs: Option<u64>,
    /// Path of the health probe [default: /health].
    #[arg(long, env = "INFERENCE_GATEWAY_HEALTH_CHECK_ENDPOINT", value_name = "PATH")]
    pub health_check_endpoint: Option<String>,
    /// Failed probes in a row that take an endpoint out [default: 3].
    #[arg(long, env = "INFERENCE_GATEWAY_HEALTH_FAILURE_THRESHOLD", value_name = "FAILURES")]
    pub health_failure_threshold: Option<u32>,
    /// Good probes in a row that bring it back [default: 1].
    #[arg(long, env = "INFERENCE_GATEWAY_HEALTH_SUCCESS_THRESHOLD", value_name = "SUCCESSES")]
    pub health_success_threshold: Option<u32>,

    // Flags of other routers that have no meaning here: accepted, and said so once.
    #[arg(long, hide = true)]
    cache_threshold: Option<f64>,
    #[arg(long, hide = true)]
    balance_abs_threshold: Option<u64>,
    #[arg(long, hide = true)]
    balance_rel_threshold: Option<f64>,
    #[arg(long, hide = true, alias = "eviction-interval-secs")]
    eviction_interval: Option<u64>,
    #[arg(long, hide = true)]
    max_tree_size: Option<u64>,
    #[arg(long, hide = true)]
    worker_startup_timeout_secs: Option<u64>,
    #[arg(long, hide = true)]
    worker_startup_check_interval: Option<u64>,
    #[arg(long, hide = true)]
    retry_initial_backoff_ms: Option<u64>,
    #[arg(long, hide = true)]
    retry_max_backoff_ms: Option<u64>,
    #[arg(long, hide = true)]
    cb_success_threshold: Option<u32>,
    #[arg(long, hide = true)]
    cb_window_duration_secs: Option<u64>,
}

impl PoolFlags {
    pub(super) fn apply(
        &self,
        config: &mut raw::Config,
        notes: &mut Vec<String>,
    ) -> Result<(), ConfigError> {
        let mut pool = raw::Pool { name: At::of("default".to_owned()), ..raw::Pool::default() };
        pool.model_name = self.model.clone().map(At::of);
        pool.endpoints = self.worker_urls.iter().cloned().map(Endpoint::from).map(At::of).collect();
        if let Some(engine) = &self.engine_type {
            pool.engine_type = At::of(engine.clone());
        }
        if let Some(name) = &self.policy {
            policy(&mut pool, name, notes);
        }
        if let Some(size) = &self.max_payload_size {
            let size: Size = size.parse().map_err(|error| {
                ConfigError::placed(None, format!("--max-payload-size: {error}"), "mind the unit")
            })?;
            pool.max_request_body_bytes = At::of(size);
        }
        pool.timeouts.request = self.request_timeout_secs.map(|secs| At::of(Span::secs(secs)));
        pool.api_key = self.worker_api_key.clone().map(SecretSource::written).map(At::of);
        self.retries_and_ejection(&mut pool);
        self.health(&mut pool);
        self.queue(&mut pool, notes);
        self.note_ignored(notes);
        config.pools = vec![At::of(pool)];
        Ok(())
    }

    fn retries_and_ejection(&self, pool: &mut raw::Pool) {
        let mut retry = raw::Retry::default();
        retry.attempts = self.retry_max_retries.unwrap_or(retry.attempts);
        pool.retry = if self.disable_retries { Section::Off } else { Section::On(retry) };
        let mut ejection = raw::Ejection::default();
        if let Some(failures) = self.cb_failure_threshold {
            ejection.consecutive_failures = At::of(failures);
        }
        if let Some(seconds) = self.cb_timeout_duration_secs {
            ejection.base = At::of(Span::secs(seconds));
            ejection.max = At::of(Span(ejection.max.0.max(ejection.base.0)));
        }
        pool.ejection =
            if self.disable_circuit_breaker { Section::Off } else { Section::On(ejection) };
    }

    fn health(&self, pool: &mut raw::Pool) {
        let mut health = raw::Health::default();
        if let Some(path) = &self.health_check_endpoint {
            health.path = At::of(path.clone());
        }
        if let Some(seconds) = self.health_check_timeout_secs {
            health.timeout = At::of(Span::secs(seconds));
        }
        if let Some(failures) = self.health_failure_threshold {
            health.failures = At::of(failures);
        }
        if let Some(successes) = self.health_success_threshold {
            health.successes = At::of(successes);
        }
        pool.health = match self.health_check_interval_secs {
            Some(0) => Section::Off,
            Some(seconds) => {
                Section::On(raw::Health { interval: At::of(Span::secs(seconds)), ..health })
            }
            None => Section::On(health),
        };
    }

    fn queue(&self, pool: &mut raw::Pool, notes: &mut Vec<String>) {
        let Some(most) = self.max_concurrent_requests.filter(|most| *most > 0) else {
            if self.queue_size.is_some() || self.queue_timeout_secs.is_some() {
                notes.push(
                    "--queue-size and --queue-timeout-secs have no effect without \
                     --max-concurrent-requests: nothing waits here"
                        .to_owned(),
                );
            }
            return;
        };
        let each = most.unsigned_abs().div_ceil(self.worker_urls.len().max(1) as u64);
        notes.push(format!("--max-concurrent-requests {most} means {each} at each worker"));
        let mut flow = FlowControl {
            max_in_flight_per_endpoint: Some(At::of(u32::try_from(each).unwrap_or(u32::MAX))),
            ..FlowControl::default()
        };
        let bands = &mut flow.bands;
        for band in [&mut bands.critical, &mut bands.standard, &mut bands.sheddable] {
            band.max_requests = self.queue_size.unwrap_or(band.max_requests);
            if let Some(seconds) = self.queue_timeout_secs {
                band.timeout = At::of(Span::secs(seconds));
            }
        }
        pool.flow_control = Some(flow);
    }

    fn note_ignored(&self, notes: &mut Vec<String>) {
        const TREE: &str = "the policies here have no such threshold";
        const PROBES: &str = "workers are used as soon as a probe succeeds";
        const PAUSES: &str = "a retry goes to another worker, at once";
        const BREAKER: &str = "an ejected worker returns by itself, and one success clears it";
        let ignored = [
            (self.cache_threshold.is_some(), "--cache-threshold", TREE),
            (self.balance_abs_threshold.is_some(), "--balance-abs-threshold", TREE),
            (self.balance_rel_threshold.is_some(), "--balance-rel-threshold", TREE),
            (self.eviction_interval.is_some(), "--eviction-interval", TREE),
            (self.max_tree_size.is_some(), "--max-tree-size", TREE),
            (self.worker_startup_timeout_secs.is_some(), "--worker-startup-timeout-secs", PROBES),
            (
                self.worker_startup_check_interval.is_some(),
                "--worker-startup-check-interval",
                PROBES,
            ),
            (self.retry_initial_backoff_ms.is_some(), "--retry-initial-backoff-ms", PAUSES),
            (self.retry_max_backoff_ms.is_some(), "--retry-max-backoff-ms", PAUSES),
            (self.cb_success_threshold.is_some(), "--cb-success-threshold", BREAKER),
            (self.cb_window_duration_secs.is_some(), "--cb-window-duration-secs", BREAKER),
        ];
        for (_, flag, why) in ignored.iter().filter(|(given, ..)| *given) {
            notes.push(format!("{flag} has no effect: {why}"));
        }
    }
}

/// Policies of other routers become what serves the same purpose here.
fn policy(pool: &mut raw::Pool, name: &str, notes: &mut Vec<String>) {
    let (policy, why) = match name {
        "cache_aware" | "prefix_hash" | "kv_aware" | "prefixaware" => {
            ("predicted", "it knows which worker has cached which prefix")
        }
        "least_load" => ("predicted", "it weighs the work queued at each worker"),
        "consistent_hashing" | "consistent_hash" | "session" => {
            pool.session_affinity = Some(raw::SessionAffinity::default());
            ("predicted", "sessions named by the header x-session-id stay together")
        }
        "roundrobin" => ("round_robin", "they are the same"),
        other => {
            pool.policy = Some(At::of(other.to_owned()));
            return;
        }
    };
    pool.policy = Some(At::of(policy.to_owned()));
    notes.push(format!("policy {name} is served by {policy}: {why}"));
}
