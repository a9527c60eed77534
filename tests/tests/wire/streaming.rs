//! Streamed answers: at once, in order, whole, and without harm to others.

use std::io::Read as _;

use flate2::read::GzDecoder;
use gateway_tests::client::{RawClient, post, post_with};
use gateway_tests::server::{Failures, Simulated};
use gateway_tests::wait::soon;
use serde_json::{Value, json};

use super::scripted::{END, EVENTS, Scripted, chunk};
use super::{CHAT, Gateway, ask, chat, engine, failing, http2, together, unwatched};

fn streamed() -> String {
    chat(&json!({ "stream": true }))
}

// S15, S20: no buffering. The engine goes on only when the client has it.
#[tokio::test]
async fn every_chunk_is_with_the_client_before_the_engine_sends_the_next() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    client.send(&post(CHAT, &streamed())).await.unwrap();
    let mut first = engine.exchange().await;
    let http2 = http2::connect(gateway.addr()).await;
    let response = tokio::spawn({
        let http2 = http2.clone();
        async move { http2::send(&http2, http2::post(CHAT, streamed())).await }
    });
    let mut second = engine.exchange().await;
    for exchange in [&mut first, &mut second] {
        exchange.body().await;
        exchange.send(EVENTS).await;
    }
    // The head does not wait for a token either.
    assert_eq!(soon(client.head()).await.unwrap().status, 200);
    let mut response = soon(response).await.unwrap();
    for token in 0..100 {
        let event =
            format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{token}\"}}}}]}}\n\n");
        let event = event.as_bytes();
        first.send(&chunk(event)).await;
        assert_eq!(soon(client.chunk()).await.unwrap().unwrap().bytes, event);
        second.send(&chunk(event)).await;
        assert_eq!(http2::piece(&mut response).await.unwrap().unwrap(), event);
    }
    for exchange in [&mut first, &mut second] {
        exchange.send(END).await;
    }
    assert!(soon(client.chunk()).await.unwrap().is_none());
    assert!(http2::piece(&mut response).await.is_none());
    gateway.idle().await;
}

// S17, S18: completions, and the last events in order.
#[tokio::test]
async fn finish_usage_and_done_come_last_and_in_order() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let options = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let mut completion = options.clone();
    completion["model"] = json!("tiny");
    completion["prompt"] = json!("hello");
    for (path, body) in [(CHAT, chat(&options)), ("/v1/completions", completion.to_string())] {
        let answer = ask(gateway.addr(), path, &body).await;
        let events = answer.events();
        let [.., finish, usage, done] = events.as_slice() else { panic!("{events:?}") };
        let event = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
        assert!(event(finish)["choices"][0]["finish_reason"].is_string(), "{path}: {finish}");
        assert!(event(usage)["usage"]["completion_tokens"].is_u64(), "{path}: {usage}");
        assert_eq!(done, "[DONE]", "{path}");
    }
    gateway.idle().await;
}

// S7: compressed streams pass, even where names would be replaced.
#[tokio::test]
async fn a_compressed_stream_passes_as_it_is() {
    let engine = failing(Failures { gzip: true, ..Failures::default() }).await;
    let plain = Gateway::over(&[&engine], "").await.unwrap();
    let aliased =
        Gateway::over(&[&engine], "  modelName: tiny\n  aliases: [other]\n").await.unwrap();
    for (gateway, model) in [(&plain, "tiny"), (&aliased, "other")] {
        for stream in [true, false] {
            let body = chat(&json!({ "stream": stream, "model": model }));
            let request = post_with(CHAT, &[("accept-encoding", "gzip")], &body);
            let mut client = RawClient::connect(gateway.addr()).await.unwrap();
            let answer = soon(client.exchange(&request)).await.unwrap();
            assert_eq!(answer.head.header("content-encoding"), Some("gzip"));
            let mut text = String::new();
            GzDecoder::new(answer.body().as_slice()).read_to_string(&mut text).unwrap();
            let end = if stream { "data: [DONE]\n\n" } else { "}" };
            assert!(text.ends_with(end), "{model}: {text}");
        }
        gateway.idle().await;
    }
}

