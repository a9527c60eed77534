//! A network namespace: made, entered, and gone with its last user.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result, bail};

/// A network namespace. Clones are the same namespace, which lives as long as one of
/// them, a thread or process in it, or a socket made in it.
///
/// What a thread makes belongs to the namespace the thread is in: sockets for good, and
/// threads until they move. So one entered thread that builds a runtime or a daemon
/// puts all of it there.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: Arc<str>,
    file: Arc<File>,
}

impl Namespace {
    /// Makes a namespace whose loopback interface is up; `name` is for messages.
    ///
    /// # Errors
    ///
    /// Without the capability `CAP_SYS_ADMIN`, or when the kernel has no namespaces.
    pub fn new(name: &str) -> Result<Self> {
        // A thread of its own moves into the new namespace and ends there.
        let made = thread::scope(|scope| scope.spawn(unshared).join());
        let file = made
            .map_err(|_| io::Error::other("the thread that made it panicked"))
            .flatten()
            .with_context(|| format!("cannot make the network namespace `{name}`"))?;
        let namespace = Self { name: name.into(), file: Arc::new(file) };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// For tests: whether this process may make namespaces. Says so where it may not.
    ///
    /// # Panics
    ///
    /// When it may not and this is CI (`CI=true`), where nothing may be skipped.
    #[must_use]
    pub fn can_be_made() -> bool {
        let Err(error) = Self::new("trial") else { return true };
        let missing = "skipped: this test needs network namespaces (root, and iproute2)";
        let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        assert!(!ci, "{missing}: {error:#}");
        eprintln!("{missing}: {error:#}");
        false
    }

    /// Name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a new thread in this namespace and waits for it.
    ///
    /// Processes that shall die with their parent must not be started this way: for the
    /// kernel their parent is the thread. [`Namespace::command`] starts them from the
    /// caller's.
    ///
    /// # Panics
    ///
    /// When `work` does, or the thread cannot be started.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            // The descriptor is a network namespace and we were allowed to make it.
            self.enter().expect("a namespace of ours can be entered");
            work()
        };
        let done = thread::scope(|scope| scope.spawn(inside).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Moves the calling thread into this namespace for the rest of its life.
    ///
    /// # Errors
    ///
    /// Without the capability `CAP_SYS_ADMIN`.
    pub fn enter(&self) -> io::Result<()> {
        set_namespace(self.file.as_raw_fd())
    }

    /// A command that will run in this namespace, started from whatever thread.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let file = Arc::clone(&self.file);
        // SAFETY: the closure runs between fork and exec and makes one
        // async-signal-safe system call; the descriptor, which it owns, is in the child
        // until exec closes it.
        unsafe { command.pre_exec(move || set_namespace(file.as_raw_fd())) };
        command
    }

    /// Runs `ip` (iproute2) with these lines, a command each, in this namespace.
    ///
    /// # Errors
    ///
    /// When `ip` is missing or refuses a line; the error has its words.
    pub fn ip(&self, lines: &str) -> Result<()> {
        let mut command = self.command("ip");
        command.args(["-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().context("cannot start `ip`; install iproute2 (Debian: `iproute2`)")?;
        // Dropped at the end of the statement, which ends the input.
        child.stdin.take().context("`ip` has no input")?.write_all(lines.as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            bail!("`ip` failed in namespace `{}`: {}\n{lines}", self.name, words.trim());
        }
        Ok(())
    }

    /// Sets a kernel setting of this namespace, for example `net.ipv4.ip_forward`.
    ///
    /// # Errors
    ///
    /// When the kernel has no such setting, keeps it out of namespaces, or refuses the
    /// value.
    pub fn set(&self, setting: &str, value: &str) -> Result<()> {
        let file = format!("/proc/sys/{}", setting.replace('.', "/"));
        self.run(|| fs::write(&file, value))
            .with_context(|| format!("cannot set {setting} = {value} in `{}`", self.name))
    }

    /// A path by which other programs can name this namespace while this process lives:
    /// `nsenter --net=PATH` looks around in it.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// Moves the calling thread into a new namespace and returns its descriptor.
fn unshared() -> io::Result<File> {
    // SAFETY: the call takes no pointer and affects the calling thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    File::open("/proc/thread-self/ns/net")
}

fn set_namespace(file: RawFd) -> io::Result<()> {
    // SAFETY: the call takes no pointer and affects the calling thread alone.
    match unsafe { libc::setns(file, libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces() -> String {
        fs::read_to_string("/proc/thread-self/net/dev").unwrap()
    }

    #[test]
    fn a_namespace_has_its_own_loopback_and_nothing_else() {
        if !Namespace::can_be_made() {
            return;
        }
        let namespace = Namespace::new("alone").unwrap();
        let seen = namespace.run(interfaces);
        let names: Vec<_> = seen.lines().filter_map(|line| line.split_once(':')).collect();
        // Some kernels put tunnels into every namespace, down.
        assert!(names.iter().any(|(name, _)| name.trim() == "lo"), "{seen}");
        assert!(!names.iter().any(|(name, _)| name.trim() == "eth0"), "{seen}");
        let output = namespace.command("cat").arg("/proc/self/net/dev").output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), seen.lines().count());
        // A port that is taken in one is free in another.
        let taken = namespace.run(|| std::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let other = Namespace::new("other").unwrap();
        other.run(|| std::net::TcpListener::bind(taken.local_addr().unwrap())).unwrap();
    }

    #[test]
    fn a_namespace_ends_with_its_last_user() {
        if !Namespace::can_be_made() {
            return;
        }
        let namespace = Namespace::new("short").unwrap();
        let path = namespace.path();
        assert!(fs::read_link(&path).unwrap().to_string_lossy().starts_with("net:["));
        drop(namespace);
        assert!(
            !fs::read_link(&path).is_ok_and(|link| link.to_string_lossy().starts_with("net:["))
        );
    }

    #[test]
    fn a_refused_line_is_reported_with_its_words_and_place() {
        if !Namespace::can_be_made() {
            return;
        }
        let namespace = Namespace::new("strict").unwrap();
        let error = namespace.ip("link set nothing up").unwrap_err().to_string();
        assert!(error.contains("strict") && error.contains("nothing"), "{error}");
        let error = format!("{:#}", namespace.set("net.ipv4.no_such", "1").unwrap_err());
        assert!(error.contains("net.ipv4.no_such = 1 in `strict`"), "{error}");
    }
}
