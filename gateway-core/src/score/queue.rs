//! `queue-scorer`: prefers short queues.
//!
//! `(max - waiting) / (max - min)` over the candidates; 1 when all are equal.

use super::{NEUTRAL, Range};

pub(crate) const NAME: &str = "queue-scorer";

/// Rates an endpoint with `waiting` requests in its queue; `range` is that of all candidates.
pub(crate) fn score(waiting: Option<f64>, range: Option<Range>) -> f64 {
    match (waiting, range) {
        (Some(waiting), Some(range)) => range.lower_is_better(waiting),
        // Those that tell are all alike, so nothing sets the silent one apart: neutral
        // would lose to them every time, and it would never be picked.
        (None, Some(range)) if range.is_flat() => 1.0,
        _ => NEUTRAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(queues: &[Option<f64>]) -> Vec<f64> {
        let range = Range::of(queues.iter().copied());
        queues.iter().map(|&waiting| score(waiting, range)).collect()
    }

    #[test]
    fn shortest_queue_scores_highest() {
        assert_eq!(scores(&[Some(0.0), Some(2.0), Some(4.0)]), [1.0, 0.5, 0.0]);
        assert_eq!(scores(&[Some(3.0), Some(7.0), Some(4.0)]), [1.0, 0.0, 0.75]);
    }

    #[test]
    fn equal_queues_are_all_ideal() {
        assert_eq!(scores(&[Some(6.0), Some(6.0)]), [1.0, 1.0]);
    }

    #[test]
    fn a_missing_queue_among_equal_ones_is_as_good_as_they_are() {
        assert_eq!(scores(&[Some(3.0), None, Some(3.0)]), [1.0, 1.0, 1.0]);
        assert_eq!(scores(&[Some(0.0), None]), [1.0, 1.0]);
    }

    #[test]
    fn a_missing_queue_is_neither_idle_nor_full() {
        assert_eq!(scores(&[Some(0.0), None, Some(4.0)]), [1.0, 0.5, 0.0]);
    }
}
