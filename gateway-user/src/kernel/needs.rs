//! What must be there before anything can be loaded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Off;

/// Bits of `CapEff` in `/proc/thread-self/status`; see `capabilities(7)`.
const NET_ADMIN: u32 = 12;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// Checks that programs may be loaded and attached.
pub(super) fn capabilities() -> Result<(), Off> {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    match missing(effective(&status)) {
        Some(missing) => Err(Off::Capability { missing }),
        None => Ok(()),
    }
}

/// The effective capabilities; none when the text does not say.
fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

fn missing(effective: u64) -> Option<&'static str> {
    let has = |bit: u32| effective & (1 << bit) != 0;
    let needed = [(BPF, "CAP_BPF"), (PERFMON, "CAP_PERFMON"), (NET_ADMIN, "CAP_NET_ADMIN")];
    // The old right for everything stands for the two newer ones.
    let granted = |bit| has(bit) || bit != NET_ADMIN && has(SYS_ADMIN);
    needed.iter().find(|(bit, _)| !granted(*bit)).map(|(_, name)| *name)
}

/// Checks that `root` is, or can be, a directory of a bpf file system.
pub(super) fn bpf_file_system_is_there(root: &Path) -> Result<(), Off> {
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap_or_default();
    if kind_at(&mounts, root) == Some("bpf") {
        return Ok(());
    }
    let path = PathBuf::from(root.parent().unwrap_or(root));
    Err(Off::NoBpffs { path, why: io::Error::other("another file system is there") })
}

/// Makes sure that `root` is, or can be, a directory of a bpf file system; mounts one
/// at its parent when nothing is there.
pub(super) fn bpf_file_system(root: &Path) -> Result<(), Off> {
    if bpf_file_system_is_there(root).is_ok() {
        return Ok(());
    }
    let place = root.parent().unwrap_or(root);
    match mount(place) {
        Ok(()) => {
            tracing::info!(path = %place.display(), "mounted a bpf file system");
            Ok(())
        }
        Err(why) => Err(Off::NoBpffs { path: PathBuf::from(place), why }),
    }
}

/// Type of the file system that `path` is on, by `/proc/thread-self/mounts`.
fn kind_at<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mount = |line: &'a str| {
        let mut fields = line.split(' ').skip(1);
        Some((Path::new(fields.next()?), fields.next()?))
    };
    let mounts = mounts.lines().filter_map(mount).filter(|(place, _)| path.starts_with(place));
    // Of several at one place the last covers the others.
    mounts.max_by_key(|(place, _)| place.as_os_str().len()).map(|(_, kind)| kind)
}

fn mount(place: &Path) -> io::Result<()> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt as _;
    fs::create_dir_all(place)?;
    let target = CString::new(place.as_os_str().as_bytes())?;
    // SAFETY: all pointers are to strings that end with zero and outlive the call; the
    // file system takes no data.
    let done = unsafe {
        libc::mount(c"bpf".as_ptr(), target.as_ptr(), c"bpf".as_ptr(), 0, std::ptr::null())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_capability_that_is_missing_is_named() {
        assert_eq!(missing(0), Some("CAP_BPF"));
        assert_eq!(missing(1 << SYS_ADMIN), Some("CAP_NET_ADMIN"));
        assert_eq!(missing(1 << SYS_ADMIN | 1 << NET_ADMIN), None);
        assert_eq!(missing(1 << BPF | 1 << NET_ADMIN), Some("CAP_PERFMON"));
        assert_eq!(effective("Name:\tx\nCapEff:\t0000000000201000\n"), 0x20_1000);
    }

    #[test]
    fn a_path_is_on_the_file_system_mounted_nearest_above_it() {
        let mounts = "sysfs /sys sysfs rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n\
                      tmpfs /sys/fs/bpf/over tmpfs rw 0 0\n";
        let kind = |path: &str| kind_at(mounts, Path::new(path));
        assert_eq!(kind("/sys/fs/bpf/inference-gateway"), Some("bpf"));
        assert_eq!(kind("/sys/fs/bpf/over/x"), Some("tmpfs"));
        assert_eq!(kind("/sys/fs/bpfx"), Some("sysfs"));
        assert_eq!(kind("/elsewhere"), None);
    }
}
