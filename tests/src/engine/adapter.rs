//! `LoRA` slots: which adapters are resident on the GPU.
//!
//! A batch can use as many different adapters as there are slots. An adapter that
//! is not resident takes a vacant slot, or the idle one unused for longest, and is
//! loaded first. vLLM loads inside the step, so the whole batch waits for it.

use super::request::AdapterId;

/// Whether an adapter was there already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Residence {
    /// It had to be loaded.
    Loaded,
    /// It was resident.
    Resident,
}

#[derive(Clone, Debug)]
struct Occupied {
    adapter: AdapterId,
    users: u32,
    last_used: u64,
}

#[derive(Clone, Debug)]
pub(super) struct AdapterSlots {
    capacity: usize,
    slots: Vec<Occupied>,
    clock: u64,
}

impl AdapterSlots {
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1); // an adapter must be able to run at all
        Self { capacity, slots: Vec::with_capacity(capacity), clock: 0 }
    }

    /// Whether a request for `adapter` could join the batch now.
    pub(super) fn admits(&self, adapter: AdapterId) -> bool {
        self.slots.len() < self.capacity
            || self.slots.iter().any(|slot| slot.adapter == adapter || slot.users == 0)
    }

    /// One more sequence uses `adapter`, which [`Self::admits`] has allowed.
    pub(super) fn acquire(&mut self, adapter: AdapterId) -> Residence {
        self.clock += 1;
        let last_used = self.clock;
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.adapter == adapter) {
            slot.users += 1;
            slot.last_used = last_used;
            return Residence::Resident;
        }
        if self.slots.len() >= self.capacity {
            self.evict_idle();
        }
        self.slots.push(Occupied { adapter, users: 1, last_used });
        Residence::Loaded
    }

    pub(super) fn release(&mut self, adapter: AdapterId) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.adapter == adapter) {
            slot.users -= 1;
        }
    }

    fn evict_idle(&mut self) {
        let idle = self.slots.iter().enumerate().filter(|(_, slot)| slot.users == 0);
        if let Some((index, _)) = idle.min_by_key(|(_, slot)| slot.last_used) {
            self.slots.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: AdapterId = AdapterId(1);
    const B: AdapterId = AdapterId(2);
    const C: AdapterId = AdapterId(3);

    #[test]
    fn busy_slots_admit_only_their_own_adapters() {
        let mut slots = AdapterSlots::new(1);
        assert_eq!(slots.acquire(A), Residence::Loaded);
        assert_eq!((slots.admits(A), slots.admits(B)), (true, false));
        slots.release(A);
        assert!(slots.admits(B));
    }

    #[test]
    fn adapter_unused_for_longest_makes_room() {
        let mut slots = AdapterSlots::new(2);
        for adapter in [A, B] {
            slots.acquire(adapter);
            slots.release(adapter);
        }
        slots.acquire(C);
        assert_eq!(slots.acquire(B), Residence::Resident);
        slots.release(C);
        assert_eq!(slots.acquire(A), Residence::Loaded);
    }
}
