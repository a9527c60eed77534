//! From socket to socket: what is particular to it.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aya::maps::{Map, MapData, PerCpuArray};
use gateway_common::LAYOUT;
use gateway_common::sk_msg::{Counters, Stop};
use gateway_tests::client::RawClient;
use gateway_tests::gateway::Gateway;
use gateway_tests::net::{Namespace, Network, Room};
use gateway_tests::wait::{eventually, soon};
use inference_gateway::kernel;

use super::scripted::{END, EVENTS, Exchange, Scripted};
use super::site::{Datapath, Site, config, request};
use super::story::{Length, Story};

/// What the programs have counted in the gateway's namespace.
fn counts(gateway: &Namespace) -> Counters {
    let inode = gateway.run(|| std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino());
    let root = kernel::root();
    let name = root.file_name().unwrap().to_string_lossy().into_owned();
    let maps = root.with_file_name(format!("{name}-net-{inode}")).join(format!("v{LAYOUT}"));
    let map = Map::PerCpuArray(MapData::from_pin(maps.join("msg_counts")).unwrap());
    let each = PerCpuArray::<_, Counters>::try_from(map).unwrap().get(&0, 0).unwrap();
    let mut all = Counters::default();
    for one in each.iter() {
        all.enrolled += one.enrolled;
        all.refused += one.refused;
        all.moved += one.moved;
        all.moved_bytes += one.moved_bytes;
        all.moved_chunks += one.moved_chunks;
        for (sum, stops) in all.stops.iter_mut().zip(one.stops) {
            *sum += stops;
        }
    }
    all
}

#[test]
fn nearly_every_chunk_goes_from_socket_to_socket() {
    let Some((site, mut engine)) = Site::new(Datapath::SkMsg) else { return };
    let chunks = 600;
    site.play(async {
        let mut client = site.ask().await;
        let mut exchange = engine.exchange().await;
        for seed in 0..5 {
            Story::of(seed, chunks).tell_in_step(&mut exchange, &mut client).await;
            client.send(&request()).await.unwrap();
            assert!(exchange.read_head().await);
        }
    });
    let counts = counts(&site.net.gateway);
    assert!(counts.enrolled >= 1 && counts.refused == 0, "{counts:?}");
    assert!(counts.moved_chunks > 5 * chunks as u64 * 19 / 20, "{counts:?}");
    // Now and then a chunk goes through the daemon, which gives new credit.
    let ends = [Stop::Credit, Stop::Last].map(|stop| counts.stops[stop as usize]);
    assert!(ends[0] >= 5 && ends[1] >= 5, "{counts:?}");
}

#[test]
fn an_endpoint_never_waits_for_a_client_that_reads_nothing_but_for_the_daemon() {
    let Some((site, mut engine)) = Site::new(Datapath::SkMsg) else { return };
    // Calls of all sizes, as fast as they are taken.
    let story = Story { length: Length::Between(30, 60_000), ..Story::of(1, 2000) };
    site.play(async {
        for _ in 0..3 {
            let mut client = site.ask().await;
            let mut exchange = engine.exchange().await;
            let sent = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&sent);
            let telling = site.pod.spawn(async move {
                exchange.body().await;
                exchange.send(EVENTS).await;
                for number in 0..story.chunks {
                    let frame = story.frame(number);
                    exchange.send_slowly(&frame).await;
                    count.fetch_add(frame.len(), Ordering::Relaxed);
                }
                exchange.send(END).await;
            });
            story.hear_head_and(&mut client, 5).await;
            // More than the credit, and less than fits between.
            eventually(|| sent.load(Ordering::Relaxed) > 1 << 20).await;
            story.hear_rest(&mut client, 5).await;
            soon(telling).await.unwrap();
        }
    });
    site.assert_taken(Datapath::SkMsg);
}

/// A configuration file that is removed in the end.
struct File(PathBuf);

