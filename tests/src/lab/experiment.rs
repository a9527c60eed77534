//! Many runs: scenarios at their loads, policies, seeds.
//!
//! Runs do not depend on each other, so they are spread over the cores; results
//! come back in the order of the plan, whichever thread was first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::catalogue::Entry;
use super::outcome::{Run, Summary};
use super::policy::Contender;
use super::runner;

/// How long scenarios are.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Time before anything counts.
    pub warm_up: Duration,
    /// Time in which arrivals count.
    pub length: Duration,
}

impl Span {
    /// What results are published from.
    pub const FULL: Self = Self { warm_up: Duration::from_mins(1), length: Duration::from_mins(3) };

    /// Enough to see a large difference.
    pub const QUICK: Self =
        Self { warm_up: Duration::from_secs(20), length: Duration::from_mins(1) };
}

/// One scenario at one load, for all policies.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// The scenario.
    pub entry: &'static Entry,
    /// Share of the capacity.
    pub load: f64,
    /// Requests per second that its fleet can take; see [`capacity`](super::calibrate::capacity).
    pub capacity: f64,
}

/// One run and its figures.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Name of the policy.
    pub policy: &'static str,
    /// What the arrivals were made from.
    pub seed: u64,
    /// Its figures.
    pub summary: Summary,
    /// Virtual time that passed.
    pub simulated: Duration,
    /// Real time that it took, on one core.
    pub took: Duration,
}

impl Trial {
    /// Runs one policy on one seed.
    #[must_use]
    pub fn run(&self, contender: &Contender, seed: u64, span: Span) -> Run {
        let rate = self.capacity * self.load;
        let scenario = self.entry.scenario(rate, seed, span.warm_up, span.length);
        runner::run(&scenario, contender, seed)
    }

    /// Runs every policy on seeds `0..seeds`: policies in order, seeds within them.
    #[must_use]
    pub fn measure(&self, contenders: &[Contender], seeds: u64, span: Span) -> Vec<Measured> {
        let jobs: Vec<(&Contender, u64)> = contenders
            .iter()
            .flat_map(|contender| (0..seeds).map(move |seed| (contender, seed)))
            .collect();
        spread(&jobs, |&(contender, seed)| {
            let begun = Instant::now();
            let run = self.run(contender, seed, span);
            Measured {
                policy: contender.name,
                seed,
                summary: run.summary(),
                simulated: run.end.since_origin(),
                took: begun.elapsed(),
            }
        })
    }
}

/// Applies `work` to all `jobs` on all cores; results are in the order of the jobs.
pub fn spread<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(jobs.len()));
    let worker = || {
        while let Some((at, job)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(at).map(|job| (at, job))
        } {
            let result = work(job);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 1..cores.min(jobs.len()) {
            scope.spawn(worker);
        }
        worker();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::calibrate::capacity;
    use crate::lab::{catalogue, contenders};

    fn trial(name: &str, load: f64) -> Trial {
        let entry = catalogue::entries().find(|entry| entry.name == name).unwrap();
        Trial { entry, load, capacity: capacity(entry) }
    }

    fn named(names: &[&str]) -> Vec<Contender> {
        contenders().filter(|contender| names.contains(&contender.name)).collect()
    }

    fn figures(measured: &[Measured]) -> String {
        let each = measured.iter().map(|one| {
            let figures = serde_json::to_string(&one.summary).unwrap();
            format!("{} {} {figures}\n", one.policy, one.seed)
        });
        each.collect()
    }

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let jobs: Vec<u32> = (0..200).collect();
        let doubled = spread(&jobs, |job| {
            // Early jobs take longest.
            std::hint::black_box((0..(200 - job) * 100).sum::<u32>());
            job * 2
        });
        assert_eq!(doubled, (0..200).map(|job| job * 2).collect::<Vec<_>>());
    }

    #[test]
    fn a_trial_repeats_to_the_byte_on_any_number_of_threads() {
        let trial = trial("multi_turn_8b", 0.7);
        let policies = named(&["extension", "predicted+late_binding"]);
        let once = trial.measure(&policies, 2, Span::QUICK);
        let again: Vec<Measured> =
            policies.iter().flat_map(|policy| trial.measure(&[*policy], 2, Span::QUICK)).collect();
        assert_eq!(figures(&once), figures(&again));
    }

    #[test]
    fn prediction_beats_taking_turns_by_far_on_mixed_gpus() {
        let measured =
            trial("mixed_8b", 0.7).measure(&named(&["round_robin", "predicted"]), 1, Span::QUICK);
        let p99 = |policy| {
            let of = measured.iter().find(|one| one.policy == policy).unwrap();
            of.summary.ttft_ms.p99
        };
        assert!(p99("predicted") * 10.0 < p99("round_robin"), "{}", figures(&measured));
    }

    #[test]
    fn prediction_does_not_lose_to_taking_turns_where_nothing_is_to_be_won() {
        let policies = named(&["round_robin", "predicted"]);
        let measured = trial("uniform_235b", 0.7).measure(&policies, 1, Span::QUICK);
        let p99: Vec<f64> = measured.iter().map(|one| one.summary.ttft_ms.p99).collect();
        let worse = measured[1].summary.ttft_ms.p99 / measured[0].summary.ttft_ms.p99;
        assert!(worse < 1.1, "{p99:?}");
    }
}
