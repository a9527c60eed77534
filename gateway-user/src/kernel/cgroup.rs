//! Steering programs on a cgroup.
//!
//! The root of the second version's hierarchy, because clients are anywhere on the
//! node. In a container with a hierarchy of its own, what looks like the root is not;
//! then nothing is attached, rather than half of the node steered.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::programs::links::FdLink;
use aya::programs::{CgroupAttachMode, CgroupSockAddr};

use super::{AttachError, Off, sys};

/// Programs, and the kernel's number of the hook each goes to.
const PROGRAMS: [(&str, u32); 4] = [
    ("steer_connect4", 10),
    ("steer_connect6", 11),
    ("steer_peername4", 29),
    ("steer_peername6", 30),
];
/// Inode of the root of a hierarchy, which is its id too.
const ROOT_ID: u64 = 1;

/// Where the whole node's sockets come by.
pub(super) fn root() -> Result<PathBuf, Off> {
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap_or_default();
    let place = mount(&mounts).ok_or(Off::NoCgroup)?;
    let id = fs::metadata(&place).map_or(0, |metadata| metadata.ino());
    if id == ROOT_ID { Ok(place) } else { Err(Off::WrongCgroup { path: place, id }) }
}

/// Where the second version's hierarchy is mounted.
fn mount(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let place = fields.next()?;
        (fields.next()? == "cgroup2").then(|| place.into())
    })
}

/// All programs on a cgroup.
#[derive(Debug)]
pub(super) struct Hooks {
    pins: Vec<PathBuf>,
    /// Those that a predecessor had made; a pin keeps the others.
    taken_over: Vec<OwnedFd>,
}

impl Hooks {
    /// Attaches the programs, or has a dead predecessor's hooks run them.
    pub(super) fn attach(bpf: &mut Ebpf, cgroup: &Path, links: &Path) -> Result<Self, AttachError> {
        let place = cgroup.display().to_string();
        let directory =
            File::open(cgroup).map_err(|error| AttachError::hook("steering", &place, &error))?;
        // All or none: a peer that is steered must not be called by its own address.
        for (name, _) in PROGRAMS {
            loaded(bpf, name)?;
        }
        let mut hooks = Self { pins: Vec::new(), taken_over: Vec::new() };
        for (name, hook) in PROGRAMS {
            let program = loaded(bpf, name)?;
            let pin = links.join(name);
            let failed =
                |error: &(dyn std::error::Error + 'static)| AttachError::hook(name, &place, error);
            if let Some(link) = take_over(program, &pin) {
                hooks.taken_over.push(link);
            } else {
                // Links stand beside those of others whatever the mode; `AllowMultiple`
                // is refused for them.
                let id = program
                    .attach(&directory, CgroupAttachMode::Single)
                    .map_err(|error| failed(&error))?;
                let link = program.take_link(id).map_err(|error| failed(&error))?;
                let link: FdLink = link.try_into().map_err(|error| failed(&error))?;
                link.pin(&pin).map_err(|error| failed(&error))?;
            }
            hooks.pins.push(pin);
            let id = program.info().map_err(|error| failed(&error))?.id();
            let there =
                sys::programs_at(directory.as_fd(), hook).map_err(|error| failed(&error))?;
            if !there.contains(&id) {
                return Err(AttachError::NotThere { program: name, place });
            }
        }
        Ok(hooks)
    }

    /// Takes the programs off.
    pub(super) fn detach(self) {
        for pin in self.pins {
            // Gone already when somebody has cleaned up by hand.
            let _ = fs::remove_file(pin);
        }
    }
}

fn loaded<'a>(
    bpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut CgroupSockAddr, AttachError> {
    let missing = || AttachError::Refused { program: name, why: "not in the object".to_owned() };
    let program = bpf.program_mut(name).ok_or_else(missing)?;
    let program: &mut CgroupSockAddr =
        program.try_into().map_err(|error| AttachError::refused(name, &error))?;
    if program.fd().is_err() {
        program.load().map_err(|error| AttachError::refused(name, &error))?;
    }
    Ok(program)
}

/// A dead predecessor's hook, which runs `program` from now on. A hook whose cgroup is
/// gone is taken away instead.
fn take_over(program: &CgroupSockAddr, pin: &Path) -> Option<OwnedFd> {
    let replace = || -> io::Result<OwnedFd> {
        let link = sys::pinned(pin)?;
        let program = program.fd().map_err(io::Error::other)?;
        sys::update(link.as_fd(), program.as_fd())?;
        Ok(link)
    };
    match replace() {
        Ok(link) => Some(link),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::info!(pin = %pin.display(), %error, "a left hook cannot be taken over");
                let _ = fs::remove_file(pin);
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_version_is_found_beside_the_first() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mount(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount("cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n"), None);
    }
}
