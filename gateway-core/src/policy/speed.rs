//! How fast an endpoint answers, learnt from how fast it answered.
//!
//! Time to first token at an endpoint with nothing queued is taken as linear:
//!
//! `ttft = c0 + c1·(own uncached tokens) + c2·(running requests)`
//!
//! It is learnt only from requests that found no queue. What a queue adds is told by
//! [`Pace`](super::pace), and immediately: a regression on queue lengths learns of
//! an overload when its first victims are answered, which is too late, and takes one regime (a
//! full batch) for the other (a queue of prompts). A fourth term, output tokens, serves
//! answers of which only the end is seen.
//!
//! The coefficients are found by recursive least squares with forgetting (Ljung,
//! *System Identification*, chapter 11). Three things keep it sane:
//!
//! - errors are *relative* to the prediction, else the slowest answers would be all
//!   it learns from, and they are clipped (Huber), so that one stuck
//!   request does not condemn an endpoint;
//! - coefficients stay within physical bounds: more work never takes less time;
//! - what is used is blended with the pool's typical values, by how much has been
//!   learnt and how long ago. A cold endpoint is thus neither an infinite favourite
//!   nor shunned, and one not tried for minutes gets a fresh chance.

use std::time::Duration;

use crate::time::Time;

const N: usize = 4;

/// Seconds per unit of each feature.
pub(crate) type Coefficients = [f64; N];

/// `[1, thousand uncached prompt tokens, running, thousand output tokens]`.
pub(crate) type Features = [f64; N];

/// What is assumed of a pool before its first answer: an 8B model on a recent
/// GPU. Only differences between endpoints matter until then, and there are none.
pub(crate) const PRIOR: Coefficients = [0.03, 0.2, 0.000_5, 20.0];

/// Variance of each coefficient before the first answer.
const PRIOR_VARIANCE: Coefficients = [0.01, 0.25, 0.000_000_25, 100.0];

const LEAST: Coefficients = [0.000_1, 0.000_1, 0.0, 0.0];
const MOST: Coefficients = [60.0, 100.0, 1.0, 10_000.0];

/// Variance of a relative error of an otherwise perfect model.
const NOISE: f64 = 0.04;

/// Relative errors beyond this count as this, times the number of surprises in a
/// row: one is an accident, several are news.
const CLIP: f64 = 2.0;

/// A relative error beyond this is a surprise.
const SURPRISE: f64 = 0.5;

/// Surprises in a row, all to the same side, after which the endpoint has changed
/// (throttled, or a neighbour has gone) and the past is worth little.
const CHANGED: u32 = 3;

/// Predictions below this are taken as this when errors are made relative.
const SHORTEST: f64 = 0.01;

/// Longest time to first token believed, seconds.
const LONGEST: f64 = 3600.0;

/// Each answer makes earlier ones count this much.
const KEEP: f64 = 0.96;

/// The same after a change.
const KEEP_CHANGED: f64 = 0.8;

/// Answers after which own experience and the pool's weigh the same.
const TRUST: f64 = 2.0;

/// Time in which experience loses half its weight when nothing new comes.
const HALF_LIFE: Duration = Duration::from_mins(2);

/// What has been learnt of one endpoint, or of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Speed {
    coefficients: Coefficients,
    covariance: [[f64; N]; N],
    samples: f64,
    /// Surprises in a row to the same side.
    surprises: u32,
    slower: bool,
    learnt: Time,
    error: f64,
    bias: f64,
}

impl Default for Speed {
    fn default() -> Self {
        Self::from_prior(PRIOR)
    }
}

impl Speed {
    fn from_prior(prior: Coefficients) -> Self {
        let mut covariance = [[0.0; N]; N];
        for (i, variance) in PRIOR_VARIANCE.into_iter().enumerate() {
            covariance[i][i] = variance;
        }
        Self {
            coefficients: prior,
            covariance,
            samples: 0.0,
            surprises: 0,
            slower: false,
            learnt: Time::ZERO,
            error: 0.0,
            bias: 0.0,
        }
    }

    pub(crate) fn coefficients(&self) -> Coefficients {
        self.coefficients
    }

    /// Answers learnt from; earlier ones count less.
    pub(crate) fn samples(&self) -> f64 {
        self.samples
    }

    /// Mean absolute and mean signed difference of actual and predicted, seconds.
    pub(crate) fn errors(&self) -> (f64, f64) {
        (self.error, self.bias)
    }