impl File {
    /// Replaces the content at one stroke.
    fn write(&self, yaml: &str) {
        let next = self.0.with_extension("next");
        std::fs::write(&next, yaml).unwrap();
        std::fs::rename(&next, &self.0).unwrap();
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_reload_sends_new_answers_another_way_and_leaves_those_that_are_on_theirs() {
    let paths = [Datapath::SkMsg, Datapath::Splice, Datapath::User, Datapath::SkMsg];
    if !Datapath::SkMsg.is_here() {
        return;
    }
    let Some(net) = Network::for_test(1) else { return };
    let [client, pod, operator] =
        [&net.client, &net.pods[0].namespace, &net.gateway].map(|place| Room::new(place, 1));
    let (client, pod, operator) = (client.unwrap(), pod.unwrap(), operator.unwrap());
    let mut engine = pod.block_on(Scripted::start_at(net.pods[0].address()));
    let yaml = |path| config(path, (net.front(), 0).into(), &[engine.addr]);
    let place = std::env::temp_dir().join(format!("gateway-sockets-{}.yaml", std::process::id()));
    let file = File(place);
    file.write(&yaml(paths[0]));
    let yamls = paths.map(yaml);
    let gateway = net.gateway.run(|| Gateway::from_file(&file.0)).unwrap();
    let metric = |series: &str| operator.block_on(soon(gateway.metric(series))).unwrap();
    let answers = |path: Datapath| {
        metric(&format!("inference_gateway_answers_total{{path=\"{}\",pool=\"p\"}}", path.name()))
    };
    let story = Story::of(1, 300);
    let begin = async |client: &mut RawClient, exchange: &mut Exchange| {
        exchange.body().await;
        exchange.send(EVENTS).await;
        story.hear_head_and(client, 0).await;
        for number in 0..150 {
            exchange.send(&story.frame(number)).await;
            story.hear_chunk(client, number).await;
        }
    };
    let end = async |client: &mut RawClient, exchange: &mut Exchange| {
        for number in 150..story.chunks {
            exchange.send(&story.frame(number)).await;
            story.hear_chunk(client, number).await;
        }
        exchange.send(END).await;
        story.hear_rest(client, story.chunks).await;
        gateway.idle().await;
    };
    for (number, path) in paths.into_iter().enumerate() {
        let before = answers(path);
        let (mut heard, mut told) = client.block_on(async {
            let mut client = soon(RawClient::connect(gateway.addr())).await.unwrap();
            client.send(&request()).await.unwrap();
            let mut exchange = engine.exchange().await;
            begin(&mut client, &mut exchange).await;
            (client, exchange)
        });
        // In the middle of the answer.
        if let Some(next) = yamls.get(number + 1) {
            file.write(next);
            let reloads = "inference_gateway_config_reloads_total{result=\"ok\"}";
            let before = number as f64;
            let reloaded = async { while gateway.metric(reloads).await.unwrap() <= before {} };
            operator.block_on(soon(reloaded));
        }
        client.block_on(end(&mut heard, &mut told));
        assert!(answers(path) > before, "answer {number} did not take the path {path:?}");
    }
}

#[test]
fn a_pool_that_does_not_accept_a_broken_kernel_is_told_or_has_a_sound_one() {
    if !Datapath::SkMsg.is_here() {
        return;
    }
    let Some(net) = Network::for_test(1) else { return };
    let (client, pod) = (Room::new(&net.client, 1).unwrap(), Room::new(&net.pods[0].namespace, 1));
    let pod = pod.unwrap();
    let mut engine = pod.block_on(Scripted::start_at(net.pods[0].address()));
    let yaml = config(Datapath::SkMsg, (net.front(), 0).into(), &[engine.addr]);
    let yaml = yaml.replace("acceptBrokenFionread: true", "acceptBrokenFionread: false");
    let gateway = net.gateway.run(|| Gateway::start(&yaml)).unwrap();
    let operator = Room::new(&net.gateway, 1).unwrap();
    let page = operator.block_on(soon(gateway.ask("/readyz?verbose"))).unwrap().text();
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let said = page["datapath"]["sk_msg"].as_str().unwrap();
    let is_sound = said == "on for pool p";
    assert!(is_sound || said.contains("acceptBrokenFionread"), "{said}");
    // Answers come all the same.
    let front = gateway.addr();
    client.block_on(async {
        let story = Story::of(1, 300);
        let mut client = soon(RawClient::connect(front)).await.unwrap();
        client.send(&request()).await.unwrap();
        let mut exchange = engine.exchange().await;
        story.tell_in_step(&mut exchange, &mut client).await;
        gateway.idle().await;
    });
    let series = |path| format!("inference_gateway_answers_total{{path=\"{path}\",pool=\"p\"}}");
    let path = if is_sound { "sk_msg" } else { "splice" };
    assert!(operator.block_on(soon(gateway.metric(&series(path)))).unwrap() > 0.0, "{said}");
}
