//! Shows that the demo is alive: one line that changes on a terminal, a line now and
//! then elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use super::load::Outcome;
use super::plan::Plan;

/// Shows how far a run is.
#[derive(Debug)]
pub(super) struct Progress {
    policy: String,
    total: usize,
    screen: Screen,
}

#[derive(Clone, Copy, Debug)]
enum Screen {
    Terminal,
    Log,
}

impl Progress {
    pub(super) fn new(policy: &str, plan: &Plan) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let screen = if terminal { Screen::Terminal } else { Screen::Log };
        Self { policy: policy.to_owned(), total: plan.arrivals.len(), screen }
    }

    /// How often to show it.
    pub(super) fn interval(&self) -> Duration {
        match self.screen {
            Screen::Terminal => Duration::from_millis(250),
            Screen::Log => Duration::from_secs(5),
        }
    }

    /// Shows the state after `elapsed`, with `waiting` requests unanswered.
    pub(super) fn show(&self, elapsed: Duration, outcome: &Outcome, waiting: usize) {
        let line = format!(
            "{:<12} {:>3} s  {} of {} sent, {waiting} in flight, {} failed",
            self.policy,
            elapsed.as_secs(),
            waiting + outcome.answers.len() + outcome.failures.len(),
            self.total,
            outcome.failures.len()
        );
        match self.screen {
            Screen::Terminal => {
                print!("\r\x1b[K{line}");
                // A terminal that is gone need not see it.
                let _ = std::io::stdout().flush();
            }
            Screen::Log => println!("{line}"),
        }
    }

    /// Shows the end, and the first failure if there was one.
    pub(super) fn finish(&self, outcome: &Outcome) {
        self.show(outcome.elapsed, outcome, 0);
        if let Screen::Terminal = self.screen {
            println!();
        }
        if let Some(first) = outcome.failures.first() {
            println!("first failure: {first}");
        }
    }
}
