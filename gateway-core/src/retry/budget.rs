//! Bounds retries to a share of the requests.
//!
//! A window of the last seconds, counted by the second. A count is exact where a
//! token bucket would need a guess at the burst it may hold: with every retry taken,
//! the retries in the window are at most the share of its requests plus the floor.

use std::time::Duration;

use crate::Time;

/// How many retries a pool may make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BudgetSettings {
    /// Retries per hundred requests.
    pub percent: u32,
    /// Retries per second that are always allowed, so that a pool with little
    /// traffic can retry at all.
    pub min_per_second: u32,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self { percent: 20, min_per_second: 3 }
    }
}

/// Seconds in the window.
const WINDOW: usize = 10;

/// Retries a pool has left. One per pool.
#[derive(Clone, Debug)]
pub struct RetryBudget {
    settings: BudgetSettings,
    slots: [Slot; WINDOW],
    /// The second that the newest slot counts.
    second: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    requests: u64,
    retries: u64,
}

impl RetryBudget {
    /// A budget with an empty window.
    #[must_use]
    pub fn new(settings: BudgetSettings) -> Self {
        Self { settings, slots: [Slot::default(); WINDOW], second: 0 }
    }

    /// Changes the bounds and keeps what was counted.
    pub fn reconfigure(&mut self, settings: BudgetSettings) {
        self.settings = settings;
    }

    /// Counts a request. Its retries do not count as requests.
    pub fn request(&mut self, now: Time) {
        self.slot(now).requests += 1;
    }

    /// Takes one retry, if there is one left.
    #[must_use = "without a retry taken, none may be made"]
    pub fn try_take(&mut self, now: Time) -> bool {
        if self.left(now) == 0 {
            return false;
        }
        self.slot(now).retries += 1;
        true
    }

    /// Retries left.
    pub fn left(&mut self, now: Time) -> u64 {
        self.slot(now);
        let (requests, retries) =
            self.slots.iter().fold((0, 0), |(a, b), slot| (a + slot.requests, b + slot.retries));
        let floor = u64::from(self.settings.min_per_second) * WINDOW as u64;
        let share = requests.saturating_mul(u64::from(self.settings.percent)) / 100;
        (floor + share).saturating_sub(retries)
    }

    /// The slot of this second; forgets what has left the window.
    fn slot(&mut self, now: Time) -> &mut Slot {
        // Time that goes back is counted in the newest second.
        let second = now.since_origin().as_secs().max(self.second);
        let passed = (second - self.second).min(WINDOW as u64);
        for step in 1..=passed {
            let gone = (second - passed + step) as usize % WINDOW;
            self.slots[gone] = Slot::default();
        }
        self.second = second;
        &mut self.slots[second as usize % WINDOW]
    }

    /// Length of the window.
    #[must_use]
    pub const fn window() -> Duration {
        Duration::from_secs(WINDOW as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Time {
        Time::from_origin(Duration::from_millis(millis))
    }

    #[test]
    fn a_quiet_pool_may_retry_up_to_the_floor() {
        let mut budget = RetryBudget::new(BudgetSettings { percent: 20, min_per_second: 1 });
        let taken = (0..50).filter(|_| budget.try_take(at(5_000))).count();
        assert_eq!(taken, 10);
        assert!(!budget.try_take(at(14_999)));
        assert!(budget.try_take(at(15_000)));
    }

    #[test]
    fn twenty_percent_of_a_thousand_requests_are_two_hundred() {
        let mut budget = RetryBudget::new(BudgetSettings { percent: 20, min_per_second: 0 });
        for request in 0..1_000 {
            budget.request(at(request * 9));
        }
        assert_eq!((0..1_000).filter(|_| budget.try_take(at(9_000))).count(), 200);
    }

    #[test]
    fn without_share_and_floor_nothing_is_retried() {
        let mut budget = RetryBudget::new(BudgetSettings { percent: 0, min_per_second: 0 });
        budget.request(at(0));
        assert!(!budget.try_take(at(0)));
    }

    #[test]
    fn old_requests_buy_nothing() {
        let mut budget = RetryBudget::new(BudgetSettings { percent: 100, min_per_second: 0 });
        budget.request(at(0));
        assert_eq!(budget.left(at(9_999)), 1);
        assert_eq!(budget.left(at(10_000)), 0);
        assert_eq!(budget.left(at(1_000_000_000)), 0);
    }

    proptest! {
        #[test]
        fn retries_never_exceed_the_share(
            steps in prop::collection::vec((0_u64..700, any::<bool>()), 1..400),
            percent in 0_u32..100,
            floor in 0_u32..4,
        ) {
            let mut budget = RetryBudget::new(BudgetSettings { percent, min_per_second: floor });
            let (mut now, mut events) = (0, Vec::new());
            for (pause, retry) in steps {
                now += pause;
                let took = retry && budget.try_take(at(now));
                if !retry {
                    budget.request(at(now));
                }
                events.push((now, u64::from(took), u64::from(!retry)));
                let from = (now / 1000 + 1).saturating_sub(WINDOW as u64) * 1000;
                let (retries, requests) = events.iter().filter(|event| event.0 >= from)
                    .fold((0, 0), |sum, event| (sum.0 + event.1, sum.1 + event.2));
                let allowed = requests * u64::from(percent) / 100 + u64::from(floor) * 10;
                prop_assert!(!took || retries <= allowed);
                prop_assert_eq!(budget.left(at(now)), allowed.saturating_sub(retries));
            }
        }
    }
}
