//! Which adapter is where.
//!
//! Adapter names are looked up once per request, not once per endpoint: the
//! table goes from a name to the set of slots. Two sources: the engine's page, which
//! tells adapters *in use* (an idle adapter vanishes from it although it is
//! loaded), and this gateway's own requests, remembered per endpoint up to the
//! number of adapters that the engine can hold.

use std::collections::{HashMap, VecDeque};

use super::slots::SlotSet;
use crate::signals::Adapters;

/// Adapters remembered for an endpoint that does not tell how many it holds.
const UNTOLD_CAPACITY: usize = 4;

/// Adapters by endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Residency {
    by_name: HashMap<String, Holders>,
    /// Per slot: adapters this gateway asked for, most recent last.
    asked: Vec<VecDeque<String>>,
}

/// Who holds one adapter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holders {
    /// Engine says it is running.
    pub(crate) running: SlotSet,
    /// Engine says requests wait for it.
    pub(crate) waiting: SlotSet,
    /// This gateway asked for it not long ago.
    pub(crate) asked: SlotSet,
}

impl Holders {
    /// Whether the adapter is probably loaded at `slot`.
    pub(crate) fn resident(&self, slot: u32) -> bool {
        self.running.contains(slot) || self.asked.contains(slot)
    }

    /// Whether the engine says that requests for the adapter run or wait at `slot`.
    pub(crate) fn in_use(&self, slot: u32) -> bool {
        self.running.contains(slot) || self.waiting.contains(slot)
    }

    fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && self.asked.is_empty()
    }
}

impl Residency {
    pub(crate) fn holders(&self, adapter: &str) -> Option<&Holders> {
        self.by_name.get(adapter)
    }

    /// Replaces what the engine at `slot` said by what it says now.
    pub(crate) fn observe(&mut self, slot: u32, old: Option<&Adapters>, new: Option<&Adapters>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            for name in &old.running {
                self.change(name, |holders| holders.running.remove(slot));
            }
            for name in &old.waiting {
                self.change(name, |holders| holders.waiting.remove(slot));
            }
        }
        if let Some(new) = new {
            for name in &new.running {
                self.by_name.entry(name.clone()).or_default().running.insert(slot);
            }
            for name in &new.waiting {
                self.by_name.entry(name.clone()).or_default().waiting.insert(slot);
            }
        }
    }

    /// Remembers that a request for `adapter` went to `slot`, which holds `max`
    /// adapters at once if it tells.
    pub(crate) fn ask(&mut self, slot: u32, adapter: &str, max: Option<u32>) {
        let at = slot as usize;
        if at >= self.asked.len() {
            self.asked.resize_with(at + 1, VecDeque::new);
        }
        let asked = &mut self.asked[at];
        if asked.back().is_some_and(|last| last == adapter) {
            return;
        }
        let capacity = max.map_or(UNTOLD_CAPACITY, |max| max.clamp(1, 256) as usize);
        let known = asked.iter().position(|name| name == adapter);
        let name =
            known.and_then(|position| asked.remove(position)).unwrap_or_else(|| adapter.to_owned());
        asked.push_back(name);
        let mut gone = Vec::new();
        while asked.len() > capacity {
            gone.extend(asked.pop_front());
        }
        if known.is_none() {
            self.by_name.entry(adapter.to_owned()).or_default().asked.insert(slot);
        }
        for name in gone {
            self.change(&name, |holders| holders.asked.remove(slot));
        }
    }

    /// Forgets everything about `slot`; `last` is what its engine said last.
    pub(crate) fn forget(&mut self, slot: u32, last: Option<&Adapters>) {
        self.observe(slot, last, None);
        let asked = self.asked.get_mut(slot as usize).map(std::mem::take);
        for name in asked.unwrap_or_default() {
            self.change(&name, |holders| holders.asked.remove(slot));
        }
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Holders)) {
        if let Some(holders) = self.by_name.get_mut(name) {
            change(holders);
            if holders.is_empty() {
                self.by_name.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(names: &[&str]) -> Adapters {
        Adapters {
            max: 2,
            running: names.iter().map(ToString::to_string).collect(),
            waiting: Vec::new(),
        }
    }

    #[test]
    fn a_reading_replaces_the_one_before() {
        let mut residency = Residency::default();
        let (first, second) = (running(&["a", "b"]), running(&["b"]));
        residency.observe(7, None, Some(&first));
        residency.observe(7, Some(&first), Some(&second));
        assert!(residency.holders("a").is_none());
        assert!(residency.holders("b").unwrap().resident(7));
    }

    #[test]
    fn an_adapter_asked_for_stays_resident_while_idle() {
        let mut residency = Residency::default();
        residency.ask(3, "a", Some(2));
        residency.observe(3, None, Some(&running(&[])));
        assert!(residency.holders("a").unwrap().resident(3));
    }

    #[test]
    fn no_more_adapters_are_remembered_than_the_engine_holds() {
        let mut residency = Residency::default();
        for name in ["a", "b", "a", "c"] {
            residency.ask(0, name, Some(2));
        }
        assert!(residency.holders("b").is_none());
        assert!(residency.holders("a").unwrap().resident(0));
        assert!(residency.holders("c").unwrap().resident(0));
    }

    #[test]
    fn nothing_is_left_of_a_forgotten_slot() {
        let mut residency = Residency::default();
        let said = running(&["a"]);
        residency.observe(1, None, Some(&said));
        residency.ask(1, "z", None);
        residency.forget(1, Some(&said));
        assert!(residency.by_name.is_empty());
    }
}
