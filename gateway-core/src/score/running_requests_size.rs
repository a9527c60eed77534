//! `running-requests-size-scorer`: prefers small running batches.
//!
//! The formula of [`queue`](super::queue) on running requests.

use super::{Range, queue};

pub(crate) const NAME: &str = "running-requests-size-scorer";

/// Rates an endpoint with `running` requests; `range` is that of all candidates.
pub(crate) fn score(running: Option<f64>, range: Option<Range>) -> f64 {
    queue::score(running, range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_batch_scores_highest() {
        let range = Range::of([Some(8.0), Some(24.0), Some(12.0)]);
        assert_eq!(score(Some(8.0), range), 1.0);
        assert_eq!(score(Some(12.0), range), 0.75);
        assert_eq!(score(Some(24.0), range), 0.0);
    }
}
