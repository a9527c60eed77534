//! Connections: kept, pipelined, old, many, stale.

use gateway_tests::client::{RawClient, get, once, post};
use gateway_tests::server::{Connection, Failures};
use gateway_tests::wait::soon;
use serde_json::json;

use super::scripted::{Scripted, whole};
use super::{CHAT, Gateway, ask, chat, engine, failing, http2, slow_engine, together, unwatched};

#[tokio::test]
async fn a_thousand_requests_share_one_connection_each_way() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    let before = engine.counters().connections_accepted;
    for number in 0..1000 {
        let body = chat(&json!({ "stream": number % 2 == 0, "max_tokens": 2 }));
        let answer = soon(client.exchange(&post(CHAT, &body))).await.unwrap();
        assert_eq!(answer.head.status, 200, "{number}: {}", answer.text());
        assert_eq!(answer.head.header("connection"), None);
    }
    // One for the requests; the rest is for listings.
    let opened = engine.counters().connections_accepted - before;
    assert!(opened < 10, "{opened} connections");
    gateway.idle().await;
}

// T6: more requests than a connection may have streams at once, and ever at once.
#[tokio::test(flavor = "multi_thread")]
async fn an_http2_connection_carries_thousands_of_requests() {
    let engine = engine().await;
    // Not scraped: on a busy machine the engine's page would be late, and the engine left out.
    let gateway = unwatched(&[engine.addr()], "", "");
    let client = http2::connect(gateway.addr()).await;
    let answers = together((0..2000).map(|number| {
        let client = client.clone();
        async move {
            let body = chat(&json!({ "stream": number % 2 == 0, "max_tokens": 2 }));
            let response = http2::send(&client, http2::post(CHAT, body)).await;
            let reason = http2::header(&response, REASON).map(str::to_owned);
            let status = response.status().as_u16();
            http2::body(response).await.unwrap();
            (status, reason)
        }
    }))
    .await;
    all_served(&answers);
    gateway.idle().await;
}

// T7
#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_connections_at_once_are_all_served() {
    let engines = [engine().await, engine().await];
    let gateway = unwatched(&[engines[0].addr(), engines[1].addr()], "", "");
    let addr = gateway.addr();
    let answers = together((0..2048).map(|_| async move {
        let answer = ask(addr, CHAT, &chat(&json!({ "max_tokens": 2 }))).await;
        (answer.head.status, answer.head.header(REASON).map(str::to_owned))
    }))
    .await;
    all_served(&answers);
    gateway.idle().await;
}

const REASON: &str = "x-inference-gateway-reason";

fn all_served(answers: &[(u16, Option<String>)]) {
    let failed: Vec<_> = answers.iter().filter(|(status, _)| *status != 200).collect();
    assert!(failed.is_empty(), "{} failed, the first with {:?}", failed.len(), failed.first());
}

// An engine may close a kept connection at any moment: no client notices.
#[tokio::test]
async fn connections_that_the_engine_closed_are_no_errors() {
    for connection in [Connection::Close, Connection::CloseSilently] {
        let engine = failing(Failures { connection, ..Failures::default() }).await;
        let extra = "  retry: off\n  ejection: off\n";
        let gateway = Gateway::over(&[&engine], extra).await.unwrap();
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        for number in 0..100 {
            let body = chat(&json!({ "stream": number % 2 == 0 }));
            let answer = soon(client.exchange(&post(CHAT, &body))).await.unwrap();
            assert_eq!(answer.head.status, 200, "{connection:?} {number}: {}", answer.text());
        }
        gateway.idle().await;
    }
}

// The race itself: the request is on its way when the engine closes.
#[tokio::test]
async fn a_request_that_meets_a_closing_connection_is_sent_on_another() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "workers: 1\n", "  retry: off\n  ejection: off\n");
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    let request = post(CHAT, &chat(&json!({})));
    client.send(&request).await.unwrap();
    let mut kept = engine.answer(&whole("application/json", b"{}")).await;
    assert_eq!(soon(client.answer()).await.unwrap().head.status, 200);
    client.send(&request).await.unwrap();
    assert!(soon(kept.read_head()).await, "the connection is used again");
    drop(kept);
    let mut fresh = engine.answer(&whole("application/json", b"{\"a\":1}")).await;
    assert_eq!(soon(client.answer()).await.unwrap().text(), "{\"a\":1}");
    // On a fresh connection a close is a failure of the endpoint.
    client.send(&request).await.unwrap();
    assert!(soon(fresh.read_head()).await);
    drop(fresh);
    drop(engine.exchange().await);
    let answer = soon(client.answer()).await.unwrap();
    assert_eq!(answer.head.status, 502);
    assert_eq!(answer.head.header("x-inference-gateway-reason"), Some("upstream-closed"));
    gateway.idle().await;
}

// Bytes after an answer belong to nobody: that connection is not used again.
#[tokio::test]
async fn a_connection_with_bytes_left_over_is_not_used_again() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "workers: 1\n", "");
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    let surplus =
        [&whole("application/json", b"{}")[..], b"HTTP/1.1 200 OK\r\n\r\nstolen"].concat();
    for _ in 0..3 {
        client.send(&post(CHAT, &chat(&json!({})))).await.unwrap();
        let mut exchange = engine.answer(&surplus).await;
        assert_eq!(soon(client.answer()).await.unwrap().text(), "{}");
        exchange.closed().await;
    }
    gateway.idle().await;
}