    /// Counts the difference between a prediction that was made and what came.
    pub(crate) fn compare(&mut self, predicted: f64, actual: f64) {
        let difference = (actual - predicted).clamp(-LONGEST, LONGEST);
        if difference.is_finite() {
            let share = (1.0 / (self.samples + 1.0)).max(0.05);
            self.error += share * (difference.abs() - self.error);
            self.bias += share * (difference - self.bias);
        }
    }

    /// Learns that work `features` took `seconds`. `prior` is what to start from.
    pub(crate) fn learn(
        &mut self,
        features: &Features,
        seconds: f64,
        prior: &Coefficients,
        now: Time,
    ) {
        if !seconds.is_finite() || features.iter().any(|x| !x.is_finite()) {
            return;
        }
        if self.samples == 0.0 {
            self.coefficients = *prior;
        }
        let expected = dot(&self.coefficients, features);
        let scale = expected.clamp(SHORTEST, LONGEST);
        let x = features.map(|x| x / scale);
        let error = (seconds.clamp(0.0, LONGEST) - expected) / scale;
        self.count_surprise(error);
        let believed = CLIP * f64::from(self.surprises.clamp(1, CHANGED));
        let keep = if self.surprises < CHANGED { KEEP } else { KEEP_CHANGED };
        self.update(&x, error.clamp(-believed, believed), keep);
        if self.coefficients.iter().any(|c| !c.is_finite()) {
            *self = Self::from_prior(*prior);
            return;
        }
        self.samples = self.samples * KEEP + 1.0;
        self.learnt = now;
    }

    fn count_surprise(&mut self, error: f64) {
        let slower = error > 0.0;
        if error.abs() <= SURPRISE {
            self.surprises = 0;
        } else if slower == self.slower {
            self.surprises = self.surprises.saturating_add(1);
        } else {
            self.surprises = 1;
        }
        self.slower = slower;
    }

    /// One step of recursive least squares with directional forgetting.
    ///
    /// Plain exponential forgetting would let the covariance grow without bound in
    /// every direction in which nothing new is learnt, for example
    /// that of queued tokens while there is no queue. So only what the new answer speaks of
    /// is forgotten (Kulhavý, *Automatica* 23(5), 1987).
    ///
    /// A coefficient that would leave its bounds stays at the bound, and the others explain the
    /// error without it. To cut it off afterwards would not do: those that are correlated with it
    /// would go on making room for a value that it cannot have, further with every
    /// answer.
    fn update(&mut self, x: &Features, error: f64, keep: f64) {
        let p = &mut self.covariance;
        let (mut x, mut error) = (*x, error);
        // At most once for each coefficient: none leaves its bound a second time.
        for _ in 0..=N {
            let px: Features = std::array::from_fn(|i| dot(&p[i], &x));
            let known = dot(&px, &x) / NOISE;
            if !(known > 1e-9 && known.is_finite()) {
                return;
            }
            let gain = px.map(|px| px / (NOISE * (1.0 + known)));
            let next: Coefficients =
                std::array::from_fn(|i| self.coefficients[i] + gain[i] * error);
            let leaves = |&i: &usize| !(LEAST[i]..=MOST[i]).contains(&next[i]);
            let Some(out) = (0..N).find(leaves) else {
                self.coefficients = next;
                let forget = keep - (1.0 - keep) / known;
                let step = forget / (keep * (1.0 + known) * NOISE);
                for i in 0..N {
                    for j in 0..N {
                        p[i][j] -= step * px[i] * px[j];
                    }
                }
                return;
            };
            let bound = next[out].clamp(LEAST[out], MOST[out]);
            error -= x[out] * (bound - self.coefficients[out]);
            self.coefficients[out] = bound;
            x[out] = 0.0;
            for other in (0..N).filter(|&other| other != out) {
                p[out][other] = 0.0;
                p[other][out] = 0.0;
            }
        }
    }

    /// Answers' worth of experience that is still of use at `now`.
    fn confidence(&self, now: Time) -> f64 {
        let half_lives = now.since(self.learnt).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.samples * (-half_lives).exp2()
    }

    /// Own experience blended with `typical`, and the doubt left in it (1 nothing
    /// is known, towards 0 much is).
    pub(crate) fn blended(&self, typical: &Coefficients, now: Time) -> (Coefficients, f64) {
        let confidence = self.confidence(now);
        let own = confidence / (confidence + TRUST);
        let blend = std::array::from_fn(|i| own * self.coefficients[i] + (1.0 - own) * typical[i]);
        (blend, 1.0 / (1.0 + confidence))
    }
}

