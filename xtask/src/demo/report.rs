//! The figures of a comparison, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;

use super::load::Outcome;
use crate::bench::figures::{ratio, tenth};

/// All runs, the baseline first.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) runs: Vec<Run>,
}

/// What one policy reached.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    policy: String,
    ttft_ms: Quantiles,
    requests_ok: usize,
    requests_failed: usize,
    output_tokens_per_s: f64,
    /// Answers by the path their bytes took through the gateway.
    paths: BTreeMap<String, u64>,
    /// Fraction of the answers, by endpoint.
    share: BTreeMap<String, f64>,
}

/// Milliseconds.
#[derive(Debug, PartialEq, Serialize)]
struct Quantiles {
    p50: f64,
    p95: f64,
    p99: f64,
}

impl Run {
    /// Sums up an outcome; `names` are the endpoints' by address.
    ///
    /// # Errors
    ///
    /// When nothing was answered.
    pub(super) fn new(
        policy: &str,
        outcome: &Outcome,
        names: &BTreeMap<String, &str>,
        paths: BTreeMap<String, u64>,
    ) -> Result<Self> {
        let answers = &outcome.answers;
        if answers.is_empty() {
            let why = outcome.failures.first().map_or("no request was sent", String::as_str);
            bail!("{policy}: no request was answered: {why}");
        }
        let tokens: u64 = answers.iter().map(|answer| answer.output_tokens).sum();
        let mut share: BTreeMap<String, f64> =
            names.values().map(|name| ((*name).to_owned(), 0.0)).collect();
        for answer in answers {
            let endpoint = answer.endpoint.as_deref().unwrap_or("unknown");
            let name = names.get(endpoint).copied().unwrap_or(endpoint);
            *share.entry(name.to_owned()).or_default() += 1.0 / answers.len() as f64;
        }
        for share in share.values_mut() {
            *share = (*share * 1e4).round() / 1e4;
        }
        Ok(Self {
            policy: policy.to_owned(),
            ttft_ms: Quantiles::of(answers.iter().map(|answer| answer.ttft)),
            requests_ok: answers.len(),
            requests_failed: outcome.failures.len(),
            output_tokens_per_s: tenth(tokens as f64 / outcome.elapsed.as_secs_f64()),
            paths,
            share,
        })
    }
}

impl Run {
    /// The paths that answers took, most used first, with their shares.
    fn taken(&self) -> String {
        let all = self.paths.values().sum::<u64>().max(1) as f64;
        let mut paths: Vec<_> = self.paths.iter().filter(|(_, count)| **count > 0).collect();
        paths.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shares = paths
            .into_iter()
            .map(|(path, count)| format!("{path} {:.0} %", 100.0 * *count as f64 / all));
        shares.collect::<Vec<_>>().join(", ")
    }
}

impl Quantiles {
    fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<Duration> = times.collect();
        times.sort();
        let at = |quantile: f64| {
            let rank = (quantile * times.len() as f64).ceil() as usize;
            let time = times.get(rank.saturating_sub(1)).copied().unwrap_or_default();
            tenth(time.as_secs_f64() * 1e3)
        };
        Self { p50: at(0.5), p95: at(0.95), p99: at(0.99) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7}  path",
            "policy", "TTFT p50", "p95", "p99", "tokens/s", "ok", "failed"
        )?;
        for run in &self.runs {
            let Quantiles { p50, p95, p99 } = &run.ttft_ms;
            let [p50, p95, p99] = [p50, p95, p99].map(|time| format!("{time:.0} ms"));
            writeln!(
                f,
                "{:<12} {p50:>9} {p95:>9} {p99:>9} {:>9.0} {:>7} {:>7}  {}",
                run.policy,
                run.output_tokens_per_s,
                run.requests_ok,
                run.requests_failed,
                run.taken()
            )?;
        }
        if let [baseline, .., ours] = self.runs.as_slice() {
            let times =
                |of: fn(&Quantiles) -> f64| ratio(of(&baseline.ttft_ms), Some(of(&ours.ttft_ms)));
            let [p50, p95, p99] = [times(|q| q.p50), times(|q| q.p95), times(|q| q.p99)];
            let tokens = ratio(ours.output_tokens_per_s, Some(baseline.output_tokens_per_s));
            writeln!(f, "{:<12} {p50:>9} {p95:>9} {p99:>9} {tokens:>9}", "better by")?;
        }
        writeln!(f, "\nshare of the requests")?;
        self.shares(f)
    }
}

