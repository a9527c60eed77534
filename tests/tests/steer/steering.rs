//! `connect()` to a virtual address. All tests share a cgroup, so each has an address of
//! its own; the listeners are in the test's network namespace.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use gateway_common::address::SocketAddress;
use gateway_common::splice::MARK_UPSTREAM;
use gateway_common::steer::{CANDIDATES, Candidate, Pool};
use inference_gateway::kernel::steer::Steering;
use inference_gateway::kernel::{AtExit, Kernel, Off};
use socket2::{Domain, Socket, Type};

use crate::{cgroup, room};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

fn listeners(count: usize) -> Vec<TcpListener> {
    (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect()
}

fn place(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().unwrap()
}

fn pool(mode: u32, gateway: SocketAddress, endpoints: &[SocketAddr]) -> Pool {
    let mut candidates = [Candidate::default(); CANDIDATES];
    for (place, (candidate, endpoint)) in candidates.iter_mut().zip(endpoints).enumerate() {
        let endpoint = SocketAddress::of(*endpoint);
        *candidate =
            Candidate { address: endpoint, endpoint: place as u32, step: 1000, ..*candidate };
    }
    Pool { id: 0, mode, generation: 1, count: endpoints.len() as u32, gateway, candidates }
}

fn vip(last: u8) -> SocketAddr {
    (Ipv4Addr::new(127, 9, 9, last), 8000).into()
}

fn steering(kernel: &mut Kernel) -> Steering {
    let mut steering = kernel.steer(Some(cgroup::own())).unwrap();
    steering.beat().unwrap();
    steering
}

fn refused(to: SocketAddr) -> bool {
    matches!(TcpStream::connect(to), Err(error) if error.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn a_connection_goes_to_an_endpoint_and_calls_it_by_the_virtual_address() {
    let Some(room) = room("connection") else { return };
    let mut kernel = room.load().unwrap();
    room.space.run(|| {
        let mut steering = steering(&mut kernel);
        let (ends, vip) = (listeners(1), vip(1));
        let to = place(&ends[0]);
        steering.publish(vip, &pool(Pool::CONNECTION, SocketAddress::default(), &[to])).unwrap();
        // The self-test's.
        let before = steering.picks().at(0);

        let stream = TcpStream::connect(vip).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), vip);
        let (accepted, _) = ends[0].accept().unwrap();
        assert_eq!(accepted.local_addr().unwrap(), to);
        assert_eq!(steering.picks().at(0), before + 1);

        // What is for somebody else goes there, and is called what it is.
        let plain = TcpStream::connect(to).unwrap();
        assert_eq!(plain.peer_addr().unwrap(), to);
    });
}

#[test]
fn an_ipv4_address_in_an_ipv6_socket_is_steered_too() {
    let Some(room) = room("mapped") else { return };
    let mut kernel = room.load().unwrap();
    room.space.run(|| {
        let mut steering = steering(&mut kernel);
        let (ends, vip) = (listeners(1), vip(2));
        let to = place(&ends[0]);
        steering.publish(vip, &pool(Pool::CONNECTION, SocketAddress::default(), &[to])).unwrap();

        let socket = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
        let IpAddr::V4(ip) = vip.ip() else { unreachable!() };
        let mapped = SocketAddr::new(ip.to_ipv6_mapped().into(), vip.port());
        socket.connect(&mapped.into()).unwrap();
        assert_eq!(socket.peer_addr().unwrap().as_socket(), Some(mapped));
        ends[0].accept().unwrap();
    });
}

#[test]
fn an_address_of_ipv6_is_steered_to_endpoints_of_ipv6() {
    let Some(room) = room("ipv6") else { return };
    let mut kernel = room.load().unwrap();
    room.space.run(|| {
        let mut steering = steering(&mut kernel);
        let old = listeners(1).remove(0);
        let new = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        // Nobody has this address; an unsteered connection has no route.
        let vip = SocketAddr::from((Ipv6Addr::new(0xfd00, 9, 9, 0, 0, 0, 0, 1), 8000));
        assert!(TcpStream::connect(vip).is_err());
        let of = |to: &TcpListener| pool(Pool::CONNECTION, SocketAddress::default(), &[place(to)]);
        steering.publish(vip, &of(&new)).unwrap();
        let stream = TcpStream::connect(vip).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), vip);
        let (accepted, _) = new.accept().unwrap();
        assert_eq!(accepted.local_addr().unwrap(), place(&new));
        // A socket of IPv6 might refuse an address of IPv4: then it goes where it says.
        steering.publish(vip, &of(&old)).unwrap();
        assert!(TcpStream::connect(vip).is_err());
    });
}

#[test]
fn in_request_mode_connections_go_to_the_gateway() {
    let Some(room) = room("request") else { return };
    let mut kernel = room.load().unwrap();
    room.space.run(|| {
        let mut steering = steering(&mut kernel);
        let (gateway, vip) = (listeners(1), vip(3));
        let to = place(&gateway[0]);
        steering.publish(vip, &pool(Pool::REQUEST, SocketAddress::of(to), &[])).unwrap();
        let stream = TcpStream::connect(vip).unwrap();
        gateway[0].accept().unwrap();
        assert_eq!(stream.peer_addr().unwrap(), vip);
    });
}

