//! Links and stacks of all kinds: segment sizes, windows, options, offloads, readers that
//! take their time.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gateway_tests::net::{Network, Offloads, Plug, has_tcx};

use super::scripted::{END, EVENTS};
use super::site::{Datapath, Site, request, tell_all};
use super::story::{Length, Story};
use super::{on_every_path, size};

on_every_path!(
    a_reader_of_a_few_bytes_a_second_is_waited_for_in_bounded_memory,
    chunks_cross_between_the_families_of_addresses,
    chunks_cross_links_of_different_segment_sizes,
    chunks_cross_stacks_of_different_options_and_windows,
    chunks_cross_with_offloads_on_and_off,
    chunks_pass_one_at_a_time_whoever_delays_acknowledgements,
    the_way_out_is_skipped_only_where_nobody_looks,
    tiny_windows_let_everything_through,
);

/// Three answers on one connection, of chunks that fill a segment or not.
async fn converse(site: &Site, engine: &mut super::scripted::Scripted) {
    let stories = [
        Story::of(1, size(400, 20_000)),
        Story { length: Length::Between(30, 5000), ..Story::of(2, size(300, 20_000)) },
        Story::of(3, size(400, 20_000)),
    ];
    let mut client = site.ask().await;
    let telling = tokio::spawn(tell_all(engine.exchange().await, stories.to_vec()));
    for (number, story) in stories.iter().enumerate() {
        story.hear(&mut client).await;
        if number + 1 < stories.len() {
            client.send(&request()).await.unwrap();
        }
    }
    telling.await.unwrap();
}

fn chunks_cross_with_offloads_on_and_off(path: Datapath) {
    for offloads in [Offloads::On, Offloads::Off] {
        let Some((site, mut engine)) = Site::new(path) else { return };
        site.net.set_offloads(offloads).unwrap();
        site.play(converse(&site, &mut engine));
    }
    // Whole segments come from one side, and large ones from the other.
    let Some((site, mut engine)) = Site::new(path) else { return };
    site.net.cable.set_offloads(Offloads::Off).unwrap();
    site.play(converse(&site, &mut engine));
}

fn chunks_cross_links_of_different_segment_sizes(path: Datapath) {
    // Client's and pod's link, in bytes: larger to smaller and the other way round.
    let least = if path == Datapath::SpliceIpv6 { 1280 } else { 576 };
    for (near, far) in [(least, 1500), (1500, least), (1500, 9000), (9000, 1500)] {
        for offloads in [Offloads::On, Offloads::Off] {
            let Some(net) = Network::for_test(1) else { return };
            net.cable.set_mtu(near).unwrap();
            net.pods[0].cable.set_mtu(far).unwrap();
            net.set_offloads(offloads).unwrap();
            let Some((site, mut engine)) = Site::over(path, net) else { return };
            site.play(converse(&site, &mut engine));
        }
    }
}

fn chunks_cross_between_the_families_of_addresses(path: Datapath) {
    for [front_is_new, engine_is_new] in [[true, true], [true, false], [false, true]] {
        let Some(net) = Network::for_test(1) else { return };
        let family = |plug: &Plug, new| -> IpAddr {
            if new { plug.address6().into() } else { plug.address.into() }
        };
        let front = family(&net.cable.far, front_is_new);
        let engine = family(&net.pods[0].cable.far, engine_is_new);
        let Some((site, mut engine)) = Site::at(path, net, front, engine) else { return };
        site.play(converse(&site, &mut engine));
    }
}

/// Settings that change what a stack says in its SYN, or may say later.
const STACKS: [&[(&str, &str)]; 6] = [
    &[("net.ipv4.tcp_timestamps", "0")],
    &[("net.ipv4.tcp_sack", "0")],
    &[("net.ipv4.tcp_window_scaling", "0")],
    // A window scale of 0, and one of 14.
    &[("net.ipv4.tcp_rmem", "4096 16384 60000")],
    &[("net.ipv4.tcp_rmem", "4096 131072 2000000000")],
    &[("net.ipv4.tcp_ecn", "1")],
];

fn chunks_cross_stacks_of_different_options_and_windows(path: Datapath) {
    for settings in STACKS {
        for on_client in [true, false] {
            let Some(net) = Network::for_test(1) else { return };
            let place = if on_client { &net.client } else { &net.pods[0].namespace };
            for (setting, value) in settings {
                place.set(setting, value).unwrap();
            }
            let Some((site, mut engine)) = Site::over(path, net) else { return };
            site.play(converse(&site, &mut engine));
        }
    }
}

