//! The goals that the default policy was set, and what runs say of each.
//!
//! A goal is a bound on the ratio of two medians over the seeds. It is judged for each of
//! its scenarios at each load that was run; what did not run says nothing.

use super::table::{aligned, factor, percent};
use super::{Group, Report, Standing};
use crate::lab::outcome::Summary;

/// The policy that is judged.
pub(super) const JUDGED: &str = "predicted";

/// Load from which on more is asked than the fleet can do.
const OVERLOAD: f64 = 1.0;

/// "Not worse": seeds differ by more than a hundredth.
const NOT_WORSE: f64 = 1.01;

/// What the judged policy is measured by.
#[derive(Clone, Copy, Debug)]
enum Against {
    /// Another policy in the same scenario at the same load.
    Policy(&'static str),
    /// Itself as the only gateway; scenarios as in [`Scenarios::Pairs`].
    OneGateway,
}

/// A figure over that of another policy.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    /// What the judged policy reached.
    reached: f64,
    /// What it would be if every request had come to an idle engine of the fastest kind.
    least: Option<f64>,
}

/// Where a goal holds.
#[derive(Clone, Copy, Debug)]
enum Scenarios {
    All,
    Named(&'static [&'static str]),
    /// Scenarios with several gateways, and the same with one.
    Pairs(&'static [(&'static str, &'static str)]),
}

/// What the ratio has to be.
#[derive(Clone, Copy, Debug)]
enum Limit {
    AtMost(f64),
    MoreThan(f64),
    /// At most the first; at most the second where more is asked than can be done.
    AtMostUntilFull(f64, f64),
}

/// A figure of a run that goals are set on.
#[derive(Clone, Copy, Debug)]
enum Figure {
    P95,
    P99,
    Throughput,
}

/// One goal.
#[derive(Clone, Copy, Debug)]
struct Goal {
    figure: Figure,
    against: Against,
    scenarios: Scenarios,
    limit: Limit,
}

const MIXED: Scenarios =
    Scenarios::Named(&["announced_mixed_8b", "announced_mixed_32b", "mixed_8b", "mixed_32b"]);
const BURSTY: Scenarios = Scenarios::Named(&["announced_bursty_70b", "bursty_70b", "bursty_235b"]);
const BURSTY_70B: Scenarios = Scenarios::Named(&["announced_bursty_70b", "bursty_70b"]);
const BURSTY_235B: Scenarios = Scenarios::Named(&["bursty_235b"]);
const PREFIX: Scenarios = Scenarios::Named(&["shared_prefix_8b"]);
const UNIFORM: Scenarios = Scenarios::Named(&["uniform_235b"]);
const SESSIONS_AND_ADAPTERS: Scenarios = Scenarios::Named(&["multi_turn_8b", "lora_mix_8b"]);
const REPLICAS: Scenarios = Scenarios::Pairs(&[
    ("replicas_8_mixed_8b", "mixed_8b"),
    ("replicas_8_prefix_8b", "shared_prefix_8b"),
    ("replicas_8_cold_8b", "cold_prefix_8b"),
    ("peers_8_mixed_8b", "mixed_8b"),
    ("peers_8_prefix_8b", "shared_prefix_8b"),
    ("peers_8_cold_8b", "cold_prefix_8b"),
]);

const fn goal(figure: Figure, against: Against, scenarios: Scenarios, limit: Limit) -> Goal {
    Goal { figure, against, scenarios, limit }
}

