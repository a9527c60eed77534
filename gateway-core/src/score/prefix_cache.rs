//! `prefix-cache-scorer`: prefers endpoints that hold the prompt's prefix:
//! `matched blocks / blocks of the prompt`; 0 for a prompt without a full block.

pub(crate) const NAME: &str = "prefix-cache-scorer";

/// Rates an endpoint that holds the first `matched` of `total` blocks.
pub(crate) fn score(matched: u32, total: u32) -> f64 {
    if total == 0 { 0.0 } else { f64::from(matched) / f64::from(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_the_share_of_the_prompt_that_is_held() {
        assert_eq!(score(3, 12), 0.25);
        assert_eq!(score(12, 12), 1.0);
        assert_eq!(score(0, 12), 0.0);
    }

    #[test]
    fn a_prompt_shorter_than_a_block_prefers_nobody() {
        assert_eq!(score(0, 0), 0.0);
    }
}
