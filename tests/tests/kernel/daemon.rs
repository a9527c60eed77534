//! The gateway as a process: killed, stopped, started again.

use std::net::SocketAddr;
use std::time::Instant;

use gateway_tests::client::RawClient;
use gateway_tests::net::{Network, Room};
use gateway_tests::wait::{eventually, soon};
use inference_gateway::app::App;
use inference_gateway::config::Config;
use inference_gateway::reload::Source;

use super::ends::{WITHIN, assert_unfinished, closed_at_once};
use super::on_every_path;
use super::process::{self, Process};
use super::scripted::{END, EVENTS, Exchange, Scripted};
use super::site::{Datapath, config, request};
use super::story::Story;

on_every_path!(
    a_daemon_that_is_killed_leaves_no_whole_answer_and_no_trace,
    a_daemon_that_is_told_to_stop_ends_its_answers_first,
);

#[test]
#[ignore = "the daemon of other tests, which start it as a process"]
fn the_daemon() {
    let Some(yaml) = process::input() else { return };
    let app = App::start(Config::parse(&yaml).unwrap(), Source::Flags).unwrap();
    process::listening(app.addresses[0]);
    app.run();
}

/// A running daemon; killed when dropped.
struct Daemon(Process);

impl Daemon {
    /// Starts a daemon in the gateway's namespace; `None` when this build has not the path.
    fn start(net: &Network, path: Datapath, port: u16, engine: SocketAddr) -> Option<Self> {
        let yaml = config(path, (path.front(net), port).into(), &[engine]);
        path.is_here().then(|| Self(Process::start(&net.gateway, "daemon::the_daemon", &yaml)))
    }

    async fn ask(&self) -> RawClient {
        let mut client = soon(RawClient::connect(self.0.addr)).await.unwrap();
        client.send(&request()).await.unwrap();
        client
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
    fn new(path: Datapath) -> Option<Self> {
        let net = Network::for_test(1)?;
        let client = Room::new(&net.client, 1).unwrap();
        let pod = Room::new(&net.pods[0].namespace, 1).unwrap();
        let engine = pod.block_on(Scripted::start_at(path.engine(&net)));
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
    let Some(Around { net, client, _pod, mut engine }) = Around::new(path) else { return };
    let Some(mut daemon) = Daemon::start(&net, path, 0, engine.addr) else { return };
    client.block_on(async {
        for _ in 0..3 {
            let begun = begun(&daemon, &mut engine).await;
            let port = daemon.0.addr.port();
            let killed = Instant::now();
            daemon.0.signal(libc::SIGKILL);
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
    let Some(Around { net, client, _pod, mut engine }) = Around::new(path) else { return };
    let Some(mut daemon) = Daemon::start(&net, path, 0, engine.addr) else { return };
    client.block_on(async {
        let begun = begun(&daemon, &mut engine).await;
        daemon.0.signal(libc::SIGTERM);
        let refused = async { while RawClient::connect(daemon.0.addr).await.is_ok() {} };
        soon(refused).await;
        for (story, mut client, mut exchange) in begun {
            for number in HEARD..story.chunks {
                exchange.send(&story.frame(number)).await;
            }
            exchange.send(END).await;
            story.hear_rest(&mut client, HEARD).await;
        }
        eventually(|| daemon.0.ended().is_some_and(|status| status.success())).await;
    });
}
