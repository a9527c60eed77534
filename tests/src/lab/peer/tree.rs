//! The routers' approximate prefix tree.
//!
//! Source: `tree.rs` of SGLang's model gateway and of vllm-project/router, `string_tree.rs` of SMG.
//! One tree of text; each node knows the workers ("tenants") that have been sent a prompt
//! through it. A match walks down as far as anybody holds the text. The node where the walk ends
//! names one worker: the one that was first asked for there, and that answer sticks.
//!
//! It is a tree of characters, and that shows where prompts part: two questions behind the
//! same system prompt mostly begin with a letter that somebody's question began with, and the walk
//! ends at the node of that letter, which only those workers hold that had such a question. So
//! where blocks part, their first words are compared ([`words`]), as the text of a
//! [plan](crate::lab::plan) has them.

use crate::block_map::BlockMap;
use crate::lab::plan::words;

/// The tree, by chained block hashes: equal hashes are the same place.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: BlockMap<Node>,
}

#[derive(Debug, Default)]
struct Node {
    /// In order of their first insertion.
    tenants: Vec<usize>,
    /// Blocks that came after this one, in order of their first insertion.
    next: Vec<u64>,
}

/// Where a walk ended.
#[derive(Debug, PartialEq)]
pub(super) struct Match {
    /// Blocks matched.
    pub(super) blocks: usize,
    /// Who holds the last of the text that matched, the first one first.
    pub(super) tenants: Vec<usize>,
}

impl Tree {
    pub(super) fn find(&self, blocks: &[u64]) -> Match {
        let known = blocks.iter().map_while(|block| self.nodes.get(block));
        let Some((last, node)) = known.enumerate().last() else {
            // The letters that strangers have in common are no match worth following.
            return Match { blocks: 0, tenants: Vec::new() };
        };
        let matched = last + 1;
        let tenants = match blocks.get(matched) {
            Some(block) => self.behind(node, *block),
            None => node.tenants.clone(),
        };
        Match { blocks: matched, tenants }
    }

    /// Who holds as much of an unknown `block` behind `node` as anybody does.
    fn behind(&self, node: &Node, block: u64) -> Vec<usize> {
        let letters = first_word(block);
        let common = |other: &u64| {
            let known = self.nodes.get(other)?;
            let pairs = letters.iter().zip(first_word(*other));
            Some((pairs.take_while(|(one, other)| **one == *other).count(), known))
        };
        let next: Vec<(usize, &Node)> = node.next.iter().filter_map(common).collect();
        let most = next.iter().map(|(count, _)| *count).max().unwrap_or(0);
        if most == 0 {
            return node.tenants.clone();
        }
        let mut tenants = Vec::new();
        let alike = next.iter().filter(|(count, _)| *count == most);
        for tenant in alike.flat_map(|(_, node)| &node.tenants) {
            if !tenants.contains(tenant) {
                tenants.push(*tenant);
            }
        }
        tenants
    }

    pub(super) fn insert(&mut self, endpoint: usize, blocks: &[u64]) {
        let mut before = None;
        for &block in blocks {
            let is_new = !self.nodes.contains_key(&block);
            if let Some(before) = before.filter(|_| is_new) {
                self.nodes.entry(before).or_default().next.push(block);
            }
            let node = self.nodes.entry(block).or_default();
            if !node.tenants.contains(&endpoint) {
                node.tenants.push(endpoint);
            }
            before = Some(block);
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

fn first_word(block: u64) -> [char; 3] {
    words(block).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block whose text begins with `letters`, and another one than the first `skip`.
    fn block(letters: &[char], skip: usize) -> u64 {
        let begins = |block: &u64| first_word(*block).starts_with(letters);
        (1_000..).filter(begins).nth(skip).unwrap()
    }

    #[test]
    fn questions_find_who_had_one_with_the_same_first_letters() {
        let mut tree = Tree::default();
        tree.insert(0, &[1, block(&['a', 'x'], 0)]);
        tree.insert(1, &[1, block(&['b', 'x'], 0)]);
        tree.insert(2, &[1, block(&['a', 'y'], 0)]);
        let asked = |letters: &[char]| tree.find(&[1, block(letters, 1)]);
        assert_eq!(asked(&['b', 'q']), Match { blocks: 1, tenants: vec![1] });
        assert_eq!(asked(&['a', 'y']).tenants, [2]);
        // Both begin with an `a`, none with an `aq`.
        assert_eq!(asked(&['a', 'q']).tenants, [0, 2]);
        assert_eq!(asked(&['c', 'x']).tenants, [0, 1, 2]);
        // Without a question everybody has all of it.
        assert_eq!(tree.find(&[1]).tenants, [0, 1, 2]);
        assert_eq!(tree.find(&[block(&['a', 'x'], 1)]), Match { blocks: 0, tenants: vec![] });
    }

    #[test]
    fn a_worker_that_is_gone_holds_nothing() {
        let mut tree = Tree::default();
        tree.insert(0, &[1, block(&['a'], 0)]);
        tree.insert(1, &[1]);
        tree.remove(0);
        assert_eq!(tree.find(&[1, block(&['a'], 1)]), Match { blocks: 1, tenants: vec![1] });
        tree.insert(1, &[1, block(&['a'], 0)]);
        assert_eq!(tree.find(&[1, block(&['a'], 0)]), Match { blocks: 2, tenants: vec![1] });
    }
}
