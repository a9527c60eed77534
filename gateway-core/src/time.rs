//! Monotonic time as a value.
//!
//! `std::time::Instant` cannot be made up, and the routing lab makes time up. So
//! the core counts from an origin that the caller picks: the start of the daemon,
//! or of an experiment.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A moment: nanoseconds since the caller's origin.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(u64);

impl Time {
    /// The origin itself.
    pub const ZERO: Self = Self(0);

    /// The end of time.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `since_origin` after the origin; saturates after 584 years.
    #[must_use]
    pub fn from_origin(since_origin: Duration) -> Self {
        Self(u64::try_from(since_origin.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Time since the origin.
    #[must_use]
    pub const fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Seconds since the origin, to within a microsecond in a century. For decisions, which
    /// compare moments once per endpoint.
    #[inline]
    #[must_use]
    pub(crate) fn seconds(self) -> f64 {
        self.0 as f64 * 1e-9
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(Self::from_origin(rhs).0))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(Self::from_origin(rhs).0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_never_go_below_zero() {
        let early = Time::from_origin(Duration::from_secs(1));
        let late = early + Duration::from_millis(250);
        assert_eq!(late.since(early), Duration::from_millis(250));
        assert_eq!(early.since(late), Duration::ZERO);
        assert!((late.seconds() - 1.25).abs() < 1e-12);
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
    }
}
