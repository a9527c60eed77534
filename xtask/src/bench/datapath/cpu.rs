//! CPU time of the whole machine: what was not idle.
//!
//! Packets are handled wherever an interrupt finds a CPU, in the name of whoever runs
//! there, so that only the whole machine's time is complete. It counts everything else that
//! runs too: measure on a quiet one.

use std::fs;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// `/proc/stat` counts in hundredths of a second on every Linux (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// Columns of `/proc/stat` in which a CPU did nothing for this machine: idle, waiting
/// for a disk, or with another virtual machine.
const NOT_OURS: [usize; 3] = [3, 4, 7];

/// Clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    at: Instant,
    idle: Duration,
    daemon: Duration,
    cores: u32,
}

/// CPU time between two samples.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Used {
    /// Of all cores, whoever used it.
    pub(super) machine: Duration,
    /// Of the process under test.
    pub(super) daemon: Duration,
    /// What there was to use.
    available: Duration,
}

impl Sample {
    /// Reads the machine's clocks; `daemon` is that of the process under test.
    ///
    /// # Errors
    ///
    /// When `/proc/stat` cannot be read.
    pub(super) fn take(daemon: Duration) -> Result<Self> {
        let table = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let idle = idle(&table).context("/proc/stat has no line for all CPUs")?;
        let cores = u32::try_from(available_parallelism()?.get())?;
        Ok(Self { at: Instant::now(), idle, daemon, cores })
    }

    /// What was used after `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Used {
        let available = self.at.duration_since(earlier.at) * self.cores;
        Used {
            machine: available.saturating_sub(self.idle.saturating_sub(earlier.idle)),
            daemon: self.daemon.saturating_sub(earlier.daemon),
            available,
        }
    }
}

impl Used {
    /// How busy the machine was.
    pub(super) fn busy_percent(&self) -> f64 {
        100.0 * self.machine.div_duration_f64(self.available)
    }
}

fn idle(table: &str) -> Option<Duration> {
    let line = table.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u32> = line.split_whitespace().map_while(|text| text.parse().ok()).collect();
    NOT_OURS.iter().map(|column| Some(TICK * *ticks.get(*column)?)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_with_nothing_to_do_is_idle_time() {
        let table = "cpu  10 20 30 400 50 60 70 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(idle(table), Some(TICK * 458));
        assert_eq!(idle("cpu0 1 2 3 4 5 6 7 8\n"), None);
    }

    #[test]
    fn what_was_not_idle_was_used() {
        let at = Instant::now();
        let before = Sample { at, idle: Duration::ZERO, daemon: Duration::ZERO, cores: 2 };
        let after = Sample {
            at: at + Duration::from_secs(1),
            idle: Duration::from_millis(500),
            daemon: Duration::from_millis(300),
            cores: 2,
        };
        let used = after.since(&before);
        assert_eq!(used.machine, Duration::from_millis(1500));
        assert_eq!(used.daemon, Duration::from_millis(300));
        assert!((used.busy_percent() - 75.0).abs() < 1e-9);
    }
}
