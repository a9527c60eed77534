//! `kv-cache-utilization-scorer`: prefers free KV cache: `1 - usage`.

use super::NEUTRAL;

pub(crate) const NAME: &str = "kv-cache-utilization-scorer";

/// Rates an endpoint that uses this share of its KV cache, 0 to 1.
pub(crate) fn score(usage: Option<f64>) -> f64 {
    usage.map_or(NEUTRAL, |usage| 1.0 - usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_cache_scores_highest() {
        assert_eq!(score(Some(0.0)), 1.0);
        assert_eq!(score(Some(0.75)), 0.25);
        assert_eq!(score(Some(1.0)), 0.0);
    }

    #[test]
    fn missing_usage_is_not_an_empty_cache() {
        assert_eq!(score(None), 0.5);
    }
}
