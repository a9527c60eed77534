//! Which adapters endpoints say they serve, loaded in a slot or not.
//!
//! An engine lists an adapter as soon as it may be asked for, and refuses what it does
//! not list. That is another matter than [`residency`](super::residency), which tells where
//! an answer starts sooner. An endpoint that has not told its adapters may have any.

use std::collections::HashMap;
use std::sync::Arc;

use super::slots::SlotSet;

/// Adapters by endpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Listings {
    by_name: HashMap<Arc<str>, SlotSet>,
    /// Slots whose endpoint has told its adapters.
    told: SlotSet,
    /// Per slot, what it told.
    names: Vec<Vec<Arc<str>>>,
}

/// Who can serve one adapter that at least one endpoint lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed<'a> {
    holders: &'a SlotSet,
    told: &'a SlotSet,
}

impl Listings {
    /// Replaces what the endpoint at `slot` told.
    pub(super) fn set(&mut self, slot: u32, names: &[Arc<str>]) {
        self.forget(slot);
        self.told.insert(slot);
        for name in names {
            self.by_name.entry(Arc::clone(name)).or_default().insert(slot);
        }
        let at = slot as usize;
        if at >= self.names.len() {
            self.names.resize_with(at + 1, Vec::new);
        }
        self.names[at] = names.to_vec();
    }

    /// Takes the endpoint at `slot` as one that has told nothing.
    pub(super) fn forget(&mut self, slot: u32) {
        self.told.remove(slot);
        for name in self.names.get_mut(slot as usize).map(std::mem::take).unwrap_or_default() {
            if let Some(holders) = self.by_name.get_mut(&name) {
                holders.remove(slot);
                if holders.is_empty() {
                    self.by_name.remove(&name);
                }
            }
        }
    }

    /// Who lists `adapter`; `None` when nobody does, and nobody can be told apart.
    pub(super) fn of(&self, adapter: &str) -> Option<Listed<'_>> {
        let holders = self.by_name.get(adapter)?;
        Some(Listed { holders, told: &self.told })
    }
}

impl Listed<'_> {
    /// Whether the endpoint at `slot` is known not to have the adapter.
    pub(super) fn lacks(self, slot: u32) -> bool {
        self.told.contains(slot) && !self.holders.contains(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn a_list_replaces_the_one_before() {
        let mut listings = Listings::default();
        listings.set(0, &names(&["a", "b"]));
        listings.set(70, &names(&["b"]));
        listings.set(0, &names(&["a"]));
        assert!(listings.of("b").unwrap().lacks(0));
        assert!(!listings.of("b").unwrap().lacks(70));
        assert!(listings.of("a").unwrap().lacks(70));
    }

    #[test]
    fn who_has_told_nothing_lacks_nothing() {
        let mut listings = Listings::default();
        listings.set(0, &names(&["a"]));
        listings.set(1, &[]);
        let listed = listings.of("a").unwrap();
        assert_eq!([0, 1, 2].map(|slot| listed.lacks(slot)), [false, true, false]);
    }

    #[test]
    fn nothing_is_left_of_a_forgotten_slot() {
        let mut listings = Listings::default();
        listings.set(3, &names(&["a"]));
        listings.forget(3);
        assert!(listings.of("a").is_none() && listings.by_name.is_empty());
        assert!(listings.told.is_empty());
    }
}
