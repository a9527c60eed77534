//! The kernel programs of the gateway.
//!
//! One program, one concern. Each looks only at what is its own, returns "next" for
//! everything else, and leaves to user space whatever it is in doubt about.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![allow(internal_features, reason = "compare-and-set, which `AtomicU64` lacks on this target")]

mod atomic;
mod sk_msg;
mod splice;
mod steer;
mod verifier;

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing here panics; the verifier would not accept a program that could.
    loop {}
}

/// Helpers such as `bpf_redirect_neigh` are for programs under the GPL.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
