//! Bodies and chunk boundaries arrive exactly as they left, in any cut.

use bytes::Bytes;
use gateway_tests::client::{RawClient, once, post};
use gateway_tests::server::{Chunks, Failures, Options, Simulated, expected_texts};
use gateway_tests::wait::soon;
use serde_json::{Value, json};

use super::scripted::{END, EVENTS, Scripted, chunk, whole};
use super::{CHAT, Gateway, chat, http2, unwatched};
use gateway_tests::answer::{Style, Vocabulary};

/// What an event stream may contain that a gateway is tempted to touch: no space
/// after the colon (S2), comments (S12), pings (S6), an empty delta (S10),
/// characters of two, three and four bytes (S4), CR LF, a chunk that ends within a
/// character, chunk extensions, a trailer.
fn odd_stream() -> Vec<u8> {
    let text = "data:{\"choices\":[{\"delta\":{\"content\":\"é漢🙂\"}}]}\n\n".as_bytes();
    let within = text.iter().position(|byte| *byte == 0xE6).unwrap() + 1;
    [
        &chunk(&text[..within])[..],
        &chunk(&text[within..]),
        &chunk(b": OPENROUTER PROCESSING\n\n"),
        &chunk(b"event: ping\r\ndata: {}\r\n\r\n"),
        &extended(b"data: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n"),
        &chunk(b"data: [DONE]\n\n"),
        b"0\r\nx-trailer: 1\r\n\r\n",
    ]
    .concat()
}

/// A chunk with an extension.
fn extended(data: &[u8]) -> Vec<u8> {
    [format!("{:X};name=value\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

#[tokio::test]
async fn chunked_bytes_arrive_unchanged_when_cut_anywhere() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "workers: 1\n", "");
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    let stream = odd_stream();
    let request = post(CHAT, &chat(&json!({ "stream": true })));
    client.send(&request).await.unwrap();
    let mut exchange = engine.exchange().await;
    for cut in 1..stream.len() {
        exchange.body().await;
        exchange.send(EVENTS).await;
        assert_eq!(soon(client.head()).await.unwrap().status, 200);
        // The rest is sent only when the client has the beginning: nothing is held.
        let (beginning, rest) = stream.split_at(cut);
        for part in [beginning, rest] {
            exchange.send(part).await;
            let received = soon(client.take(part.len())).await.unwrap();
            assert_eq!(received, part, "cut at {cut}");
        }
        // Both connections are clean afterwards: the next request uses them again.
        client.send(&request).await.unwrap();
        assert!(soon(exchange.read_head()).await);
    }
    drop(client);
    exchange.closed().await;
    gateway.idle().await;
}

#[tokio::test]
async fn payload_arrives_unchanged_over_http2_when_cut_anywhere() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "workers: 1\n", "");
    let client = http2::connect(gateway.addr()).await;
    let payload = "data:{\"a\":\"é漢🙂\"}\n\n: ping\n\ndata: [DONE]\n\n".as_bytes();
    let request = || http2::post(CHAT, chat(&json!({ "stream": true })));
    let sending = tokio::spawn({
        let client = client.clone();
        async move { http2::send(&client, request()).await }
    });
    let mut exchange = engine.exchange().await;
    let mut sending = Some(sending);
    for cut in 1..payload.len() {
        exchange.body().await;
        exchange.send(EVENTS).await;
        let mut response = sending.take().unwrap().await.unwrap();
        let (beginning, rest) = payload.split_at(cut);
        for part in [beginning, rest] {
            exchange.send(&chunk(part)).await;
            let mut received = Vec::new();
            while received.len() < part.len() {
                received.extend(http2::piece(&mut response).await.unwrap().unwrap());
            }
            assert_eq!(received, part, "cut at {cut}");
        }
        exchange.send(END).await;
        assert!(http2::piece(&mut response).await.is_none(), "cut at {cut}");
        let client = client.clone();
        sending = Some(tokio::spawn(async move { http2::send(&client, request()).await }));
        assert!(soon(exchange.read_head()).await);
    }
    exchange.body().await;
    exchange.send(&whole("application/json", b"{}")).await;
    let last = sending.unwrap().await.unwrap();
    assert_eq!(http2::body(last).await.unwrap(), b"{}");
    gateway.idle().await;
}

