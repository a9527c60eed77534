//! How far it is, and how long it is going to take.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// A line on standard error: rewritten after every run on a terminal, else a line
/// after every trial.
#[derive(Debug)]
pub(crate) struct Progress {
    begun: Instant,
    done: usize,
    all: usize,
    /// By policy, for they differ a hundredfold.
    costs: BTreeMap<&'static str, Cost>,
    on_terminal: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    open: u32,
    done: u32,
    took: Duration,
}

impl Progress {
    /// For one run of each of these policies.
    pub(crate) fn new(runs: impl Iterator<Item = &'static str>) -> Self {
        let mut costs: BTreeMap<&'static str, Cost> = BTreeMap::new();
        let mut all = 0;
        for policy in runs {
            costs.entry(policy).or_default().open += 1;
            all += 1;
        }
        let on_terminal = std::io::stderr().is_terminal();
        Self { begun: Instant::now(), done: 0, all, costs, on_terminal }
    }

    pub(crate) fn ran(&mut self, policy: &'static str, took: Duration) {
        let cost = self.costs.entry(policy).or_default();
        cost.open = cost.open.saturating_sub(1);
        cost.done += 1;
        cost.took += took;
        self.done += 1;
        if self.on_terminal {
            eprint!("\r{}\x1b[K", self.text());
            // Only the display would be late.
            let _ = std::io::stderr().flush();
        }
    }

    /// Before other output.
    pub(crate) fn interrupt(&self) {
        if self.on_terminal {
            eprint!("\r\x1b[K");
        } else {
            eprintln!("{}", self.text());
        }
    }

    /// Real time so far.
    pub(crate) fn took(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Time of all runs, on one core each.
    pub(crate) fn worked(&self) -> Duration {
        self.costs.values().map(|cost| cost.took).sum()
    }

    fn text(&self) -> String {
        format!(
            "{} of {} runs after {}, about {} left",
            self.done,
            self.all,
            minutes(self.took()),
            minutes(self.left())
        )
    }

    /// Every policy goes on at its mean so far; one that has not run yet takes the mean
    /// of all.
    fn left(&self) -> Duration {
        let mean = |took: Duration, done: u32| took.as_secs_f64() / f64::from(done.max(1));
        let usual = mean(self.worked(), self.done as u32);
        let of = |cost: &Cost| {
            let each = if cost.done == 0 { usual } else { mean(cost.took, cost.done) };
            each * f64::from(cost.open)
        };
        let work: f64 = self.costs.values().map(of).sum();
        // How many cores' worth of work is done in a second is known by now, too.
        let pace = self.worked().as_secs_f64() / self.took().as_secs_f64().max(f64::EPSILON);
        Duration::from_secs_f64(work / pace.max(0.1))
    }
}

/// `12 min`, `40 s`.
pub(crate) fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..100 => format!("{seconds} s"),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_from_the_policies_that_are_left() {
        let mut progress = Progress::new(["slow", "fast", "fast", "slow"].into_iter());
        progress.begun = Instant::now().checked_sub(Duration::from_secs(110)).unwrap();
        progress.ran("slow", Duration::from_secs(100));
        progress.ran("fast", Duration::from_secs(10));
        // A slow and a fast one are left, at one core's pace.
        assert!(progress.left().abs_diff(Duration::from_secs(110)) < Duration::from_secs(1));
        assert!(progress.text().starts_with("2 of 4 runs after 2 min, about 2 min left"));
    }
}
