//! How slow an endpoint is compared with its pool, when first tokens are not seen.
//!
//! The mean logarithm of "time taken / time usual in this pool for such an answer",
//! so that twice as slow and twice as fast weigh the same. The mean starts at zero with
//! the weight of a few answers, so that the first ones do not decide.

use std::time::Duration;

use crate::time::Time;

/// Answers' worth of belief that an endpoint is like the others.
const PRIOR: f64 = 2.0;

/// Each answer makes earlier ones count this much.
const KEEP: f64 = 0.95;

/// Time in which what is known loses half its weight when nothing new comes.
const HALF_LIFE: Duration = Duration::from_mins(2);

/// Ratios beyond this, either way, count as this.
const CLIP: f64 = 8.0;

/// Mean slowness of one endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slowness {
    /// Sum of logarithms, earlier ones counting less.
    sum: f64,
    weight: f64,
    learnt: Time,
}

impl Slowness {
    /// Learns that an answer took `ratio` times as long as usual.
    pub(crate) fn learn(&mut self, ratio: f64, now: Time) {
        if !ratio.is_finite() {
            return;
        }
        let half_lives = now.since(self.learnt).as_secs_f64() / HALF_LIFE.as_secs_f64();
        let keep = KEEP * (-half_lives).exp2();
        self.sum = self.sum * keep + ratio.clamp(1.0 / CLIP, CLIP).ln();
        self.weight = self.weight * keep + 1.0;
        self.learnt = now;
    }

    /// How many times as long the endpoint takes as its pool, of whose answers `pool` has
    /// learnt.
    ///
    /// What is usual is still being learnt when the first answers are compared with it. An
    /// endpoint that gave them all must not look faster for that than those who gave none.
    pub(crate) fn factor(&self, pool: &Self) -> f64 {
        let usual = if pool.weight > 0.0 { pool.sum / pool.weight } else { 0.0 };
        ((self.sum - self.weight * usual) / (self.weight + PRIOR)).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_endpoint_is_like_the_others() {
        assert_eq!(Slowness::default().factor(&Slowness::default()), 1.0);
    }

    #[test]
    fn an_endpoint_that_gave_every_answer_is_like_the_others() {
        let mut only = Slowness::default();
        for ratio in [0.2, 0.4, 0.7, 0.9] {
            only.learn(ratio, Time::ZERO);
        }
        assert!((only.factor(&only) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_factor_approaches_the_ratio_and_the_first_answers_do_not_decide() {
        let mut slowness = Slowness::default();
        slowness.learn(4.0, Time::ZERO);
        assert!(
            slowness.factor(&Slowness::default()) < 1.6,
            "{}",
            slowness.factor(&Slowness::default())
        );
        for _ in 0..100 {
            slowness.learn(4.0, Time::ZERO);
        }
        assert!(
            (3.5..4.0).contains(&slowness.factor(&Slowness::default())),
            "{}",
            slowness.factor(&Slowness::default())
        );
    }

    #[test]
    fn nonsense_is_bounded() {
        let mut slowness = Slowness::default();
        for ratio in [f64::NAN, f64::INFINITY, 0.0, -5.0, 1e300] {
            slowness.learn(ratio, Time::ZERO);
        }
        assert!(
            (0.1..10.0).contains(&slowness.factor(&Slowness::default())),
            "{}",
            slowness.factor(&Slowness::default())
        );
    }
}