// B25
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    let mut requests = Vec::new();
    for number in 1..=20 {
        let stream = number % 3 == 0;
        let body = json!({ "max_tokens": number, "ignore_eos": true, "stream": stream,
            "stream_options": if stream { json!({ "include_usage": true }) } else { json!(null) } });
        requests.extend(post(CHAT, &chat(&body)));
        requests.extend(get("/v1/models"));
    }
    client.send(&requests).await.unwrap();
    for number in 1..=20 {
        let answer = soon(client.answer()).await.unwrap();
        let usage = match number % 3 {
            0 => {
                let events = answer.events();
                serde_json::from_str(&events[events.len() - 2]).unwrap()
            }
            _ => answer.json(),
        };
        assert_eq!(usage["usage"]["completion_tokens"], number);
        assert_eq!(soon(client.answer()).await.unwrap().json()["object"], "list");
    }
    gateway.idle().await;
}

// B25
#[tokio::test]
async fn old_clients_get_answers_that_end_with_the_connection() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    for stream in [false, true] {
        let body = chat(&json!({ "stream": stream }));
        let length = body.len();
        let request = format!("POST {CHAT} HTTP/1.0\r\ncontent-length: {length}\r\n\r\n{body}");
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        let answer = soon(client.exchange(request.as_bytes())).await.unwrap();
        assert_eq!(answer.head.status, 200);
        assert_eq!(answer.head.header("transfer-encoding"), None);
        assert_eq!(answer.head.header("connection"), Some("close"));
        let end = if stream { "data: [DONE]\n\n" } else { "}" };
        assert!(answer.text().ends_with(end), "{}", answer.text());
        soon(client.closed()).await;
    }
    // One that asks for it may go on.
    let body = chat(&json!({}));
    let length = body.len();
    let request = format!(
        "POST {CHAT} HTTP/1.0\r\nconnection: keep-alive\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    for _ in 0..3 {
        let answer = soon(client.exchange(request.as_bytes())).await.unwrap();
        assert_eq!(answer.head.header("connection"), Some("keep-alive"));
    }
    gateway.idle().await;
}

// B25, and its relatives: no request may have two meanings.
#[tokio::test]
async fn ambiguous_requests_are_refused_and_the_connection_closed() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let smuggled = "GET /v1/models HTTP/1.1\r\nhost: h\r\n\r\n";
    for (fields, status) in [
        ("transfer-encoding: chunked\r\ncontent-length: 5\r\n", 400),
        ("content-length: 5\r\ncontent-length: 6\r\n", 400),
        ("content-length: 5, 6\r\n", 400),
        ("content-length: +5\r\n", 400),
        ("transfer-encoding: xchunked\r\n", 501),
        ("transfer-encoding : chunked\r\n", 400),
        ("x: a\r\n b\r\n", 400),
        ("host: other\r\n", 400),
    ] {
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: h\r\n{fields}\r\n0\r\n\r\n{smuggled}");
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        let answer = soon(client.exchange(head.as_bytes())).await.unwrap();
        assert_eq!(answer.head.status, status, "{fields}");
        assert!(answer.json()["error"]["message"].is_string(), "{fields}");
        assert_eq!(soon(client.rest()).await.unwrap(), b"", "{fields}: something was smuggled");
    }
    assert!(engine.inference_requests().is_empty());
}

#[tokio::test]
async fn what_is_not_http_is_refused_at_once() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    for (bytes, status) in [
        (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], "400"),
        (b"GET /v1/models HTTP/3.7\r\nhost: h\r\n\r\n", "505"),
        (b"PRI * HTTP/1.1\r\n\r\n", "400"),
    ] {
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        client.send(bytes).await.unwrap();
        let answer = String::from_utf8(soon(client.rest()).await.unwrap()).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    let long = format!("GET /v1/models HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "a".repeat(70_000));
    assert_eq!(soon(once(gateway.addr(), long.as_bytes())).await.unwrap().head.status, 431);
    let long = format!("GET /{} HTTP/1.1\r\nhost: h\r\n\r\n", "a".repeat(20_000));
    assert_eq!(soon(once(gateway.addr(), long.as_bytes())).await.unwrap().head.status, 414);
}

// A client that asks for the end gets it, after its answer.
#[tokio::test]
async fn connection_close_is_honoured() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    for stream in [false, true] {
        let body = chat(&json!({ "stream": stream }));
        let request = gateway_tests::client::post_with(CHAT, &[("Connection", "close")], &body);
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        let answer = soon(client.exchange(&request)).await.unwrap();
        assert_eq!(answer.head.header("connection"), Some("close"));
        assert_eq!(soon(client.rest()).await.unwrap(), b"");
    }
    gateway.idle().await;
}

// An idle client costs a slow one nothing; both are there at the same time.
#[tokio::test]
async fn a_pipelined_request_waits_for_a_slow_answer() {
    let engine = slow_engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    client.send(&post(CHAT, &chat(&json!({ "stream": true })))).await.unwrap();
    soon(client.head()).await.unwrap();
    client.send(&get("/v1/models")).await.unwrap();
    // It is read ahead, and is no reason to give the first one up.
    while soon(client.chunk()).await.unwrap().is_some() {}
    assert_eq!(soon(client.answer()).await.unwrap().json()["object"], "list");
    assert_eq!(engine.counters().aborted, 0);
    gateway.idle().await;
}
