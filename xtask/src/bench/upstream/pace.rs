//! When a stream's first chunk is due; the others follow at fixed intervals.

use std::time::{Duration, Instant};

/// The beat of the mock model servers.
#[derive(Debug)]
pub(super) struct Pace {
    started: Instant,
    endpoints: usize,
    spread: u32,
}

impl Pace {
    pub(super) fn new(endpoints: usize) -> Self {
        Self { started: Instant::now(), endpoints, spread: 0 }
    }

    /// A moment in the next interval; many of them fill it evenly (golden ratio).
    pub(super) fn spread(&mut self, interval: Duration) -> Instant {
        self.spread = self.spread.wrapping_add(1);
        let phase = (f64::from(self.spread) * 0.618_033_988_749_895).fract();
        Instant::now() + interval.mul_f64(phase)
    }

    /// The end of the engine's present step of this length; engines are out of step with each other.
    pub(super) fn step(&self, endpoint: usize, interval: Duration) -> Instant {
        let phase = interval.mul_f64(endpoint as f64 / self.endpoints as f64);
        let steps = self.started.elapsed().div_duration_f64(interval).ceil();
        self.started + interval.mul_f64(steps) + phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(100);

    #[test]
    fn streams_of_one_engine_share_its_steps() {
        let pace = Pace::new(4);
        assert_eq!(pace.step(1, INTERVAL), pace.step(1, INTERVAL));
        assert_eq!(pace.step(3, INTERVAL) - pace.step(1, INTERVAL), INTERVAL / 2);
        assert!(pace.step(0, INTERVAL) > Instant::now());
    }

    #[test]
    fn spread_streams_fill_the_interval_evenly() {
        let mut pace = Pace::new(1);
        let now = Instant::now();
        let mut tenths = [0; 10];
        for _ in 0..1000 {
            let phase = (pace.spread(INTERVAL) - now).as_secs_f64() / INTERVAL.as_secs_f64();
            tenths[(phase * 10.0) as usize % 10] += 1;
        }
        assert!(tenths.iter().all(|count| (95..=105).contains(count)), "{tenths:?}");
    }
}
