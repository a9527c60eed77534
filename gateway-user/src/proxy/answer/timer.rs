//! How long an engine may be silent, and how long a request may take.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::AnswerError;

/// Silence and deadline in one timer that costs nothing per chunk but a look at
/// the clock: it is set again only when it fires too early.
#[derive(Debug)]
pub(super) struct Timer {
    idle: Duration,
    deadline: Instant,
    allowed: Duration,
    last: Instant,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    pub(super) fn new(idle: Duration, (deadline, allowed): (Instant, Duration)) -> Self {
        Self { idle, deadline, allowed, last: Instant::now(), sleep: None }
    }

    /// Something came.
    pub(super) fn touch(&mut self) {
        self.last = Instant::now();
    }

    fn due(&self) -> Instant {
        self.deadline.min(self.last + self.idle)
    }

    /// Ready when the silence or the whole request has lasted too long.
    pub(super) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<AnswerError> {
        // An answer is polled by one task all its life, so a timer that waits has
        // nothing new to register.
        if self.sleep.as_ref().is_some_and(|sleep| !sleep.is_elapsed()) {
            return Poll::Pending;
        }
        loop {
            let now = Instant::now();
            if now >= self.deadline {
                return Poll::Ready(AnswerError::Deadline(self.allowed));
            }
            if now >= self.last + self.idle {
                return Poll::Ready(AnswerError::Idle(self.idle));
            }
            let due = self.due();
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            sleep.as_mut().reset(due);
            ready!(sleep.as_mut().poll(cx));
        }
    }
}
