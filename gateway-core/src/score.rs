//! Scorers: how good is each endpoint for this request, by one measure?
//!
//! Each scorer is a plain function of numbers in a file of its own, with the
//! name and the formula of the Gateway API Inference Extension (v1.5) or of llm-d.
//! A score is between 0 (avoid) and 1 (ideal). A scorer whose signal is missing
//! answers [`NEUTRAL`]: an endpoint that does not tell its load is neither idle nor full.
//!
//! [`Scene`] is what one decision sees; [`Sheet`] is what scorers need of all
//! candidates together, gathered once per decision.

pub(crate) mod kv_cache_utilization;
pub(crate) mod lora_affinity;
pub(crate) mod no_hit_lru;
pub(crate) mod predicted_latency;
pub(crate) mod prefix_cache;
pub(crate) mod queue;
pub(crate) mod running_requests_size;
pub(crate) mod scene;
pub(crate) mod session_affinity;
mod sheet;
pub(crate) mod token_load;

pub(crate) use scene::Scene;
pub(crate) use sheet::Sheet;

/// Score of an endpoint whose signal is missing.
pub(crate) const NEUTRAL: f64 = 0.5;

/// Least and greatest value of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Range {
    /// The range of the values that are present; `None` when there is none.
    pub(crate) fn of(values: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        values.into_iter().flatten().fold(None, |range, value| {
            Some(match range {
                None => Self { min: value, max: value },
                Some(Self { min, max }) => Self { min: min.min(value), max: max.max(value) },
            })
        })
    }

    /// Whether all values are equal.
    pub(crate) fn is_flat(self) -> bool {
        self.max <= self.min
    }

    /// 1 for the least, 0 for the greatest, linear between; 1 when all are equal.
    pub(crate) fn lower_is_better(self, value: f64) -> f64 {
        if self.max > self.min { (self.max - value) / (self.max - self.min) } else { 1.0 }
    }
}

/// A scorer, by what it looks at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scorer {
    KvCacheUtilization,
    LoraAffinity,
    NoHitLru,
    PredictedLatency,
    PrefixCache,
    Queue,
    RunningRequestsSize,
    SessionAffinity,
    TokenLoad,
}

impl Scorer {
    /// Name in configuration and explanations: the extension's plugin type.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::KvCacheUtilization => kv_cache_utilization::NAME,
            Self::LoraAffinity => lora_affinity::NAME,
            Self::NoHitLru => no_hit_lru::NAME,
            Self::PredictedLatency => predicted_latency::NAME,
            Self::PrefixCache => prefix_cache::NAME,
            Self::Queue => queue::NAME,
            Self::RunningRequestsSize => running_requests_size::NAME,
            Self::SessionAffinity => session_affinity::NAME,
            Self::TokenLoad => token_load::NAME,
        }
    }

    /// Rates the endpoint at `slot`, 0 to 1.
    #[inline]
    pub(crate) fn score(self, scene: &Scene<'_>, sheet: &Sheet, slot: u32) -> f64 {
        let signs = scene.signs(slot);
        let score = match self {
            Self::KvCacheUtilization => kv_cache_utilization::score(signs.kv_usage),
            Self::LoraAffinity => scene.adapter_score(slot),
            Self::NoHitLru => no_hit_lru::score(sheet.ranks.as_ref(), slot),
            Self::PredictedLatency => {
                predicted_latency::score(scene.predicted_ttft(slot), sheet.latency)
            }
            Self::PrefixCache => prefix_cache::score(scene.matched(slot), scene.blocks()),
            Self::Queue => queue::score(sheet.queue_source.of(signs), sheet.queue),
            Self::RunningRequestsSize => {
                running_requests_size::score(sheet.running_source.of(signs), sheet.running)
            }
            Self::SessionAffinity => session_affinity::score(scene.session_home(), slot),
            Self::TokenLoad => {
                token_load::score(scene.row(slot).own.prefill_tokens, scene.uncached_tokens(slot))
            }
        };
        score.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_spans_the_values_that_are_present() {
        assert_eq!(Range::of([None, None]), None);
        let range = Range::of([Some(4.0), None, Some(1.0)]).unwrap();
        assert_eq!((range.min, range.max), (1.0, 4.0));
        assert_eq!(range.lower_is_better(1.0), 1.0);
        assert_eq!(range.lower_is_better(4.0), 0.0);
        assert_eq!(range.lower_is_better(2.5), 0.5);
    }
}
