//! The routers' approximate prefix tree.
//!
//! Source: `tree.rs` of SGLang's model gateway and of vllm-project/router. One tree
//! of text; each node knows the workers ("tenants") that have been sent a prompt through it.
//! A match walks down as far as anybody holds the text. The node where the walk ends names
//! one worker: the one that was first asked for there, and that answer sticks.

use crate::block_map::BlockMap;

/// The tree, by chained block hashes: equal hashes are the same place.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: BlockMap<Node>,
}

#[derive(Debug, Default)]
struct Node {
    /// In order of their first insertion.
    tenants: Vec<usize>,
}

/// Where a walk ended.
#[derive(Debug, PartialEq)]
pub(super) struct Match<'a> {
    /// Blocks matched.
    pub(super) blocks: usize,
    /// Who holds the last of them, the first one first.
    pub(super) tenants: &'a [usize],
}

impl Tree {
    pub(super) fn find(&self, blocks: &[u64]) -> Match<'_> {
        let mut found = Match { blocks: 0, tenants: &[] };
        for node in blocks.iter().map_while(|block| self.nodes.get(block)) {
            found.blocks += 1;
            found.tenants = &node.tenants;
        }
        found
    }

    pub(super) fn insert(&mut self, endpoint: usize, blocks: &[u64]) {
        for &block in blocks {
            let node = self.nodes.entry(block).or_default();
            if !node.tenants.contains(&endpoint) {
                node.tenants.push(endpoint);
            }
        }
    }

    /// Takes a worker out of the whole tree.
    pub(super) fn remove(&mut self, endpoint: usize) {
        self.nodes.retain(|_, node| {
            node.tenants.retain(|tenant| *tenant != endpoint);
            !node.tenants.is_empty()
        });
    }
}