/// Every goal, in the order in which they were set.
const GOALS: &[Goal] = {
    use Figure::{P95, P99, Throughput};
    use Limit::{AtMost, AtMostUntilFull, MoreThan};
    const ROUND_ROBIN: Against = Against::Policy("round_robin");
    const EXTENSION: Against = Against::Policy("extension");
    &[
        goal(P99, ROUND_ROBIN, MIXED, AtMost(0.03)),
        goal(Throughput, ROUND_ROBIN, MIXED, MoreThan(1.0)),
        goal(P95, ROUND_ROBIN, BURSTY_70B, AtMost(0.06)),
        goal(P99, ROUND_ROBIN, BURSTY_70B, AtMost(0.02)),
        goal(P95, ROUND_ROBIN, BURSTY_235B, AtMost(NOT_WORSE)),
        goal(P99, ROUND_ROBIN, BURSTY_235B, AtMost(0.11)),
        goal(P99, ROUND_ROBIN, PREFIX, AtMost(0.57)),
        goal(P99, ROUND_ROBIN, UNIFORM, AtMost(NOT_WORSE)),
        goal(P99, EXTENSION, MIXED, AtMost(0.5)),
        goal(P99, EXTENSION, PREFIX, AtMost(0.8)),
        goal(P99, EXTENSION, UNIFORM, AtMost(0.9)),
        goal(P99, EXTENSION, BURSTY, AtMostUntilFull(0.7, 1.0)),
        goal(P99, EXTENSION, SESSIONS_AND_ADAPTERS, AtMost(0.7)),
        goal(P99, Against::OneGateway, REPLICAS, AtMost(1.2)),
        goal(P99, Against::Policy("clairvoyant"), Scenarios::All, AtMost(1.25)),
        goal(P99, ROUND_ROBIN, Scenarios::All, AtMost(NOT_WORSE)),
    ]
};

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::P95 => "P95",
            Self::P99 => "P99",
            Self::Throughput => "tokens/s",
        }
    }

    fn of(self, summary: &Summary) -> f64 {
        match self {
            Self::P95 => summary.ttft_ms.p95,
            Self::P99 => summary.ttft_ms.p99,
            Self::Throughput => summary.output_tokens_per_s,
        }
    }

    /// The least that any policy could reach, where that is known.
    fn floor(self, summary: &Summary) -> Option<f64> {
        match self {
            Self::P95 => Some(summary.floor_ms.p95),
            Self::P99 => Some(summary.floor_ms.p99),
            Self::Throughput => None,
        }
    }
}

impl Limit {
    fn allows(self, ratio: f64, load: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::MoreThan(least) => ratio > least,
            Self::AtMostUntilFull(most, full) => ratio <= if load < OVERLOAD { most } else { full },
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("at most {most}"),
            Self::MoreThan(least) => format!("more than {least}"),
            Self::AtMostUntilFull(most, full) => format!("at most {most}; {full} above 100 %"),
        }
    }
}

impl Goal {
    /// Its scenarios among those that ran, each with the one it is compared with.
    fn pairs<'a>(&self, ran: &[&'a str]) -> Vec<(&'a str, &'a str)> {
        let find = |wanted: &str| ran.iter().copied().find(|name| *name == wanted);
        match self.scenarios {
            Scenarios::All => ran.iter().map(|name| (*name, *name)).collect(),
            Scenarios::Named(names) => {
                names.iter().filter_map(|name| find(name).map(|name| (name, name))).collect()
            }
            Scenarios::Pairs(pairs) => {
                pairs.iter().filter_map(|(of, with)| Some((find(of)?, find(with)?))).collect()
            }
        }
    }

    fn against(&self) -> &'static str {
        match self.against {
            Against::Policy(name) => name,
            Against::OneGateway => "one gateway",
        }
    }

    fn ratio(&self, of: &Group, with: &Group) -> Option<Ratio> {
        let other = match self.against {
            Against::Policy(name) => name,
            Against::OneGateway => JUDGED,
        };
        let (own, other) = (of.standing(JUDGED)?, with.standing(other)?);
        let reached = Standing::ratio(own, other, |summary| self.figure.of(summary))?;
        // The floor is the same whatever the policy: it takes the place of what was reached.
        let floor = own.spread(|summary| self.figure.floor(summary).unwrap_or_default()).median;
        let own = own.spread(|summary| self.figure.of(summary)).median;
        let least = (floor > 0.0 && own > 0.0).then(|| reached * floor / own);
        Some(Ratio { reached, least })
    }
}

