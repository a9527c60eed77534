//! The kernel's part of the data path: what is embedded, loaded and attached.
//!
//! The daemon works without all of it, so nothing here ends the process: whatever is
//! missing becomes an [`Off`], which names the cause and the fix.
//!
//! Everything is made anew at every start. Connections die with the daemon that held
//! them, so a dead predecessor's maps hold nothing worth keeping, and never reusing
//! them means that another version's layout cannot be mistaken for ours. Only the
//! hooks of [`steer`] are handed over without a gap.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use aya::maps::{Array, Map, MapData};
use aya::programs::sock_ops::SockOpsLink;
use aya::{Ebpf, EbpfLoader};
use gateway_common::path::PathState;

pub(crate) mod apart;
mod cgroup;
mod error;
pub(crate) mod events;
mod needs;
mod netlink;
pub(crate) mod pins;
mod roots;
mod sk_msg;
pub mod steer;
mod sys;
mod tc;

pub use error::{AttachError, Off};
pub use roots::root_here;
pub use tc::Hook;

/// The compiled programs; empty in a build without them (see `build.rs`).
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/gateway.bpf.o"));

/// Where maps and links are pinned, unless [`ROOT_VARIABLE`] says otherwise.
pub const DEFAULT_ROOT: &str = "/sys/fs/bpf/inference-gateway";
/// Names another place: for a second daemon on a node, and for tests.
pub const ROOT_VARIABLE: &str = "INFERENCE_GATEWAY_BPF_ROOT";

/// Names another cgroup than the node's root, whose processes alone are steered.
pub const CGROUP_VARIABLE: &str = "INFERENCE_GATEWAY_CGROUP";

/// The kernel programs in this executable, as an ELF file, if it was built with them.
#[must_use]
pub fn object() -> Option<&'static [u8]> {
    (!OBJECT.is_empty()).then_some(OBJECT)
}

/// Where maps and links are pinned; a directory of a bpf file system.
#[must_use]
pub fn root() -> PathBuf {
    std::env::var_os(ROOT_VARIABLE).map_or_else(|| DEFAULT_ROOT.into(), PathBuf::from)
}

/// What a daemon with its pins at `root` needs here, by name, and what is wrong with it. Changes nothing.
#[must_use]
pub fn checks(root: &Path) -> Vec<(&'static str, Result<(), Off>)> {
    vec![
        ("programs", object().map(drop).ok_or(Off::NoObject)),
        ("capabilities", needs::capabilities()),
        ("bpf file system", needs::bpf_file_system_is_there(root)),
        ("root cgroup", cgroup::root().map(drop)),
    ]
}

/// What becomes of maps and hooks when the daemon ends by itself.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AtExit {
    /// They go.
    #[default]
    Detach,
    /// They stay for the next daemon, as they do after a crash.
    Keep,
}

/// Loaded maps and programs. One at a time has a root.
#[derive(Debug)]
pub struct Kernel {
    /// Maps by name, and programs.
    pub(crate) bpf: Ebpf,
    root: PathBuf,
    /// Hooks by the interface's index.
    interfaces: BTreeMap<u32, tc::Interface>,
    at_exit: AtExit,
    /// The hook that is told of connections. Not pinned: nothing of it is needed after us,
    /// and what a crash leaves on the root cgroup would be asked for every connection.
    enrolling: Option<SockOpsLink>,
    /// Held until the end.
    lock: Option<File>,
}

impl Kernel {
    /// Checks what is needed, takes away what a dead predecessor has left at `root`,
    /// and loads and pins the maps. Programs are loaded when they are attached, so
    /// that one that an old kernel refuses does not take the others with it.
    ///
    /// # Errors
    ///
    /// The first thing that is missing.
    pub fn load(root: &Path, at_exit: AtExit) -> Result<Self, Off> {
        let object = object().ok_or(Off::NoObject)?;
        needs::capabilities()?;
        needs::bpf_file_system(root)?;
        let lock = pins::lock(root)?;
        pins::clear(root)?;
        roots::sweep(root);
        let bpf = EbpfLoader::new().load(object).map_err(|source| Off::Load(Box::new(source)))?;
        let maps = pins::maps(root);
        std::fs::create_dir(&maps).map_err(|source| Off::Pins { path: maps.clone(), source })?;
        for (name, map) in bpf.maps() {
            // Those of the compiler's own sections cannot be pinned: a dot is no letter
            // of a name there.
            if !name.starts_with('.') {
                map.pin(maps.join(name)).map_err(|source| Off::Pin {
                    path: maps.join(name),
                    source: Box::new(source),
                })?;
            }
        }
        Ok(Self {
            bpf,
            root: root.to_owned(),
            interfaces: BTreeMap::new(),
            at_exit,
            enrolling: None,
            lock: Some(lock),
        })
    }

