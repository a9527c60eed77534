//! CPU time of the whole machine, without that of other programs.
//!
//! Packets are handled wherever an interrupt finds a CPU, in the name of whoever runs
//! there, so that only the whole machine's time is complete: all that was not idle. From
//! it is taken what processes used that have nothing to do with the bench, so that the
//! figure bears some company. Latency does not; the report says how much there was.

use std::fs;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// `/proc` counts in hundredths of a second on every Linux (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// Columns of `/proc/stat` in which a CPU did nothing for this machine: idle, waiting
/// for a disk, or with another virtual machine.
const NOT_OURS: [usize; 3] = [3, 4, 7];

/// Of a kernel thread, among a process's flags (`PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    at: Instant,
    idle: Duration,
    foreign: Duration,
    daemon: Duration,
    cores: u32,
}

/// CPU time between two samples.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Used {
    /// Of client, model server, daemon and kernel.
    pub(super) bench: Duration,
    /// Of the process under test.
    pub(super) daemon: Duration,
    /// Of processes that are not part of the bench.
    foreign: Duration,
    /// What there was to use.
    available: Duration,
}

impl Sample {
    /// Reads the machine's clocks. `daemon` is the process under test, if there is one,
    /// and the CPU time it has used.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be read.
    pub(super) fn take(daemon: Option<(u32, Duration)>) -> Result<Self> {
        let own = [Some(std::process::id()), daemon.map(|(pid, _)| pid)];
        let foreign = foreign(|pid| own.contains(&Some(pid)))?;
        let table = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let idle = idle(&table).context("/proc/stat has no line for all CPUs")?;
        let cores = u32::try_from(available_parallelism()?.get())?;
        let daemon = daemon.map_or(Duration::ZERO, |(_, used)| used);
        Ok(Self { at: Instant::now(), idle, foreign, daemon, cores })
    }

    /// What was used after `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Used {
        let available = self.at.duration_since(earlier.at) * self.cores;
        let busy = available.saturating_sub(self.idle.saturating_sub(earlier.idle));
        let foreign = self.foreign.saturating_sub(earlier.foreign);
        Used {
            bench: busy.saturating_sub(foreign),
            daemon: self.daemon.saturating_sub(earlier.daemon),
            foreign,
            available,
        }
    }
}

impl Used {
    /// How busy the bench kept the machine.
    pub(super) fn busy_percent(&self) -> f64 {
        100.0 * self.bench.div_duration_f64(self.available)
    }

    /// How busy others kept it.
    pub(super) fn foreign_percent(&self) -> f64 {
        100.0 * self.foreign.div_duration_f64(self.available)
    }
}

fn idle(table: &str) -> Option<Duration> {
    let line = table.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u32> = line.split_whitespace().map_while(|text| text.parse().ok()).collect();
    NOT_OURS.iter().map(|column| Some(TICK * *ticks.get(*column)?)).sum()
}

/// CPU time of all processes but our own and the kernel's, with that of children that
/// have ended: those of a compiler, for example, live for less than a measurement.
fn foreign(is_own: impl Fn(u32) -> bool) -> Result<Duration> {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if pid.is_none_or(&is_own) {
            continue;
        }
        // It may have ended by now.
        let Ok(line) = fs::read_to_string(entry.path().join("stat")) else { continue };
        ticks += process_ticks(&line).unwrap_or(0);
    }
    Ok(TICK * u32::try_from(ticks).unwrap_or(u32::MAX))
}

/// User and system time, own and of ended children, in a line of `/proc/PID/stat`; none
/// of a kernel thread.
fn process_ticks(line: &str) -> Option<u64> {
    // A name in parentheses comes second, and may have anything in it.
    let (_, fields) = line.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // Counted from the third on, as in proc_pid_stat(5): 9 flags, 14 to 17 times.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    if field(9)? & KERNEL_THREAD != 0 {
        return None;
    }
    (14..=17).map(field).sum()
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
        let zero = Duration::ZERO;
        let before = Sample { at, idle: zero, foreign: zero, daemon: zero, cores: 2 };
        let after = Sample {
            at: at + Duration::from_secs(1),
            idle: Duration::from_millis(500),
            foreign: Duration::from_millis(100),
            daemon: Duration::from_millis(300),
            cores: 2,
        };
        let used = after.since(&before);
        assert_eq!(used.bench, Duration::from_millis(1400));
        assert_eq!(used.daemon, Duration::from_millis(300));
        assert!((used.busy_percent() - 70.0).abs() < 1e-9);
        assert!((used.foreign_percent() - 5.0).abs() < 1e-9);
    }

    #[test]
    fn processes_count_with_their_ended_children_and_kernel_threads_do_not() {
        let line = |flags: u32| {
            format!("7 (a (b) c) S 1 7 7 0 -1 {flags} 9 9 9 9 1 20 300 4000 20 0 1 0 5")
        };
        assert_eq!(process_ticks(&line(0x0040_0100)), Some(4321));
        assert_eq!(process_ticks(&line(0x0020_8040)), None);
        assert_eq!(process_ticks("7 (a"), None);
    }

    #[test]
    fn what_is_our_own_is_not_foreign() {
        assert_eq!(foreign(|_| true).unwrap(), Duration::ZERO);
        assert!(foreign(|_| false).unwrap() > Duration::ZERO);
    }
}
