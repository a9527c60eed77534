//! Histograms of what requests experienced, with vLLM's bucket bounds.

use std::collections::HashMap;

use gateway_core::Time;

use crate::engine::{Ended, FinishReason};
use crate::histogram::Histogram;

const TOKENS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0];
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const PER_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];
const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];

/// Distributions over the finished requests of one engine, in seconds or tokens.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    pub(super) prompt_tokens: Histogram,
    pub(super) computed_tokens: Histogram,
    pub(super) generation_tokens: Histogram,
    pub(super) max_tokens: Histogram,
    pub(super) choices: Histogram,
    pub(super) first_token: Histogram,
    pub(super) inter_token: Histogram,
    pub(super) per_output_token: Histogram,
    pub(super) whole: Histogram,
    pub(super) queue: Histogram,
    pub(super) inference: Histogram,
    pub(super) prefill: Histogram,
    pub(super) decode: Histogram,
    pub(super) preemptions: Histogram,
    /// Finished requests by reason.
    pub(super) finished: HashMap<FinishReason, u64>,
    /// Prompt tokens of finished requests.
    pub(super) prompt_total: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let (tokens, request) = (|| Histogram::new(TOKENS), || Histogram::new(REQUEST));
        Self {
            prompt_tokens: tokens(),
            computed_tokens: tokens(),
            generation_tokens: tokens(),
            max_tokens: tokens(),
            choices: Histogram::new(CHOICES),
            first_token: Histogram::new(FIRST_TOKEN),
            inter_token: Histogram::new(PER_TOKEN),
            per_output_token: Histogram::new(PER_TOKEN),
            whole: request(),
            queue: request(),
            inference: request(),
            prefill: request(),
            decode: request(),
            preemptions: Histogram::new(PREEMPTIONS),
            finished: HashMap::new(),
            prompt_total: 0,
        }
    }
}

impl Latencies {
    /// Counts a request that finished at `now`.
    pub(super) fn observe(&mut self, ended: &Ended, now: Time) {
        let seconds = |later: Time, earlier: Time| later.since(earlier).as_secs_f64();
        let decode = seconds(now, ended.first_token);
        self.prompt_total += u64::from(ended.prompt_tokens);
        self.prompt_tokens.observe(f64::from(ended.prompt_tokens));
        self.computed_tokens.observe(f64::from(ended.prompt_tokens - ended.cached_tokens));
        self.generation_tokens.observe(f64::from(ended.output_tokens));
        self.max_tokens.observe(f64::from(ended.output_tokens));
        self.choices.observe(1.0);
        self.first_token.observe(seconds(ended.first_token, ended.arrived));
        if ended.output_tokens > 1 {
            self.per_output_token.observe(decode / f64::from(ended.output_tokens - 1));
        }
        self.whole.observe(seconds(now, ended.arrived));
        self.queue.observe(seconds(ended.scheduled, ended.arrived));
        self.inference.observe(seconds(now, ended.scheduled));
        self.prefill.observe(seconds(ended.first_token, ended.scheduled));
        self.decode.observe(decode);
        self.preemptions.observe(f64::from(ended.preemptions));
        *self.finished.entry(ended.reason).or_default() += 1;
    }
}
