//! Simple things, in the forms that the kernel's verifier takes.

use core::mem::MaybeUninit;

/// `length`, which lies between 1 and `MAX` (a power of two), in a form from which the
/// verifier sees that it does. The compiler must not: it would leave the mask out.
#[inline(always)]
pub fn within<const MAX: u32>(length: u32) -> u32 {
    (core::hint::black_box(length).wrapping_sub(1) & (MAX - 1)) + 1
}

/// Word by word: the compiler makes a call of anything else, and the kernel refuses a
/// called function that has no type information.
#[inline(always)]
pub fn clear(words: &mut [u64]) {
    for word in words {
        // SAFETY: a reference is valid to write.
        unsafe { core::ptr::write_volatile(word, 0) };
    }
}

/// A word of zeros, in a place that a helper can write to.
#[inline(always)]
pub fn cleared(word: &mut MaybeUninit<u64>) -> &mut u64 {
    // SAFETY: any bits are a number, and it is written before it is read.
    let word = unsafe { &mut *word.as_mut_ptr() };
    clear(core::slice::from_mut(word));
    word
}
