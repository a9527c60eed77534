//! Medians over seeds.

use super::Row;
use crate::lab::outcome::Summary;

/// The median of one figure over the seeds, and its extremes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Median; of an even number the mean of the middle two.
    pub median: f64,
    /// Least.
    pub low: f64,
    /// Greatest.
    pub high: f64,
}

/// One policy in one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its name.
    pub policy: String,
    runs: Vec<Summary>,
}

/// One scenario at one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Name of the scenario.
    pub scenario: String,
    /// Requests offered, as a share of the fleet's capacity.
    pub load: f64,
    /// Policies in order of first appearance.
    pub standings: Vec<Standing>,
}

impl Spread {
    /// Of the values; all zero when there is none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (Some(&low), Some(&high)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        let (upper, lower) = (sorted.len() / 2, (sorted.len() - 1) / 2);
        Self { median: f64::midpoint(sorted[lower], sorted[upper]), low, high }
    }
}

impl Standing {
    /// The spread of a figure over the seeds.
    #[must_use]
    pub fn spread(&self, figure: impl Fn(&Summary) -> f64) -> Spread {
        Spread::of(self.runs.iter().map(figure))
    }

    /// Number of seeds.
    #[must_use]
    pub fn seeds(&self) -> usize {
        self.runs.len()
    }
}

impl Group {
    pub(super) fn of(row: &Row) -> Self {
        let mut group =
            Self { scenario: row.scenario.clone(), load: row.load, standings: Vec::new() };
        group.add(row);
        group
    }

    pub(super) fn add(&mut self, row: &Row) {
        match self.standings.iter_mut().find(|standing| standing.policy == row.policy) {
            Some(standing) => standing.runs.push(row.summary.clone()),
            None => self
                .standings
                .push(Standing { policy: row.policy.clone(), runs: vec![row.summary.clone()] }),
        }
    }

    /// A policy of the group.
    #[must_use]
    pub fn standing(&self, policy: &str) -> Option<&Standing> {
        self.standings.iter().find(|standing| standing.policy == policy)
    }

    /// Median of a figure of `policy` over that of `baseline`; `None` when one of them did
    /// not run or the baseline is zero.
    #[must_use]
    pub fn ratio(
        &self,
        policy: &str,
        baseline: &str,
        figure: impl Fn(&Summary) -> f64,
    ) -> Option<f64> {
        let own = self.standing(policy)?.spread(&figure).median;
        let other = self.standing(baseline)?.spread(&figure).median;
        (other > 0.0).then(|| own / other)
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the values are exact")]
mod tests {
    use super::super::Report;
    use super::super::tests::row;
    use super::*;

    #[test]
    fn median_is_the_middle_value_or_between_the_middle_two() {
        assert_eq!(Spread::of([3.0, 1.0, 9.0]), Spread { median: 3.0, low: 1.0, high: 9.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 9.0]).median, 3.0);
        assert_eq!(Spread::of([]), Spread::default());
    }

    #[test]
    fn ratio_is_of_medians() {
        let rows = [(10.0, "a"), (30.0, "a"), (20.0, "a"), (40.0, "b"), (80.0, "b")];
        let rows = rows.map(|(p99, policy)| row("s", policy, 0, p99)).to_vec();
        let group = &Report { rows }.groups()[0];
        let p99 = |summary: &Summary| summary.ttft_ms.p99;
        assert_eq!(group.ratio("a", "b", p99), Some(20.0 / 60.0));
        assert_eq!(group.ratio("a", "c", p99), None);
        assert_eq!(group.standing("a").unwrap().seeds(), 3);
    }
}
