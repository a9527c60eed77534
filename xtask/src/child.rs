//! A child process: started, watched, measured, and gone when its owner is.
//!
//! CPU time comes from the process CPU clock (`clock_getcpuclockid`), because it
//! counts nanoseconds over all threads, ended ones included; `/proc/PID/stat`
//! counts in ticks of 10 ms.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A child process that is killed when this value is dropped, and by the kernel
/// when the thread that started it ends in any other way.
#[derive(Debug)]
pub(crate) struct Child {
    inner: std::process::Child,
    name: String,
    log: PathBuf,
}

impl Child {
    /// Starts `command`; its output goes to `log`.
    pub(crate) fn spawn(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let output =
            File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        // SAFETY: the closure runs between fork and exec and makes one
        // async-signal-safe system call; it touches no memory of the parent.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        let inner =
            command.spawn().with_context(|| format!("cannot start {name} ({command:?})"))?;
        Ok(Self { inner, name: name.to_owned(), log: log.to_owned() })
    }

    /// The process's number.
    pub(crate) fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// CPU time of all threads since the process started.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let pid = libc::pid_t::try_from(self.inner.id())?;
        let mut clock: libc::clockid_t = 0;
        // SAFETY: `clock` outlives the call, which writes it and nothing else.
        let found = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
        if found != 0 {
            bail!("{} (process {pid}) has ended; see {}", self.name, self.log.display());
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` outlives the call, which writes it and nothing else.
        let read = unsafe { libc::clock_gettime(clock, &raw mut time) };
        if read != 0 {
            let error = io::Error::last_os_error();
            return Err(error)
                .with_context(|| format!("cannot read the CPU clock of {}", self.name));
        }
        Ok(Duration::new(u64::try_from(time.tv_sec)?, u32::try_from(time.tv_nsec)?))
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        let file = format!("/proc/{}/status", self.inner.id());
        let status =
            std::fs::read_to_string(&file).with_context(|| format!("{} has ended", self.name))?;
        parse_resident(&status).with_context(|| format!("no VmRSS in {file}"))
    }

    /// Waits until something listens on `address`.
    ///
    /// # Errors
    ///
    /// When the process ends first or `patience` runs out; the end of its log is
    /// part of the error.
    pub(crate) fn wait_listening(&mut self, address: SocketAddr, patience: Duration) -> Result<()> {
        let started = Instant::now();
        loop {
            if TcpStream::connect(address).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.inner.try_wait()? {
                bail!("{} ended with {status}:\n{}", self.name, self.log_tail());
            }
            if started.elapsed() > patience {
                bail!(
                    "{} does not listen on {address} after {patience:?}:\n{}",
                    self.name,
                    self.log_tail()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks the process to end, for one that has processes of its own to take along,
    /// and waits for that no longer than `patience`.
    pub(crate) fn ask_to_end(&mut self, patience: Duration) {
        let Ok(pid) = libc::pid_t::try_from(self.inner.id()) else { return };
        // SAFETY: no memory is involved. The child was not waited for, so that the
        // number is still its own.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let started = Instant::now();
        while matches!(self.inner.try_wait(), Ok(None)) && started.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The last lines the process wrote.
    pub(crate) fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Either call fails only when the process has already ended.
        let _ = self.inner.kill();
        let _ = self.inner.wait();
    }
}

/// Loopback addresses that nobody listens on at the moment, all different.
///
/// # Errors
///
/// When no port is left.
pub(crate) fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    let listeners: io::Result<Vec<_>> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    listeners?.iter().map(TcpListener::local_addr).collect()
}

/// Runs `command` to its end, shows what it prints and passes on each line.
///
/// # Errors
///
/// When it does not start.
pub(crate) fn follow(command: &mut Command, mut seen: impl FnMut(&str)) -> Result<ExitStatus> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let printed = child.stdout.take().context("the child has no output")?;
    for line in BufReader::new(printed).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        seen(&line);
    }
    child.wait().with_context(|| format!("cannot wait for {command:?}"))
}

fn parse_resident(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("xtask-child-{name}-{}", std::process::id()))
    }

    #[test]
    fn resident_memory_is_read_from_the_status_page() {
        assert_eq!(parse_resident("Name:\tx\nVmRSS:\t   1234 kB\nThreads:\t1\n"), Some(1234));
        assert_eq!(parse_resident("Name:\tx\n"), None);
    }

    #[test]
    fn a_busy_child_uses_cpu_and_is_gone_after_drop() {
        let log = log("busy");
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let child = Child::spawn("sh", &mut command, &log).unwrap();
        let pid = child.inner.id();
        let started = Instant::now();
        while child.cpu().unwrap() < Duration::from_millis(20) {
            assert!(started.elapsed() < Duration::from_secs(20), "the busy child got no CPU");
            std::thread::yield_now();
        }
        assert!(child.resident_kib().unwrap() > 0);
        drop(child);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        std::fs::remove_file(log).unwrap();
    }

    #[test]
    fn a_followed_child_is_seen_line_by_line() {
        let (mut command, mut lines) = (Command::new("sh"), Vec::new());
        command.args(["-c", "echo one; echo two; exit 3"]);
        let status = follow(&mut command, |line| lines.push(line.to_owned())).unwrap();
        assert_eq!((lines, status.code()), (vec!["one".to_owned(), "two".to_owned()], Some(3)));
    }

    #[test]
    fn a_child_can_clean_up_when_it_is_asked_to_end() {
        let log = log("asked");
        let mut command = Command::new("sh");
        command.args(["-c", "trap 'echo cleaned; exit 0' TERM; echo ready; while :; do :; done"]);
        let mut child = Child::spawn("sh", &mut command, &log).unwrap();
        while !child.log_tail().contains("ready") {
            std::thread::yield_now();
        }
        child.ask_to_end(Duration::from_secs(20));
        assert!(child.log_tail().contains("cleaned"), "{}", child.log_tail());
        std::fs::remove_file(log).unwrap();
    }

    #[test]
    fn a_child_that_dies_early_is_reported_with_its_words() {
        let log = log("early");
        let mut command = Command::new("sh");
        command.args(["-c", "echo cannot bind; exit 3"]);
        let mut child = Child::spawn("sh", &mut command, &log).unwrap();
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = child.wait_listening(nobody, Duration::from_secs(20)).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("cannot bind"), "{error}");
        std::fs::remove_file(log).unwrap();
    }
}
