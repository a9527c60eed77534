//! Request ids: the client's, or one of ours, the same everywhere.

use std::collections::HashSet;

use gateway_tests::client::{RawClient, once, post, post_with};
use gateway_tests::wait::soon;
use serde_json::json;

use super::{CHAT, Gateway, ask, chat, engine, http2};

#[tokio::test]
async fn the_first_known_header_gives_the_id() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let all = [
        ("request-id", "fourth"),
        ("x-trace-id", "third"),
        ("x-correlation-id", "second"),
        ("X-Request-ID", "first"),
    ];
    for known in 1..=all.len() {
        let expected = all[known - 1].1;
        let request = post_with(CHAT, &all[..known], &chat(&json!({})));
        let answer = soon(once(gateway.addr(), &request)).await.unwrap();
        assert_eq!(answer.head.header("x-request-id"), Some(expected));
        let got = engine.inference_requests().pop().unwrap();
        assert_eq!(got.head.text("x-request-id"), expected);
        let given =
            got.head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-request-id"));
        assert_eq!(given.count(), 1, "never twice");
    }
    gateway.idle().await;
}

#[tokio::test]
async fn a_request_without_an_id_gets_one_of_its_own() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let mut seen = HashSet::new();
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    for _ in 0..20 {
        let answer = soon(client.exchange(&post(CHAT, &chat(&json!({}))))).await.unwrap();
        let id = answer.head.header("x-request-id").unwrap().to_owned();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        let got = engine.inference_requests().pop().unwrap();
        assert_eq!(got.head.text("x-request-id"), id);
        assert!(seen.insert(id), "an id came twice");
    }
    gateway.idle().await;
}

#[tokio::test]
async fn refusals_carry_the_id_too() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let request = post_with(CHAT, &[("x-request-id", "mine")], "not json");
    let answer = soon(once(gateway.addr(), &request)).await.unwrap();
    assert_eq!((answer.head.status, answer.head.header("x-request-id")), (400, Some("mine")));
    let answer = ask(gateway.addr(), "/nowhere", "{}").await;
    assert_eq!(answer.head.status, 404);
    assert!(answer.head.header("x-request-id").is_some());
    let client = http2::connect(gateway.addr()).await;
    let mut request = http2::post(CHAT, "not json");
    request.headers_mut().insert("x-request-id", "mine".parse().unwrap());
    let response = http2::send(&client, request).await;
    assert_eq!(http2::header(&response, "x-request-id"), Some("mine"));
}
