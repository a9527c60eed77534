//! A network namespace, a root of pins, and nothing left of either.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gateway_testnet::{Namespace, has_tcx};
use inference_gateway::kernel::{AtExit, Kernel, Off};

pub(crate) struct Room {
    pub(crate) space: Namespace,
    pub(crate) root: PathBuf,
}

impl Room {
    /// `None` for an executable without kernel programs.
    pub(crate) fn new(name: &str) -> Option<Self> {
        if inference_gateway::kernel::object().is_none() {
            let missing = "skipped: this build has no kernel programs (`cargo xtask build-ebpf`)";
            let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
            assert!(!ci, "{missing}");
            eprintln!("{missing}");
            return None;
        }
        let root = format!("/sys/fs/bpf/gateway-test-{}-{name}", std::process::id());
        Some(Self { space: Namespace::new(name).unwrap(), root: root.into() })
    }

    pub(crate) fn load(&self) -> Result<Kernel, Off> {
        Kernel::load(&self.root, AtExit::Detach)
    }

    /// What a daemon that was killed leaves.
    pub(crate) fn crashed(&self, work: impl FnOnce(&mut Kernel)) {
        let mut kernel = Kernel::load(&self.root, AtExit::Keep).unwrap();
        work(&mut kernel);
    }

    /// Names in a directory below the root, sorted.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(directory)).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// How many splice programs hang on these interfaces of the namespace that the thread is in:
/// pinned links, or filters where the kernel has no such links.
pub(crate) fn hooks(links: &Path, interfaces: &[&str]) -> usize {
    if has_tcx() {
        return fs::read_dir(links).map_or(0, Iterator::count);
    }
    let filters = |interface: &str, direction: &str| {
        let mut tc = Command::new("tc");
        tc.args(["filter", "show", "dev", interface, direction]);
        let shown = String::from_utf8(tc.output().unwrap().stdout).unwrap();
        shown.lines().filter(|line| line.contains(" splice_")).count()
    };
    let on = |interface: &&str| filters(interface, "ingress") + filters(interface, "egress");
    interfaces.iter().map(on).sum()
}

impl Drop for Room {
    fn drop(&mut self) {
        let there = Path::new(&self.root).exists();
        if there && let Err(error) = fs::remove_dir_all(&self.root) {
            eprintln!("{}: {error}", self.root.display());
        }
    }
}
