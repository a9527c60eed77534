//! The paged KV cache: blocks, their owners, and prefixes worth keeping.
//!
//! A block that nobody holds stays findable by its hash until it is needed for
//! something else. Free blocks form a queue: new allocations take the head (the
//! block unused for longest), released blocks join the tail. The queue is an
//! intrusive list, because a prefix hit takes a block out of its middle.

use crate::block_map::BlockMap;

/// Index of a block.
pub(super) type BlockIndex = u32;

const NONE: BlockIndex = BlockIndex::MAX;

#[derive(Clone, Debug)]
struct Block {
    holders: u32,
    hash: Option<u64>,
    previous: BlockIndex,
    next: BlockIndex,
}

/// All blocks of one engine.
#[derive(Debug)]
pub(super) struct BlockPool {
    blocks: Vec<Block>,
    by_hash: BlockMap<BlockIndex>,
    head: BlockIndex,
    tail: BlockIndex,
    free: u32,
}

impl BlockPool {
    pub(super) fn new(capacity: u32) -> Self {
        let vacant = Block { holders: 0, hash: None, previous: NONE, next: NONE };
        let mut pool = Self {
            blocks: vec![vacant; capacity as usize],
            by_hash: BlockMap::default(),
            head: NONE,
            tail: NONE,
            free: 0,
        };
        for block in 0..capacity {
            pool.append(block);
        }
        pool
    }

    pub(super) fn capacity(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Blocks that can be allocated, cached ones included.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    pub(super) fn used(&self) -> u32 {
        self.capacity() - self.free
    }

    /// Takes the block unused for longest, forgetting what it cached.
    pub(super) fn allocate(&mut self) -> Option<BlockIndex> {
        let index = self.head;
        if index == NONE {
            return None;
        }
        self.unlink(index);
        self.forget(index);
        self.blocks[index as usize].holders = 1;
        Some(index)
    }

    /// The block that caches `hash`, held or not.
    pub(super) fn find(&self, hash: u64) -> Option<BlockIndex> {
        self.by_hash.get(&hash).copied()
    }

    /// Whether a cached block is held by nobody, so that holding it costs a free block.
    pub(super) fn is_free(&self, index: BlockIndex) -> bool {
        self.blocks[index as usize].holders == 0
    }

    /// Whether more than one sequence holds a block.
    pub(super) fn is_shared(&self, index: BlockIndex) -> bool {
        self.blocks[index as usize].holders > 1
    }

    /// One more holder for a cached block.
    pub(super) fn hold(&mut self, index: BlockIndex) {
        if self.is_free(index) {
            self.unlink(index);
        }
        self.blocks[index as usize].holders += 1;
    }

    /// One holder less; the last one leaves the block in the cache.
    pub(super) fn release(&mut self, index: BlockIndex) {
        let block = &mut self.blocks[index as usize];
        block.holders -= 1;
        if block.holders == 0 {
            self.append(index);
        }
    }

    /// Makes a full block findable; the first block with a hash keeps it.
    pub(super) fn remember(&mut self, index: BlockIndex, hash: u64) {
        if let std::collections::hash_map::Entry::Vacant(entry) = self.by_hash.entry(hash) {
            entry.insert(index);
            self.blocks[index as usize].hash = Some(hash);
        }
    }

    /// Forgets every cached block that nobody holds.
    pub(super) fn forget_cached(&mut self) {
        let mut index = self.head;
        while index != NONE {
            self.forget(index);
            index = self.blocks[index as usize].next;
        }
    }

    fn forget(&mut self, index: BlockIndex) {
        if let Some(hash) = self.blocks[index as usize].hash.take() {
            self.by_hash.remove(&hash);
        }
    }

    fn append(&mut self, index: BlockIndex) {
        let tail = self.tail;
        let block = &mut self.blocks[index as usize];
        (block.previous, block.next) = (tail, NONE);
        match tail {
            NONE => self.head = index,
            tail => self.blocks[tail as usize].next = index,
        }
        self.tail = index;
        self.free += 1;
    }

    fn unlink(&mut self, index: BlockIndex) {
        let Block { previous, next, .. } = self.blocks[index as usize];
        match previous {
            NONE => self.head = next,
            previous => self.blocks[previous as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => self.blocks[next as usize].previous = previous,
        }
        self.free -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_unused_prefix_is_evicted_first() {
        let mut pool = BlockPool::new(2);
        let (first, second) = (pool.allocate().unwrap(), pool.allocate().unwrap());
        pool.remember(first, 1);
        pool.remember(second, 2);
        assert_eq!(pool.allocate(), None);
        pool.release(second);
        pool.release(first);
        assert_eq!(pool.allocate(), Some(second));
        assert_eq!((pool.find(2), pool.find(1)), (None, Some(first)));
    }

    #[test]
    fn held_block_outlives_its_first_holder() {
        let mut pool = BlockPool::new(1);
        let block = pool.allocate().unwrap();
        pool.remember(block, 7);
        pool.hold(block);
        pool.release(block);
        assert_eq!((pool.free(), pool.allocate()), (0, None));
        pool.release(block);
        assert_eq!((pool.free(), pool.find(7)), (1, Some(block)));
    }

    #[test]
    fn cleared_cache_keeps_what_is_held() {
        let mut pool = BlockPool::new(2);
        let (held, released) = (pool.allocate().unwrap(), pool.allocate().unwrap());
        pool.remember(held, 1);
        pool.remember(released, 2);
        pool.release(released);
        pool.forget_cached();
        assert_eq!((pool.find(1), pool.find(2)), (Some(held), None));
    }
}