/// The goals as a Markdown table: a line for each goal and scenario, a column for each load.
#[must_use]
pub(super) fn goals(report: &Report) -> String {
    let groups = report.groups();
    let loads = report.loads();
    let mut ran: Vec<&str> = Vec::new();
    for group in &groups {
        if !ran.contains(&&*group.scenario) {
            ran.push(&group.scenario);
        }
    }
    let group = |scenario: &str, load: f64| {
        groups
            .iter()
            .find(|group| group.scenario == scenario && group.load.to_bits() == load.to_bits())
    };
    let mut header = vec!["scenario".to_owned(), "figure".to_owned(), "limit".to_owned()];
    header.extend(loads.iter().map(|load| percent(*load)));
    header.push("goal".to_owned());
    let mut rows = vec![header];
    for goal in GOALS {
        for (scenario, with) in goal.pairs(&ran) {
            let mut cells = vec![
                scenario.to_owned(),
                format!("{} / {}", goal.figure.name(), goal.against()),
                goal.limit.text(),
            ];
            let mut verdict = Verdict::default();
            for &load in &loads {
                let pair = group(scenario, load).zip(group(with, load));
                let ratio = pair.and_then(|(of, with)| goal.ratio(of, with));
                cells.push(verdict.judge(goal.limit, load, ratio));
            }
            if verdict.judged > 0 {
                cells.push(verdict.text());
                rows.push(cells);
            }
        }
    }
    aligned(&rows)
}

/// What came of one goal in one scenario.
#[derive(Debug, Default)]
struct Verdict {
    judged: usize,
    missed: usize,
    /// Missed where no policy could reach it.
    beyond: usize,
}

impl Verdict {
    /// The cell of a load.
    fn judge(&mut self, limit: Limit, load: f64, ratio: Option<Ratio>) -> String {
        let Some(Ratio { reached, least }) = ratio else { return "-".to_owned() };
        self.judged += 1;
        if limit.allows(reached, load) {
            factor(reached)
        } else if least.is_none_or(|least| limit.allows(least, load)) {
            self.missed += 1;
            format!("**{}**", factor(reached))
        } else {
            self.beyond += 1;
            format!("*{}*", factor(reached))
        }
    }

