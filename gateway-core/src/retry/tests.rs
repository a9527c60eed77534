use std::time::Duration;

use super::*;
use crate::Time;

fn failed(number: u32, fault: Fault) -> Attempt {
    Attempt { number, fault, replay: Replay::Whole, answered: Answered::Nothing }
}

fn decide(settings: &RetrySettings, attempt: &Attempt) -> Decision {
    settings.decide(attempt, &mut RetryBudget::new(settings.budget), Time::ZERO, 0.0)
}

#[test]
fn quick_failures_are_retried_at_once() {
    let settings = RetrySettings::default();
    for fault in [Fault::Connect, Fault::Closed, Fault::Status(502), Fault::Status(503)] {
        let decision = decide(&settings, &failed(1, fault));
        assert_eq!(decision, Decision::Retry { after: Duration::ZERO }, "{fault:?}");
    }
}

#[test]
fn slow_failures_are_not_retried() {
    let decision = decide(&RetrySettings::default(), &failed(1, Fault::Timeout));
    assert_eq!(decision, Decision::GiveUp(Reason::NotRetryable));
}

#[test]
fn a_client_error_is_not_retried_even_when_listed() {
    let settings = RetrySettings { on_status: vec![400, 429, 500], ..RetrySettings::default() };
    for status in [400, 404, 429, 501] {
        let decision = decide(&settings, &failed(1, Fault::Status(status)));
        assert_eq!(decision, Decision::GiveUp(Reason::NotRetryable), "{status}");
    }
    assert!(matches!(decide(&settings, &failed(1, Fault::Status(500))), Decision::Retry { .. }));
}

#[test]
fn an_engines_own_error_is_passed_on() {
    let decision = decide(&RetrySettings::default(), &failed(1, Fault::Status(500)));
    assert_eq!(decision, Decision::GiveUp(Reason::NotRetryable));
}

#[test]
fn nothing_is_retried_once_the_client_has_a_byte() {
    let attempt = Attempt { answered: Answered::Begun, ..failed(1, Fault::Closed) };
    let decision = decide(&RetrySettings::default(), &attempt);
    assert_eq!(decision, Decision::GiveUp(Reason::AnswerBegun));
}

#[test]
fn the_cap_holds() {
    let settings = RetrySettings::default();
    assert!(matches!(decide(&settings, &failed(2, Fault::Connect)), Decision::Retry { .. }));
    let decision = decide(&settings, &failed(3, Fault::Connect));
    assert_eq!(decision, Decision::GiveUp(Reason::NoAttemptsLeft));
    let off = RetrySettings { retries: 0, ..settings };
    let decision = decide(&off, &failed(1, Fault::Connect));
    assert_eq!(decision, Decision::GiveUp(Reason::NoAttemptsLeft));
}

#[test]
fn a_body_that_is_gone_is_not_sent_again() {
    let settings = RetrySettings::default();
    for fault in [Fault::Connect, Fault::Closed] {
        let attempt = Attempt { replay: Replay::Impossible, ..failed(1, fault) };
        assert_eq!(decide(&settings, &attempt), Decision::GiveUp(Reason::NotReplayable));
    }
}

#[test]
fn what_must_not_run_twice_is_repeated_only_if_it_was_never_sent() {
    let settings = RetrySettings::default();
    let unstarted = |fault| Attempt { replay: Replay::Unstarted, ..failed(1, fault) };
    assert!(matches!(decide(&settings, &unstarted(Fault::Connect)), Decision::Retry { .. }));
    let decision = decide(&settings, &unstarted(Fault::Closed));
    assert_eq!(decision, Decision::GiveUp(Reason::NotReplayable));
}

#[test]
fn a_spent_budget_ends_it_and_an_objection_costs_nothing() {
    let settings = RetrySettings {
        budget: BudgetSettings { percent: 0, min_per_second: 1 },
        ..RetrySettings::default()
    };
    let mut budget = RetryBudget::new(settings.budget);
    for _ in 0..100 {
        let timeout = failed(1, Fault::Timeout);
        let decision = settings.decide(&timeout, &mut budget, Time::ZERO, 0.5);
        assert_eq!(decision, Decision::GiveUp(Reason::NotRetryable));
    }
    let mut decide = || settings.decide(&failed(1, Fault::Connect), &mut budget, Time::ZERO, 0.5);
    for _ in 0..10 {
        assert!(matches!(decide(), Decision::Retry { .. }));
    }
    assert_eq!(decide(), Decision::GiveUp(Reason::BudgetSpent));
}

#[test]
fn pauses_double_with_jitter_up_to_a_bound() {
    assert_eq!(pause(1, 1.0), Duration::ZERO);
    assert_eq!(pause(2, 0.0), Duration::from_micros(12_500));
    assert_eq!(pause(2, 1.0), Duration::from_millis(25));
    assert_eq!(pause(3, 1.0), Duration::from_millis(50));
    assert_eq!(pause(u32::MAX, 1.0), MAX_PAUSE);
}
