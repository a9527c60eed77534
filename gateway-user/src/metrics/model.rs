//! Metrics of requests, by model: the extension's names beside ours.

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::registrar::Registrar;
use super::{LATENCY, PER_TOKEN, counters, gauges, histograms, powers_of_two};
use crate::proxy::record::Path;

/// Labels of the extension's request families.
const MODELS: &[&str] = &["model_name", "target_model_name"];

/// The families; [`Families::resolve`] gives one model's handles.
#[derive(Clone, Debug)]
pub(crate) struct Families {
    requests: IntCounterVec,
    errors: IntCounterVec,
    duration: HistogramVec,
    ttft: HistogramVec,
    tpot: HistogramVec,
    predicted_ttft: HistogramVec,
    per_output_token: HistogramVec,
    request_bytes: HistogramVec,
    response_bytes: HistogramVec,
    input_tokens: HistogramVec,
    output_tokens: HistogramVec,
    cached_tokens: HistogramVec,
    running: IntGaugeVec,
    outcomes: IntCounterVec,
    tokens: IntCounterVec,
    answers: IntCounterVec,
}

/// One model's handles in one pool.
#[derive(Debug)]
pub(crate) struct ModelMetrics {
    /// Requests that reached this model's pool.
    pub(crate) requests: IntCounter,
    /// Accept to last byte.
    pub(crate) duration: Histogram,
    /// Accept to first token.
    pub(crate) ttft: Histogram,
    /// First to last token, per token.
    pub(crate) tpot: Histogram,
    /// What the pick expected the time to first token to be.
    pub(crate) predicted_ttft: Histogram,
    /// Whole duration per output token.
    pub(crate) per_output_token: Histogram,
    pub(crate) request_bytes: Histogram,
    pub(crate) response_bytes: Histogram,
    pub(crate) input_tokens: Histogram,
    pub(crate) output_tokens: Histogram,
    pub(crate) cached_tokens: Histogram,
    /// Requests between pick and last byte.
    pub(crate) running: IntGauge,
    pub(crate) prompt_tokens_total: IntCounter,
    pub(crate) cached_tokens_total: IntCounter,
    pub(crate) output_tokens_total: IntCounter,
    /// Answers whose bytes went through user space.
    /// By path, in the order of [`Path::ALL`].
    pub(crate) answers: [IntCounter; Path::ALL.len()],
    errors: IntCounterVec,
    outcomes: IntCounterVec,
    pool: String,
    model: String,
    target: String,
}

impl Families {
    pub(super) fn register(r: &mut Registrar) -> Result<Self, prometheus::Error> {
        let bytes = powers_of_two(64.0, 1024.0 * 1024.0 * 1024.0);
        let powers: Vec<f64> =
            std::iter::once(1.0).chain(powers_of_two(8.0, 1_048_576.0)).collect();
        let ntpot = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
        let requests = counters(
            r,
            "inference_objective_request_total",
            "Requests, by model and priority",
            &["model_name", "target_model_name", "priority"],
        )?;
        let errors = counters(
            r,
            "inference_objective_request_error_total",
            "Requests that ended in an error, by model and code",
            &["model_name", "target_model_name", "error_code"],
        )?;
        let running = gauges(
            r,
            "inference_objective_running_requests",
            "Requests between pick and last byte",
            &["model_name"],
        )?;
        let outcomes = counters(
            r,
            "inference_gateway_requests_total",
            "Finished requests, by pool, model and outcome",
            &["pool", "model", "outcome"],
        )?;
        let tokens = counters(
            r,
            "inference_gateway_tokens_total",
            "Tokens, by pool, model and kind (prompt, cached, output)",
            &["pool", "model", "kind"],
        )?;
        let answers = counters(
            r,
            "inference_gateway_answers_total",
            "Answers, by pool and the path their bytes took",
            &["pool", "path"],
        )?;
        let mut h = |name, help, buckets: &[f64]| histograms(r, name, help, buckets, MODELS);
        Ok(Self {
            requests,
            errors,
            duration: h(
                "inference_objective_request_duration_seconds",
                "Request to last byte",
                LATENCY,
            )?,
            ttft: h("inference_objective_request_ttft_seconds", "Request to first token", LATENCY)?,
            tpot: h(
                "inference_objective_request_tpot_seconds",
                "Time per output token after the first",
                PER_TOKEN,
            )?,
            predicted_ttft: h(
                "inference_objective_request_predicted_ttft_seconds",
                "Time to first token as the pick predicted it",
                LATENCY,
            )?,
            per_output_token: h(
                "inference_objective_normalized_time_per_output_token_seconds",
                "Request duration divided by output tokens",
                &ntpot,
            )?,
            request_bytes: h("inference_objective_request_sizes", "Request body, bytes", &bytes)?,
            response_bytes: h("inference_objective_response_sizes", "Answer body, bytes", &bytes)?,
            input_tokens: h(
                "inference_objective_input_tokens",
                "Prompt tokens, as the engine counted",
                &powers,
            )?,
            output_tokens: h(
                "inference_objective_output_tokens",
                "Output tokens, as the engine counted",
                &powers,
            )?,
            cached_tokens: h(
                "inference_objective_prompt_cached_tokens",
                "Prompt tokens the engine had cached",
                &powers,
            )?,
            running,
            outcomes,
            tokens,
            answers,
        })
    }

    /// The handles of `model` (as clients call it) served as `target` in `pool`.
    pub(crate) fn resolve(
        &self,
        pool: &str,
        model: &str,
        target: &str,
        priority: i32,
    ) -> ModelMetrics {
        let labels = &[model, target];
        let tokens = |kind| self.tokens.with_label_values(&[pool, model, kind]);
        ModelMetrics {
            requests: self.requests.with_label_values(&[model, target, &priority.to_string()]),
            duration: self.duration.with_label_values(labels),
            ttft: self.ttft.with_label_values(labels),
            tpot: self.tpot.with_label_values(labels),
            predicted_ttft: self.predicted_ttft.with_label_values(labels),
            per_output_token: self.per_output_token.with_label_values(labels),
            request_bytes: self.request_bytes.with_label_values(labels),
            response_bytes: self.response_bytes.with_label_values(labels),
            input_tokens: self.input_tokens.with_label_values(labels),
            output_tokens: self.output_tokens.with_label_values(labels),
            cached_tokens: self.cached_tokens.with_label_values(labels),
            running: self.running.with_label_values(&[model]),
            prompt_tokens_total: tokens("prompt"),
            cached_tokens_total: tokens("cached"),
            output_tokens_total: tokens("output"),
            answers: Path::ALL.map(|path| self.answers.with_label_values(&[pool, path.name()])),
            errors: self.errors.clone(),
            outcomes: self.outcomes.clone(),
            pool: pool.to_owned(),
            model: model.to_owned(),
            target: target.to_owned(),
        }
    }
}

impl ModelMetrics {
    /// Counts how a request ended. Once per request, so not worth a handle each.
    pub(crate) fn outcome(&self, outcome: &str) {
        self.outcomes.with_label_values(&[&self.pool, &self.model, &outcome.to_owned()]).inc();
    }

    /// Counts an error by the extension's name for it.
    pub(crate) fn error(&self, code: &str) {
        self.errors.with_label_values(&[&self.model, &self.target, &code.to_owned()]).inc();
    }
}