fn tiny_windows_let_everything_through(path: Datapath) {
    let Some(net) = Network::for_test(1) else { return };
    // The client's window; then the gateway's, towards the engine.
    net.client.set("net.ipv4.tcp_rmem", "4096 4096 4096").unwrap();
    let Some((site, mut engine)) = Site::over(path, net) else { return };
    site.play(converse(&site, &mut engine));
    let Some(net) = Network::for_test(1) else { return };
    net.gateway.set("net.ipv4.tcp_rmem", "4096 4096 4096").unwrap();
    let Some((site, mut engine)) = Site::over(path, net) else { return };
    site.play(converse(&site, &mut engine));
}

fn chunks_pass_one_at_a_time_whoever_delays_acknowledgements(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let story = Story::of(1, size(400, 5000));
    site.play(async {
        let mut client = site.ask().await;
        let mut exchange = engine.exchange().await;
        for _ in 0..3 {
            // Only what was heard is followed by more: nobody has anything to send an
            // acknowledgement with.
            story.tell_in_step(&mut exchange, &mut client).await;
            client.send(&request()).await.unwrap();
            assert!(exchange.read_head().await);
        }
    });
}

/// Who may look at what leaves the gateway's node for a client's pod: nobody, a queueing
/// discipline, another agent's filter.
const LOOKERS: [&[&str]; 3] = [
    &[],
    &["qdisc replace dev DEV root pfifo limit 1000"],
    &[
        "qdisc add dev DEV clsact",
        "filter add dev DEV egress protocol ip prio 1 u32 match u32 0 0 flowid :1",
    ],
];

fn the_way_out_is_skipped_only_where_nobody_looks(path: Datapath) {
    let story = Story::of(1, 200);
    for lookers in LOOKERS {
        let Some(net) = Network::for_test(1) else { return };
        for plug in [&net.cable.far, &net.pods[0].cable.near] {
            for words in lookers {
                plug.traffic_control(words).unwrap();
            }
        }
        let Some((site, mut engine)) = Site::over(path, net) else { return };
        let way_out = &site.net.cable.far;
        let before = way_out.sent_packets().unwrap();
        site.play(site.hear_in_step(&mut engine, story));
        let seen = way_out.sent_packets().unwrap() - before;
        let is_skipped = seen < story.chunks as u64 / 2;
        let is_expected = path.name() == "splice" && lookers.is_empty();
        assert_eq!(is_skipped, is_expected, "{seen} packets left past {lookers:?}");
        // Without TCX an interface with another agent's filter is left alone.
        let has_filter = lookers.iter().any(|words| words.starts_with("filter"));
        let is_left = path.name() == "splice" && has_filter && !has_tcx();
        site.assert_taken(if is_left { Datapath::User } else { path });
        site.play(converse(&site, &mut engine));
    }
}

/// What may be between an engine that sends and a client that does not read, in bytes:
/// the buffers of four sockets of one mebibyte each, and the daemon's own.
const BETWEEN: usize = 12 << 20;

fn a_reader_of_a_few_bytes_a_second_is_waited_for_in_bounded_memory(path: Datapath) {
    let Some(net) = Network::for_test(1) else { return };
    for place in net.namespaces() {
        place.set("net.ipv4.tcp_rmem", "4096 131072 1048576").unwrap();
        place.set("net.ipv4.tcp_wmem", "4096 16384 1048576").unwrap();
    }
    let Some((site, mut engine)) = Site::over(path, net) else { return };
    // Far more than fits between.
    let story = Story { length: Length::Exactly(1000), ..Story::of(1, 4 * BETWEEN / 1000) };
    let sent = Arc::new(AtomicUsize::new(0));
    site.play(async {
        let mut client = site.connect_narrow().await;
        client.send(&request()).await.unwrap();
        let mut exchange = engine.exchange().await;
        let count = Arc::clone(&sent);
        let telling = site.pod.spawn(async move {
            exchange.body().await;
            exchange.send(EVENTS).await;
            for number in 0..story.chunks {
                // Waits for the reader for longer than other tests do for anything.
                exchange.send_slowly(&story.frame(number)).await;
                count.fetch_add(1000, Ordering::Relaxed);
            }
            exchange.send(END).await;
        });
        story.hear_head_and(&mut client, 10).await;
        let mut pace = tokio::time::interval(Duration::from_secs(1));
        let seconds = size(5, 180);
        for number in 10..10 + seconds {
            pace.tick().await;
            story.hear_chunk(&mut client, number).await;
        }
        let held = sent.load(Ordering::Relaxed);
        assert!(held < BETWEEN, "{held} bytes were taken from the engine for {seconds} KB read");
        // And now in haste: nothing was lost meanwhile.
        story.hear_rest(&mut client, 10 + seconds).await;
        telling.await.unwrap();
    });
    // The next one is not harmed.
    site.play(site.hear(&mut engine, Story::of(2, 100)));
}
