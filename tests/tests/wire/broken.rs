//! Streams that break: the client can always tell, and is told where it can be.

use gateway_tests::client::RawClient;
use gateway_tests::server::{AnswerFault, Chunks, Failures};
use gateway_tests::wait::soon;
use serde_json::{Value, json};

use super::scripted::{EVENTS, Scripted, chunk, whole};
use super::{CHAT, Gateway, chat, failing, http2, unwatched};
use gateway_tests::client::post;

fn streamed() -> String {
    chat(&json!({ "stream": true }))
}

/// All bytes of an answer whose connection closes early.
async fn rest(gateway: &Gateway, path: &str, body: &str) -> String {
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    client.send(&post(path, body)).await.unwrap();
    soon(client.head()).await.unwrap();
    String::from_utf8(soon(client.rest()).await.unwrap()).unwrap()
}

fn breaks(chunks: u32, within_chunk: bool) -> Failures {
    let fault = AnswerFault::CloseAfterChunks { chunks, within_chunk };
    Failures { answers: Some(fault), ..Failures::default() }
}

#[tokio::test]
async fn a_stream_that_breaks_between_events_ends_with_an_error_event() {
    let engine = failing(breaks(2, false)).await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let rest = rest(&gateway, CHAT, &streamed()).await;
    assert_eq!(rest.matches("data: ").count(), 3, "{rest}");
    assert!(rest.contains("data: {\"error\":{"), "{rest}");
    assert!(!rest.contains("[DONE]"), "{rest}");
    assert!(!rest.ends_with("0\r\n\r\n"), "a broken stream must not look whole: {rest}");
    gateway.idle().await;
    assert_eq!(engine.counters().inference_requests, 1, "a begun answer is not repeated");
}

#[tokio::test]
async fn a_stream_that_breaks_within_an_event_ends_without_a_word() {
    // Within a chunk, and at a chunk's end that is not an event's.
    let halved = Failures { chunks: Chunks::Bytes(50), ..breaks(3, false) };
    for failures in [breaks(2, true), halved] {
        let engine = failing(failures).await;
        let gateway = Gateway::over(&[&engine], "").await.unwrap();
        let rest = rest(&gateway, CHAT, &streamed()).await;
        assert!(!rest.contains("\"error\""), "{rest}");
        assert!(!rest.ends_with("0\r\n\r\n"), "{rest}");
        gateway.idle().await;
    }
}

#[tokio::test]
async fn a_stream_that_breaks_is_reset_over_http2_after_its_error_event() {
    let engine = failing(breaks(2, false)).await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let client = http2::connect(gateway.addr()).await;
    let mut response = http2::send(&client, http2::post(CHAT, streamed())).await;
    let mut text = Vec::new();
    let error = loop {
        match http2::piece(&mut response).await.expect("must not end as if it were whole") {
            Ok(piece) => text.extend_from_slice(&piece),
            Err(error) => break error,
        }
    };
    assert!(!error.is_canceled(), "{error}");
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("data: {\"error\":{"), "{text}");
    // Only this stream: the connection goes on.
    engine.set_failures(Failures::default());
    let response = http2::send(&client, http2::post(CHAT, streamed())).await;
    assert!(http2::body(response).await.unwrap().ends_with(b"data: [DONE]\n\n"));
    gateway.idle().await;
}

#[tokio::test]
async fn a_broken_message_stream_ends_with_an_anthropic_error() {
    let engine = failing(breaks(4, false)).await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let rest = rest(&gateway, "/v1/messages", &streamed()).await;
    let (_, error) = rest.split_once("event: error\ndata: ").expect("an error event");
    let error: Value = serde_json::from_str(error.lines().next().unwrap()).unwrap();
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("api_error")));
    assert!(!rest.contains("message_stop"), "{rest}");
    gateway.idle().await;
}

#[tokio::test]
async fn an_answer_shorter_than_announced_does_not_look_whole() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let short = whole("application/json", b"{\"a\":1}");
    let short = &short[..short.len() - 3];
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    client.send(&post(CHAT, &chat(&json!({})))).await.unwrap();
    drop(engine.answer(short).await);
    let error = soon(client.answer()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);

    let http2 = http2::connect(gateway.addr()).await;
    let asking = tokio::spawn(async move {
        let response = http2::send(&http2, http2::post(CHAT, chat(&json!({})))).await;
        http2::body(response).await
    });
    drop(engine.answer(short).await);
    assert!(asking.await.unwrap().is_err());
    gateway.idle().await;
}

#[tokio::test]
async fn malformed_chunks_end_the_answer_at_once() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    client.send(&post(CHAT, &streamed())).await.unwrap();
    let event = chunk(b"data: {}\n\n");
    let mut exchange = engine.answer(&[EVENTS, &event, b"xyz\r\n"].concat()).await;
    soon(client.head()).await.unwrap();
    let rest = String::from_utf8(soon(client.rest()).await.unwrap()).unwrap();
    assert!(!rest.contains("xyz") && !rest.ends_with("0\r\n\r\n"), "{rest}");
    exchange.closed().await;
    gateway.idle().await;
}