#[test]
fn newcomers_between_two_scores_spread_over_the_endpoints() {
    let Some(room) = room("spread") else { return };
    let mut kernel = room.load().unwrap();
    room.space.run(|| {
        let mut steering = steering(&mut kernel);
        let (ends, vip) = (listeners(4), vip(4));
        let to: Vec<_> = ends.iter().map(place).collect();
        let mut pool = pool(Pool::CONNECTION, SocketAddress::default(), &to);
        for place in 0..4 {
            pool.candidates[place].seen = steering.picks().at(place as u32) as u32;
        }
        steering.publish(vip, &pool).unwrap();
        let before: Vec<u64> = (0..4).map(|place| steering.picks().at(place)).collect();
        let open: Vec<_> = (0..100).map(|_| TcpStream::connect(vip).unwrap()).collect();
        assert_eq!(open.len(), 100);
        for (place, before) in (0..4).zip(before) {
            // Drawn without looking, 4 endpoints would differ by more in most runs.
            let share = steering.picks().at(place) - before;
            assert!((20..=30).contains(&share), "endpoint {place} has {share} of 100");
        }
    });
}

#[test]
fn a_pool_without_endpoints_leaves_connections_as_they_are() {
    let Some(room) = room("empty") else { return };
    let mut kernel = room.load().unwrap();
    room.space.run(|| {
        let mut steering = steering(&mut kernel);
        let (ends, vip) = (listeners(1), vip(5));
        let to = place(&ends[0]);
        steering.publish(vip, &pool(Pool::CONNECTION, SocketAddress::default(), &[to])).unwrap();
        let _old = TcpStream::connect(vip).unwrap();
        let (mut old, _) = ends[0].accept().unwrap();

        // The last endpoint drains: it keeps what it has and gets nothing new.
        steering.publish(vip, &pool(Pool::CONNECTION, SocketAddress::default(), &[])).unwrap();
        assert!(refused(vip));
        io::Write::write_all(&mut old, b"still there").unwrap();
    });
}

#[test]
fn without_a_sign_of_life_connections_go_where_they_say() {
    let Some(room) = room("silence") else { return };
    let mut kernel = room.load().unwrap();
    room.space.run(|| {
        let mut steering = steering(&mut kernel);
        let (ends, vip) = (listeners(1), vip(6));
        let to = place(&ends[0]);
        steering.publish(vip, &pool(Pool::CONNECTION, SocketAddress::default(), &[to])).unwrap();
        TcpStream::connect(vip).unwrap();
        let silent = Instant::now();
        while !refused(vip) {
            assert!(silent.elapsed() < PATIENCE, "steered without a sign of life");
            // Or the queue is full before the time is over.
            ends[0].accept().unwrap();
        }
        // Alive again.
        steering.beat().unwrap();
        TcpStream::connect(vip).unwrap();
        steering.rest();
        assert!(refused(vip));
    });
}

#[test]
fn the_daemons_own_sockets_are_not_steered() {
    let Some(room) = room("own") else { return };
    let mut kernel = room.load().unwrap();
    room.space.run(|| {
        let mut steering = steering(&mut kernel);
        let (ends, vip) = (listeners(1), vip(7));
        let to = place(&ends[0]);
        steering.publish(vip, &pool(Pool::CONNECTION, SocketAddress::default(), &[to])).unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_mark(MARK_UPSTREAM).unwrap();
        let error = socket.connect(&vip.into()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_successor_takes_the_hooks_over_and_takes_them_away_at_its_end() {
    let Some(room) = room("successor") else { return };
    room.space.run(|| {
        let (ends, vip) = (listeners(1), vip(8));
        let to = place(&ends[0]);
        let published = pool(Pool::CONNECTION, SocketAddress::default(), &[to]);
        room.crashed(|kernel| {
            let mut steering = steering(kernel);
            steering.publish(vip, &published).unwrap();
        });
        // The dead daemon's programs act until its last sign of life is too old.
        TcpStream::connect(vip).unwrap();
        let hooks = ["steer_connect4", "steer_connect6", "steer_peername4", "steer_peername6"];
        assert_eq!(room.names("links"), hooks);

        let mut kernel = room.load().unwrap();
        let mut steering = steering(&mut kernel);
        assert_eq!(room.names("links"), hooks);
        assert!(refused(vip), "the dead daemon's pool is still there");
        steering.publish(vip, &published).unwrap();
        TcpStream::connect(vip).unwrap();
        drop(steering);
        assert_eq!(room.names("links"), Vec::<String>::new());
        assert!(refused(vip));
    });
}

#[test]
fn a_cgroup_that_is_not_there_is_named() {
    let Some(room) = room("nogroup") else { return };
    let mut kernel = Kernel::load(&room.root, AtExit::Detach).unwrap();
    let error = kernel.steer(Some("/proc/self/no-such-cgroup".as_ref())).unwrap_err();
    assert!(matches!(error, Off::Attach(_)), "{error}");
    assert!(error.to_string().contains("/proc/self/no-such-cgroup"), "{error}");
}
