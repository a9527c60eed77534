//! Another agent's filter on an interface: the splice stands beside it or stays away.

use std::ffi::CString;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use aya::programs::tc::{self, NlOptions, SchedClassifierLinkId, TcAttachOptions};
use aya::programs::{SchedClassifier, TcAttachType};
use gateway_testnet::has_tcx;
use inference_gateway::kernel::{AttachError, Hook};

use crate::room;

/// Index and name of the loopback interface of every namespace.
const LOOPBACK: (u32, &str) = (1, "lo");
const NAME: &str = "foreign";

#[test]
fn another_agents_filter_is_left_alone() {
    let Some(room) = room("foreign") else { return };
    let mut kernel = room.load().unwrap();
    room.space.run(|| {
        let mut agent = Agent::attach(&room.at("agent"));
        match kernel.attach_tc(LOOPBACK.0) {
            Ok(()) => {
                let interfaces: Vec<_> = kernel.interfaces().collect();
                assert_eq!(interfaces, [(LOOPBACK.1, Hook::Tcx)], "one hook with others");
            }
            // A kernel older than 6.6, whose hook has one order for all.
            Err(AttachError::Foreign { filter, .. }) if !has_tcx() => assert_eq!(filter, NAME),
            Err(error) => panic!("{error}"),
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(kernel);
        assert!(agent.detach(), "the filter was gone");
    });
}

#[test]
fn without_others_old_kernels_have_the_splice_as_a_filter() {
    let Some(room) = room("filter") else { return };
    let mut kernel = room.load().unwrap();
    room.space.run(|| {
        kernel.attach_tc(LOOPBACK.0).unwrap();
        let hook = kernel.interfaces().map(|(_, hook)| hook).next();
        let expected = if has_tcx() { Hook::Tcx } else { Hook::Clsact };
        assert_eq!(hook, Some(expected));
        drop(kernel);
        for direction in [TcAttachType::Ingress, TcAttachType::Egress] {
            for program in ["splice_in", "splice_out"] {
                let left = tc::qdisc_detach_program(LOOPBACK.1, direction, program).is_ok();
                assert!(!left, "{program} was left behind");
            }
        }
    });
}

/// An agent whose program lets everything through.
struct Agent {
    program: SchedClassifier,
    link: Option<SchedClassifierLinkId>,
}

impl Agent {
    fn attach(pin: &Path) -> Self {
        pass_all(pin).unwrap();
        let mut program = SchedClassifier::from_pin(pin).unwrap();
        fs::remove_file(pin).unwrap();
        // It is there when nobody was before.
        let _ = tc::qdisc_add_clsact(LOOPBACK.1);
        let options = TcAttachOptions::Netlink(NlOptions::default());
        let link = program.attach_with_options(LOOPBACK.1, TcAttachType::Ingress, options);
        Self { program, link: Some(link.unwrap()) }
    }

    /// Whether it was still there.
    fn detach(&mut self) -> bool {
        self.program.detach(self.link.take().unwrap()).is_ok()
    }
}

/// Loads a program of two instructions, "0 is the result" and "end", and pins it. Aya
/// loads programs from object files only.
fn pass_all(pin: &Path) -> io::Result<()> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log: [u64; 2],
        version_and_flags: u64,
        name: [u8; 16],
    }
    #[repr(C)]
    struct Pin {
        path: u64,
        program: u32,
        flags: u32,
    }
    const LOAD: libc::c_int = 5;
    const PIN: libc::c_int = 6;
    const SCHED_CLS: u32 = 3;
    let instructions: [u64; 2] = [0xb7, 0x95];
    let license = c"GPL";
    let mut name = [0; 16];
    name[..NAME.len()].copy_from_slice(NAME.as_bytes());
    let load = Load {
        kind: SCHED_CLS,
        count: 2,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log: [0; 2],
        version_and_flags: 0,
        name,
    };
    let program = bpf(LOAD, &load)?;
    let path = CString::new(pin.as_os_str().as_encoded_bytes())?;
    let pinned = bpf(PIN, &Pin { path: path.as_ptr() as u64, program: program as u32, flags: 0 });
    // SAFETY: a descriptor that was made above and that nobody else has.
    unsafe { libc::close(program) };
    pinned.map(drop)
}

fn bpf<T>(command: libc::c_int, arguments: &T) -> io::Result<libc::c_int> {
    // SAFETY: the structures are the beginnings of the kernel's for these commands, which
    // is told how long they are; what they point to outlives the call.
    let done = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(arguments), size_of::<T>())
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done as libc::c_int) }
}
