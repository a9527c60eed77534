//! A histogram with fixed bounds, as Prometheus counts.

/// Counts of observations per bucket, their sum and number.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One per bound, and one for everything above the last.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// An empty histogram; `bounds` are inclusive upper limits in rising order.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Counts `value` once.
    pub fn observe(&mut self, value: f64) {
        self.observe_times(value, 1);
    }

    /// Counts `value` as often as `times` says.
    pub fn observe_times(&mut self, value: f64, times: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += times;
        self.sum += value * times as f64;
    }

    /// Upper bounds with the number of observations at or below each; the last bound is infinite.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let totals = self.counts.iter().scan(0, |total, count| {
            *total += count;
            Some(*total)
        });
        bounds.zip(totals)
    }

    /// Number of observations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of all observations.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_counts_cumulative() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [1.0, 1.5, 9.0] {
            histogram.observe(value);
        }
        let counts: Vec<u64> = histogram.cumulative().map(|(_, count)| count).collect();
        assert_eq!(counts, [1, 2, 3]);
        assert_eq!((histogram.count(), histogram.sum()), (3, 11.5));
    }
}
