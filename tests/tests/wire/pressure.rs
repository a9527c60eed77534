//! Clients that read slowly: nothing is lost, nothing piles up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gateway_tests::client::{RawClient, post};
use gateway_tests::wait::soon;
use serde_json::json;

use super::large::settled;
use super::scripted::{END, EVENTS, Exchange, Scripted, chunk};
use super::{CHAT, MEBIBYTE, chat, http2, unwatched};

const EVENT: usize = 64 * 1024;
const EVENTS_SENT: usize = 1024;

fn event(number: usize) -> Vec<u8> {
    let mut event = format!("data: {number} ").into_bytes();
    event.resize(EVENT - 2, b'x');
    event.extend_from_slice(b"\n\n");
    event
}

/// Sends 64 MiB of events, and counts.
fn pour(mut exchange: Exchange, sent: Arc<AtomicUsize>) {
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        exchange.body().await;
        exchange.send(EVENTS).await;
        for number in 0..EVENTS_SENT {
            exchange.stream.write_all(&chunk(&event(number))).await.unwrap();
            sent.fetch_add(EVENT, Ordering::Relaxed);
        }
        exchange.send(END).await;
    });
}

// L8, S16
#[tokio::test]
async fn an_engine_waits_for_a_client_that_does_not_read() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    client.send(&post(CHAT, &chat(&json!({ "stream": true })))).await.unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    pour(engine.exchange().await, Arc::clone(&sent));
    settled(|| sent.load(Ordering::Relaxed)).await;
    assert!(sent.load(Ordering::Relaxed) < 32 * MEBIBYTE, "{}", sent.load(Ordering::Relaxed));
    // Nothing was lost or closed meanwhile.
    soon(client.head()).await.unwrap();
    for number in 0..EVENTS_SENT {
        assert!(soon(client.chunk()).await.unwrap().unwrap().bytes == event(number), "{number}");
    }
    assert!(soon(client.chunk()).await.unwrap().is_none());
    gateway.idle().await;
}

#[tokio::test]
async fn an_engine_waits_for_an_http2_client_that_does_not_read() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let client = http2::connect(gateway.addr()).await;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { http2::send(&client, http2::post(CHAT, chat(&json!({ "stream": true })))).await }
    });
    let sent = Arc::new(AtomicUsize::new(0));
    pour(engine.exchange().await, Arc::clone(&sent));
    let mut response = asking.await.unwrap();
    settled(|| sent.load(Ordering::Relaxed)).await;
    assert!(sent.load(Ordering::Relaxed) < 32 * MEBIBYTE, "{}", sent.load(Ordering::Relaxed));
    // Another stream of the same connection is not held up by the first.
    let asking = tokio::spawn({
        let client = client.clone();
        async move { http2::send(&client, http2::post(CHAT, chat(&json!({})))).await }
    });
    engine.answer(&super::scripted::whole("application/json", b"{}")).await;
    assert_eq!(http2::body(asking.await.unwrap()).await.unwrap(), b"{}");
    let mut received = 0;
    while let Some(piece) = http2::piece(&mut response).await {
        received += piece.unwrap().len();
    }
    assert_eq!(received, EVENT * EVENTS_SENT);
    gateway.idle().await;
}
