//! Long, many, oddly cut and huge: whatever the engine sends arrives as it was sent.

use super::scripted::{END, EVENTS};
use super::site::{Datapath, Site, request, tell_all};
use super::story::{Length, Story};
use super::{on_every_path, size};

on_every_path!(
    a_long_answer_arrives_whole,
    a_thousand_streams_at_once_do_not_mix,
    chunks_cut_at_odd_places_arrive_as_they_were_sent,
    huge_and_tiny_chunks_arrive_as_they_were_sent,
    one_connection_carries_a_thousand_answers,
    pipelined_requests_are_answered_in_order,
);

fn a_long_answer_arrives_whole(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let story = Story { length: Length::Exactly(64), ..Story::of(1, size(50_000, 1_000_000)) };
    site.play(site.hear(&mut engine, story));
}

fn a_thousand_streams_at_once_do_not_mix(path: Datapath) {
    const STREAMS: usize = 1000;
    let Some((site, mut engine)) = Site::new(path) else { return };
    let chunks = size(20, 500);
    site.play(async {
        let mut clients = Vec::new();
        let mut exchanges = Vec::new();
        for _ in 0..STREAMS {
            clients.push(site.ask().await);
            exchanges.push(engine.exchange().await);
        }
        let mut hearing = tokio::task::JoinSet::new();
        for (seed, mut client) in clients.into_iter().enumerate() {
            hearing.spawn(async move { Story::of(seed as u64, chunks).hear(&mut client).await });
        }
        for exchange in &mut exchanges {
            exchange.body().await;
            exchange.send(EVENTS).await;
        }
        // As an engine does it: a chunk for each in every step.
        for number in 0..chunks {
            for (seed, exchange) in exchanges.iter_mut().enumerate() {
                exchange.send(&Story::of(seed as u64, chunks).frame(number)).await;
            }
        }
        for exchange in &mut exchanges {
            exchange.send(END).await;
        }
        hearing.join_all().await;
    });
}

fn chunks_cut_at_odd_places_arrive_as_they_were_sent(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let mut random = fastrand::Rng::with_seed(3);
    site.play(async {
        // Cuts in every part of the framing, and runs of several chunks.
        for (seed, most) in [(1, 3), (2, 40), (3, 700), (4, 5000)] {
            let story = Story::of(seed, size(150, 5000));
            let mut client = site.ask().await;
            let mut exchange = engine.exchange().await;
            let body = story.body();
            let telling = async {
                exchange.body().await;
                exchange.send(EVENTS).await;
                let mut rest = body.as_slice();
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(random.usize(1..=most).min(rest.len()));
                    exchange.send(piece).await;
                    rest = after;
                    // Otherwise the pieces would be put together again before they leave.
                    tokio::task::yield_now().await;
                }
            };
            tokio::join!(telling, story.hear(&mut client));
        }
    });
}

fn huge_and_tiny_chunks_arrive_as_they_were_sent(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    site.play(async {
        let lengths = [(1, 30, 2000), (2, 1400, 1600), (3, 65_000, 20), (4, 1 << 20, 4)];
        for (seed, length, chunks) in lengths {
            let story = Story { seed, chunks, length: Length::Exactly(length) };
            site.hear(&mut engine, story).await;
        }
        let mixed = Story { seed: 5, chunks: 200, length: Length::Between(30, 20_000) };
        site.hear(&mut engine, mixed).await;
    });
}

fn one_connection_carries_a_thousand_answers(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let stories: Vec<Story> =
        (0..1000).map(|seed| Story::of(seed, 1 + seed as usize % 30)).collect();
    site.play(async {
        let mut client = site.ask().await;
        let telling = tokio::spawn(tell_all(engine.exchange().await, stories.clone()));
        for (number, story) in stories.iter().enumerate() {
            story.hear(&mut client).await;
            if number + 1 < stories.len() {
                client.send(&request()).await.unwrap();
            }
        }
        telling.await.unwrap();
    });
}

fn pipelined_requests_are_answered_in_order(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let stories: Vec<Story> = (0..10).map(|seed| Story::of(seed, 200)).collect();
    site.play(async {
        let mut client = site.ask().await;
        let telling = tokio::spawn(tell_all(engine.exchange().await, stories.clone()));
        stories[0].hear_head_and(&mut client, 100).await;
        // In the middle of an answer, and all at once.
        client.send(&request().repeat(9)).await.unwrap();
        stories[0].hear_rest(&mut client, 100).await;
        for story in &stories[1..] {
            story.hear(&mut client).await;
        }
        telling.await.unwrap();
    });
}
