//! What is missing is named, and neighbours are left alone.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::thread;

use inference_gateway::args::BpfStatusFlags;
use inference_gateway::cli;
use inference_gateway::kernel::{AtExit, Kernel, Off};

use crate::{cgroup, room};

/// Index of the loopback interface of every namespace.
const LOOPBACK: u32 = 1;

#[test]
fn without_capabilities_the_one_that_is_missing_is_named() {
    let Some(room) = room("rights") else { return };
    // Capabilities are a thread's own.
    let error = thread::scope(|scope| {
        let inside = || {
            drop_capabilities();
            room.load().unwrap_err()
        };
        scope.spawn(inside).join().unwrap()
    });
    assert!(matches!(error, Off::Capability { missing: "CAP_BPF" }), "{error}");
}

/// Takes every effective capability from the calling thread.
fn drop_capabilities() {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let none = [0_u32; 6];
    // SAFETY: header and data are as long as the third version of the call wants them.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(done, 0, "a thread may always give up capabilities");
}

#[test]
fn a_bpf_file_system_is_mounted_where_there_is_none() {
    let Some(_room) = room("mount") else { return };
    let place = std::env::temp_dir().join(format!("gateway-test-bpffs-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    let root = place.join("inference-gateway");
    thread::scope(|scope| {
        let inside = || {
            private_mounts();
            let kernel = Kernel::load(&root, AtExit::Detach).unwrap();
            assert!(kernel.maps().join("flows").exists());
        };
        scope.spawn(inside).join().unwrap();
    });
    // The mount has gone with the thread's view of the file systems.
    fs::remove_dir(&place).unwrap();
}

/// What the calling thread mounts from now on is seen by nobody else.
fn private_mounts() {
    // SAFETY: takes nothing but flags.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
    let (none, all) = (std::ptr::null(), c"/".as_ptr());
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: strings that end with zero; no type and no data are needed to change flags.
    assert_eq!(unsafe { libc::mount(none, all, none, flags, none.cast()) }, 0);
}

#[test]
fn two_daemons_with_roots_of_their_own_leave_each_other_alone() {
    let (Some(one), Some(two)) = (room("one"), room("other")) else { return };
    one.space.run(|| {
        let (mut first, mut second) = (one.load().unwrap(), two.load().unwrap());
        first.attach_tc(LOOPBACK).unwrap();
        second.attach_tc(LOOPBACK).unwrap();
        let steered = first.steer(Some(cgroup::own())).unwrap();
        let also = second.steer(Some(cgroup::own())).unwrap();
        drop((steered, first));
        // The second's hooks are still in place, and traffic still flows.
        assert_eq!(two.names("links").len(), 6);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop((also, second));
        assert!(!one.root.exists() && !two.root.exists());
    });
}

#[test]
fn status_shows_what_is_attached_and_steered_without_the_daemon() {
    let Some(room) = room("status") else { return };
    room.crashed(|kernel| {
        room.space.run(|| kernel.attach_tc(LOOPBACK)).unwrap();
        let mut steering = room.space.run(|| kernel.steer(Some(cgroup::own()))).unwrap();
        steering.beat().unwrap();
    });
    let flags = BpfStatusFlags { root: room.root.clone(), flows: 20, json: false };
    let text = cli::bpf_status(&flags).unwrap();
    for part in ["splice_in", "interface 1", "steer_connect4", "steering acts", "chunks moved"] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    assert!(count(&text, "connections to an endpoint") >= 1, "the self-test's:\n{text}");
}

/// Number at the end of the line that begins with `name`.
fn count(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

#[test]
fn maps_read_like_tables_with_the_kernels_own_tool() {
    let Some(room) = room("bpftool") else { return };
    if !Path::new("/usr/sbin/bpftool").exists() {
        eprintln!("skipped: no bpftool");
        return;
    }
    let kernel = room.load().unwrap();
    let mut bpftool = Command::new("/usr/sbin/bpftool");
    bpftool.args(["map", "dump", "pinned"]).arg(kernel.maps().join("heartbeat"));
    let output = bpftool.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("at_ns") && text.contains("pid"), "{text}");
}
