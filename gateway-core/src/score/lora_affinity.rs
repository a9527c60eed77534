//! `lora-affinity-scorer`: prefers endpoints that have the adapter.
//!
//! 1.0 when the adapter is running there; else 0.8 when a slot is free
//! (`|running| + |waiting| < max`); else 0.6 when requests wait for it there; else
//! 0.0. A request for the base model is at home everywhere.

use super::NEUTRAL;
use crate::pool::row::AdapterSlots;

pub(crate) const NAME: &str = "lora-affinity-scorer";

/// Where the adapter stands at an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    Absent,
    Running,
    Waiting,
}

/// Rates an endpoint; `slots` is `None` when it does not tell its adapters.
pub(crate) fn score(standing: Standing, slots: Option<AdapterSlots>) -> f64 {
    match (standing, slots) {
        (Standing::Running, _) => 1.0,
        (_, None) => NEUTRAL,
        (_, Some(slots)) if slots.active < slots.max => 0.8,
        (Standing::Waiting, _) => 0.6,
        (Standing::Absent, _) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Option<AdapterSlots> = Some(AdapterSlots { max: 2, active: 2 });
    const FREE: Option<AdapterSlots> = Some(AdapterSlots { max: 2, active: 1 });

    #[test]
    fn tiers_are_those_of_the_extension() {
        assert_eq!(score(Standing::Running, FULL), 1.0);
        assert_eq!(score(Standing::Absent, FREE), 0.8);
        assert_eq!(score(Standing::Waiting, FREE), 0.8);
        assert_eq!(score(Standing::Waiting, FULL), 0.6);
        assert_eq!(score(Standing::Absent, FULL), 0.0);
    }

    #[test]
    fn an_engine_that_does_not_tell_its_adapters_is_neutral() {
        assert_eq!(score(Standing::Absent, None), 0.5);
    }
}