    /// Directory of the pinned maps.
    #[must_use]
    pub fn maps(&self) -> PathBuf {
        pins::maps(&self.root)
    }

    /// Runs `trial` while the splice programs are on the loopback interface of the caller's
    /// network namespace, which is to be one for this alone.
    ///
    /// # Errors
    ///
    /// As [`Kernel::attach_tc`].
    pub(crate) fn tried_on_loopback<T>(
        &mut self,
        trial: impl FnOnce() -> T,
    ) -> Result<T, AttachError> {
        // The loopback interface of every namespace has this index.
        let interface = tc::Interface::attach(&mut self.bpf, 1, &pins::links(&self.root))?;
        let tried = trial();
        drop(interface);
        Ok(tried)
    }

    /// Leaves word of a path, by its place, for those who look at the maps.
    pub(crate) fn describe_path(&self, path: u32, state: &PathState) {
        let describe = || {
            let map = MapData::from_pin(self.maps().join("paths"))?;
            Array::<_, PathState>::try_from(Map::Array(map))?.set(path, state, 0)
        };
        if let Err(error) = describe() {
            tracing::warn!(%error, "cannot write down what became of a path");
        }
    }

    /// Puts the splice programs on both directions of an interface of the caller's
    /// network namespace. Does nothing where they are already, or after the end.
    ///
    /// # Errors
    ///
    /// When the interface has no Ethernet header, is the domain of another agent's
    /// programs and has no room beside them, or the kernel refuses the programs.
    pub fn attach_tc(&mut self, ifindex: u32) -> Result<(), AttachError> {
        if self.lock.is_none() || self.interfaces.contains_key(&ifindex) {
            return Ok(());
        }
        let interface = tc::Interface::attach(&mut self.bpf, ifindex, &pins::links(&self.root))?;
        tracing::info!(interface = interface.name, hook = %interface.hook, "splice attached");
        self.interfaces.insert(ifindex, interface);
        Ok(())
    }

    /// Indexes of the interfaces with splice programs that lead into another network
    /// namespace, and on which nobody else looks at what leaves.
    #[must_use]
    pub fn doors(&self) -> BTreeSet<u32> {
        let interfaces = self.interfaces.iter();
        interfaces.filter(|(index, of)| of.is_open_door(**index)).map(|(index, _)| *index).collect()
    }

    /// Interfaces with splice programs, and the kind of hook.
    pub fn interfaces(&self) -> impl Iterator<Item = (&str, Hook)> {
        self.interfaces.values().map(|interface| (&*interface.name, interface.hook))
    }
}

impl Kernel {
    /// Takes hooks and maps away, or leaves them, as was said at the start; another
    /// daemon may load its own from now on. The same happens when this is dropped.
    pub fn close(&mut self) {
        let Some(lock) = self.lock.take() else { return };
        self.enrolling = None;
        match self.at_exit {
            AtExit::Keep => {
                for interface in std::mem::take(&mut self.interfaces).into_values() {
                    interface.leave();
                }
            }
            AtExit::Detach => {
                self.interfaces.clear();
                if let Err(error) = pins::remove(&self.root) {
                    tracing::warn!(%error, "cannot take the kernel maps away");
                }
            }
        }
        // Not by closing it: a process that is being started at this moment may have a copy
        // of the descriptor until it runs its own program.
        if let Err(error) = lock.unlock() {
            tracing::warn!(%error, "cannot unlock the directory of pins");
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.close();
    }
}
