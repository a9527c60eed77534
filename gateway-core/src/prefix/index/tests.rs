//! Tests of the index, against a plain model and on the faults seen elsewhere.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

/// A chain: hashes of `family`'s prompt; different families share nothing.
fn chain(family: u64, blocks: u64) -> Vec<u64> {
    (0..blocks).map(|block| family << 32 | (block + 1)).collect()
}

/// The prompt of `family` up to `shared`, then a tail of its own.
fn branch(family: u64, shared: u64, tail: u64, blocks: u64) -> Vec<u64> {
    let mut hashes = chain(family, shared);
    hashes.extend(chain(1_000 + tail, blocks));
    hashes
}

fn matched(index: &Index, blocks: &[u64], slots: usize) -> Vec<u32> {
    let mut out = vec![9; slots];
    index.matches(blocks, &mut out);
    out
}

#[test]
fn the_longest_consecutive_prefix_counts() {
    let mut index = Index::new(1000);
    index.insert(0, &chain(1, 10));
    index.insert(1, &chain(1, 4));
    index.insert(2, &branch(1, 6, 7, 5));
    assert_eq!(matched(&index, &chain(1, 10), 4), [10, 4, 6, 0]);
    assert_eq!(matched(&index, &branch(1, 6, 7, 5), 4), [6, 4, 11, 0]);
    assert_eq!(matched(&index, &branch(1, 5, 8, 3), 4), [5, 4, 5, 0]);
    assert_eq!(matched(&index, &chain(2, 10), 4), [0, 0, 0, 0]);
}

#[test]
fn inserting_twice_changes_nothing() {
    let mut index = Index::new(1000);
    index.insert(0, &chain(1, 10));
    let (held, runs) = (index.held(0), index.runs());
    for _ in 0..100 {
        index.insert(0, &chain(1, 10));
    }
    assert_eq!(matched(&index, &chain(1, 10), 1), [10]);
    assert_eq!((index.held(0), index.runs()), (held, runs));
}

#[test]
fn a_short_prompt_helps_a_longer_one_later() {
    let mut index = Index::new(1000);
    index.insert(0, &chain(1, 1));
    assert_eq!(matched(&index, &chain(1, 256), 1), [1]);
}

#[test]
fn a_forgotten_endpoint_holds_nothing_and_others_keep_theirs() {
    let mut index = Index::new(1000);
    index.insert(0, &chain(1, 10));
    index.insert(1, &chain(1, 10));
    index.forget(0);
    assert_eq!(matched(&index, &chain(1, 10), 2), [0, 10]);
    assert_eq!(index.held(0), 0);
    index.insert(0, &chain(1, 3));
    assert_eq!(matched(&index, &chain(1, 10), 2), [3, 10]);
}

#[test]
fn a_conversation_at_one_endpoint_stays_one_run() {
    let mut index = Index::new(10_000);
    for turn in 1..=50 {
        index.insert(0, &chain(1, turn * 4));
    }
    assert_eq!(index.runs(), 1);
    assert_eq!(matched(&index, &chain(1, 200), 1), [200]);
}

#[test]
fn the_capacity_holds_and_what_is_in_use_stays() {
    let mut index = Index::new(1600);
    for family in 0..1000 {
        index.insert(0, &chain(1, 50));
        index.insert(0, &chain(100 + family, 40));
        assert!(index.held(0) <= 1600, "{}", index.held(0));
    }
    assert_eq!(matched(&index, &chain(1, 50), 1), [50]);
    assert_eq!(matched(&index, &chain(100 + 999, 40), 1), [40]);
    assert_eq!(matched(&index, &chain(100, 40), 1), [0]);
    assert!(index.held(0) > 1400, "wasteful: {}", index.held(0));
}

#[test]
fn unique_prompts_for_a_day_do_not_grow_memory() {
    let mut index = Index::new(3200);
    let mut plateau = 0;
    for family in 0..50_000_u64 {
        index.insert((family % 8) as u32, &chain(family, 16));
        if family == 5_000 {
            plateau = index.runs.len();
        }
    }
    // 8 × 3200 blocks are 1,600 runs of 16.
    assert!(plateau <= 2 * 1600, "{plateau}");
    assert!(index.runs.len() <= plateau + plateau / 8, "{} after {plateau}", index.runs.len());
    assert!(index.starts.len() <= index.runs.len());
}

#[test]
fn memory_returns_after_all_endpoints_left() {
    let mut index = Index::new(100_000);
    for family in 0..1000 {
        index.insert(0, &chain(family, 16));
    }
    index.forget(0);
    for _ in 0..1000 {
        index.insert(1, &chain(1, 16));
    }
    assert_eq!(index.runs(), 1);
}

#[test]
fn a_prompt_longer_than_the_capacity_is_remembered_as_far_as_it_goes() {
    let mut index = Index::new(10);
    index.insert(0, &chain(1, 256));
    assert_eq!(matched(&index, &chain(1, 256), 1), [10]);
}

/// What the index must do, without bound on memory.
#[derive(Default)]
struct Model {
    held: HashMap<u32, HashSet<u64>>,
}

impl Model {
    fn matched(&self, slot: u32, blocks: &[u64]) -> u32 {
        let held = self.held.get(&slot);
        blocks.iter().take_while(|hash| held.is_some_and(|held| held.contains(hash))).count() as u32
    }
}

/// Chained hashes of a random walk in a small tree, so that prompts share much.
fn prompt() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0_u64..3, 1..12).prop_map(|steps| {
        let mut parent = 17_u64;
        steps
            .into_iter()
            .map(|step| {
                parent = parent.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step + 1);
                parent
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn agrees_with_a_plain_model(steps in prop::collection::vec((0_u32..5, prompt(), 0_u8..20), 1..120)) {
        let mut index = Index::new(1_000_000);
        let mut model = Model::default();
        for (slot, blocks, forget) in steps {
            if forget == 0 {
                index.forget(slot);
                model.held.remove(&slot);
            } else {
                index.insert(slot, &blocks);
                model.held.entry(slot).or_default().extend(&blocks);
            }
            let found = matched(&index, &blocks, 5);
            for slot in 0..5 {
                prop_assert_eq!(found[slot as usize], model.matched(slot, &blocks));
                let held = model.held.get(&slot).map_or(0, HashSet::len);
                prop_assert_eq!(index.held(slot), held as u64);
            }
        }
    }

    #[test]
    fn a_full_index_never_claims_what_was_not_inserted(
        capacity in 1_usize..60,
        steps in prop::collection::vec((0_u32..3, prompt()), 1..200),
    ) {
        let mut index = Index::new(capacity);
        let mut model = Model::default();
        for (slot, blocks) in steps {
            index.insert(slot, &blocks);
            model.held.entry(slot).or_default().extend(&blocks);
            prop_assert!(index.held(slot) <= capacity as u64);
            let found = matched(&index, &blocks, 3);
            prop_assert!(found[slot as usize] as usize >= blocks.len().min(capacity));
            for slot in 0..3 {
                prop_assert!(found[slot as usize] <= model.matched(slot, &blocks));
            }
        }
    }
}