impl Report {
    fn shares(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.runs.first() else { return Ok(()) };
        // By kind of GPU, the fast ones first.
        let names: Vec<&String> = first.share.keys().rev().collect();
        write!(f, "{:<12}", "")?;
        names.iter().try_for_each(|name| write!(f, " {name:>8}"))?;
        writeln!(f)?;
        for run in &self.runs {
            write!(f, "{:<12}", run.policy)?;
            for name in &names {
                let percent = 100.0 * run.share.get(*name).copied().unwrap_or(0.0);
                write!(f, " {:>8}", format!("{percent:.0} %"))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the expected values are exact")]
mod tests {
    use super::*;
    use crate::stream::Answer;

    fn run(policy: &str, ttfts: &[u64]) -> Run {
        let answers = ttfts.iter().enumerate().map(|(index, ttft)| Answer {
            ttft: Duration::from_millis(*ttft),
            text: String::new(),
            output_tokens: 10,
            endpoint: Some(format!("127.0.0.1:{}", index % 2)),
        });
        let outcome = Outcome {
            answers: answers.collect(),
            failures: vec!["lost".to_owned()],
            elapsed: Duration::from_secs(2),
        };
        let names = [("127.0.0.1:0", "fast"), ("127.0.0.1:1", "slow"), ("127.0.0.1:2", "idle")];
        let names = names.map(|(address, name)| (address.to_owned(), name)).into();
        let paths =
            [("splice", 3), ("user", 1)].map(|(path, count)| (path.to_owned(), count)).into();
        Run::new(policy, &outcome, &names, paths).unwrap()
    }

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let times = (1..=100).map(Duration::from_millis);
        assert_eq!(Quantiles::of(times), Quantiles { p50: 50.0, p95: 95.0, p99: 99.0 });
    }

    #[test]
    fn shares_count_endpoints_without_a_request() {
        let run = run("predicted", &[1, 2, 3, 4]);
        let shares: Vec<(&str, f64)> =
            run.share.iter().map(|(name, share)| (name.as_str(), *share)).collect();
        assert_eq!(shares, [("fast", 0.5), ("idle", 0.0), ("slow", 0.5)]);
        assert_eq!((run.requests_ok, run.requests_failed), (4, 1));
        assert_eq!(run.output_tokens_per_s, 20.0);
    }

    #[test]
    fn the_table_says_how_much_better_ours_is() {
        let report =
            Report { runs: vec![run("round_robin", &[100; 4]), run("predicted", &[50; 4])] };
        let text = report.to_string();
        assert!(text.contains("better by        2.00x     2.00x     2.00x     1.00x"), "{text}");
    }

    #[test]
    fn the_table_names_the_path_most_answers_took_first() {
        let report = Report { runs: vec![run("predicted", &[50; 4])] };
        let text = report.to_string();
        assert!(text.contains("splice 75 %, user 25 %"), "{text}");
    }

    #[test]
    fn json_has_the_documented_fields() {
        let report = Report { runs: vec![run("predicted", &[1, 2])] };
        let json = serde_json::to_value(&report).unwrap();
        let run = &json["runs"][0];
        assert_eq!(run["ttft_ms"]["p50"], 1.0);
        assert_eq!(run["share"]["idle"], 0.0);
        assert_eq!(run["paths"]["splice"], 3);
        assert_eq!(run.as_object().unwrap().len(), 7);
    }
}
