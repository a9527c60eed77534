//! Medians over seeds.

use std::collections::BTreeMap;

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
    /// By seed.
    runs: BTreeMap<u64, Summary>,
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
        Spread::of(self.runs.values().map(figure))
    }

    /// Median of a figure over that of another, over the seeds that both ran; `None`
    /// when there are none or the other's median is zero.
    #[must_use]
    pub fn ratio(&self, other: &Self, figure: impl Fn(&Summary) -> f64) -> Option<f64> {
        let common = |one: &Self, other: &Self| {
            let common = one.runs.iter().filter(|(seed, _)| other.runs.contains_key(seed));
            Spread::of(common.map(|(_, summary)| figure(summary))).median
        };
        let (own, other) = (common(self, other), common(other, self));
        (other > 0.0).then(|| own / other)
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
        let known = self.standings.iter().position(|standing| standing.policy == row.policy);
        let at = known.unwrap_or_else(|| {
            self.standings.push(Standing { policy: row.policy.clone(), runs: BTreeMap::new() });
            self.standings.len() - 1
        });
        self.standings[at].runs.insert(row.seed, row.summary.clone());
    }

    /// A policy of the group.
    #[must_use]
    pub fn standing(&self, policy: &str) -> Option<&Standing> {
        self.standings.iter().find(|standing| standing.policy == policy)
    }

    /// [`Standing::ratio`] of two policies; `None` when one of them did not run.
    #[must_use]
    pub fn ratio(
        &self,
        policy: &str,
        baseline: &str,
        figure: impl Fn(&Summary) -> f64,
    ) -> Option<f64> {
        self.standing(policy)?.ratio(self.standing(baseline)?, figure)
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
        let a = [10.0, 30.0, 20.0].into_iter().zip(0..).map(|(p99, seed)| row("s", "a", seed, p99));
        let b = [20.0, 40.0, 60.0].into_iter().zip(0..).map(|(p99, seed)| row("s", "b", seed, p99));
        let group = &Report { rows: a.chain(b).collect() }.groups()[0];
        let p99 = |summary: &Summary| summary.ttft_ms.p99;
        assert_eq!(group.ratio("a", "b", p99), Some(0.5));
        assert_eq!(group.ratio("a", "c", p99), None);
        assert_eq!(group.standing("a").unwrap().seeds(), 3);
    }

    #[test]
    fn ratio_is_over_the_seeds_that_both_ran() {
        let rows = [(0, "a", 10.0), (1, "a", 30.0), (2, "a", 90.0), (1, "b", 40.0), (3, "b", 1.0)];
        let rows = rows.map(|(seed, policy, p99)| row("s", policy, seed, p99)).to_vec();
        let group = &Report { rows }.groups()[0];
        assert_eq!(group.ratio("a", "b", |summary| summary.ttft_ms.p99), Some(0.75));
    }
}
