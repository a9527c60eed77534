//! How long queued work really takes, compared with what it takes at an idle endpoint.
//!
//! [`Speed`](super::speed) tells how long a prompt takes when nothing stands before it.
//! With a queue two things differ: prompts computed in one step share its overhead, and when
//! the batch or the KV cache is full the next prompt waits until somebody finishes, however
//! short it is. Both show in the time between one first token and the next, at once and
//! long before the requests that join the queue now are answered: a lesson that came only
//! with their first tokens would come too late.
//!
//! The factor is a ratio of two sums, not a mean of ratios: first tokens that come
//! together (one step) are then worth what they are worth together.

/// Each first token makes earlier ones count this much.
const KEEP: f64 = 0.9;

/// Seconds of work for which the factor is believed to be 1.
const PRIOR: f64 = 0.5;

/// The factor stays within these.
const BOUNDS: std::ops::RangeInclusive<f64> = 0.1..=100.0;

/// Actual and expected time of the latest work of one endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    actual: f64,
    expected: f64,
}

impl Pace {
    /// Learns that work expected to take `expected` seconds took `actual`.
    pub(crate) fn learn(&mut self, actual: f64, expected: f64) {
        if actual.is_finite() && expected.is_finite() && actual >= 0.0 && expected > 0.0 {
            self.actual = self.actual * KEEP + actual;
            self.expected = self.expected * KEEP + expected;
        }
    }

    /// How many times as long as expected queued work takes.
    pub(crate) fn factor(&self) -> f64 {
        let factor = (self.actual + PRIOR) / (self.expected + PRIOR);
        factor.clamp(*BOUNDS.start(), *BOUNDS.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_the_first_lesson_work_takes_as_long_as_expected() {
        assert_eq!(Pace::default().factor(), 1.0);
    }

    #[test]
    fn first_tokens_that_come_together_count_together() {
        let mut pace = Pace::default();
        for _ in 0..50 {
            pace.learn(0.8, 0.4);
            pace.learn(0.0, 0.4);
        }
        assert!((pace.factor() - 1.0).abs() < 0.1, "{}", pace.factor());
    }

    #[test]
    fn a_full_batch_is_noticed_within_a_few_first_tokens_and_forgotten_as_soon() {
        let mut pace = Pace::default();
        (0..10).for_each(|_| pace.learn(1.0, 0.1));
        assert!(pace.factor() > 4.0, "{}", pace.factor());
        (0..60).for_each(|_| pace.learn(0.1, 0.1));
        assert!(pace.factor() < 1.1, "{}", pace.factor());
    }

    #[test]
    fn nonsense_teaches_nothing() {
        let mut pace = Pace::default();
        for (actual, expected) in [(f64::NAN, 1.0), (1.0, f64::INFINITY), (-1.0, 1.0), (1.0, 0.0)] {
            pace.learn(actual, expected);
        }
        assert_eq!(pace.factor(), 1.0);
    }
}
