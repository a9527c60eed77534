//! Long, many, in turns with others: every stream arrives whole, and as its client's.

use gateway_tests::client::post;
use gateway_tests::wait::soon;

use super::scripted::{END, EVENTS, whole};
use super::site::{Datapath, Site, answer_all, request, request_by, tell_all};
use super::story::{Length, Story};
use super::{on_every_path, size};

on_every_path!(
    a_long_answer_arrives_whole,
    a_thousand_streams_at_once_do_not_mix,
    answers_of_all_kinds_take_turns_on_one_connection,
    one_connection_carries_a_thousand_answers,
    pipelined_requests_are_answered_in_order,
);

fn a_long_answer_arrives_whole(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let story = Story { length: Length::Exactly(64), ..Story::of(1, size(50_000, 1_000_000)) };
    site.play(site.hear(&mut engine, story));
    site.assert_taken(path);
}

fn a_thousand_streams_at_once_do_not_mix(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let streams = size(1000, 1000);
    let chunks = 10 + size(10, 490);
    site.play(async {
        let mut clients = Vec::new();
        let mut exchanges = Vec::new();
        for _ in 0..streams {
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
    site.assert_taken(path);
}

fn one_connection_carries_a_thousand_answers(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let stories: Vec<Story> =
        (0..size(1000, 1000) as u64).map(|seed| Story::of(seed, 1 + seed as usize % 30)).collect();
    site.play(async {
        let mut client = site.ask().await;
        let telling = tokio::spawn(tell_all(engine.exchange().await, stories.clone()));
        for (number, story) in stories.iter().enumerate() {
            story.hear(&mut client).await;
            if number + 1 < stories.len() {
                client.send(&request()).await.unwrap();
            }
        }
        let mut exchange = telling.await.unwrap();
        // Bursts of a few chunks may be over before anybody else can take them.
        client.send(&request()).await.unwrap();
        assert!(exchange.read_head().await);
        Story::of(1000, 30).tell_in_step(&mut exchange, &mut client).await;
    });
    site.assert_taken(path);
}

fn pipelined_requests_are_answered_in_order(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let story = |number| Story::of(number, 200);
    site.play(async {
        let hearing = async {
            let mut client = site.connect().await;
            client.send(&request_by(0)).await.unwrap();
            story(0).hear_head_and(&mut client, 100).await;
            // In the middle of an answer, and all at once.
            let more: Vec<u8> = (1..10).flat_map(request_by).collect();
            client.send(&more).await.unwrap();
            story(0).hear_rest(&mut client, 100).await;
            for number in 1..10 {
                story(number).hear(&mut client).await;
            }
        };
        let mut answering = tokio::task::JoinSet::new();
        let mut hearing = std::pin::pin!(hearing);
        loop {
            tokio::select! {
                () = &mut hearing => break,
                exchange = engine.exchange() => drop(answering.spawn(answer_all(exchange, story))),
            }
        }
        // Though the client has not acknowledged an answer yet when the next is asked for.
        assert_eq!(answering.len(), 1, "connections to the engine");
    });
}

fn answers_of_all_kinds_take_turns_on_one_connection(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    site.play(async {
        let mut client = site.connect().await;
        let mut exchange = None;
        for round in 0..20 {
            // A long prompt goes up where a stream came down before.
            let prompt = "word ".repeat(if round % 3 == 0 { 40_000 } else { 20 });
            let body = format!("{{\"model\":\"tiny\",\"prompt\":\"{prompt}\"}}");
            client.send(&post("/v1/completions", &body)).await.unwrap();
            let exchange = match &mut exchange {
                None => exchange.insert(engine.exchange().await),
                Some(exchange) => {
                    assert!(exchange.read_head().await);
                    exchange
                }
            };
            assert!(exchange.body().await == body.as_bytes(), "the request was changed");
            let answer = Story::of(round, 1 + 50 * (round as usize % 5)).body();
            let sent = whole("application/json", &answer);
            tokio::join!(exchange.send(&sent), async {
                let heard = soon(client.answer()).await.unwrap();
                assert!(heard.body() == answer, "the whole answer was changed");
            });
            client.send(&request()).await.unwrap();
            assert!(exchange.read_head().await);
            let story = Story::of(100 + round, 200);
            tokio::join!(story.tell(exchange), story.hear(&mut client));
        }
    });
}
