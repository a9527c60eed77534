//! A set of slots, one bit each.
//!
//! A slot is an endpoint's place in the pool's columns. Slots are small and dense, so a
//! set of them is a few words and asking it costs a shift.

/// A growing set of slots.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct SlotSet {
    words: Vec<u64>,
}

impl SlotSet {
    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    pub(crate) fn insert(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (slot % 64);
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        if let Some(word) = self.words.get_mut(slot as usize / 64) {
            *word &= !(1 << (slot % 64));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn behaves_like_a_hash_set(steps in prop::collection::vec((any::<bool>(), 0_u32..300), 0..200)) {
            let mut ours = SlotSet::default();
            let mut reference = HashSet::new();
            for (insert, slot) in steps {
                if insert {
                    ours.insert(slot);
                    reference.insert(slot);
                } else {
                    ours.remove(slot);
                    reference.remove(&slot);
                }
                prop_assert_eq!(ours.is_empty(), reference.is_empty());
            }
            for slot in 0..400 {
                prop_assert_eq!(ours.contains(slot), reference.contains(&slot));
            }
        }
    }
}