// S9: an error of the engine is a plain answer, streamed or not.
#[tokio::test]
async fn a_refused_stream_has_the_engines_error_as_its_body() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let body = chat(&json!({ "stream": true, "max_tokens": 10_000_000 }));
    let direct = ask(engine.addr(), CHAT, &body).await;
    let answer = ask(gateway.addr(), CHAT, &body).await;
    assert_eq!(answer.head.status, 400);
    assert_eq!(answer.head.header("content-type"), Some("application/json"));
    assert!(answer.json()["error"]["message"].is_string(), "{}", answer.text());
    assert_eq!(answer.json(), direct.json());
    let client = http2::connect(gateway.addr()).await;
    let response = http2::send(&client, http2::post(CHAT, body)).await;
    assert_eq!(response.status(), 400);
    assert_eq!(http2::body(response).await.unwrap(), direct.body());
    gateway.idle().await;
}

// S13: a stream that never pauses shares its thread with others.
#[tokio::test]
async fn a_torrent_does_not_starve_others_on_its_thread() {
    let mut torrent = Scripted::start().await;
    let calm = engine().await;
    let config = format!(
        "listen: [\"127.0.0.1:0\"]\nadmin: {{ listen: \"127.0.0.1:0\" }}\nauth: none\nworkers: 1\n\
         log: {{ access: off }}\npools:\n\
         - {{ name: t, modelName: torrent, metrics: off, health: off, endpoints: [\"http://{}\"] }}\n\
         - {{ name: c, modelName: tiny, endpoints: [\"{}\"] }}\n",
        torrent.addr,
        calm.url()
    );
    let gateway = Gateway::start(&config).unwrap();
    gateway.serving(2).await;
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    let body = chat(&json!({ "stream": true, "model": "torrent" }));
    client.send(&post(CHAT, &body)).await.unwrap();
    let mut exchange = torrent.exchange().await;
    exchange.body().await;
    exchange.send(EVENTS).await;
    soon(client.head()).await.unwrap();
    let pouring = tokio::spawn(async move {
        let event = chunk(&[b"data: ", "x".repeat(8000).as_bytes(), b"\n\n"].concat());
        loop {
            exchange.send(&event).await;
        }
    });
    let drinking = tokio::spawn(async move { while client.chunk().await.unwrap().is_some() {} });
    for _ in 0..50 {
        assert_eq!(ask(gateway.addr(), CHAT, &chat(&json!({}))).await.head.status, 200);
    }
    assert!(!pouring.is_finished() && !drinking.is_finished());
    drinking.abort();
    pouring.abort();
    gateway.idle().await;
}

// T7: a thousand at once, each whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_streams_run_at_once() {
    let slow = [super::slow_engine().await, super::slow_engine().await];
    let gateway = unwatched(&[slow[0].addr(), slow[1].addr()], "", "");
    let addr = gateway.addr();
    let clients = together((0..1000).map(|_| async move {
        let mut client = RawClient::connect(addr).await.unwrap();
        client.send(&post(CHAT, &streamed())).await.unwrap();
        client
    }))
    .await;
    gateway_tests::wait::eventually(|| gateway.in_flight().0 == 1000).await;
    drop(clients);
    gateway.idle().await;
    let aborted = |engine: &Simulated| engine.counters().aborted;
    gateway_tests::wait::eventually(|| aborted(&slow[0]) + aborted(&slow[1]) == 1000).await;

    let fast = [engine().await, engine().await];
    let gateway = unwatched(&[fast[0].addr(), fast[1].addr()], "", "");
    let addr = gateway.addr();
    let answers = together((0..1000).map(|_| ask_stream(addr))).await;
    for answer in &answers {
        assert_eq!(answer.head.status, 200, "{}", answer.text());
        assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
    }
    gateway.idle().await;
}

async fn ask_stream(addr: std::net::SocketAddr) -> gateway_tests::client::RawAnswer {
    ask(addr, CHAT, &streamed()).await
}
