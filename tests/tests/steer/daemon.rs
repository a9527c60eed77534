//! A whole daemon with virtual addresses, in a namespace of its own.
//!
//! Its programs are on the root cgroup, as on a node.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use inference_gateway::app::App;
use inference_gateway::config::Config;
use inference_gateway::reload::Source;

use crate::room;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}

/// Where a daemon in this network namespace has its pins.
fn pins() -> PathBuf {
    let inode = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    PathBuf::from(format!("/sys/fs/bpf/inference-gateway-net-{inode}"))
}

fn start(pool: &str) -> App {
    let yaml = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\nlog: {{ access: off }}\n\
         pools:\n- name: p\n  modelName: m\n  metrics: off\n  datapath: user\n{pool}"
    );
    App::start(Config::parse(&yaml).unwrap(), Source::Flags).unwrap()
}

#[test]
fn connections_to_a_pool_reach_its_endpoint_until_the_daemon_stops() {
    let Some(room) = room("daemon") else { return };
    room.space.run(|| {
        let engine = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = engine.local_addr().unwrap();
        let vip = SocketAddrV4::new(Ipv4Addr::new(127, 9, 8, 1), 8000);
        let app = start(&format!(
            "  virtualIp: {vip}\n  mode: connection\n  endpoints: [\"http://{to}\"]\n"
        ));
        until("steered", || TcpStream::connect(vip).is_ok());
        let (accepted, _) = engine.accept().unwrap();
        assert_eq!(accepted.local_addr().unwrap(), to);
        let stream = TcpStream::connect(vip).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), SocketAddr::V4(vip));
        assert!(pins().is_dir());
        drop(app);
        assert!(!pins().exists(), "{} is still there", pins().display());
        until("left alone", || TcpStream::connect(vip).is_err());
    });
}

#[test]
fn in_request_mode_the_gateway_itself_answers_at_the_virtual_address() {
    let Some(room) = room("daemon-request") else { return };
    room.space.run(|| {
        let vip = SocketAddrV4::new(Ipv4Addr::new(127, 9, 8, 2), 8000);
        let app = start(&format!("  virtualIp: {vip}\n  endpoints: [\"http://127.0.0.1:9\"]\n"));
        until("steered", || TcpStream::connect(vip).is_ok());
        let mut stream = TcpStream::connect(vip).unwrap();
        let request = b"GET /v1/models HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n";
        std::io::Write::write_all(&mut stream, request).unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(app);
    });
}
