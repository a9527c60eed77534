//! Roots of pins on a node: one for each network namespace that has a daemon.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::pins;

/// Between the name of the node's own root and the number of another namespace.
const APART: &str = "-net-";

/// Where a daemon in the caller's network namespace pins, if `root` is the node's place: a
/// namespace of its own has a place of its own beside it.
#[must_use]
pub fn root_here(root: &Path) -> PathBuf {
    match namespace("/proc/thread-self") {
        Some(own) if namespace("/proc/1") != Some(own) => {
            let name = root.file_name().unwrap_or_default().to_string_lossy();
            root.with_file_name(format!("{name}{APART}{own}"))
        }
        _ => root.to_owned(),
    }
}

/// Takes away the roots beside `root` of daemons that died together with their network
/// namespaces: no successor will come by. What is in use is locked, and while a namespace
/// has a process its pins wait for a successor.
pub(super) fn sweep(root: &Path) {
    // In a container that does not see the node's processes nobody knows who is alive.
    if std::process::id() == 1 {
        return;
    }
    let abandoned: Vec<(u64, PathBuf)> = beside(root)
        .filter(|(_, path)| fs::File::open(path).is_ok_and(|root| root.try_lock().is_ok()))
        .collect();
    if abandoned.is_empty() {
        return;
    }
    let in_use = namespaces();
    for (_, path) in abandoned.into_iter().filter(|(number, _)| !in_use.contains(number)) {
        if let Err(error) = pins::remove(&path) {
            tracing::warn!(root = %path.display(), %error, "cannot remove a dead daemon's pins");
        }
    }
}

/// The other namespaces' roots beside this one, with the numbers of the namespaces.
fn beside(root: &Path) -> impl Iterator<Item = (u64, PathBuf)> {
    let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let node = match name.rsplit_once(APART) {
        Some((node, number)) if number.parse::<u64>().is_ok() => node.to_owned(),
        _ => name,
    };
    let entries = root.parent().and_then(|parent| fs::read_dir(parent).ok());
    entries.into_iter().flatten().flatten().filter_map(move |entry| {
        let name = entry.file_name().into_string().ok()?;
        let number = name.strip_prefix(&node)?.strip_prefix(APART)?.parse().ok()?;
        Some((number, entry.path()))
    })
}

/// Network namespaces that any thread of the node is in.
fn namespaces() -> HashSet<u64> {
    let entries = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
    let processes = entries("/proc".into());
    let threads = processes.flat_map(|process| entries(process.path().join("task")));
    threads.filter_map(|thread| namespace(thread.path())).collect()
}

/// The network namespace of a process or thread, given by its directory.
fn namespace(process: impl AsRef<Path>) -> Option<u64> {
    fs::metadata(process.as_ref().join("ns/net")).map(|namespace| namespace.ino()).ok()
}
