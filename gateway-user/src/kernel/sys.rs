//! The calls of `bpf(2)` that aya 0.14 keeps to itself.
//!
//! Handing a hook from a dead daemon's program to ours without a moment in between
//! (aya does it for some kinds of hooks, not for those of cgroups), and asking whose
//! programs hang on a cgroup without the right to look into them.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

const OBJ_GET: libc::c_int = 7;
const PROG_QUERY: libc::c_int = 16;
const LINK_UPDATE: libc::c_int = 29;
/// Programs on one hook that are looked at; the kernel takes at most 64.
const MOST: usize = 64;

/// What is pinned at `path`.
pub(super) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Get {
        path: u64,
        fd: u32,
        flags: u32,
    }
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut get = Get { path: path.as_ptr() as u64, fd: 0, flags: 0 };
    // SAFETY: the structure is the beginning of the kernel's for this command, and the
    // path outlives the call.
    let fd = unsafe { call(OBJ_GET, &mut get) }?;
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Has the hook run `program` from now on.
pub(super) fn update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Update {
        link: u32,
        program: u32,
        flags: u32,
        old_program: u32,
    }
    let mut update = Update {
        link: link.as_raw_fd() as u32,
        program: program.as_raw_fd() as u32,
        flags: 0,
        old_program: 0,
    };
    // SAFETY: the structure is the beginning of the kernel's for this command.
    unsafe { call(LINK_UPDATE, &mut update) }.map(drop)
}

/// Identities of the programs that hang on a cgroup itself, for one kind of hook.
pub(super) fn programs_at(cgroup: BorrowedFd<'_>, hook: u32) -> io::Result<Vec<u32>> {
    #[repr(C)]
    struct Query {
        cgroup: u32,
        hook: u32,
        flags: u32,
        attach_flags: u32,
        ids: u64,
        count: u32,
        reserved: u32,
        more: [u64; 4],
    }
    let mut ids = vec![0_u32; MOST];
    let mut query = Query {
        cgroup: cgroup.as_raw_fd() as u32,
        hook,
        flags: 0,
        attach_flags: 0,
        ids: ids.as_mut_ptr() as u64,
        count: MOST as u32,
        reserved: 0,
        more: [0; 4],
    };
    // SAFETY: the structure is the beginning of the kernel's for this command, and there
    // is room for as many identities as it says.
    unsafe { call(PROG_QUERY, &mut query) }?;
    ids.truncate(query.count as usize);
    Ok(ids)
}

/// # Safety
///
/// `arguments` must be what the kernel expects of this command.
unsafe fn call<T>(command: libc::c_int, arguments: &mut T) -> io::Result<i32> {
    // SAFETY: by the caller's promise; the kernel is told how long the structure is.
    let done = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(arguments), size_of::<T>())
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done as i32) }
}
