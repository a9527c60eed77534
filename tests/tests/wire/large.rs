//! Large bodies: of every size, streamed through, in bounded memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use gateway_tests::client::{RawClient, once, post};
use gateway_tests::wait::{eventually, soon};
use serde_json::json;

use super::scripted::{END, Scripted, chunk, whole};
use super::{CHAT, MEBIBYTE, ask, chat, chat_of, engine, http2, unwatched};

// L1, L2, L4: the sizes at which others broke, and beyond what is kept for retries.
#[tokio::test]
async fn bodies_of_every_size_arrive_byte_for_byte() {
    let engine = engine().await;
    let gateway = unwatched(&[engine.addr()], "", "");
    let client = http2::connect(gateway.addr()).await;
    let sizes =
        [6_200, 32_769, 65_536, 65_537, 131_073, 640_000, MEBIBYTE, MEBIBYTE + 1, 5_000_000];
    for size in sizes {
        let body = padded(size);
        let mut chunked =
            format!("POST {CHAT} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n")
                .into_bytes();
        body.as_bytes().chunks(77_777).for_each(|part| chunked.extend(chunk(part)));
        chunked.extend_from_slice(END);
        for request in [post(CHAT, &body), chunked] {
            let answer = soon(once(gateway.addr(), &request)).await.unwrap();
            assert_eq!(answer.head.status, 200, "{size}: {}", answer.text());
        }
        let response = http2::send(&client, http2::post(CHAT, body.clone())).await;
        assert_eq!(response.status(), 200, "{size} over HTTP/2");
        let requests = engine.inference_requests();
        assert_eq!(requests.len(), 3);
        assert!(requests.iter().all(|request| request.body == body.as_bytes()), "{size}");
        engine.clear_requests();
    }
    gateway.idle().await;
}

/// A body of exactly this many bytes, most of them in a field nobody reads.
fn padded(size: usize) -> String {
    let empty = chat(&json!({ "user": "" }));
    chat(&json!({ "user": "x".repeat(size - empty.len()) }))
}

// L9
#[tokio::test]
async fn messages_may_be_few_and_long_or_many_and_short() {
    let engine = engine().await;
    let gateway = unwatched(&[engine.addr()], "", "");
    for (count, length) in [(10, 100_000), (1_000, 1_000), (100_000, 1)] {
        let content = "é".repeat(length / 2) + if length == 1 { "x" } else { "" };
        let message = json!({ "role": "user", "content": content });
        let messages: Vec<_> = std::iter::repeat_n(message, count).collect();
        let body = chat(&json!({ "messages": messages, "max_tokens": 1 }));
        let direct = ask(engine.addr(), CHAT, &body).await.head.status;
        engine.clear_requests();
        assert_eq!(ask(gateway.addr(), CHAT, &body).await.head.status, direct, "{count}");
        let got = engine.inference_requests().pop().unwrap();
        assert!(got.body == body.as_bytes(), "{count} messages of {length}");
    }
    gateway.idle().await;
}

// L5, L8: a body beyond what is kept goes on as it comes, and no faster than the engine reads.
#[tokio::test]
async fn an_upload_is_no_faster_than_its_engine() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let body = Bytes::from(padded(100 * MEBIBYTE));
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let uploaded = body.clone();
    let addr = gateway.addr();
    let uploading = tokio::spawn(async move {
        let mut client = RawClient::connect(addr).await.unwrap();
        let length = uploaded.len();
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n");
        client.send(head.as_bytes()).await.unwrap();
        for part in uploaded.chunks(64 * 1024) {
            client.send(part).await.unwrap();
            counted.fetch_add(part.len(), Ordering::Relaxed);
        }
        client.answer().await.unwrap()
    });
    let mut exchange = engine.exchange().await;
    settled(|| sent.load(Ordering::Relaxed)).await;
    // Kernel buffers on both sides, and what is kept: far from all.
    assert!(sent.load(Ordering::Relaxed) < 40 * MEBIBYTE, "{}", sent.load(Ordering::Relaxed));
    assert!(exchange.body().await == body, "the body differs");
    exchange.send(&whole("application/json", b"{}")).await;
    assert_eq!(uploading.await.unwrap().head.status, 200);
    gateway.idle().await;
}

