//! Says whether a failed attempt may be repeated on another endpoint.
//!
//! A retry helps when one endpoint is broken and hurts when all are slow: it
//! then adds load to what is overloaded already. So only quick failures are
//! repeated, only while the client has seen nothing of the answer, and only within a
//! [`RetryBudget`], which bounds the extra load to a share of the real one however many
//! requests fail.

mod budget;

use std::time::Duration;

pub use budget::{BudgetSettings, RetryBudget};

/// What may be retried, and how often. `Default` is what a pool without
/// configuration gets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RetrySettings {
    /// Attempts beyond the first, per request; 0 turns retries off.
    pub retries: u32,
    /// Bound over all requests of the pool.
    pub budget: BudgetSettings,
    /// Whether a failed or refused connection is retried.
    pub on_connect: Retry,
    /// Whether a connection closed before the answer's first byte is retried.
    pub on_close: Retry,
    /// Statuses of an engine that are retried. Statuses of the client's own making (4xx)
    /// are never retried, listed or not.
    pub on_status: Vec<u16>,
}

/// Whether one kind of failure is retried.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Retry {
    /// Never.
    Off,
    /// Within the limits.
    #[default]
    On,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            retries: 2,
            budget: BudgetSettings::default(),
            on_connect: Retry::On,
            on_close: Retry::On,
            on_status: vec![502, 503],
        }
    }
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The connection closed, or broke, before the first byte of an answer.
    Closed,
    /// No connection could be made. Nothing was sent.
    Connect,
    /// What came back is not HTTP.
    Malformed,
    /// The engine answered with this status.
    Status(u16),
    /// The engine did not answer in time.
    Timeout,
}

/// Whether the request can be sent once more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Replay {
    /// Part of the body has been passed on and is no longer held.
    Impossible,
    /// All of the body is held, but running it twice would change something: only what
    /// an engine cannot have begun is repeated.
    Unstarted,
    /// All of the body is held, and running it twice costs only time.
    Whole,
}

/// Whether the client has been sent anything of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answered {
    /// At least one byte.
    Begun,
    /// Not one byte.
    Nothing,
}

/// A failed attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attempt {
    /// 1 for the first.
    pub number: u32,
    /// How it failed.
    pub fault: Fault,
    /// Whether the request can be sent once more.
    pub replay: Replay,
    /// Whether the client has been sent anything.
    pub answered: Answered,
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Decision {
    /// The failure is the answer.
    GiveUp(Reason),
    /// Try another endpoint after a pause.
    Retry {
        /// Zero for the first retry: it goes elsewhere, so waiting helps nobody.
        after: Duration,
    },
}

/// Why an attempt is not repeated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// The client has seen part of an answer.
    AnswerBegun,
    /// The pool's budget is spent.
    BudgetSpent,
    /// Failures of this kind are not retried.
    NotRetryable,
    /// The request cannot be sent again.
    NotReplayable,
    /// The request has had all its attempts.
    NoAttemptsLeft,
}

impl Reason {
    /// Stable name for metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AnswerBegun => "answer-begun",
            Self::BudgetSpent => "budget-spent",
            Self::NotRetryable => "not-retryable",
            Self::NotReplayable => "not-replayable",
            Self::NoAttemptsLeft => "no-attempts-left",
        }
    }
}

/// Pause before the second retry; doubles with each further one.
const BASE_PAUSE: Duration = Duration::from_millis(25);
/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_millis(250);

impl RetrySettings {
    /// Decides about one failed attempt. `jitter` is uniform in 0..1. Takes from
    /// `budget` only when the answer is to retry.
    pub fn decide(
        &self,
        attempt: &Attempt,
        budget: &mut RetryBudget,
        now: crate::Time,
        jitter: f64,
    ) -> Decision {
        if let Some(reason) = self.objection(attempt) {
            return Decision::GiveUp(reason);
        }
        if !budget.try_take(now) {
            return Decision::GiveUp(Reason::BudgetSpent);
        }
        Decision::Retry { after: pause(attempt.number, jitter) }
    }

    fn objection(&self, attempt: &Attempt) -> Option<Reason> {
        if attempt.answered == Answered::Begun {
            return Some(Reason::AnswerBegun);
        }
        if !self.retries_fault(attempt.fault) {
            return Some(Reason::NotRetryable);
        }
        if attempt.number > self.retries {
            return Some(Reason::NoAttemptsLeft);
        }
        let replayable = match attempt.replay {
            Replay::Impossible => false,
            Replay::Unstarted => attempt.fault == Fault::Connect,
            Replay::Whole => true,
        };
        (!replayable).then_some(Reason::NotReplayable)
    }

    /// Whether failures of this kind are retried at all. A timeout never is: the
    /// engine is slow, not broken, and may still be working on the request.
    #[must_use]
    pub fn retries_fault(&self, fault: Fault) -> bool {
        match fault {
            Fault::Closed | Fault::Malformed => self.on_close == Retry::On,
            Fault::Connect => self.on_connect == Retry::On,
            Fault::Status(status) => status >= 500 && self.on_status.contains(&status),
            Fault::Timeout => false,
        }
    }
}

/// The pause after the `failed`th attempt: none at first, then between half and all of
/// a step that doubles up to [`MAX_PAUSE`].
fn pause(failed: u32, jitter: f64) -> Duration {
    let Some(doublings) = failed.checked_sub(2) else { return Duration::ZERO };
    let step = BASE_PAUSE.saturating_mul(1 << doublings.min(8)).min(MAX_PAUSE);
    step.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
