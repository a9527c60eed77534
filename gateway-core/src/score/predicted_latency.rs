//! `predicted-latency`: prefers endpoints that are predicted to answer first.
//!
//! The prediction of the `predicted` policy, made a score like a queue:
//! `(max - ttft) / (max - min)` over the candidates.

use super::{NEUTRAL, Range};

pub(crate) const NAME: &str = "predicted-latency";

/// Rates an endpoint with a predicted time to first token in seconds.
pub(crate) fn score(seconds: f64, range: Option<Range>) -> f64 {
    range.map_or(NEUTRAL, |range| range.lower_is_better(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soonest_answer_scores_highest() {
        let range = Range::of([Some(0.1), Some(0.5), Some(0.3)]);
        assert_eq!(score(0.1, range), 1.0);
        assert_eq!(score(0.5, range), 0.0);
        assert!((score(0.3, range) - 0.5).abs() < 1e-12);
    }
}
