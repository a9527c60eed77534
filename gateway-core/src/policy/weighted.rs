//! `weighted`: the field's convention, a weighted sum of scorers.
//!
//! Scorers, formulas, names and default weights are those of the Gateway API
//! Inference Extension's endpoint picker (v1.5) and of llm-d, so that weights brought
//! from there mean the same here. The sum is not normalised, as there.

use crate::score::{Scene, Scorer, Sheet};

/// Weight of each scorer; finite and not negative. A scorer of weight 0 is not
/// computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// `queue-scorer`.
    pub queue: f64,
    /// `kv-cache-utilization-scorer`.
    pub kv_cache: f64,
    /// `prefix-cache-scorer`.
    pub prefix: f64,
    /// `running-requests-size-scorer`.
    pub running_requests: f64,
    /// `lora-affinity-scorer`.
    pub lora_affinity: f64,
    /// `no-hit-lru-scorer`.
    pub no_hit_lru: f64,
    /// `token-load-scorer`.
    pub token_load: f64,
    /// `predicted-latency`.
    pub predicted_latency: f64,
    /// `session-affinity-scorer`.
    pub session_affinity: f64,
}

impl Default for Weights {
    /// The extension's default: queue 2, KV cache 2, prefix 3.
    fn default() -> Self {
        Self {
            queue: 2.0,
            kv_cache: 2.0,
            prefix: 3.0,
            running_requests: 0.0,
            lora_affinity: 0.0,
            no_hit_lru: 0.0,
            token_load: 0.0,
            predicted_latency: 0.0,
            session_affinity: 0.0,
        }
    }
}

impl Weights {
    /// The scorers in use, with their weights. A weight that is not finite and
    /// positive is taken as 0.
    pub(crate) fn scorers(&self) -> impl Iterator<Item = (Scorer, f64)> + use<> {
        [
            (Scorer::Queue, self.queue),
            (Scorer::KvCacheUtilization, self.kv_cache),
            (Scorer::PrefixCache, self.prefix),
            (Scorer::RunningRequestsSize, self.running_requests),
            (Scorer::LoraAffinity, self.lora_affinity),
            (Scorer::NoHitLru, self.no_hit_lru),
            (Scorer::TokenLoad, self.token_load),
            (Scorer::PredictedLatency, self.predicted_latency),
            (Scorer::SessionAffinity, self.session_affinity),
        ]
        .into_iter()
        .filter(|(_, weight)| *weight > 0.0 && weight.is_finite())
    }
}

/// Adds each candidate's total to `totals`, in the order of `candidates`.
pub(crate) fn rate(
    weights: &Weights,
    scene: &Scene<'_>,
    sheet: &Sheet,
    candidates: &[u32],
    totals: &mut Vec<f64>,
) {
    let scorers: Vec<_> = weights.scorers().collect();
    totals.clear();
    totals.extend(candidates.iter().map(|&slot| {
        let weighted = |(scorer, weight): &(Scorer, f64)| weight * scorer.score(scene, sheet, slot);
        scorers.iter().map(weighted).sum::<f64>()
    }));
    if scene.slow_start.is_some() {
        for (total, &slot) in totals.iter_mut().zip(candidates) {
            *total *= scene.ramp(slot);
        }
    }
}
