//! How far HTTP agrees with virtual time.
//!
//! Both have several runs of the same requests, for chance makes a difference: who is picked
//! among equals, when a gateway reads an engine's page, milliseconds on the way. What is
//! compared is the median of either. Some policies make so much of chance that no few runs
//! can be expected near the median of many; so each count of figures within the goal stands beside
//! the one that as many runs of virtual time would have themselves.

use std::fmt::Write as _;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::send::Figures;
use crate::bench::figures::median;

/// How far the medians may be apart.
const GOAL: f64 = 0.1;

/// Shares of the runs of virtual time that lie below and above what is taken for its range.
const RARE: f64 = 0.05;

/// Draws by which it is found how often runs of virtual time would be within the goal.
const DRAWS: usize = 2_000;

/// A gateway's runs beside those of virtual time.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Row {
    pub(super) gateway: String,
    /// The policy of the lab that decides likewise.
    pub(super) policy: String,
    pub(super) http: Vec<Figures>,
    pub(super) virtual_time: Vec<Figures>,
}

/// One of a run's figures.
type Figure = fn(&Figures) -> f64;

/// The figures that are compared, with their columns.
const COMPARED: [(&str, Figure); 4] = [
    ("P50 ms", |figures| figures.ttft_ms.p50),
    ("P95 ms", |figures| figures.ttft_ms.p95),
    ("P99 ms", |figures| figures.ttft_ms.p99),
    ("tokens/s", |figures| figures.output_tokens_per_s),
];

/// One figure of a row.
struct Compared {
    /// Ascending.
    http: Vec<f64>,
    /// Ascending.
    said: Vec<f64>,
}

impl Compared {
    fn of(row: &Row, figure: Figure) -> Self {
        let sorted = |runs: &[Figures]| {
            let mut values: Vec<f64> = runs.iter().map(figure).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        };
        Self { http: sorted(&row.http), said: sorted(&row.virtual_time) }
    }

    fn http(&self) -> f64 {
        median(self.http.iter().copied())
    }

    fn said(&self) -> f64 {
        median(self.said.iter().copied())
    }

    /// Between which two values nine tenths of the runs of virtual time lie.
    fn usual(&self) -> [f64; 2] {
        let last = self.said.len().saturating_sub(1);
        let rare = (last as f64 * RARE).round() as usize;
        [rare, last - rare].map(|place| self.said.get(place).copied().unwrap_or(0.0))
    }

    fn difference(&self) -> f64 {
        self.http() / self.said() - 1.0
    }

    fn is_within_goal(&self) -> bool {
        self.difference().abs() <= GOAL
    }

    fn is_among_runs(&self) -> bool {
        let [low, high] = self.usual();
        (low..=high).contains(&self.http())
    }

    /// How likely as many runs of virtual time as HTTP has are within the goal of all of them.
    fn chance(&self) -> f64 {
        let (runs, said) = (self.http.len(), self.said());
        if self.said.is_empty() {
            return 0.0;
        }
        let mut rng = Rng::with_seed(0);
        let mut is_within = || {
            let drawn = (0..runs).map(|_| self.said[rng.usize(..self.said.len())]);
            (median(drawn) / said - 1.0).abs() <= GOAL
        };
        let within = (0..DRAWS).filter(|_| is_within()).count();
        within as f64 / DRAWS as f64
    }

    /// `HTTP / virtual time (difference; range of HTTP / of virtual time)`; one run has no range.
    fn cell(&self) -> String {
        let (http, said, [low, high]) = (self.http(), self.said(), self.usual());
        let difference = self.difference() * 100.0;
        let measured = match self.http[..] {
            [least, .., most] => format!("{least:.0} to {most:.0} / "),
            _ => String::new(),
        };
        format!("{http:.0} / {said:.0} ({difference:+.0} %; {measured}{low:.0} to {high:.0})")
    }
}

/// A line for each gateway: its figures, how many of them are within the goal and how many that
/// would be by chance alone, and how many are among the runs of virtual time.
pub(super) fn table(rows: &[Row], missing: &[String]) -> String {
    let columns: Vec<&str> = COMPARED.iter().map(|(name, _)| *name).collect();
    let mut text = format!(
        "| gateway | policy in the lab | runs | {} | failed | within 10 % (by chance) | \
         among the runs |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        columns.join(" | ")
    );
    for row in rows {
        let figures = COMPARED.map(|(_, figure)| Compared::of(row, figure));
        let count = |is: fn(&Compared) -> bool| figures.iter().filter(|one| is(one)).count();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} of 4 ({:.1}) | {} of 4 |",
            row.gateway,
            row.policy,
            row.http.len(),
            figures.each_ref().map(Compared::cell).join(" | "),
            row.http.iter().map(|run| run.failed).sum::<usize>(),
            count(Compared::is_within_goal),
            figures.iter().map(Compared::chance).sum::<f64>(),
            count(Compared::is_among_runs),
        );
    }
    for missing in missing {
        let _ = writeln!(text, "not measured: {missing}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::send::Percentiles;
    use super::*;

    fn figures(p99: f64) -> Figures {
        Figures {
            ttft_ms: Percentiles { p50: 100.0, p95: 200.0, p99 },
            output_tokens_per_s: 50.0,
            failed: 0,
        }
    }

    fn row(http: &[f64], virtual_time: &[f64]) -> Row {
        let runs = |p99: &[f64]| p99.iter().copied().map(figures).collect();
        Row {
            gateway: "ours predicted".to_owned(),
            policy: "predicted".to_owned(),
            http: runs(http),
            virtual_time: runs(virtual_time),
        }
    }

    fn p99(row: &Row) -> Compared {
        Compared::of(row, COMPARED[2].1)
    }

    #[test]
    fn medians_are_compared_with_both_ranges_beside_them() {
        let row = row(&[1150.0, 1900.0, 1100.0], &[1000.0, 900.0, 1400.0]);
        let text = table(&[row], &["smg: no network".to_owned()]);
        assert!(text.contains("| predicted | 3 | 100 / 100 (+0 %; 100 to 100 / 100 to 100) |"));
        assert!(text.contains("| 1150 / 1000 (+15 %; 1100 to 1900 / 900 to 1400) |"), "{text}");
        assert!(text.contains("| 0 | 3 of 4 ("), "{text}");
        assert!(text.contains("| 4 of 4 |\nnot measured: smg: no network\n"), "{text}");
    }

    #[test]
    fn one_run_has_no_range() {
        assert_eq!(p99(&row(&[950.0], &[1000.0])).cell(), "950 / 1000 (-5 %; 1000 to 1000)");
    }

    #[test]
    fn the_rarest_runs_of_virtual_time_are_left_out_of_its_range() {
        let said: Vec<f64> = (0..=100).map(f64::from).collect();
        let p99 = p99(&row(&[96.0], &said));
        assert_eq!(p99.usual().map(|value| value as u32), [5, 95]);
        assert!(!p99.is_among_runs());
    }

    #[test]
    fn chance_alone_keeps_scattered_runs_from_the_goal() {
        // One in three runs is within a tenth of the median.
        let said = [500.0, 1000.0, 2000.0];
        let one = p99(&row(&[0.0], &said)).chance();
        assert!((one - 1.0 / 3.0).abs() < 0.04, "{one}");
        // Of 27 ways to draw three, 13 have the median in the middle.
        let three = p99(&row(&[0.0; 3], &said)).chance();
        assert!((three - 13.0 / 27.0).abs() < 0.04, "{three}");
        assert!((p99(&row(&[0.0], &[1000.0, 1050.0])).chance() - 1.0).abs() < 1e-9);
    }
}
