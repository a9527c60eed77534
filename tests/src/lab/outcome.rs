//! What became of the requests, and the figures that are compared.

use std::time::Duration;

use gateway_core::Time;
use serde::{Deserialize, Serialize};

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// When it arrived at the gateway.
    pub arrived: Time,
    /// Endpoint that it was sent to last.
    pub endpoint: Option<usize>,
    /// When it was sent there.
    pub sent: Option<Time>,
    /// When its first token existed.
    pub first_token: Option<Time>,
    /// When its last token existed.
    pub finished: Option<Time>,
    /// Length of its prompt.
    pub prompt_tokens: u32,
    /// Of these, found in the prefix cache.
    pub cached_tokens: u32,
    /// Tokens of the answer; 0 unless finished.
    pub output_tokens: u32,
    /// How often it was preempted.
    pub preemptions: u32,
    /// Least time to first token that any policy could give it.
    pub floor: Duration,
    /// Time to first token within which it is good.
    pub target: Duration,
    /// Whether it was answered.
    pub fate: Fate,
}

/// Whether a request was answered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Fate {
    /// It was.
    Answered,
    /// Every endpoint it was sent to failed it.
    Failed,
    /// The gateway refused it.
    Shed,
    /// The run ended first.
    #[default]
    Unfinished,
}

impl Outcome {
    /// Time to first token, from the arrival at the gateway.
    #[must_use]
    pub fn time_to_first_token(&self) -> Option<Duration> {
        Some(self.first_token?.since(self.arrived))
    }

    /// Whether the first token came within the target.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.fate == Fate::Answered
            && self.time_to_first_token().is_some_and(|ttft| ttft <= self.target)
    }
}

/// One endpoint at one moment, for plots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Which endpoint.
    pub endpoint: usize,
    /// Requests waiting in the engine.
    pub waiting: u32,
    /// Requests in its batch.
    pub running: u32,
}

/// One run: one scenario, one policy, one seed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// By request number, warm-up included.
    pub outcomes: Vec<Outcome>,
    /// Every endpoint about once a second of virtual time.
    pub samples: Vec<Sample>,
    /// Requests that arrived earlier are warm-up.
    pub counted_from: Time,
    /// Requests that arrive from then on only keep the load up; `None` counts all.
    pub counted_until: Option<Time>,
    /// Virtual time at which the last request ended.
    pub end: Time,
    /// Endpoints of the fleet.
    pub endpoints: usize,
}

/// Percentiles in milliseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Percentiles {
    /// Of values in any order; all 0 of none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let [p50, p95, p99] = [0.50, 0.95, 0.99].map(|share| percentile(&values, share));
        Self { p50, p95, p99 }
    }
}

/// Time to first token of a request that got no answer, in milliseconds: an hour, more
/// than any scenario lasts, and a number that JSON can carry.
pub const NEVER_MS: f64 = 3_600_000.0;

/// The figures of a run that are compared.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Summary {
    /// Time to first token; a request that was refused or failed counts as
    /// [`NEVER_MS`], so that refusing cannot look fast.
    pub ttft_ms: Percentiles,
    /// The same of the least times that any policy could give these requests: alone on an idle
    /// engine of the fastest kind.
    pub floor_ms: Percentiles,
    /// Tokens generated per second over the whole fleet.
    pub output_tokens_per_s: f64,
    /// Share of requests with a first token within the target, 0 to 1.
    pub goodput: f64,
    /// Share of prompt tokens found in a prefix cache, 0 to 1.
    pub prefix_hit_rate: f64,
    /// Requests at the endpoint with the most, over the mean of all.
    pub hot_spot_factor: f64,
}

impl Run {
    /// Outcomes of the requests that count.
    pub fn counted(&self) -> impl Iterator<Item = &Outcome> {
        let until = self.counted_until.unwrap_or(Time::MAX);
        let span = self.counted_from..until;
        self.outcomes.iter().filter(move |outcome| span.contains(&outcome.arrived))
    }

    /// The figures of this run.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let (mut ttfts, mut floors) = (Vec::new(), Vec::new());
        let (mut prompt, mut cached, mut good) = (0_u64, 0_u64, 0_u32);
        let mut shares = vec![0_u32; self.endpoints];
        let (mut tokens, mut last) = (0_u64, self.counted_from);
        for outcome in self.counted() {
            let answered = outcome.time_to_first_token();
            ttfts.push(answered.map_or(NEVER_MS, |ttft| ttft.as_secs_f64() * 1e3));
            floors.push(outcome.floor.as_secs_f64() * 1e3);
            good += u32::from(outcome.is_good());
            tokens += u64::from(outcome.output_tokens);
            last = last.max(outcome.finished.unwrap_or(last));
            if let Some(endpoint) = outcome.endpoint {
                shares[endpoint] += 1;
                prompt += u64::from(outcome.prompt_tokens);
                cached += u64::from(outcome.cached_tokens);
            }
        }
        let answers = ttfts.len() as f64;
        let most = shares.iter().copied().max().unwrap_or(0);
        let mean = f64::from(shares.iter().sum::<u32>()) / self.endpoints.max(1) as f64;
        Summary {
            ttft_ms: Percentiles::of(ttfts),
            floor_ms: Percentiles::of(floors),
            output_tokens_per_s: ratio(tokens as f64, last.since(self.counted_from).as_secs_f64()),
            goodput: ratio(f64::from(good), answers),
            prefix_hit_rate: ratio(cached as f64, prompt as f64),
            hot_spot_factor: ratio(f64::from(most), mean),
        }
    }
}

/// Nearest-rank percentile of sorted values; 0 of none.
#[must_use]
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the values are exact")]
mod tests {
    use super::*;

    fn answered(arrived_ms: u64, ttft_ms: u64) -> Outcome {
        let at = |ms| Time::from_origin(Duration::from_millis(ms));
        Outcome {
            arrived: at(arrived_ms),
            endpoint: Some(0),
            sent: Some(at(arrived_ms)),
            first_token: Some(at(arrived_ms + ttft_ms)),
            finished: Some(at(arrived_ms + ttft_ms + 1_000)),
            prompt_tokens: 100,
            cached_tokens: 25,
            output_tokens: 10,
            preemptions: 0,
            floor: Duration::from_millis(ttft_ms / 2),
            target: Duration::from_millis(500),
            fate: Fate::Answered,
        }
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let sorted: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(
            [0.5, 0.95, 0.99, 1.0].map(|share| percentile(&sorted, share)),
            [100.0, 190.0, 198.0, 200.0]
        );
        assert_eq!(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn warm_up_does_not_count_and_a_refusal_is_the_slowest_answer() {
        let shed = Outcome {
            endpoint: None,
            first_token: None,
            finished: None,
            output_tokens: 0,
            fate: Fate::Shed,
            ..answered(3_000, 0)
        };
        let run = Run {
            outcomes: vec![answered(0, 9_000), answered(1_000, 100), answered(2_000, 900), shed],
            counted_from: Time::from_origin(Duration::from_secs(1)),
            endpoints: 2,
            ..Run::default()
        };
        let summary = run.summary();
        assert_eq!((summary.ttft_ms.p50, summary.ttft_ms.p99), (900.0, NEVER_MS));
        assert_eq!((summary.floor_ms.p50, summary.floor_ms.p99), (50.0, 450.0));
        assert!((summary.goodput - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!((summary.prefix_hit_rate, summary.hot_spot_factor), (0.25, 2.0));
        assert!((summary.output_tokens_per_s - 20.0 / 2.9).abs() < 1e-9);
    }
}
