//! Which status says whose fault it was (E2, E4), and that it always says why.

use gateway_tests::client::RawAnswer;
use gateway_tests::server::{AnswerFault, Failures};
use gateway_tests::wait::soon;
use serde_json::json;

use super::scripted::Scripted;
use super::{CHAT, Gateway, ask, chat, engine, failing, unwatched};

const ALONE: &str = "  retry: off\n  ejection: off\n";

fn reason(answer: &RawAnswer) -> Option<&str> {
    answer.head.header("x-inference-gateway-reason")
}

// E2, E4: the engine's fault is never 400, and never 200.
#[tokio::test]
async fn a_broken_engine_is_a_bad_gateway() {
    let bad = [
        &b"\x16\x03\x01 not HTTP\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcde",
        b"HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\nbare: line ends\n\n",
    ];
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", ALONE);
    let addr = gateway.addr();
    for bytes in bad {
        let asking = tokio::spawn(async move { ask(addr, CHAT, &chat(&json!({}))).await });
        let mut exchange = engine.answer(bytes).await;
        let answer = asking.await.unwrap();
        let name = String::from_utf8_lossy(bytes);
        assert_eq!(answer.head.status, 502, "{name}");
        assert_eq!(reason(&answer), Some("upstream-malformed"), "{name}");
        assert_eq!(answer.json()["error"]["type"], "api_error", "{name}");
        exchange.closed().await;
    }
    // Cut in the middle of the head.
    for bytes in [&b""[..], b"HTTP/1.1 200 O"] {
        let asking = tokio::spawn(async move { ask(addr, CHAT, &chat(&json!({}))).await });
        drop(engine.answer(bytes).await);
        let answer = asking.await.unwrap();
        assert_eq!((answer.head.status, reason(&answer)), (502, Some("upstream-closed")));
    }
    gateway.idle().await;
}

#[tokio::test]
async fn interim_answers_are_passed_over() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", ALONE);
    let addr = gateway.addr();
    let asking = tokio::spawn(async move { ask(addr, CHAT, &chat(&json!({}))).await });
    engine
        .answer(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n\
              HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok",
        )
        .await;
    let answer = asking.await.unwrap();
    assert_eq!((answer.head.status, answer.text().as_str()), (201, "ok"));
    assert_eq!(answer.head.header("link"), None);
    gateway.idle().await;
}

// E4: the engine's own errors are passed on as they are.
#[tokio::test]
async fn the_engines_own_errors_are_passed_on() {
    for code in [400, 401, 403, 404, 422, 429, 500, 501, 502, 503, 504] {
        let fault = AnswerFault::Status { code, retry_after: Some(7) };
        let engine = failing(Failures { answers: Some(fault), ..Failures::default() }).await;
        let gateway = Gateway::over(&[&engine], ALONE).await.unwrap();
        for stream in [false, true] {
            let body = chat(&json!({ "stream": stream }));
            let answer = ask(gateway.addr(), CHAT, &body).await;
            assert_eq!(answer.head.status, code);
            assert_eq!(answer.head.header("retry-after"), Some("7"));
            assert_eq!(reason(&answer), None, "not the gateway's own answer");
            assert_eq!(answer.text(), ask(engine.addr(), CHAT, &body).await.text());
        }
        gateway.idle().await;
    }
}

#[tokio::test]
async fn an_engine_that_cannot_be_reached_is_502() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = free.local_addr().unwrap();
    drop(free);
    let gateway = unwatched(&[nowhere], "", ALONE);
    let mut client = gateway_tests::client::RawClient::connect(gateway.addr()).await.unwrap();
    let gzip = [("accept-encoding", "gzip")];
    let request = gateway_tests::client::post_with(CHAT, &gzip, &chat(&json!({})));
    let answer = soon(client.exchange(&request)).await.unwrap();
    assert_eq!((answer.head.status, reason(&answer)), (502, Some("upstream-connect")));
    // B2: our own answers are never encoded.
    assert_eq!(answer.head.header("content-encoding"), None);
    assert!(answer.json()["error"]["message"].is_string());
    // The connection to the client is not to blame.
    assert_eq!(soon(client.exchange(&request)).await.unwrap().head.status, 502);
    gateway.idle().await;
}

// E2: the client's faults are 4xx, in the words its library understands.
#[tokio::test]
async fn errors_are_told_in_the_dialect_of_the_route() {
    let engine = engine().await;
    let config = gateway_tests::gateway::pool_config(&[&engine], "  modelName: tiny\n");
    let gateway = Gateway::start(&config.replace("defaultPool: p\n", "")).unwrap();
    gateway.serving(1).await;
    let unknown = chat(&json!({ "model": "nope" }));
    for (path, body, status) in
        [(CHAT, &*unknown, 404), ("/v1/completions", "{}", 404), ("/v1/embeddings", "{", 400)]
    {
        let answer = ask(gateway.addr(), path, body).await;
        let error = &answer.json()["error"];
        assert_eq!(answer.head.status, status, "{path}: {}", answer.text());
        assert_eq!(error["type"], "invalid_request_error", "{path}");
        for member in ["message", "param", "code"] {
            assert!(error.get(member).is_some(), "{path}: {member}");
        }
        assert!(reason(&answer).is_some());
    }
    for (body, kind) in [(&*unknown, "not_found_error"), ("{", "invalid_request_error")] {
        let answer = ask(gateway.addr(), "/v1/messages", body).await;
        assert_eq!(answer.json()["type"], "error");
        assert_eq!(answer.json()["error"]["type"], kind);
    }
    let answer = ask(gateway.addr(), "/v2/nothing", "{}").await;
    assert_eq!((answer.head.status, reason(&answer)), (404, Some("unknown-path")));
}
