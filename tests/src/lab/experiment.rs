//! Many runs: scenarios at their loads, policies, seeds.
//!
//! Runs do not depend on each other, so they are spread over the cores; results
//! come back in the order of the plan, whichever thread was first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
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

/// One policy on one seed of one trial.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Place of its trial in the plan.
    pub trial: usize,
    /// The policy.
    pub contender: Contender,
    /// What the arrivals are made from.
    pub seed: u64,
}

/// A run and what it took.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The run.
    pub run: Run,
    /// Its figures.
    pub summary: Summary,
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

    /// Runs one policy on one seed and takes the time.
    #[must_use]
    pub fn measure(&self, contender: &Contender, seed: u64, span: Span) -> Measured {
        let begun = Instant::now();
        let run = self.run(contender, seed, span);
        let summary = run.summary();
        Measured { run, summary, took: begun.elapsed() }
    }
}

/// Applies `work` to all `jobs` on all cores; results are in the order of the jobs.
pub fn spread<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let mut results: Vec<Option<R>> = jobs.iter().map(|_| None).collect();
    let keep = |at: usize, result| {
        results[at] = Some(result);
        Ok::<(), std::convert::Infallible>(())
    };
    let Ok(()) = spread_and_take(jobs, work, keep);
    results.into_iter().flatten().collect()
}

/// Applies `work` to all `jobs` on all cores. `take` gets each result with the number of
/// its job on the calling thread, in the order in which they are there.
///
/// # Errors
///
/// The first that `take` returns; jobs that have not begun then never do.
pub fn spread_and_take<J: Sync, R: Send, E>(
    jobs: &[J],
    work: impl Fn(&J) -> R + Sync,
    mut take: impl FnMut(usize, R) -> Result<(), E>,
) -> Result<(), E> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = AtomicUsize::new(0);
    // Results are large: a worker waits rather than that many pile up.
    let (sender, results) = mpsc::sync_channel(cores);
    let worker = |sender: mpsc::SyncSender<(usize, R)>| {
        while let Some((at, job)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(at).map(|job| (at, job))
        } {
            if sender.send((at, work(job))).is_err() {
                return; // nobody wants results any more
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..cores.min(jobs.len()) {
            let sender = sender.clone();
            scope.spawn(|| worker(sender));
        }
        // Else the channel would never end.
        drop(sender);
        results.into_iter().try_for_each(|(at, result)| take(at, result))
    })
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

    /// Summaries of every policy on seeds `0..seeds`: policies in order, seeds within them.
    fn summaries(trial: &Trial, policies: &[Contender], seeds: u64) -> Vec<Summary> {
        let jobs: Vec<(&Contender, u64)> = policies
            .iter()
            .flat_map(|contender| (0..seeds).map(move |seed| (contender, seed)))
            .collect();
        spread(&jobs, |&(contender, seed)| trial.measure(contender, seed, Span::QUICK).summary)
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
    fn no_job_begins_once_a_result_is_refused() {
        let jobs: Vec<u32> = (0..10_000).collect();
        let begun = AtomicUsize::new(0);
        let work = |job: &u32| {
            begun.fetch_add(1, Ordering::Relaxed);
            *job
        };
        let mut taken = 0;
        let result = spread_and_take(&jobs, work, |_, _| {
            taken += 1;
            if taken == 3 { Err("full") } else { Ok(()) }
        });
        assert_eq!((result, taken), (Err("full"), 3));
        let begun = begun.load(Ordering::Relaxed);
        let cores = std::thread::available_parallelism().unwrap().get();
        // What waits in the channel, and one at each worker.
        assert!(begun <= taken + 2 * cores, "{begun}");
    }

    #[test]
    fn a_trial_repeats_to_the_byte_on_any_number_of_threads() {
        let trial = trial("multi_turn_8b", 0.7);
        let policies = named(&["extension", "predicted+late_binding"]);
        let once = summaries(&trial, &policies, 2);
        let alone = |policy: &Contender, seed| trial.run(policy, seed, Span::QUICK).summary();
        let again: Vec<Summary> =
            policies.iter().flat_map(|policy| [0, 1].map(|seed| alone(policy, seed))).collect();
        assert_eq!(once, again);
        assert_ne!(once[0], once[1]);
    }

    #[test]
    fn prediction_beats_taking_turns_by_far_on_mixed_gpus() {
        let policies = named(&["round_robin", "predicted"]);
        let p99 = p99(&trial("mixed_8b", 0.7), &policies);
        assert!(p99[1] * 10.0 < p99[0], "{p99:?}");
    }

    #[test]
    fn prediction_does_not_lose_to_taking_turns_where_nothing_is_to_be_won() {
        let policies = named(&["round_robin", "predicted"]);
        let p99 = p99(&trial("uniform_235b", 0.7), &policies);
        assert!(p99[1] / p99[0] < 1.1, "{p99:?}");
    }

    fn p99(trial: &Trial, policies: &[Contender]) -> Vec<f64> {
        summaries(trial, policies, 1).iter().map(|summary| summary.ttft_ms.p99).collect()
    }
}
