//! Failures strike as ordered.

use super::*;
use crate::client::RawClient;
use crate::wait::eventually;

async fn struck(fault: AnswerFault) -> (Simulated, RawClient) {
    let server = fast().await;
    server.set_failures(Failures { answers: Some(fault), ..Failures::default() });
    let mut client = RawClient::connect(server.addr()).await.unwrap();
    let body = chat(&json!({ "stream": true })).to_string();
    client.send(&post(CHAT, &body)).await.unwrap();
    (server, client)
}

async fn unshaped(failures: Failures, fields: &Value) -> RawAnswer {
    let server = fast().await;
    server.set_failures(failures);
    ask(&server, CHAT, &chat(fields)).await
}

#[tokio::test]
async fn connection_closes_before_the_first_byte() {
    let (server, mut client) = struck(AnswerFault::CloseBeforeHead).await;
    assert_eq!(soon(client.rest()).await.unwrap(), b"");
    assert_eq!(server.counters().struck, 1);
}

#[tokio::test]
async fn stream_breaks_within_a_chunk() {
    let fault = AnswerFault::CloseAfterChunks { chunks: 2, within_chunk: true };
    let (_server, mut client) = struck(fault).await;
    let rest = String::from_utf8(soon(client.rest()).await.unwrap()).unwrap();
    assert_eq!(rest.matches("data: ").count(), 3, "{rest}");
    assert!(!rest.contains("[DONE]") && !rest.ends_with("\r\n"), "{rest}");
}

#[tokio::test]
async fn hung_stream_is_given_up_by_its_client() {
    let (server, mut client) = struck(AnswerFault::HangAfterChunks { chunks: 2 }).await;
    soon(client.head()).await.unwrap();
    for _ in 0..2 {
        assert!(soon(client.chunk()).await.unwrap().is_some());
    }
    drop(client);
    eventually(|| server.counters().aborted == 1 && server.counters().connections_open == 0).await;
}

#[tokio::test]
async fn framing_is_broken() {
    let (_server, mut client) = struck(AnswerFault::BadFraming).await;
    soon(client.head()).await.unwrap();
    let error = soon(client.chunk()).await.unwrap_err();
    assert_eq!(error.to_string(), "malformed answer: chunk size");
    let (_server, mut client) = struck(AnswerFault::Garbage).await;
    assert!(soon(client.head()).await.is_err());
}

#[tokio::test]
async fn errors_strike_as_often_as_ordered_and_wear_off() {
    let server = fast().await;
    let answers = Some(AnswerFault::Status { code: 503, retry_after: Some(7) });
    server.set_failures(Failures { answers, count: Some(2), ..Failures::default() });
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let answer = ask(&server, CHAT, &chat(&json!({}))).await;
        statuses.push((answer.head.status, answer.head.header("retry-after").map(str::to_owned)));
    }
    let failed = (503, Some("7".to_owned()));
    assert_eq!(statuses, [failed.clone(), failed, (200, None)]);
    assert_eq!(look(&server, "/health").await.head.status, 200);
}

#[tokio::test]
async fn share_of_requests_is_struck() {
    let server = fast().await;
    let answers = Some(AnswerFault::Status { code: 500, retry_after: None });
    server.set_failures(Failures { answers, share: Some(0.5), ..Failures::default() });
    let mut failed = 0;
    for _ in 0..100 {
        let answer = ask(&server, CHAT, &chat(&json!({ "max_tokens": 1 }))).await;
        failed += u32::from(answer.head.status == 500);
    }
    assert!((25..=75).contains(&failed), "{failed}");
}

#[tokio::test]
async fn connections_are_refused_until_that_is_lifted() {
    let server = fast().await;
    let addr = server.addr();
    let order = r#"{"refuse_connections":true,"lift_after_seconds":0.2}"#;
    let answer = soon(once(addr, &post("/admin/failures", order))).await.unwrap();
    assert_eq!(answer.head.status, 200);
    soon(async { while RawClient::connect(addr).await.is_ok() {} }).await;
    soon(async { while RawClient::connect(addr).await.is_err() {} }).await;
    assert_eq!(look(&server, "/health").await.head.status, 200);
}

#[tokio::test]
async fn chunks_split_characters_and_events_but_lose_nothing() {
    let style = Style { vocabulary: crate::answer::Vocabulary::Multibyte, ..Style::default() };
    let server = started(Options { style, ..Options::fast("test") }).await;
    let request = chat(&json!({ "stream": true, "max_tokens": 40, "ignore_eos": true }));
    let plain = ask(&server, CHAT, &request).await;
    let content = |answer: &RawAnswer| {
        let deltas = answer.events().into_iter().filter_map(|event| {
            let event: Value = serde_json::from_str(&event).ok()?;
            Some(event["choices"][0]["delta"]["content"].as_str()?.to_owned())
        });
        deltas.collect::<String>()
    };
    for chunks in [Chunks::Bytes(3), Chunks::Writes(5), Chunks::Events(7)] {
        server.set_failures(Failures { chunks, ..Failures::default() });
        let cut = ask(&server, CHAT, &request).await;
        assert_eq!(content(&cut), content(&plain));
        if chunks == Chunks::Bytes(3) {
            assert!(cut.chunks.iter().any(|chunk| std::str::from_utf8(&chunk.bytes).is_err()));
        }
    }
}

#[tokio::test]
async fn compressed_answer_is_the_same_answer() {
    use std::io::Read as _;
    let gzip = Failures { gzip: true, ..Failures::default() };
    for stream in [false, true] {
        let answer = unshaped(gzip.clone(), &json!({ "stream": stream })).await;
        assert_eq!(answer.head.header("content-encoding"), Some("gzip"));
        let mut text = String::new();
        let body = answer.body();
        flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
        assert!(text.contains("chat.completion"), "{text}");
    }
}

#[tokio::test]
async fn connection_closes_with_and_without_a_word() {
    for (connection, header) in
        [(Connection::Close, Some("close")), (Connection::CloseSilently, None)]
    {
        let server = fast().await;
        server.set_failures(Failures { connection, ..Failures::default() });
        let mut client = RawClient::connect(server.addr()).await.unwrap();
        let body = chat(&json!({})).to_string();
        let answer = soon(client.exchange(&post(CHAT, &body))).await.unwrap();
        assert_eq!(answer.head.header("connection"), header);
        assert_eq!(soon(client.rest()).await.unwrap(), b"");
    }
}

#[tokio::test]
async fn loading_server_says_so() {
    let server = fast().await;
    server.set_failures(Failures { loading: true, ..Failures::default() });
    assert_eq!(look(&server, "/health").await.head.status, 503);
    server.set_failures(Failures::default());
    assert_eq!(look(&server, "/health").await.head.status, 200);
}

#[tokio::test]
async fn body_is_read_as_slowly_as_ordered() {
    let server = fast().await;
    let slow = Failures { read_bytes_per_second: Some(2_000), ..Failures::default() };
    server.set_failures(slow);
    let before = std::time::Instant::now();
    let body = chat(&json!({ "user": "x".repeat(400) }));
    assert_eq!(ask(&server, CHAT, &body).await.head.status, 200);
    assert!(before.elapsed() > Duration::from_millis(200), "{:?}", before.elapsed());
}
