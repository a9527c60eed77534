//! Events per second, recent ones counting most.

use std::time::Duration;

use crate::time::Time;

/// Time over which the rate is averaged.
const WINDOW: Duration = Duration::from_secs(10);

/// An exponentially weighted event rate.
///
/// Divided by the weight that has had time to build up, so that it is right from
/// the first second on and not only after several windows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    level: f64,
    updated: Time,
    started: Option<Time>,
}

impl Rate {
    pub(super) fn count(&mut self, now: Time) {
        self.level = self.decayed(now) + 1.0;
        self.updated = self.updated.max(now);
        self.started.get_or_insert(now);
    }

    /// Events per second at `now`; 0 before the first.
    pub(super) fn per_second(&self, now: Time) -> f64 {
        let Some(started) = self.started else {
            return 0.0;
        };
        let window = WINDOW.as_secs_f64();
        let age = now.since(started).as_secs_f64().max(1.0);
        self.decayed(now) / (window * (1.0 - (-age / window).exp()))
    }

    fn decayed(&self, now: Time) -> f64 {
        let elapsed = now.since(self.updated).as_secs_f64();
        self.level * (-elapsed / WINDOW.as_secs_f64()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::from_origin(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_steady_stream_is_measured_right_early_and_late() {
        let mut rate = Rate::default();
        for event in 0..1000 {
            rate.count(at(event * 50));
            if event == 100 {
                let early = rate.per_second(at(event * 50));
                assert!((early - 20.0).abs() < 1.0, "{early}");
            }
        }
        let late = rate.per_second(at(49_950));
        assert!((late - 20.0).abs() < 1.0, "{late}");
    }

    #[test]
    fn silence_lets_the_rate_fall_to_zero() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(at(0)), 0.0);
        rate.count(at(0));
        assert!(rate.per_second(at(200_000)) < 1e-6);
    }
}
