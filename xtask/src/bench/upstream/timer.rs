//! A timer that a poll can wait for, to the microsecond.
//!
//! The time limit of `epoll_wait` counts milliseconds: ten streams' chunks would
//! leave together, and the latency of a chunk would be that of a burst.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

/// A one-shot kernel timer.
#[derive(Debug)]
pub(super) struct Timer {
    file: OwnedFd,
    armed: Option<Instant>,
}

impl Timer {
    /// Makes a timer that wakes `registry`'s poll with `token`.
    pub(super) fn register(registry: &Registry, token: Token) -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: the call takes no pointer.
        let file = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        registry.register(&mut SourceFd(&file.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { file, armed: None })
    }

    /// Wakes the poll at `due`, at once when that has passed.
    pub(super) fn arm(&mut self, due: Instant) -> io::Result<()> {
        if self.armed == Some(due) {
            return Ok(());
        }
        // A time of zero would disarm the timer.
        let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let value = libc::timespec {
            tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(left.subsec_nanos()),
        };
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = libc::itimerspec { it_interval: never, it_value: value };
        let file = self.file.as_raw_fd();
        // SAFETY: `setting` outlives the call, which only reads it; the old
        // setting is not asked for.
        match unsafe { libc::timerfd_settime(file, 0, &raw const setting, std::ptr::null_mut()) } {
            0 => self.armed = Some(due),
            _ => return Err(io::Error::last_os_error()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_poll_wakes_when_the_time_has_come_and_no_earlier() {
        let mut poll = mio::Poll::new().unwrap();
        let mut timer = Timer::register(poll.registry(), Token(7)).unwrap();
        let mut events = mio::Events::with_capacity(4);
        for wait in [Duration::from_micros(300), Duration::ZERO, Duration::from_micros(700)] {
            let due = Instant::now() + wait;
            timer.arm(due).unwrap();
            poll.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
            assert_eq!(events.iter().map(mio::event::Event::token).collect::<Vec<_>>(), [Token(7)]);
            assert!(Instant::now() >= due);
        }
    }
}
