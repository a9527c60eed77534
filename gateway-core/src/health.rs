//! Ejects endpoints that keep failing and lets them return.
//!
//! Passive health: the requests themselves are the probe. A number of failures
//! in a row takes the endpoint out for a time that doubles with each ejection.
//! It returns by itself; its failures in a row are *not* forgotten then, so that the
//! first failure after the return takes it out again, and one success clears
//! it. Growth is forgotten once the endpoint has stayed in for as long as it was
//! out. No jitter: the decision is a function of its inputs.

use std::time::Duration;

use crate::pool::{End, Failure};
use crate::time::Time;

/// When endpoints are ejected, and for how long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EjectionSettings {
    /// Failures in a row that eject; 0 never ejects.
    pub consecutive_failures: u32,
    /// Length of the first ejection; doubles with each further one.
    pub base: Duration,
    /// Longest ejection.
    pub max: Duration,
    /// Largest share of the pool that may be out at once, percent. At least one
    /// endpoint may always be.
    pub max_percent: u8,
}

impl Default for EjectionSettings {
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            base: Duration::from_secs(10),
            max: Duration::from_mins(5),
            max_percent: 50,
        }
    }
}

impl EjectionSettings {
    /// How many endpoints of a pool of `size` may be out at once.
    #[must_use]
    pub fn most_ejected(&self, size: usize) -> usize {
        (size * usize::from(self.max_percent.min(100)) / 100).max(1)
    }

    /// Length of the ejection that follows `before` earlier ones.
    #[must_use]
    pub fn duration(&self, before: u32) -> Duration {
        let factor = 1_u32.checked_shl(before).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.max)
    }
}

/// What an end says of the endpoint's health.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Symptom {
    /// It failed on its own account.
    Bad,
    /// It answered, be it with a refusal of the request.
    Good,
    /// Nothing can be learnt.
    None,
}

impl Symptom {
    /// Judges an end. A client error (4xx) shows a working endpoint, and so do 501
    /// and 505, which speak of the request.
    #[must_use]
    pub const fn of(end: End) -> Self {
        match end {
            End::Cancelled | End::NotSent => Self::None,
            End::Completed { .. } | End::Failed(Failure::Status(..=499 | 501 | 505)) => Self::Good,
            End::Failed(_) => Self::Bad,
        }
    }
}

/// Passive health of one endpoint.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Health {
    failures: u32,
    ejections: u32,
    until: Time,
    last: Duration,
}

impl Health {
    /// Failures in a row.
    #[must_use]
    pub const fn consecutive_failures(&self) -> u32 {
        self.failures
    }

    /// When the endpoint returns, if it is out at `now`.
    #[must_use]
    pub fn ejected(&self, now: Time) -> Option<Time> {
        (now < self.until).then_some(self.until)
    }

    /// Moment of the last return, past or to come; zero if never ejected.
    #[must_use]
    pub const fn until(&self) -> Time {
        self.until
    }

