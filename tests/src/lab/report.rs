//! Results: a row per run, and tables of medians over the seeds.
//!
//! Rows go to `results.json` as they are; people read the tables. A table has one scenario
//! at one load, its policies in the order in which they ran, and says next to each median
//! how far the seeds are apart, because a difference smaller than that is none.

use serde::{Deserialize, Serialize};

use super::outcome::Summary;

mod goals;
mod page;
mod results;
mod spread;
mod table;

pub(in crate::lab) use page::escaped;
pub use page::html;
pub use results::results;
pub use spread::{Group, Spread, Standing};
pub use table::text;

/// One run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the policy.
    pub policy: String,
    /// What the arrivals were made from.
    pub seed: u64,
    /// Requests offered, as a share of the fleet's capacity.
    pub load: f64,
    /// Its figures.
    #[serde(flatten)]
    pub summary: Summary,
}

/// All runs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// In the order in which they were asked for.
    pub rows: Vec<Row>,
}

/// Policies that the others are compared with, in the order of the columns.
pub const BASELINES: [&str; 3] = ["round_robin", "extension", "clairvoyant"];

impl Report {
    /// The text of `results.json`: the same bytes for the same rows.
    #[must_use]
    pub fn json(&self) -> String {
        // Strings and finite numbers always become JSON.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Loads that ran, ascending.
    #[must_use]
    pub fn loads(&self) -> Vec<f64> {
        let mut loads: Vec<f64> = self.rows.iter().map(|row| row.load).collect();
        loads.sort_unstable_by(f64::total_cmp);
        loads.dedup();
        loads
    }

    /// One group per scenario and load, in order of first appearance.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for row in &self.rows {
            let is_of = |group: &&mut Group| {
                group.scenario == row.scenario && group.load.to_bits() == row.load.to_bits()
            };
            match groups.iter_mut().find(is_of) {
                Some(group) => group.add(row),
                None => groups.push(Group::of(row)),
            }
        }
        groups
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::lab::outcome::Percentiles;

    /// A run whose P99 is `p99` ms and whose other figures follow from it.
    pub(crate) fn row(scenario: &str, policy: &str, seed: u64, p99: f64) -> Row {
        let summary = Summary {
            ttft_ms: Percentiles { p50: p99 / 4.0, p95: p99 / 2.0, p99 },
            floor_ms: Percentiles { p50: p99 / 40.0, p95: p99 / 20.0, p99: p99 / 10.0 },
            output_tokens_per_s: 1000.0,
            goodput: 0.5,
            prefix_hit_rate: 0.25,
            hot_spot_factor: 1.5,
        };
        Row { scenario: scenario.to_owned(), policy: policy.to_owned(), seed, load: 0.85, summary }
    }

    #[test]
    fn rows_have_the_agreed_names() {
        let report = Report { rows: vec![row("mixed_8b", "predicted", 7, 100.0)] };
        let value: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        let wanted = serde_json::json!({"rows": [{
            "scenario": "mixed_8b", "policy": "predicted", "seed": 7, "load": 0.85,
            "ttft_ms": {"p50": 25.0, "p95": 50.0, "p99": 100.0},
            "floor_ms": {"p50": 2.5, "p95": 5.0, "p99": 10.0},
            "output_tokens_per_s": 1000.0, "goodput": 0.5, "prefix_hit_rate": 0.25,
            "hot_spot_factor": 1.5,
        }]});
        assert_eq!(value, wanted);
        assert_eq!(serde_json::from_str::<Report>(&report.json()).unwrap(), report);
    }

    #[test]
    fn runs_are_grouped_by_scenario_and_load_and_ordered_as_they_came() {
        let mut other = row("mixed_8b", "predicted", 0, 1.0);
        other.load = 0.5;
        let rows = vec![
            row("uniform", "predicted", 0, 1.0),
            row("mixed_8b", "predicted", 0, 1.0),
            other,
            row("uniform", "round_robin", 0, 1.0),
        ];
        let groups = Report { rows }.groups();
        let names: Vec<_> = groups.iter().map(|group| (&*group.scenario, group.load)).collect();
        assert_eq!(names, [("uniform", 0.85), ("mixed_8b", 0.85), ("mixed_8b", 0.5)]);
        assert_eq!(groups[0].standings.len(), 2);
    }
}
