//! What cannot happen to a daemon's answer unless the kernel is out of memory.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use gateway_common::sk_msg::Stream;
use gateway_common::splice::MARK_UPSTREAM;
use socket2::{Domain, SockRef, Socket, Type};

use super::armed::NotNow;
use super::trial::Ends;
use super::{SkMsg, field, trial};
use crate::kernel::apart::apart;
use crate::kernel::{AtExit, Kernel, object};
use crate::splice::shared::ORDER;

/// Attached programs with maps of their own; none, with a message, where that cannot be.
fn programs(name: &str) -> Option<(Kernel, Arc<SkMsg>)> {
    let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let root =
        PathBuf::from(format!("/sys/fs/bpf/inference-gateway-{name}-{}", std::process::id()));
    let load = || {
        let mut kernel = Kernel::load(&root, AtExit::Detach)?;
        kernel.attach_sk_msg(None)?;
        Ok::<_, crate::kernel::Off>(kernel)
    };
    match load() {
        Ok(kernel) => {
            let maps = SkMsg::new(&kernel.maps()).unwrap();
            Some((kernel, maps))
        }
        Err(error) => {
            assert!(!ci && (object().is_none() || !is_root()), "{error}");
            eprintln!("skipped: this test needs root and kernel programs: {error}");
            None
        }
    }
}

fn is_root() -> bool {
    // SAFETY: the call takes nothing and always succeeds.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn the_self_test_passes_here_and_leaves_nothing() {
    let Some((_kernel, maps)) = programs("trial") else { return };
    for _ in 0..3 {
        trial::run(&maps).unwrap();
    }
    for stream in 1..gateway_common::sk_msg::STREAMS {
        assert_eq!(maps.streams.u64_at(stream, field::COOKIE).load(ORDER), 0);
    }
    let books = maps.lock();
    assert_eq!(books.wanted.keys().count(), 0);
    assert_eq!(books.clients.keys().count(), 0, "closed sockets leave the map");
}

/// A chunk with so many bytes of content.
fn chunk(content: usize) -> Vec<u8> {
    [format!("{content:x}\r\n").as_bytes(), &vec![b'x'; content], b"\r\n"].concat()
}

#[test]
fn a_push_that_the_clients_socket_cuts_is_found() {
    let Some((_kernel, maps)) = programs("short") else { return };
    let cut = || {
        let mut ends = Ends::open(&maps)?;
        ends.by_user(b"5\r\nfirst\r\n")?;
        let armed = ends.upstream.arm(ends.received, &ends.downstream, &ends.down).unwrap();
        // Behind the daemon's back: far less room than the credit was given for.
        SockRef::from(&ends.down).set_send_buffer_size(1)?;
        ends.engine.set_nonblocking(true)?;
        let chunk = chunk(20_000);
        let mut whole = 0;
        let short = loop {
            match ends.engine.write(&chunk) {
                Ok(sent) if sent == chunk.len() => whole += 1,
                other => break other,
            }
        };
        assert!(whole < 200, "the credit would have ended: {short:?}");
        let (moved, owed) = armed.take_back();
        assert!(moved.chunks > whole, "{moved:?} after {whole} whole chunks");
        assert!(!owed.is_paid(&ends.down), "{owed:?} after {short:?}");
        std::io::Result::Ok(())
    };
    apart(cut).unwrap().unwrap();
}

#[test]
fn nothing_is_armed_behind_what_was_read_or_for_a_client_that_does_not_read() {
    let Some((_kernel, maps)) = programs("behind") else { return };
    let behind = || {
        let mut ends = Ends::open(&maps)?;
        ends.engine.write_all(b"5\r\nfirst\r\n")?;
        let arm = |ends: &Ends, received| {
            ends.upstream.arm(received, &ends.downstream, &ends.down).map(drop)
        };
        assert_eq!(arm(&ends, 0), Err(NotNow::Behind));
        ends.up.read_exact(&mut [0; 10])?;
        assert_eq!(arm(&ends, 10), Ok(()));
        assert_eq!(arm(&ends, 11), Err(NotNow::Behind));
        // A short call of the engine's, counted in full, is forgotten at the next request.
        ends.upstream.begin(7);
        assert_eq!((arm(&ends, 10), arm(&ends, 7)), (Err(NotNow::Behind), Ok(())));
        ends.down.set_nonblocking(true)?;
        while ends.down.write(&[b'x'; 4096]).is_ok() {}
        assert_eq!(arm(&ends, 7), Err(NotNow::Slow));
        std::io::Result::Ok(())
    };
    apart(behind).unwrap().unwrap();
}

/// `EBUSY`.
const BUSY: u32 = 16;

#[test]
fn a_socket_that_another_agent_has_is_left_to_it() {
    let Some((_others, theirs)) = programs("first") else { return };
    let Some((_kernel, ours)) = programs("second") else { return };
    let both = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_mark(MARK_UPSTREAM)?;
        let [first, second] = [&theirs, &ours].map(|maps| maps.want(&socket).unwrap());
        socket.connect(&listener.local_addr()?.into())?;
        let (mut engine, _) = listener.accept()?;
        engine.write_all(b"heard all the same")?;
        let mut up: TcpStream = socket.into();
        up.read_exact(&mut [0; 18])?;
        assert!(first.is_enrolled() && !second.is_enrolled());
        let stream = ours.streams.read(second.stream);
        assert_eq!((stream.state, stream.error), (Stream::REFUSED, BUSY));
        std::io::Result::Ok(())
    };
    apart(both).unwrap().unwrap();
}

#[test]
fn a_stream_whose_owner_is_gone_moves_nothing_of_what_its_other_end_sends() {
    let Some((_kernel, maps)) = programs("gone") else { return };
    let gone = || {
        let Ends { mut engine, mut up, upstream, down, downstream, mut client, .. } =
            Ends::open(&maps)?;
        let stream = upstream.stream;
        let armed = upstream.arm(0, &downstream, &down).unwrap();
        drop((armed, upstream));
        // Another connection has the entry, and is armed.
        let next = Stream { cookie: 1, word: 1 << 63, credit: u32::MAX, ..Stream::default() };
        maps.streams.write(stream, &Stream { client: downstream.cookie, ..next });
        engine.write_all(b"5\r\nfirst\r\n")?;
        let mut heard = [0; 10];
        up.read_exact(&mut heard)?;
        assert_eq!(&heard, b"5\r\nfirst\r\n");
        client.set_nonblocking(true)?;
        assert!(client.read(&mut heard).is_err(), "it went to somebody else's client");
        std::io::Result::Ok(())
    };
    apart(gone).unwrap().unwrap();
}