/// Seconds that work takes.
pub(crate) fn dot(a: &Coefficients, b: &Features) -> f64 {
    let mut sum = 0.0;
    for i in 0..N {
        sum += a[i] * b[i];
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taught(samples: impl IntoIterator<Item = (Features, f64)>) -> Speed {
        let mut speed = Speed::default();
        for (features, seconds) in samples {
            speed.learn(&features, seconds, &PRIOR, Time::ZERO);
        }
        speed
    }

    #[test]
    fn a_linear_truth_is_found() {
        let truth = [0.05, 0.3, 0.001, 15.0];
        let mut rng = fastrand::Rng::with_seed(1);
        let samples = (0..400).map(|_| {
            let x = [1.0, rng.f64() * 4.0, rng.f64() * 64.0, rng.f64() * 0.2];
            (x, dot(&truth, &x))
        });
        let speed = taught(samples);
        let x = [1.0, 2.0, 30.0, 0.1];
        let (found, right) = (dot(&speed.coefficients(), &x), dot(&truth, &x));
        assert!((found - right).abs() < 0.03 * right, "{found} for {right}");
    }

    #[test]
    fn what_is_never_seen_stays_as_assumed() {
        let speed = taught((0..500).map(|_| ([1.0, 1.0, 0.0, 0.0], 0.5)));
        let [_, _, running, output] = speed.coefficients();
        assert_eq!([running, output], [PRIOR[2], PRIOR[3]]);
        let found = dot(&speed.coefficients(), &[1.0, 1.0, 0.0, 0.0]);
        assert!((found - 0.5).abs() < 1e-6, "{found}");
    }

    /// What a pool of fast, full endpoints and of slow, empty ones teaches: more running requests
    /// seem to make answers faster. Of a hundred lessons `slow` are of endpoints that take
    /// `times` as long.
    fn mixture(slow: u32, times: f64, seed: u64) -> Coefficients {
        let mut rng = fastrand::Rng::with_seed(seed);
        taught((0..4_000).map(|_| {
            let is_slow = rng.u32(..100) < slow;
            let (factor, running) = if is_slow { (times, 6.0) } else { (1.0, 45.0) };
            let x = [1.0, 0.02 + rng.f64() * rng.f64() * 4.0, running + rng.f64() * 6.0, 0.0];
            (x, (0.05 + 0.22 * x[1]) * factor * (0.85 + 0.3 * rng.f64()))
        }))
        .coefficients()
    }

    #[test]
    fn fast_and_slow_endpoints_together_teach_something_between() {
        for (slow, times, seed) in [3, 25, 50].into_iter().flat_map(|slow| {
            [2.0, 6.0, 30.0]
                .into_iter()
                .flat_map(move |times| (0..20).map(move |seed| (slow, times, seed)))
        }) {
            let coefficients = mixture(slow, times, seed);
            for x in [[1.0, 0.02, 50.0, 0.0], [1.0, 0.4, 8.0, 0.0], [1.0, 4.0, 45.0, 0.0]] {
                let found = dot(&coefficients, &x);
                let (fastest, slowest) = (0.05 + 0.22 * x[1], (0.05 + 0.22 * x[1]) * times);
                assert!(
                    (fastest / 4.0..slowest * 4.0).contains(&found),
                    "{found} of {fastest} to {slowest} with {slow} % and seed {seed}: {coefficients:?}",
                );
            }
        }
    }

    #[test]
    fn experience_outweighs_the_pool_and_fades() {
        let speed = taught((0..50).map(|_| ([1.0, 1.0, 0.0, 0.0], 0.5)));
        let at = |seconds| speed.blended(&PRIOR, Time::from_origin(Duration::from_secs(seconds)));
        let (soon, doubt) = at(0);
        assert!(doubt < 0.1 && (dot(&soon, &[1.0, 1.0, 0.0, 0.0]) - 0.5).abs() < 0.05);
        let (late, doubt) = at(3_600);
        assert!(doubt > 0.99 && (late[1] - PRIOR[1]).abs() < 0.001);
    }

    proptest! {
        #[test]
        fn coefficients_stay_within_bounds_whatever_is_learnt(
            samples in prop::collection::vec((prop::array::uniform3(0.0_f64..1e12), any::<f64>()), 1..80),
        ) {
            let samples = samples.into_iter().map(|([a, b, c], seconds)| ([1.0, a, b, c], seconds));
            let found = taught(samples).coefficients();
            for i in 0..N {
                prop_assert!((LEAST[i]..=MOST[i]).contains(&found[i]), "{:?}", found);
            }
        }
    }
}
