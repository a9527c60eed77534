//! `no-hit-lru-scorer` (llm-d): spreads requests that hit no cache.
//!
//! When any candidate holds a part of the prompt, all score 0.5. Else
//! candidates are ranked: those never used for such a request first, then the least
//! recently used, and score `1 - rank / (n - 1)`; a single candidate scores 1.

pub(crate) const NAME: &str = "no-hit-lru-scorer";

/// Ranks of the candidates of one decision, by slot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ranks {
    by_slot: Vec<u32>,
    candidates: usize,
}

/// Rates the endpoint at `slot`; `ranks` is `None` when some cache is hit.
pub(crate) fn score(ranks: Option<&Ranks>, slot: u32) -> f64 {
    let Some(ranks) = ranks else {
        return 0.5;
    };
    if ranks.candidates <= 1 {
        return 1.0;
    }
    let rank = ranks.by_slot.get(slot as usize).copied().unwrap_or(0);
    1.0 - f64::from(rank) / (ranks.candidates - 1) as f64
}

/// Endpoints in the order in which they last got a request that hit no cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColdOrder {
    /// Oldest first.
    order: Vec<u32>,
}

impl ColdOrder {
    /// Notes that a request without a hit went to `slot`.
    pub(crate) fn used(&mut self, slot: u32) {
        self.forget(slot);
        self.order.push(slot);
    }

    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(at) = self.order.iter().position(|&used| used == slot) {
            self.order.remove(at);
        }
    }

    /// Ranks `candidates` among `slots` places.
    pub(crate) fn ranks(&self, candidates: &[u32], slots: usize) -> Ranks {
        const OUT: u32 = u32::MAX;
        const UNUSED: u32 = u32::MAX - 1;
        const USED: u32 = u32::MAX - 2;
        let mut by_slot = vec![OUT; slots];
        for &slot in candidates {
            by_slot[slot as usize] = UNUSED;
        }
        for &slot in &self.order {
            if by_slot[slot as usize] == UNUSED {
                by_slot[slot as usize] = USED;
            }
        }
        let unused = candidates.iter().filter(|&&slot| by_slot[slot as usize] == UNUSED);
        let mut next = 0;
        let ranked: Vec<u32> = unused.copied().collect();
        for slot in ranked.into_iter().chain(self.order.iter().copied()) {
            if matches!(by_slot[slot as usize], UNUSED | USED) {
                by_slot[slot as usize] = next;
                next += 1;
            }
        }
        Ranks { by_slot, candidates: candidates.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(order: &ColdOrder, candidates: &[u32]) -> Vec<f64> {
        let ranks = order.ranks(candidates, 8);
        candidates.iter().map(|&slot| score(Some(&ranks), slot)).collect()
    }

    #[test]
    fn never_used_come_first_then_the_least_recently_used() {
        let mut order = ColdOrder::default();
        order.used(2);
        order.used(0);
        // Never used: 1, 3; then 2, then 0.
        assert_eq!(scores(&order, &[0, 1, 2, 3, 4]), [0.0, 1.0, 0.25, 0.75, 0.5]);
    }

    #[test]
    fn using_again_moves_to_the_back() {
        let mut order = ColdOrder::default();
        for slot in [0, 1, 2, 0] {
            order.used(slot);
        }
        assert_eq!(scores(&order, &[0, 1, 2]), [0.0, 1.0, 0.5]);
    }

    #[test]
    fn endpoints_that_are_no_candidates_take_no_rank() {
        let mut order = ColdOrder::default();
        for slot in [0, 1, 2] {
            order.used(slot);
        }
        assert_eq!(scores(&order, &[1, 2]), [1.0, 0.0]);
        assert_eq!(scores(&order, &[2]), [1.0]);
    }

    #[test]
    fn a_cache_hit_makes_everyone_equal() {
        assert_eq!(score(None, 0), 0.5);
    }
}
