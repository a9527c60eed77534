//! The gateway as a process: killed, stopped, started again.
//!
//! The process is this test program itself, told to run one "test" that is the daemon: so
//! it needs no other program to be built, and dies with the test.

use std::io::{BufRead as _, BufReader, Lines};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Instant;

use gateway_tests::client::RawClient;
use gateway_tests::net::{Network, Room};
use gateway_tests::wait::{eventually, soon};
use inference_gateway::app::App;
use inference_gateway::config::Config;
use inference_gateway::reload::Source;

use super::ends::{WITHIN, assert_unfinished, closed_at_once};
use super::on_every_path;
use super::scripted::{END, EVENTS, Exchange, Scripted};
use super::site::{Datapath, config, request};
use super::story::Story;

on_every_path!(
    a_daemon_that_is_killed_leaves_no_whole_answer_and_no_trace,
    a_daemon_that_is_told_to_stop_ends_its_answers_first,
);

const CONFIG: &str = "GATEWAY_TEST_CONFIG";

#[test]
#[ignore = "the daemon of other tests, which start it as a process"]
fn the_daemon() {
    let Ok(yaml) = std::env::var(CONFIG) else { return };
    let app = App::start(Config::parse(&yaml).unwrap(), Source::Flags).unwrap();
    // On a line of its own, whatever the test runner has printed of this one.
    println!("\nlistening on {}", app.addresses[0]);
    app.run();
}

/// A running daemon; killed when dropped.
struct Daemon {
    child: Child,
    front: SocketAddr,
    /// The process could not end well if nobody took its last words.
    _words: Lines<BufReader<ChildStdout>>,
}

impl Daemon {
    /// Starts a daemon in the gateway's namespace; `None` when this build has not the path.
    fn start(net: &Network, path: Datapath, port: u16, engine: SocketAddr) -> Option<Self> {
        let yaml = config(path, (net.front(), port).into(), &[engine]);
        if !path.is_here() {
            return None;
        }
        let mut command = net.gateway.command(std::env::current_exe().unwrap());
        command.args(["daemon::the_daemon", "--exact", "--ignored", "--nocapture"]);
        command.env(CONFIG, yaml).stdout(Stdio::piped());
        // SAFETY: the closure runs between fork and exec, makes one async-signal-safe
        // system call and touches no memory of the parent.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let front = lines.find_map(|line| line.ok()?.strip_prefix("listening on ")?.parse().ok());
        let front = front.expect("the daemon ended before it listened");
        Some(Self { child, front, _words: lines })
    }

    fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: no memory is involved. The child was not waited for, so that the number
        // is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    async fn ask(&self) -> RawClient {
        let mut client = soon(RawClient::connect(self.front)).await.unwrap();
        client.send(&request()).await.unwrap();
        client
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Either fails only when the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where everything but the daemon is.
struct Around {
    net: Network,
    client: Room,
    // Its tasks run as long as it lives.
    _pod: Room,
    engine: Scripted,
}

impl Around {
    fn new() -> Option<Self> {
        let net = Network::for_test(1)?;
        let client = Room::new(&net.client, 1).unwrap();
        let pod = Room::new(&net.pods[0].namespace, 1).unwrap();
        let engine = pod.block_on(Scripted::start_at(net.pods[0].address()));
        Some(Self { net, client, _pod: pod, engine })
    }
}

const STREAMS: u64 = 20;
const HEARD: usize = 100;

/// Streams of which a part was heard, and the engine's side of each.
async fn begun(daemon: &Daemon, engine: &mut Scripted) -> Vec<(Story, RawClient, Exchange)> {
    let mut all = Vec::new();
    for seed in 0..STREAMS {
        let story = Story::of(seed, 2 * HEARD);
        let mut client = daemon.ask().await;
        let mut exchange = engine.exchange().await;
        exchange.body().await;
        exchange.send(EVENTS).await;
        for number in 0..HEARD {
            exchange.send(&story.frame(number)).await;
        }
        story.hear_head_and(&mut client, HEARD).await;
        all.push((story, client, exchange));
    }
    all
}

fn a_daemon_that_is_killed_leaves_no_whole_answer_and_no_trace(path: Datapath) {
    let Some(Around { net, client, _pod, mut engine }) = Around::new() else { return };
    let Some(mut daemon) = Daemon::start(&net, path, 0, engine.addr) else { return };
    client.block_on(async {
        for _ in 0..3 {
            let begun = begun(&daemon, &mut engine).await;
            let port = daemon.front.port();
            let killed = Instant::now();
            daemon.signal(libc::SIGKILL);
            for (story, mut client, mut exchange) in begun {
                closed_at_once(&mut exchange, killed, "the daemon was killed").await;
                // The engine may go on for a while; nobody may take that for an answer.
                let _ = exchange.try_send(&story.frame(HEARD)).await;
                let rest = soon(client.rest()).await.unwrap_or_default();
                assert_unfinished(&rest, &story.frame(HEARD), "the daemon was killed");
            }
            assert!(killed.elapsed() < WITHIN * 2, "{:?}", killed.elapsed());
            drop(daemon);
            // The next one has the same address, and what the last one left behind.
            daemon = Daemon::start(&net, path, port, engine.addr).unwrap();
            let story = Story::of(STREAMS, 300);
            let mut client = daemon.ask().await;
            let mut exchange = engine.exchange().await;
            tokio::join!(story.tell(&mut exchange), story.hear(&mut client));
        }
    });
}

fn a_daemon_that_is_told_to_stop_ends_its_answers_first(path: Datapath) {
    let Some(Around { net, client, _pod, mut engine }) = Around::new() else { return };
    let Some(mut daemon) = Daemon::start(&net, path, 0, engine.addr) else { return };
    client.block_on(async {
        let begun = begun(&daemon, &mut engine).await;
        daemon.signal(libc::SIGTERM);
        let refused = async { while RawClient::connect(daemon.front).await.is_ok() {} };
        soon(refused).await;
        for (story, mut client, mut exchange) in begun {
            for number in HEARD..story.chunks {
                exchange.send(&story.frame(number)).await;
            }
            exchange.send(END).await;
            story.hear_rest(&mut client, HEARD).await;
        }
        eventually(|| daemon.child.try_wait().unwrap().is_some_and(|status| status.success()))
            .await;
    });
}
