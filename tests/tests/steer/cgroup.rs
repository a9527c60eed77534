//! A cgroup that this process is in, so that nobody else on the machine is steered.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

const PREFIX: &str = "gateway-test-";

static OWN: LazyLock<PathBuf> = LazyLock::new(|| {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut roots = fields.filter(|fields| fields[2] == "cgroup2");
    let root = roots.next().expect("the second version of cgroups is mounted");
    let root = PathBuf::from(root[1]);
    // A process cannot remove the one it is in, so those of earlier runs go here. One
    // that is in use stays by itself.
    for entry in fs::read_dir(&root).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let _ = fs::remove_dir(entry.path());
        }
    }
    let own = root.join(format!("{PREFIX}{}", std::process::id()));
    fs::create_dir(&own).unwrap();
    fs::write(own.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    own
});

/// The cgroup that all tests of this process share.
pub(crate) fn own() -> &'static Path {
    &OWN
}
