//! `token-load-scorer`: prefers endpoints with few prompt tokens in flight.
//!
//! `1 - min(tokens, threshold) / threshold`, where tokens are those in flight
//! plus this request's uncached ones (llm-d, default threshold 4,194,304).

pub(crate) const NAME: &str = "token-load-scorer";

/// Tokens at which an endpoint scores 0.
const THRESHOLD: f64 = 4_194_304.0;

/// Rates an endpoint with `in_flight` uncached prompt tokens on their way, to which this
/// request would add `own`.
pub(crate) fn score(in_flight: u64, own: u32) -> f64 {
    let tokens = in_flight as f64 + f64::from(own);
    1.0 - tokens.min(THRESHOLD) / THRESHOLD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_threshold_scores_half() {
        assert_eq!(score(2_097_152, 0), 0.5);
        assert_eq!(score(1_048_576, 1_048_576), 0.5);
    }

    #[test]
    fn beyond_the_threshold_is_zero() {
        assert_eq!(score(u64::MAX, u32::MAX), 0.0);
        assert_eq!(score(0, 0), 1.0);
    }
}
