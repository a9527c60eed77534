//! Processes in a namespace: the test program itself, told to run one "test" that is a
//! daemon or an engine. So no other program has to be built, and it dies with the test.

use std::io::{BufRead as _, BufReader, Lines};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};

use gateway_tests::net::Namespace;

/// What the process has to know.
const INPUT: &str = "GATEWAY_TEST_INPUT";
/// How the line begins in which it says where it listens.
const LISTENING: &str = "listening on ";

/// A running process; killed when dropped.
pub(crate) struct Process {
    child: Child,
    /// Where it listens.
    pub(crate) addr: SocketAddr,
    /// The process could not end well if nobody took its last words.
    _words: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this ignored test in the namespace, and waits until it listens.
    pub(crate) fn start(namespace: &Namespace, test: &str, input: &str) -> Self {
        let mut command = namespace.command(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--ignored", "--nocapture"]);
        command.env(INPUT, input).stdout(Stdio::piped());
        // SAFETY: the closure runs between fork and exec, makes one async-signal-safe
        // system call and touches no memory of the parent.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let mut child = command.spawn().unwrap();
        let mut words = BufReader::new(child.stdout.take().unwrap()).lines();
        let addr = words.find_map(|line| line.ok()?.strip_prefix(LISTENING)?.parse().ok());
        let addr = addr.unwrap_or_else(|| panic!("{test} ended before it listened"));
        Self { child, addr, _words: words }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.id()).unwrap();
        // SAFETY: no memory is involved. The child was not waited for, so that the number
        // is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Either fails only when the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the process: what it was given; `None` where somebody runs all ignored tests.
pub(crate) fn input() -> Option<String> {
    std::env::var(INPUT).ok()
}

/// In the process: says that it listens, on a line of its own, whatever the test runner has
/// printed of this one.
pub(crate) fn listening(addr: SocketAddr) {
    println!("\n{LISTENING}{addr}");
}
