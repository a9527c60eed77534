//! Programs that move answers from socket to socket: one on a map of sockets, and one on
//! the cgroup whose connections it is told of.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;

use aya::maps::SockHash;
use aya::programs::{CgroupAttachMode, SkMsg, SockOps};

use super::{AttachError, Kernel, Off, cgroup, sys};

const MOVE: &str = "sk_msg_move";
const ENROL: &str = "sk_msg_enrol";
/// The map that [`MOVE`] is on.
const ENDPOINTS: &str = "msg_endpoints";
/// The kernel's numbers of the hooks: `BPF_SK_MSG_VERDICT` and `BPF_CGROUP_SOCK_OPS`.
const VERDICT: u32 = 7;
const SOCK_OPS: u32 = 3;

impl Kernel {
    /// Puts the programs on the node's root cgroup, or on `cgroup`, and on their map. They
    /// do nothing for connections that nobody asks for.
    ///
    /// # Errors
    ///
    /// When there is no root cgroup here, or the kernel refuses the programs.
    pub fn attach_sk_msg(&mut self, cgroup: Option<&Path>) -> Result<(), Off> {
        let root = cgroup.map_or_else(cgroup::root, |path| Ok(path.to_owned()))?;
        self.attach_move()?;
        self.attach_enrol(&root)?;
        tracing::info!(cgroup = %root.display(), "sk_msg attached");
        Ok(())
    }

    fn attach_move(&mut self) -> Result<(), Off> {
        let map = self.bpf.map(ENDPOINTS).ok_or(Off::Map { name: ENDPOINTS })?;
        let map =
            SockHash::<_, u64>::try_from(map).map_err(|error| Off::UseMap(Box::new(error)))?;
        let map =
            map.fd().try_clone().map_err(|error| AttachError::hook(MOVE, ENDPOINTS, &error))?;
        let program: &mut SkMsg = program(&mut self.bpf, MOVE)?;
        program.load().map_err(|error| AttachError::refused(MOVE, &error))?;
        let failed =
            |error: &(dyn std::error::Error + 'static)| AttachError::hook(MOVE, ENDPOINTS, error);
        program.attach(&map).map_err(|error| failed(&error))?;
        let id = program.info().map_err(|error| failed(&error))?.id();
        let there = sys::programs_at(map.as_fd(), VERDICT).map_err(|error| failed(&error))?;
        there_is(id, &there, MOVE, ENDPOINTS)
    }

    fn attach_enrol(&mut self, cgroup: &Path) -> Result<(), Off> {
        let place = cgroup.display().to_string();
        let failed =
            |error: &(dyn std::error::Error + 'static)| AttachError::hook(ENROL, &place, error);
        let directory = File::open(cgroup).map_err(|error| failed(&error))?;
        let program: &mut SockOps = program(&mut self.bpf, ENROL)?;
        program.load().map_err(|error| AttachError::refused(ENROL, &error))?;
        // Beside those of others, whatever the mode.
        let id =
            program.attach(&directory, CgroupAttachMode::Single).map_err(|error| failed(&error))?;
        let link = program.take_link(id).map_err(|error| failed(&error))?;
        let id = program.info().map_err(|error| failed(&error))?.id();
        let there =
            sys::programs_at(directory.as_fd(), SOCK_OPS).map_err(|error| failed(&error))?;
        there_is(id, &there, ENROL, &place)?;
        self.enrolling = Some(link);
        Ok(())
    }

    /// Tells the program of no more connections. Sockets that are enrolled stay in their map
    /// until they are closed.
    pub(crate) fn detach_sk_msg(&mut self) {
        self.enrolling = None;
    }
}

fn program<'a, P>(bpf: &'a mut aya::Ebpf, name: &'static str) -> Result<P, AttachError>
where
    P: TryFrom<&'a mut aya::programs::Program, Error = aya::programs::ProgramError>,
{
    let missing = || AttachError::Refused { program: name, why: "not in the object".to_owned() };
    let program = bpf.program_mut(name).ok_or_else(missing)?;
    P::try_from(program).map_err(|error| AttachError::refused(name, &error))
}

fn there_is(id: u32, there: &[u32], program: &'static str, place: &str) -> Result<(), Off> {
    if there.contains(&id) {
        return Ok(());
    }
    Err(AttachError::NotThere { program, place: place.to_owned() }.into())
}