// S4: the body may end within a character.
#[tokio::test]
async fn a_body_that_ends_within_a_character_arrives_as_it_is() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let text = "漢🙂".as_bytes();
    for end in 1..text.len() {
        let request = post(CHAT, &chat(&json!({ "stream": true })));
        // In chunks, and until the connection closes.
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        client.send(&request).await.unwrap();
        let chunked = [EVENTS, &chunk(&text[..end]), END].concat();
        drop(engine.answer(&chunked).await);
        assert_eq!(soon(client.answer()).await.unwrap().body(), &text[..end]);

        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        client.send(&request).await.unwrap();
        let until_close = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        drop(engine.answer(&[until_close, &text[..end]].concat()).await);
        assert_eq!(soon(client.answer()).await.unwrap().body(), &text[..end]);
    }
    gateway.idle().await;
}

// S4, S3: whatever an engine's chunks and segments look like.
#[tokio::test]
async fn text_of_wide_characters_survives_every_chunk_size() {
    let style = Style { vocabulary: Vocabulary::Multibyte, ..Style::default() };
    let options = Options { style: style.clone(), ..Options::fast("e") };
    let engine = Simulated::start(options).await.unwrap();
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let aliased =
        Gateway::over(&[&engine], "  modelName: tiny\n  aliases: [other]\n").await.unwrap();
    let body = |model: &str| chat(&json!({ "stream": true, "model": model }));
    let known: Value = serde_json::from_str(&body("tiny")).unwrap();
    let text = expected_texts(&style, engine.options().context_length(), CHAT, &known).unwrap();
    let cuts = (1..=9).map(Chunks::Bytes).chain([1, 3].map(Chunks::Writes));
    for chunks in cuts.chain([Chunks::Events(3)]) {
        engine.set_failures(Failures { chunks, ..Failures::default() });
        for (gateway, model) in [(&gateway, "tiny"), (&aliased, "other")] {
            let answer = super::ask(gateway.addr(), CHAT, &body(model)).await;
            assert_eq!(said(&answer.text(), model), text[0], "{chunks:?} {model}");
            let client = http2::connect(gateway.addr()).await;
            let response = http2::send(&client, http2::post(CHAT, body(model))).await;
            let bytes = http2::body(response).await.unwrap();
            let answer = String::from_utf8(bytes).unwrap();
            assert_eq!(said(&answer, model), text[0], "{chunks:?} {model} over HTTP/2");
        }
    }
    gateway.idle().await;
    aliased.idle().await;
}

/// The text of a streamed chat answer, which must be whole and name this model.
fn said(stream: &str, model: &str) -> String {
    assert!(stream.ends_with("data: [DONE]\n\n"), "{stream}");
    let events = stream.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let events = events.filter(|event| *event != "[DONE]");
    let event = |event: &str| -> Value { serde_json::from_str(event).unwrap() };
    events
        .map(event)
        .map(|event| {
            assert_eq!(event["model"], model);
            event["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned()
        })
        .collect()
}

// L1: 640 KB in, 43 MB out.
#[tokio::test]
async fn a_large_answer_arrives_whole() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let reply: Bytes = (0..43_000_000_u32).map(|at| (at / 7) as u8).collect::<Vec<_>>().into();
    let request = super::chat_of(640_000);
    for framed in [whole("application/json", &reply), chunked_in(&reply, 99_991)] {
        let (addr, request) = (gateway.addr(), post(CHAT, &request));
        let asking = tokio::spawn(async move { once(addr, &request).await.unwrap() });
        let mut exchange = engine.exchange().await;
        exchange.body().await;
        exchange.send(&framed).await;
        assert!(asking.await.unwrap().body() == reply, "the answer differs");
    }
    gateway.idle().await;
}

fn chunked_in(body: &[u8], size: usize) -> Vec<u8> {
    let mut framed = EVENTS.to_vec();
    for part in body.chunks(size) {
        framed.extend(chunk(part));
    }
    framed.extend_from_slice(END);
    framed
}
