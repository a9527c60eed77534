//! Bad wires: what is lost is sent again, what is doubled is heard once, what is out of
//! order is put into order.

use std::time::Duration;

use gateway_tests::client::RawClient;
use gateway_tests::net::{Faults, Namespace, Network};
use tokio::task::JoinSet;

use super::site::{Datapath, Site, answer_all, request_by};
use super::story::{Length, Story};
use super::{on_every_path, size};

on_every_path!(
    doubled_packets_are_heard_once,
    late_duplicates_change_nothing,
    lost_packets_come_again,
    overtaken_packets_find_their_place,
    streams_survive_everything_at_once,
);

fn lost_packets_come_again(path: Datapath) {
    converse(path, Faults { loss: 0.02, ..Faults::default() });
}

fn doubled_packets_are_heard_once(path: Datapath) {
    converse(path, Faults { duplicate: 0.1, ..Faults::default() });
}

/// A handshake's packets, too, come once more when the connection is in use.
fn late_duplicates_change_nothing(path: Datapath) {
    let held = Duration::from_millis(30);
    converse(path, Faults { duplicate: 0.5, reorder: 0.2, held, ..Faults::default() });
}

fn overtaken_packets_find_their_place(path: Datapath) {
    converse(path, Faults { reorder: 0.05, ..Faults::default() });
}

fn streams_survive_everything_at_once(path: Datapath) {
    converse(path, Faults { loss: 0.02, duplicate: 0.05, reorder: 0.05, ..Faults::default() });
}

const CLIENTS: u64 = 4;
const ANSWERS: u64 = 3;

/// What a client hears as its so-manieth answer.
fn story(client: u64, answer: u64) -> Story {
    let story = Story::of(ANSWERS * client + answer, 150);
    if answer == 1 { Story { length: Length::Between(30, 4000), ..story } } else { story }
}

/// Several conversations of several answers over wires with these faults.
fn converse(path: Datapath, faults: Faults) {
    if !Namespace::can_be_made() {
        return;
    }
    for seed in 0..size(2, 50) as u64 {
        let net = Network::over_wires(1, faults, 100 * seed).unwrap();
        let Some((site, mut engine)) = Site::over(path, net) else { return };
        site.play(async {
            let mut clients = JoinSet::new();
            for number in 0..CLIENTS {
                let client = site.connect().await;
                clients.spawn(listen(client, number));
            }
            // Whose connection to the engine is used for what is the gateway's business.
            let mut answering = JoinSet::new();
            while !clients.is_empty() {
                tokio::select! {
                    exchange = engine.exchange() => drop(answering.spawn(answer_all(exchange, asked))),
                    Some(done) = clients.join_next() => done.unwrap(),
                }
            }
        });
        // Of those, as many as there was time for were moved. What is out of order goes to
        // user space, and with luck everything is.
        if faults.reorder == 0.0 {
            site.play(site.hear_in_step(&mut engine, Story::of(seed, 50)));
            site.assert_taken(path);
        }
        let wires = site.net.cables().filter_map(|cable| cable.wire.as_ref());
        let done = wires.map(|wire| wire.done().iter().sum::<u64>());
        assert!(done.sum::<u64>() > 0, "seed {seed}: the wires were perfect");
    }
}

/// A client of several answers.
async fn listen(mut client: RawClient, number: u64) {
    for answer in 0..ANSWERS {
        client.send(&request_by(story(number, answer).seed)).await.unwrap();
        story(number, answer).hear(&mut client).await;
    }
}

fn asked(number: u64) -> Story {
    story(number / ANSWERS, number % ANSWERS)
}
