//! When a stream's first chunk is due; the others follow at fixed intervals.

use std::time::{Duration, Instant};

/// The beat of the mock model servers.
#[derive(Debug)]
pub(super) struct Pace {
    /// Time between two chunks of one stream, and length of an engine's step.
    pub(super) interval: Duration,
    started: Instant,
    endpoints: usize,
    spread: u32,
}

impl Pace {
    pub(super) fn new(interval: Duration, endpoints: usize) -> Self {
        Self { interval, started: Instant::now(), endpoints, spread: 0 }
    }

    /// A moment in the next interval; many of them fill it evenly (golden ratio).
    pub(super) fn spread(&mut self) -> Instant {
        self.spread = self.spread.wrapping_add(1);
        let phase = (f64::from(self.spread) * 0.618_033_988_749_895).fract();
        Instant::now() + self.interval.mul_f64(phase)
    }

    /// The end of the engine's present step; engines are out of step with each other.
    pub(super) fn step(&self, endpoint: usize) -> Instant {
        let phase = self.interval.mul_f64(endpoint as f64 / self.endpoints as f64);
        let steps = self.started.elapsed().div_duration_f64(self.interval).ceil();
        self.started + self.interval.mul_f64(steps) + phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(100);

    #[test]
    fn streams_of_one_engine_share_its_steps() {
        let pace = Pace::new(INTERVAL, 4);
        assert_eq!(pace.step(1), pace.step(1));
        assert_eq!(pace.step(3) - pace.step(1), INTERVAL / 2);
        assert!(pace.step(0) > Instant::now());
    }

    #[test]
    fn spread_streams_fill_the_interval_evenly() {
        let mut pace = Pace::new(INTERVAL, 1);
        let now = Instant::now();
        let mut tenths = [0; 10];
        for _ in 0..1000 {
            let phase = (pace.spread() - now).as_secs_f64() / INTERVAL.as_secs_f64();
            tenths[(phase * 10.0) as usize % 10] += 1;
        }
        assert!(tenths.iter().all(|count| (95..=105).contains(count)), "{tenths:?}");
    }
}
