//! The results as a page of the documentation, in Markdown.

use std::fmt::Write as _;

use super::goals::{JUDGED, goals};
use super::table::{aligned, factor, from_to, milliseconds, percent, shares};
use super::{Group, Report, Standing};
use crate::lab::outcome::Summary;

/// The page's text. `about` says what was run.
#[must_use]
pub fn results(report: &Report, about: &str) -> String {
    let mut page = format!(
        "# Results of the routing lab\n\n\
         Written by `cargo xtask lab all --report FILE`; what the words mean is in \
         [lab.md](lab.md). {about}\n\n\
         ## Goals\n\n\
         Each number is a median of `{JUDGED}` over the seeds, divided by the same of whom it is \
         compared with. **Bold** misses the goal. *Italics* miss it where no policy could reach it: \
         the same requests take longer than that on an idle fleet of its fastest engines. `clairvoyant` is the bound; one gateway is the \
         same scenario with one gateway instead of eight. At most 1.01 stands for \"not worse\": \
         seeds differ by more than a hundredth.\n\n{}\n\
         ## The default policy\n\n\
         P99 of the time to first token in ms, with the least and the greatest of the seeds; `x` \
         is `{JUDGED}` over another policy.\n\n{}\n\
         ## Every policy\n\n\
         Median P99 of the time to first token in ms. `never`: more than one request in a \
         hundred got no answer.\n",
        goals(report),
        judged(report),
    );
    for load in report.loads() {
        // Writing to a string cannot fail.
        let _ = write!(page, "\n### At {} of capacity\n\n{}", percent(load), matrix(report, load));
    }
    page
}

fn p99(summary: &Summary) -> f64 {
    summary.ttft_ms.p99
}

/// The judged policy in every scenario at every load, beside the baselines.
fn judged(report: &Report) -> String {
    const OTHERS: [(&str, &str); 3] =
        [("round_robin", "round robin"), ("extension", "2/2/3"), ("clairvoyant", "bound")];
    let mut header = vec!["scenario".to_owned(), "load".to_owned()];
    header.extend(OTHERS.map(|(_, name)| name.to_owned()));
    header.extend([JUDGED.to_owned(), "from-to".to_owned()]);
    header.extend(OTHERS.map(|(_, name)| format!("x {name}")));
    header.extend(["goodput", "hits", "hot spot", "seeds"].map(str::to_owned));
    let mut rows = vec![header];
    for group in report.groups() {
        let Some(own) = group.standing(JUDGED) else { continue };
        let median = |policy: &str| {
            let standing = group.standing(policy);
            standing.map_or_else(|| "-".to_owned(), median)
        };
        let mut cells = vec![group.scenario.clone(), percent(group.load)];
        cells.extend(OTHERS.map(|(policy, _)| median(policy)));
        cells.extend([median(JUDGED), from_to(own.spread(p99))]);
        cells.extend(OTHERS.map(|(policy, _)| {
            group.ratio(JUDGED, policy, p99).map_or_else(|| "-".to_owned(), factor)
        }));
        cells.extend(shares(own));
        cells.push(seeds(&group, own));
        rows.push(cells);
    }
    aligned(&rows)
}

/// Seeds of the judged policy, and of the bound where it has fewer.
fn seeds(group: &Group, own: &Standing) -> String {
    match group.standing("clairvoyant").map(Standing::seeds) {
        Some(bound) if bound < own.seeds() => format!("{}, bound {bound}", own.seeds()),
        _ => own.seeds().to_string(),
    }
}

fn median(standing: &Standing) -> String {
    milliseconds(standing.spread(p99).median)
}

/// A line for each scenario, a column for each policy.
fn matrix(report: &Report, load: f64) -> String {
    let groups: Vec<Group> = report
        .groups()
        .into_iter()
        .filter(|group| group.load.to_bits() == load.to_bits())
        .collect();
    let mut policies: Vec<&str> = Vec::new();
    for standing in groups.iter().flat_map(|group| &group.standings) {
        if !policies.contains(&&*standing.policy) {
            policies.push(&standing.policy);
        }
    }
    let header = std::iter::once("scenario").chain(policies.iter().copied()).map(str::to_owned);
    let mut rows: Vec<Vec<String>> = vec![header.collect()];
    for group in &groups {
        let cell = |policy: &&str| {
            let standing = group.standing(policy);
            standing.map_or_else(|| "-".to_owned(), median)
        };
        let cells = policies.iter().map(cell);
        rows.push(std::iter::once(group.scenario.clone()).chain(cells).collect());
    }
    aligned(&rows)
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::super::tests::row;
    use super::*;

    #[test]
    fn page_has_the_goals_the_default_policy_and_everybody() {
        let low = |row: Row| Row { load: 0.5, ..row };
        let rows = vec![
            row("mixed_8b", "round_robin", 0, 40_000.0),
            row("mixed_8b", "predicted", 0, 1_000.0),
            row("mixed_8b", "predicted", 1, 1_500.0),
            row("mixed_8b", "clairvoyant", 0, 800.0),
            low(row("lora_mix_8b", "predicted", 0, 7.0)),
        ];
        let page = results(&Report { rows }, "Two seeds.");
        let line = |from: &str, with: &str| -> Vec<String> {
            let section = &page[page.find(from).unwrap()..];
            let line = section.lines().find(|line| line.starts_with(with)).unwrap();
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        assert!(page.contains("[lab.md](lab.md). Two seeds."), "{page}");
        let own = line("## The default policy", "| mixed_8b");
        assert_eq!(own[1..7], ["85 %", "40000", "-", "800", "1250", "1000-1500"]);
        assert_eq!(own[7..10], ["0.025", "-", "1.25"]);
        assert_eq!(own[13], "2, bound 1");
        assert_eq!(line("### At 85 %", "| mixed_8b")[1..], ["40000", "1250", "800"]);
        assert_eq!(line("### At 50 %", "| lora_mix_8b")[1..], ["7"]);
        assert_eq!(line("## Goals", "| mixed_8b")[4..], ["0.025", "met"]);
    }
}
