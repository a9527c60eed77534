//! Maps and splice hooks: there when loaded, gone at the end, cleaned up after a crash.

use std::fs;

use gateway_testnet::has_tcx;
use inference_gateway::kernel::{AtExit, AttachError, Hook, Kernel, Off, root_here};

use crate::room;
use crate::room::{Room, hooks};

/// Index of the loopback interface of every namespace.
const LOOPBACK: u32 = 1;

fn on_loopback(room: &Room) -> usize {
    room.space.run(|| hooks(&room.at("links"), &["lo"]))
}

#[test]
fn maps_are_pinned_by_name_while_the_daemon_lives() {
    let Some(room) = room("maps") else { return };
    let kernel = room.load().unwrap();
    let maps = fs::read_dir(kernel.maps()).unwrap().count();
    assert!(maps >= 7, "{maps} maps");
    assert!(kernel.maps().join("flows").exists());
    drop(kernel);
    assert!(!room.root.exists());
}

#[test]
fn splice_programs_hang_on_an_interface_until_the_daemon_ends() {
    let Some(room) = room("attach") else { return };
    let mut kernel = room.load().unwrap();
    room.space.run(|| kernel.attach_tc(LOOPBACK)).unwrap();
    room.space.run(|| kernel.attach_tc(LOOPBACK)).unwrap();
    let interfaces: Vec<_> = kernel.interfaces().collect();
    assert_eq!(interfaces, [("lo", if has_tcx() { Hook::Tcx } else { Hook::Clsact })]);
    assert_eq!(room.names("links"), ["splice_in-1", "splice_out-1"]);
    assert_eq!(on_loopback(&room), 2);
    room.space.run(|| drop(kernel));
    assert!(!room.root.exists());
    assert_eq!(on_loopback(&room), 0);
}

#[test]
fn an_interface_that_is_not_there_is_an_error_that_names_it() {
    let Some(room) = room("nowhere") else { return };
    let mut kernel = room.load().unwrap();
    let error = room.space.run(|| kernel.attach_tc(4711)).unwrap_err();
    assert!(matches!(error, AttachError::NoInterface { ifindex: 4711, .. }), "{error}");
}

#[test]
fn a_second_daemon_is_told_that_there_is_one() {
    let Some(room) = room("two") else { return };
    let first = room.load().unwrap();
    assert!(matches!(room.load(), Err(Off::Busy { .. })));
    // It has not taken anything from the first.
    assert!(first.maps().join("flows").exists());
    drop(first);
    drop(room.load().unwrap());
}

#[test]
fn what_a_crash_has_left_is_taken_away_whatever_its_layout() {
    let Some(room) = room("crash") else { return };
    room.crashed(|kernel| room.space.run(|| kernel.attach_tc(LOOPBACK)).unwrap());
    assert_eq!(on_loopback(&room), 2);
    // As an older version would have left it.
    fs::create_dir(room.at("v0")).unwrap();
    let stale = fs::read_dir(&room.root).unwrap().count();
    assert_eq!(stale, 3);

    let mut kernel = room.load().unwrap();
    assert_eq!(room.names("links"), Vec::<String>::new());
    assert!(!room.at("v0").exists());
    room.space.run(|| kernel.attach_tc(LOOPBACK)).unwrap();
    assert_eq!(on_loopback(&room), 2);
}

#[test]
fn what_died_with_its_network_namespace_is_taken_away_by_any_daemon() {
    let (Some(room), Some(dead)) = (room("here"), room("gone")) else { return };
    let node = dead.root.clone();
    let gone = dead.space.run(|| root_here(&node));
    // This thread's namespace is in use, the other is not.
    room.space.run(|| {
        let mine = root_here(&node);
        assert!(mine != gone && mine != node && gone != node);
        for root in [&mine, &gone] {
            drop(Kernel::load(root, AtExit::Keep).unwrap());
        }
        let kernel = Kernel::load(&node, AtExit::Detach).unwrap();
        assert!(mine.exists(), "a successor may come");
        assert!(!gone.exists());
        drop(kernel);

        let running = Kernel::load(&gone, AtExit::Detach).unwrap();
        drop(Kernel::load(&node, AtExit::Detach).unwrap());
        assert!(gone.exists(), "its daemon runs");
        drop(running);
        fs::remove_dir_all(mine).unwrap();
    });
}

#[test]
fn a_root_that_is_on_no_bpf_file_system_is_named() {
    let Some(_room) = room("disk") else { return };
    // What cannot be a directory cannot be mounted on.
    let error = Kernel::load("/proc/self/stat/x/root".as_ref(), AtExit::Detach).unwrap_err();
    assert!(matches!(error, Off::NoBpffs { .. }), "{error}");
    assert!(error.to_string().contains("mount -t bpf bpf /proc/self/stat/x"), "{error}");
}