    fn text(&self) -> String {
        let reachable = self.judged - self.beyond;
        match (self.missed, reachable) {
            (0, 0) => "out of reach".to_owned(),
            (0, _) if self.beyond > 0 => format!("met at {reachable} of {}", self.judged),
            (0, _) => "met".to_owned(),
            (missed, _) if missed == reachable => "**missed**".to_owned(),
            (missed, _) => format!("missed at {missed} of {reachable}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::super::tests::row;
    use super::*;

    fn at(load: f64, scenario: &str, policy: &str, p99: f64) -> Row {
        Row { load, ..row(scenario, policy, 0, p99) }
    }

    /// Cells of the lines of a scenario whose figure is `figure`.
    fn line(rows: Vec<Row>, scenario: &str, figure: &str) -> Vec<String> {
        let text = goals(&Report { rows });
        let cells = |line: &str| -> Vec<String> {
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let mut lines = text.lines().map(cells);
        let found = lines.find(|cells| cells[0] == scenario && cells[1] == figure);
        found.unwrap_or_else(|| panic!("no line of {scenario} and {figure} in\n{text}"))
    }

    #[test]
    fn goal_is_judged_at_every_load_that_ran() {
        let rows = vec![
            at(0.5, "mixed_8b", "round_robin", 1_000.0),
            at(0.5, "mixed_8b", "predicted", 30.0),
            at(0.7, "mixed_8b", "round_robin", 1_000.0),
            at(0.7, "mixed_8b", "predicted", 31.0),
            at(0.85, "mixed_8b", "predicted", 31.0),
        ];
        let cells = line(rows, "mixed_8b", "P99 / round_robin");
        assert_eq!(cells[2..], ["at most 0.03", "0.030", "**0.031**", "-", "missed at 1 of 2"]);
    }

    #[test]
    fn bursts_may_be_as_slow_as_the_extension_where_the_fleet_is_full() {
        let rows = |load| {
            vec![
                at(load, "bursty_70b", "extension", 1_000.0),
                at(load, "bursty_70b", "predicted", 900.0),
            ]
        };
        let cells = |load| line(rows(load), "bursty_70b", "P99 / extension");
        assert_eq!(cells(0.95)[3..], ["**0.90**", "**missed**"]);
        assert_eq!(cells(1.1)[3..], ["0.90", "met"]);
    }

    #[test]
    fn bursts_are_held_to_what_was_announced_of_their_own_model() {
        let rows = |scenario| {
            vec![at(0.7, scenario, "round_robin", 1_000.0), at(0.7, scenario, "predicted", 100.0)]
        };
        let judged = |scenario, figure| line(rows(scenario), scenario, figure)[2..].to_vec();
        let p99 = "P99 / round_robin";
        assert_eq!(judged("bursty_70b", p99), ["at most 0.02", "**0.10**", "**missed**"]);
        assert_eq!(judged("bursty_235b", p99), ["at most 0.11", "0.10", "met"]);
        let p95 = "P95 / round_robin";
        assert_eq!(judged("bursty_70b", p95), ["at most 0.06", "**0.10**", "**missed**"]);
        assert_eq!(judged("bursty_235b", p95), ["at most 1.01", "0.10", "met"]);
    }

    #[test]
    fn goals_below_the_floor_are_out_of_reach() {
        // The floor is a tenth of what was reached: see `row`.
        let rows = |own, other| {
            vec![at(0.7, "mixed_8b", "round_robin", other), at(0.7, "mixed_8b", "predicted", own)]
        };
        let cells = |own, other| line(rows(own, other), "mixed_8b", "P99 / round_robin");
        assert_eq!(cells(310.0, 1_000.0)[3..], ["*0.31*", "out of reach"]);
        assert_eq!(cells(290.0, 1_000.0)[3..], ["**0.29**", "**missed**"]);
        let mut both = rows(310.0, 1_000.0);
        both.extend([
            at(0.5, "mixed_8b", "round_robin", 1_000.0),
            at(0.5, "mixed_8b", "predicted", 20.0),
        ]);
        let cells = line(both, "mixed_8b", "P99 / round_robin");
        assert_eq!(cells[3..], ["0.020", "*0.31*", "met at 1 of 2"]);
    }

    #[test]
    fn several_gateways_are_compared_with_one() {
        let rows = vec![
            at(0.7, "mixed_8b", "predicted", 1_000.0),
            at(0.7, "replicas_8_mixed_8b", "predicted", 1_300.0),
        ];
        let cells = line(rows, "replicas_8_mixed_8b", "P99 / one gateway");
        assert_eq!(cells[3..], ["**1.30**", "**missed**"]);
    }

    #[test]
    fn throughput_has_to_go_up() {
        let mut rows = vec![
            at(0.7, "mixed_8b", "round_robin", 1_000.0),
            at(0.7, "mixed_8b", "predicted", 10.0),
        ];
        let figure = "tokens/s / round_robin";
        assert_eq!(line(rows.clone(), "mixed_8b", figure)[3..], ["**1.00**", "**missed**"]);
        rows[1].summary.output_tokens_per_s *= 1.1;
        assert_eq!(line(rows, "mixed_8b", figure)[3..], ["1.10", "met"]);
    }

    #[test]
    fn what_did_not_run_has_no_line() {
        let text = goals(&Report { rows: vec![at(0.7, "mixed_8b", "predicted", 1.0)] });
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
