//! A whole daemon with virtual addresses, in a namespace of its own.
//!
//! Its programs are on the root cgroup, as on a node.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use inference_gateway::app::App;
use inference_gateway::args::BpfStatusFlags;
use inference_gateway::cli;
use inference_gateway::config::Config;
use inference_gateway::reload::Source;

use crate::room;
use crate::room::hooks;

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
    start_on("user", pool)
}

fn start_on(datapath: &str, pool: &str) -> App {
    let yaml = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\nlog: {{ access: off }}\n\
         pools:\n- name: p\n  modelName: m\n  metrics: off\n  datapath: {datapath}\n{pool}"
    );
    App::start(Config::parse(&yaml).unwrap(), Source::Flags).unwrap()
}

/// The whole answer to one request.
fn ask(stream: &mut TcpStream, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A page of the operators' port.
fn page(app: &App, path: &str) -> String {
    ask(&mut TcpStream::connect(app.admin).unwrap(), path)
}

#[test]
fn the_splice_is_tried_at_the_start_and_everybody_is_told() {
    let Some(room) = room("tried") else { return };
    room.space.run(|| {
        let app = start_on("splice", "  endpoints: [\"http://127.0.0.1:9\"]\n");
        let flags = BpfStatusFlags { root: pins(), flows: 20, json: true };
        let report: serde_json::Value =
            serde_json::from_str(&cli::bpf_status(&flags).unwrap()).unwrap();
        let splice = &report["kernel"]["paths"][0];
        assert_eq!((&splice["path"], &splice["state"]), (&"splice".into(), &"on".into()));
        let why = splice["why"].as_str().unwrap();
        assert!(why.starts_with("self-test passed in "), "{why}");
        assert_eq!(report["kernel"]["paths"][1]["state"], "not asked for");
        assert_eq!(report["kernel"]["flows"]["shown"], serde_json::json!([]));
        let metrics = page(&app, "/metrics");
        assert!(metrics.contains("inference_gateway_kernel_path{path=\"splice\"} 1"), "{metrics}");
        assert!(page(&app, "/status.json").contains(why), "the status page does not say it");
    });
}

#[test]
fn new_interfaces_get_the_programs_as_soon_as_they_are_there() {
    let Some(room) = room("new") else { return };
    room.space.run(|| {
        let _app = start_on("splice", "  endpoints: [\"http://127.0.0.1:9\"]\n");
        let hooks = |interfaces: &[&str]| hooks(&pins().join("links"), interfaces);
        until("on loopback", || hooks(&["lo"]) == 2);
        let start = Instant::now();
        let mut all = vec!["lo".to_owned()];
        // Both ends of a cable are here, with two programs each.
        for number in 1..=5 {
            let ends = [format!("a{number}"), format!("b{number}")];
            room.space
                .ip(&format!("link add {} type veth peer name {}", ends[0], ends[1]))
                .unwrap();
            all.extend(ends);
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            until("on both ends", || hooks(&all) == 2 + 4 * number);
        }
        // Looked for every two seconds they would have taken eight. Where everything is
        // emulated, looking takes as long.
        let is_emulated = std::env::var("GATEWAY_TEST_SIZE").is_ok_and(|size| size == "small");
        let took = start.elapsed();
        assert!(is_emulated || took < Duration::from_secs(6), "{took:?}");
    });
}

#[test]
fn connections_to_a_pool_reach_its_endpoint_until_the_daemon_stops() {
    let vip = SocketAddr::from((Ipv4Addr::new(127, 9, 8, 1), 8000));
    reach_its_endpoint("daemon", Ipv4Addr::LOCALHOST.into(), vip);
}

#[test]
fn connections_over_ipv6_reach_their_endpoint_until_the_daemon_stops() {
    let vip = SocketAddr::from((Ipv6Addr::new(0xfd00, 9, 8, 0, 0, 0, 0, 1), 8000));
    reach_its_endpoint("daemon6", Ipv6Addr::LOCALHOST.into(), vip);
}

fn reach_its_endpoint(name: &str, engine: IpAddr, vip: SocketAddr) {
    let Some(room) = room(name) else { return };
    room.space.run(|| {
        let engine = TcpListener::bind((engine, 0)).unwrap();
        let to = engine.local_addr().unwrap();
        let app = start(&format!(
            "  virtualIp: \"{vip}\"\n  mode: connection\n  endpoints: [\"http://{to}\"]\n"
        ));
        until("steered", || TcpStream::connect(vip).is_ok());
        let (accepted, _) = engine.accept().unwrap();
        assert_eq!(accepted.local_addr().unwrap(), to);
        let stream = TcpStream::connect(vip).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), vip);
        let picks = format!("inference_gateway_steered_total{{endpoint=\"{to}\",pool=\"p\"}} 2");
        let metrics = page(&app, "/metrics");
        assert!(metrics.contains(&picks), "no `{picks}` in\n{metrics}");
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
        let vip = SocketAddr::from((Ipv4Addr::new(127, 9, 8, 2), 8000));
        let app = start(&format!("  virtualIp: {vip}\n  endpoints: [\"http://127.0.0.1:9\"]\n"));
        until("steered", || TcpStream::connect(vip).is_ok());
        let mut stream = TcpStream::connect(vip).unwrap();
        let answer = ask(&mut stream, "/v1/models");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(app);
    });
}
