//! The extension's index of prompt blocks: per endpoint, an LRU of single blocks.
//!
//! Source: `approximateprefix/indexer.go` of the Gateway API Inference Extension v1.5. Two of
//! its traits are kept on purpose, for they shape its decisions: blocks age one by one, so an
//! endpoint may have lost the start of a prefix and keep its end; and
//! a match adds a point to every endpoint that holds a block, as long as any endpoint does.

use std::collections::VecDeque;

use crate::block_map::BlockMap;

/// Who holds which block.
#[derive(Debug)]
pub(super) struct BlockIndex {
    holders: BlockMap<Vec<usize>>,
    recent: Vec<Recent>,
}

/// The blocks of one endpoint, by last use.
#[derive(Debug)]
struct Recent {
    capacity: usize,
    clock: u64,
    used: BlockMap<u64>,
    /// Uses in order; those that are not the block's last one are passed over.
    order: VecDeque<(u64, u64)>,
}

impl BlockIndex {
    pub(super) fn new(endpoints: usize, capacity: usize) -> Self {
        let recent =
            || Recent { capacity, clock: 0, used: BlockMap::default(), order: VecDeque::new() };
        Self {
            holders: BlockMap::default(),
            recent: std::iter::repeat_with(recent).take(endpoints).collect(),
        }
    }

    /// Blocks that each endpoint is thought to hold of `blocks`.
    pub(super) fn matches(&self, blocks: &[u64]) -> Vec<usize> {
        let mut matched = vec![0; self.recent.len()];
        for holders in blocks.iter().map_while(|block| self.holders.get(block)) {
            for &endpoint in holders {
                matched[endpoint] += 1;
            }
        }
        matched
    }

    /// Notes that `endpoint` got a prompt of `blocks`.
    pub(super) fn insert(&mut self, endpoint: usize, blocks: &[u64]) {
        for &block in blocks {
            if self.recent[endpoint].touch(block) {
                self.holders.entry(block).or_default().push(endpoint);
            }
        }
        while let Some(block) = self.recent[endpoint].evict() {
            self.drop_holder(endpoint, block);
        }
    }

    /// How many blocks `endpoint` can hold; takes effect with its next insertion.
    pub(super) fn set_capacity(&mut self, endpoint: usize, capacity: usize) {
        self.recent[endpoint].capacity = capacity;
    }

    /// Forgets an endpoint that is gone.
    pub(super) fn forget(&mut self, endpoint: usize) {
        let recent = &mut self.recent[endpoint];
        recent.order.clear();
        for block in std::mem::take(&mut recent.used).into_keys() {
            self.drop_holder(endpoint, block);
        }
    }

    fn drop_holder(&mut self, endpoint: usize, block: u64) {
        if let Some(holders) = self.holders.get_mut(&block) {
            holders.retain(|holder| *holder != endpoint);
            if holders.is_empty() {
                self.holders.remove(&block);
            }
        }
    }
}

impl Recent {
    /// Makes the block the last used; true when it is new.
    fn touch(&mut self, block: u64) -> bool {
        self.clock += 1;
        self.order.push_back((block, self.clock));
        if self.order.len() > 2 * self.used.len() + 1024 {
            let used = &self.used;
            let clock = self.clock;
            self.order.retain(|(block, at)| *at == clock || used.get(block) == Some(at));
        }
        self.used.insert(block, self.clock).is_none()
    }

    /// Takes out the block unused for longest, if there are too many.
    fn evict(&mut self) -> Option<u64> {
        while self.used.len() > self.capacity {
            let (block, at) = self.order.pop_front()?;
            if self.used.get(&block) == Some(&at) {
                self.used.remove(&block);
                return Some(block);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_end_of_a_prefix_counts_even_where_its_start_is_lost() {
        let mut index = BlockIndex::new(2, 2);
        index.insert(0, &[1, 2, 3]); // 1 is evicted at once
        assert_eq!(index.matches(&[1, 2, 3]), [0, 0]); // nobody holds 1: the walk stops
        index.insert(1, &[1]);
        assert_eq!(index.matches(&[1, 2, 3]), [2, 1]);
    }

    #[test]
    fn a_forgotten_endpoint_holds_nothing() {
        let mut index = BlockIndex::new(2, 10);
        index.insert(0, &[1, 2]);
        index.insert(1, &[1]);
        index.forget(0);
        assert_eq!(index.matches(&[1, 2]), [0, 1]);
    }

    proptest! {
        #[test]
        fn it_is_an_lru(uses in proptest::collection::vec(0_u64..12, 1..3000), capacity in 1_usize..10) {
            let mut index = BlockIndex::new(1, capacity);
            let mut model: Vec<u64> = Vec::new();
            for block in uses {
                index.insert(0, &[block]);
                model.retain(|held| *held != block);
                model.push(block);
                if model.len() > capacity { model.remove(0); }
                for block in 0..12 {
                    prop_assert_eq!(index.matches(&[block])[0] == 1, model.contains(&block));
                }
            }
        }
    }
}
