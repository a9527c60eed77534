//! Which requests arrive when; the same for every policy.
//!
//! A mix of what pools see: short questions, long documents, and half of all
//! requests after one of a few common system prompts, as applications have them.

use std::time::Duration;

/// Everything that will be sent.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) arrivals: Vec<Arrival>,
    /// When the last may arrive.
    pub(super) length: Duration,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Time since the start.
    pub(super) at: Duration,
    /// Body of a streamed chat completion.
    pub(super) body: String,
    prompt_tokens: usize,
}

/// System prompts that requests have in common.
const APPLICATIONS: u64 = 6;
/// Their length, in tokens.
const SYSTEM_TOKENS: usize = 600;

impl Plan {
    /// A plan of Poisson arrivals, `rate` per second on average.
    pub(super) fn new(model: &str, seed: u64, rate: f64, length: Duration) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut arrivals = Vec::new();
        let mut at = Duration::ZERO;
        loop {
            // 1 - u is never 0, whose logarithm is infinite.
            at += Duration::from_secs_f64(-(1.0 - random.f64()).ln() / rate);
            if at >= length {
                return Self { arrivals, length };
            }
            arrivals.push(Arrival::new(model, at, &mut random));
        }
    }

    /// Average length of the prompts, common beginnings included.
    pub(super) fn mean_prompt_tokens(&self) -> usize {
        let total: usize = self.arrivals.iter().map(|arrival| arrival.prompt_tokens).sum();
        total / self.arrivals.len().max(1)
    }
}

impl Arrival {
    fn new(model: &str, at: Duration, random: &mut fastrand::Rng) -> Self {
        let mut messages = Vec::new();
        let mut prompt_tokens = 0;
        if random.bool() {
            let application = random.u64(..APPLICATIONS);
            let system = words(SYSTEM_TOKENS, &mut fastrand::Rng::with_seed(application));
            messages.push(serde_json::json!({ "role": "system", "content": system }));
            prompt_tokens += SYSTEM_TOKENS;
        }
        let own = if random.u8(..10) < 8 { random.usize(50..400) } else { random.usize(800..2400) };
        messages.push(serde_json::json!({ "role": "user", "content": words(own, random) }));
        prompt_tokens += own;
        let body = serde_json::json!({
            "model": model,
            "messages": messages,
            "max_tokens": random.u32(16..96),
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        Self { at, body: body.to_string(), prompt_tokens }
    }
}

/// Text of about `tokens` tokens: the simulated engines take a short word as one.
fn words(tokens: usize, random: &mut fastrand::Rng) -> String {
    let mut text = String::with_capacity(tokens * 6);
    for _ in 0..tokens {
        text.extend((0..random.usize(3..=5)).map(|_| random.lowercase()));
        text.push(' ');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seconds: u64) -> Plan {
        Plan::new("m", 3, 16.0, Duration::from_secs(seconds))
    }

    #[test]
    fn every_policy_gets_the_same_requests() {
        assert_eq!(plan(5).arrivals, plan(5).arrivals);
    }

    #[test]
    fn arrivals_come_at_the_rate_and_in_order() {
        let plan = plan(100);
        let count = plan.arrivals.len();
        assert!((1400..1800).contains(&count), "{count}");
        assert!(plan.arrivals.is_sorted_by_key(|arrival| arrival.at));
        assert!(plan.arrivals.iter().all(|arrival| arrival.at < plan.length));
    }

    #[test]
    fn half_the_requests_begin_in_common() {
        let plan = plan(100);
        let bodies = plan.arrivals.iter().map(|arrival| arrival.body.as_str());
        let systems: Vec<&str> = bodies
            .filter(|body| body.contains(r#""system""#))
            .map(|body| {
                let start = body.find(r#""content":""#).unwrap();
                &body[start..start + 1000]
            })
            .collect();
        let share = systems.len() as f64 / plan.arrivals.len() as f64;
        assert!((0.45..0.55).contains(&share), "{share}");
    }
}
