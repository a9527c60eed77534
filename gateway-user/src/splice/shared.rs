//! Array maps as memory that the kernel programs and the daemon share.
//!
//! Single fields are read and written as atomics; both sides agree on who writes which.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aya::Pod;
use aya::maps::MapData;

/// The protocol has stores that must be seen in order; its cost per answer is nothing.
pub(crate) const ORDER: Ordering = Ordering::SeqCst;

/// Offsets of the fields of [`gateway_common::splice::Slot`] that are used one by one.
pub(super) mod slot {
    use std::mem::offset_of;

    use gateway_common::splice::Slot;

    pub(in super::super) const MARK: usize = offset_of!(Slot, mark);
    pub(in super::super) const FLOW: usize = offset_of!(Slot, flow);
    pub(in super::super) const PEER_ACK: usize = offset_of!(Slot, peer_ack);
    pub(in super::super) const ENDED: usize = offset_of!(Slot, ended);
    pub(in super::super) const HOP: usize = offset_of!(Slot, hop);
}

/// The same of [`gateway_common::splice::Flow`].
pub(super) mod flow {
    use std::mem::offset_of;

    use gateway_common::splice::Flow;

    pub(in super::super) const BYTES: usize = offset_of!(Flow, bytes);
    pub(in super::super) const OPEN: usize = offset_of!(Flow, open);
    pub(in super::super) const FROZEN: usize = offset_of!(Flow, frozen);
    pub(in super::super) const LENGTH: usize = offset_of!(Flow, length);
    pub(in super::super) const SETTLED: usize = offset_of!(Flow, settled);
}

/// An array map in this process's memory.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    base: NonNull<u8>,
    bytes: usize,
    length: u32,
    of: PhantomData<T>,
}

// SAFETY: the memory belongs to the map, not to a thread; every access is atomic or a
// volatile copy of plain integers.
unsafe impl<T: Pod> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Pod> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Maps all `length` elements.
    ///
    /// # Errors
    ///
    /// The map was not made for it (`BPF_F_MMAPABLE`), or there is no address space.
    pub(crate) fn map(array: &MapData, length: u32) -> io::Result<Self>
    where
        T: Pod,
    {
        // Elements are rounded up to eight bytes; ours are multiples of it.
        let bytes = size_of::<T>() * length as usize;
        let fd = array.fd().as_fd().as_raw_fd();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes, length, of: PhantomData })
    }

    fn element(&self, index: u32) -> NonNull<u8> {
        assert!(index < self.length, "element {index} of {}", self.length);
        // SAFETY: within the mapping.
        unsafe { self.base.add(index as usize * size_of::<T>()) }
    }

    /// A field of four bytes at `offset`.
    pub(crate) fn u32_at(&self, index: u32, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= size_of::<T>() && offset.is_multiple_of(4));
        // SAFETY: within the element, aligned, and mapped as long as `self` lives.
        unsafe { AtomicU32::from_ptr(self.element(index).add(offset).cast().as_ptr()) }
    }

    /// A field of eight bytes at `offset`.
    pub(crate) fn u64_at(&self, index: u32, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= size_of::<T>() && offset.is_multiple_of(8));
        // SAFETY: as in `u32_at`.
        unsafe { AtomicU64::from_ptr(self.element(index).add(offset).cast().as_ptr()) }
    }

    /// A copy; single fields may be newer than others.
    pub(crate) fn read(&self, index: u32) -> T
    where
        T: Pod,
    {
        // SAFETY: within the mapping, aligned, and any bits are a value.
        unsafe { self.element(index).cast::<T>().as_ptr().read_volatile() }
    }

    /// Replaces an element that nobody else uses.
    pub(crate) fn write(&self, index: u32, value: &T)
    where
        T: Pod,
    {
        // SAFETY: as in `read`.
        unsafe { self.element(index).cast::<T>().as_ptr().write_volatile(*value) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map`, and nothing borrowed from it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
