//! The kernel programs one packet at a time, by `BPF_PROG_TEST_RUN`: a packet and the maps'
//! state go in; a verdict, a packet and the maps' state come out. Nothing is attached.
//!
//! Needs root, and a build with the programs (`cargo xtask build-ebpf`).
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails its test")]

use aya::maps::{Array, HashMap, MapData};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use aya::programs::{SchedClassifier, SkMsg, SockOps, TestRun as _, TestRunOptions};
use aya::{Ebpf, EbpfLoader, Pod};
use gateway_common::address::SocketAddress;
use gateway_common::splice::{Handshake, Tuple};

use segment::{Family, Host, Segment};

/// Declares a test of each in each family of addresses.
macro_rules! in_both_families {
    ($($test:ident),+ $(,)?) => {
        mod v4 {
            $(#[test]
            fn $test() {
                super::$test(crate::Family::V4);
            })+
        }

        mod v6 {
            $(#[test]
            fn $test() {
                super::$test(crate::Family::V6);
            })+
        }
    };
}

mod moving;
mod opening;
mod segment;

in_both_families!(what_is_nobodys_passes_unchanged);

/// "Next", as the kernel returns it.
const NEXT: i32 = -1;
const REDIRECT: i32 = 7;

/// Most steps that the verifier may take for a program, in which it follows both families: a
/// fifth of what it allows, so that another kernel's, which counts differently, has room.
const MOST_STEPS: u32 = 200_000;

/// Loaded programs with maps of their own, for packets of one family.
struct Programs {
    ebpf: Ebpf,
    family: Family,
}

/// What became of a packet.
struct Outcome {
    verdict: i32,
    segment: Segment,
    /// Ethernet addresses: destination, source.
    frame: [u8; 12],
    mark: u32,
}

impl Programs {
    /// Loads the programs; none, with a message, where that cannot be.
    fn load(family: Family) -> Option<Self> {
        let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        let skip = |why: &str| {
            assert!(!ci, "{why}");
            eprintln!("skipped: {why}");
            None
        };
        let Some(object) = inference_gateway::kernel::object() else {
            return skip("this build has no kernel programs; `cargo xtask build-ebpf` makes them");
        };
        if !std::fs::metadata("/proc/self")
            .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
        {
            return skip("loading kernel programs needs root");
        }
        let mut ebpf = EbpfLoader::new().load(object).unwrap();
        for name in ["splice_in", "splice_out"] {
            classifier(&mut ebpf, name).load().unwrap();
        }
        sk_msg(&mut ebpf).load().unwrap();
        sock_ops(&mut ebpf).load().unwrap();
        Some(Self { ebpf, family })
    }

    /// Runs a program on a packet, whose checksums must be right before and after.
    fn run(&mut self, program: &str, segment: &Segment, mark: u32) -> Outcome {
        let packet = segment.packet(self.family);
        let mut out = vec![0; packet.len() + 64];
        // `struct __sk_buff`: its third word is the mark.
        let mut context = [0_u8; 192];
        context[8..12].copy_from_slice(&mark.to_ne_bytes());
        let mut context_out = context;
        let options = TestRunOptions {
            data_in: Some(&packet),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ctx_out: Some(&mut context_out),
            ..TestRunOptions::new()
        };
        let done = classifier(&mut self.ebpf, program).test_run(options).unwrap();
        out.truncate(done.data_size_out as usize);
        let verdict = done.return_value.cast_signed();
        Outcome {
            verdict,
            segment: Segment::parse(&out),
            frame: *out.first_chunk().unwrap(),
            mark: u32::from_ne_bytes(*context_out[8..].first_chunk().unwrap()),
        }
    }

    fn hash<K: Pod, V: Pod>(&mut self, name: &str) -> HashMap<&mut MapData, K, V> {
        HashMap::try_from(self.ebpf.map_mut(name).unwrap()).unwrap()
    }

    fn array<V: Pod>(&mut self, name: &str) -> Array<&mut MapData, V> {
        Array::try_from(self.ebpf.map_mut(name).unwrap()).unwrap()
    }

    fn listen(&mut self, host: Host, port: u16) {
        let listener = SocketAddress::of(SocketAddr::new(host.ip(self.family), port));
        self.hash::<SocketAddress, u32>("listeners").insert(listener, 1, 0).unwrap();
    }

    /// What was noted of the connection that this arriving segment is of.
    fn handshake(&mut self, segment: &Segment) -> Option<Handshake> {
        let tuple = segment.tuple(self.family);
        self.hash::<Tuple, Handshake>("handshakes").get(&tuple, 0).ok()
    }
}

fn sk_msg(ebpf: &mut Ebpf) -> &mut SkMsg {
    ebpf.program_mut("sk_msg_move").unwrap().try_into().unwrap()
}

fn sock_ops(ebpf: &mut Ebpf) -> &mut SockOps {
    ebpf.program_mut("sk_msg_enrol").unwrap().try_into().unwrap()
}

fn classifier<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut SchedClassifier {
    ebpf.program_mut(name).unwrap().try_into().unwrap()
}

#[test]
fn the_verifier_is_done_with_each_program_in_good_time() {
    let Some(mut programs) = Programs::load(Family::V4) else { return };
    let ebpf = &mut programs.ebpf;
    let infos = [
        classifier(ebpf, "splice_in").info().unwrap(),
        classifier(ebpf, "splice_out").info().unwrap(),
        sk_msg(ebpf).info().unwrap(),
        sock_ops(ebpf).info().unwrap(),
    ];
    for info in infos {
        let name = info.name_as_str().unwrap();
        let steps = info.verified_instruction_count();
        println!("{name}: {steps:?} steps");
        assert!(steps.is_none_or(|steps| steps < MOST_STEPS), "{name}: {steps:?} steps");
    }
}

/// The kernel has no `BPF_PROG_TEST_RUN` for these two kinds, so that they are tested with
/// real sockets only (`tests/tests/kernel`).
#[test]
fn programs_of_sockets_cannot_be_run_one_by_one() {
    let Some(mut programs) = Programs::load(Family::V4) else { return };
    let run = |fd: BorrowedFd<'_>| {
        let mut attributes = [0_u32; 20];
        attributes[0] = fd.as_raw_fd().cast_unsigned();
        // SAFETY: the beginning of the attributes of this command, all else zero; the kernel
        // is told how long they are.
        let done = unsafe {
            libc::syscall(libc::SYS_bpf, 10, attributes.as_mut_ptr(), size_of_val(&attributes))
        };
        (done, std::io::Error::last_os_error().raw_os_error())
    };
    // `ENOTSUPP`, which is the kernel's own.
    let refused = (-1, Some(524));
    assert_eq!(run(sk_msg(&mut programs.ebpf).fd().unwrap().as_fd()), refused);
    assert_eq!(run(sock_ops(&mut programs.ebpf).fd().unwrap().as_fd()), refused);
}

fn what_is_nobodys_passes_unchanged(family: Family) {
    let Some(mut programs) = Programs::load(family) else { return };
    let segment = Segment { payload: b"5\r\nhello\r\n".to_vec(), ..Segment::default() };
    for program in ["splice_in", "splice_out"] {
        let outcome = programs.run(program, &segment, 0);
        assert_eq!((outcome.verdict, outcome.segment), (NEXT, segment.clone()), "{program}");
    }
}
