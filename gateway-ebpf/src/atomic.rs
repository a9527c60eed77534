//! Words of maps that the kernel and the daemon change at the same time.

/// Compare-and-set; true when `at` held `old`.
#[inline(always)]
pub fn exchange(at: &mut u64, old: u64, new: u64) -> bool {
    use core::intrinsics::{AtomicOrdering, atomic_cxchg};
    // SAFETY: `at` is a valid, aligned word of a map.
    let (_, done) = unsafe {
        atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(at, old, new)
    };
    done
}

/// Reads a word that other CPUs write.
#[inline(always)]
pub fn load<T: Copy>(at: &T) -> T {
    // SAFETY: a reference is valid to read.
    unsafe { core::ptr::read_volatile(at) }
}
