//! What is pinned where.
//!
//! ```text
//! /sys/fs/bpf/inference-gateway/   locked by the daemon that uses it
//!   v3/                            maps, in a directory per layout
//!   links/                         hooks, so that they outlive a crash
//! ```
//!
//! Splice hooks outlive the daemon because the kernel closes its connections after
//! it, and those last packets still need their numbers translated.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use gateway_common::LAYOUT;

use super::Off;

/// Names of steering hooks begin with this; a successor takes them over.
const HANDED_OVER: &str = "steer_";

/// Directory of the maps.
pub(crate) fn maps(root: &Path) -> PathBuf {
    root.join(format!("v{LAYOUT}"))
}

/// Directory of the hooks.
pub(crate) fn links(root: &Path) -> PathBuf {
    root.join("links")
}

/// Makes the root and locks it; the kernel opens the lock when the process ends, however
/// it ends.
pub(super) fn lock(root: &Path) -> Result<File, Off> {
    let failed = |source| Off::Pins { path: root.to_owned(), source };
    fs::create_dir_all(root).map_err(failed)?;
    let directory = File::open(root).map_err(failed)?;
    match directory.try_lock() {
        Ok(()) => Ok(directory),
        Err(TryLockError::WouldBlock) => Err(Off::Busy { root: root.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Takes away what a dead predecessor has left, of whatever layout, but for hooks that
/// are handed over. Makes the directory of the hooks.
pub(super) fn clear(root: &Path) -> Result<(), Off> {
    let clear = || {
        for entry in fs::read_dir(root)? {
            let path = entry?.path();
            if path != links(root) {
                remove(&path)?;
            }
        }
        fs::create_dir_all(links(root))?;
        for entry in fs::read_dir(links(root))? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with(HANDED_OVER) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    };
    clear().map_err(|source| Off::Pins { path: root.to_owned(), source })
}

/// Removes a pin, or a directory of pins.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}