    /// Counts a failure at `now`; true when this is one too many and the
    /// endpoint should be [ejected](Self::eject). Failures that arrive while it is
    /// out are of requests sent before and do not prolong it.
    pub fn fail(&mut self, settings: &EjectionSettings, now: Time) -> bool {
        if self.ejected(now).is_some() {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        settings.consecutive_failures > 0 && self.failures >= settings.consecutive_failures
    }

    /// Takes the endpoint out from `now` on.
    pub fn eject(&mut self, settings: &EjectionSettings, now: Time) {
        self.last = settings.duration(self.ejections);
        self.ejections = self.ejections.saturating_add(1);
        self.until = now + self.last;
    }

    /// Counts a success at `now`. While the endpoint is out, successes are of
    /// requests sent before, and say nothing new.
    pub fn succeed(&mut self, now: Time) {
        if self.ejected(now).is_some() {
            return;
        }
        self.failures = 0;
        if now.since(self.until) >= self.last {
            self.ejections = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_origin(Duration::from_secs(seconds))
    }

    fn fail_until_ejected(health: &mut Health, settings: &EjectionSettings, now: Time) -> u32 {
        let mut count = 1;
        while !health.fail(settings, now) {
            count += 1;
        }
        health.eject(settings, now);
        count
    }

    #[test]
    fn five_failures_in_a_row_eject_for_ten_seconds() {
        let settings = EjectionSettings::default();
        let mut health = Health::default();
        assert_eq!(fail_until_ejected(&mut health, &settings, at(100)), 5);
        assert_eq!(health.ejected(at(109)), Some(at(110)));
        assert_eq!(health.ejected(at(110)), None);
    }

    #[test]
    fn a_success_between_failures_starts_the_count_again() {
        let settings = EjectionSettings::default();
        let mut health = Health::default();
        for _ in 0..4 {
            assert!(!health.fail(&settings, at(1)));
        }
        health.succeed(at(1));
        assert_eq!(fail_until_ejected(&mut health, &settings, at(1)), 5);
    }

    #[test]
    fn the_first_failure_after_the_return_ejects_for_twice_as_long() {
        let settings = EjectionSettings::default();
        let mut health = Health::default();
        fail_until_ejected(&mut health, &settings, at(0));
        assert_eq!(fail_until_ejected(&mut health, &settings, at(10)), 1);
        assert_eq!(health.ejected(at(10)), Some(at(30)));
    }

    #[test]
    fn failures_of_earlier_requests_do_not_prolong_an_ejection() {
        let settings = EjectionSettings::default();
        let mut health = Health::default();
        fail_until_ejected(&mut health, &settings, at(0));
        for _ in 0..100 {
            assert!(!health.fail(&settings, at(9)));
        }
        assert_eq!(health.ejected(at(9)), Some(at(10)));
    }

    #[test]
    fn growth_is_forgotten_after_staying_in_as_long_as_out() {
        let settings = EjectionSettings::default();
        let mut health = Health::default();
        fail_until_ejected(&mut health, &settings, at(0));
        fail_until_ejected(&mut health, &settings, at(10)); // out 10..30
        health.succeed(at(49));
        fail_until_ejected(&mut health, &settings, at(49)); // too early: 40 s
        assert_eq!(health.until(), at(89));
        health.succeed(at(129));
        fail_until_ejected(&mut health, &settings, at(129));
        assert_eq!(health.until(), at(139));
    }

    #[test]
    fn ejections_grow_to_the_maximum_and_never_overflow() {
        let settings = EjectionSettings::default();
        assert_eq!(settings.duration(0), Duration::from_secs(10));
        assert_eq!(settings.duration(3), Duration::from_secs(80));
        assert_eq!(settings.duration(5), Duration::from_mins(5));
        assert_eq!(settings.duration(u32::MAX), Duration::from_mins(5));
    }

    #[test]
    fn at_least_one_endpoint_may_be_out() {
        let settings = EjectionSettings::default();
        assert_eq!(settings.most_ejected(1), 1);
        assert_eq!(settings.most_ejected(3), 1);
        assert_eq!(settings.most_ejected(9), 4);
        let none = EjectionSettings { max_percent: 0, ..settings };
        assert_eq!(none.most_ejected(100), 1);
    }

    #[test]
    fn client_errors_and_client_departures_are_no_failures() {
        for status in [400, 404, 413, 422, 429, 499, 501] {
            assert_eq!(Symptom::of(End::Failed(Failure::Status(status))), Symptom::Good);
        }
        for status in [500, 502, 503, 504] {
            assert_eq!(Symptom::of(End::Failed(Failure::Status(status))), Symptom::Bad);
        }
        assert_eq!(Symptom::of(End::Cancelled), Symptom::None);
        assert_eq!(Symptom::of(End::NotSent), Symptom::None);
        assert_eq!(Symptom::of(End::Failed(Failure::Connect)), Symptom::Bad);
        assert_eq!(Symptom::of(End::Failed(Failure::Reset)), Symptom::Bad);
        assert_eq!(Symptom::of(End::Failed(Failure::Timeout)), Symptom::Bad);
    }
}