/// Waits until a number has stopped growing.
pub(crate) async fn settled(number: impl Fn() -> usize) {
    let (mut last, mut same) = (0, 0);
    eventually(|| {
        let now = number();
        same = if now == last && now > 0 { same + 1 } else { 0 };
        last = now;
        same > 60
    })
    .await;
}

// L5: bodies that have not named their model share a bounded memory.
#[tokio::test]
async fn bodies_that_cannot_be_routed_yet_wait_in_bounded_memory() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "limits: { bufferedBytes: 8MiB }\n", "");
    let pad = "x".repeat(4 * MEBIBYTE);
    let unnamed = format!("{{\"user\":\"{pad}\",\"max_tokens\":1,\"model\":\"tiny\"}}");
    let request = post(CHAT, &unnamed);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        client.send(&request[..request.len() - 20]).await.unwrap();
        held.push(client);
    }
    let page = "inference_gateway_buffered_bytes";
    super::until_metric(&gateway, page, 8.0 * MEBIBYTE as f64).await;
    let refused = soon(once(gateway.addr(), &request)).await.unwrap();
    assert_eq!(refused.head.status, 503, "{}", refused.text());
    assert_eq!(refused.head.header("x-inference-gateway-reason"), Some("buffer-full"));
    assert!(refused.head.header("retry-after").is_some());
    // Who waits is not harmed, and memory comes back.
    for client in &mut held {
        client.send(&request[request.len() - 20..]).await.unwrap();
        engine.answer(&whole("application/json", b"{}")).await;
        assert_eq!(soon(client.answer()).await.unwrap().head.status, 200);
    }
    super::until_metric(&gateway, page, 0.0).await;
    let small = post(CHAT, &chat_of(1000));
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    client.send(&small).await.unwrap();
    engine.answer(&whole("application/json", b"{}")).await;
    assert_eq!(soon(client.answer()).await.unwrap().head.status, 200);
    gateway.idle().await;
}

// A limit holds in the middle of an upload, too.
#[tokio::test]
async fn an_upload_that_grows_beyond_the_limit_is_413() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "  maxRequestBodyBytes: 3MiB\n");
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send(head.as_bytes()).await.unwrap();
    let body = padded(5 * MEBIBYTE);
    let (first, rest) = body.as_bytes().split_at(2 * MEBIBYTE);
    client.send(&chunk(first)).await.unwrap();
    // By now the endpoint has part of it.
    let mut exchange = engine.exchange().await;
    // One that does not read on would hold the upload up before it is too large.
    let reading = tokio::spawn(async move { exchange.closed().await });
    client.send(&chunk(rest)).await.unwrap();
    let answer = soon(client.answer()).await.unwrap();
    assert_eq!(answer.head.status, 413, "{}", answer.text());
    reading.await.unwrap();
    gateway.idle().await;
}

// An engine may refuse a body before it has read it.
#[tokio::test]
async fn an_early_refusal_of_the_engine_reaches_an_uploading_client() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let body = padded(20 * MEBIBYTE);
    let (addr, request) = (gateway.addr(), post(CHAT, &body));
    let uploading = tokio::spawn(async move {
        let mut client = RawClient::connect(addr).await.unwrap();
        // Refused in the middle, sending may fail; the answer must be there.
        let _ = client.send(&request).await;
        client.answer().await.unwrap()
    });
    let mut exchange = engine.exchange().await;
    exchange
        .send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig")
        .await;
    let answer = soon(uploading).await.unwrap();
    assert_eq!((answer.head.status, answer.text().as_str()), (413, "big"));
    drop(exchange);
    gateway.idle().await;
}
