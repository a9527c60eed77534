//! `Expect: 100-continue` (B22): invited to go on, or refused without delay.

use gateway_tests::client::{RawClient, post_with};
use gateway_tests::wait::soon;
use serde_json::json;

use super::{CHAT, Gateway, chat, engine};

const EXPECT: (&str, &str) = ("expect", "100-continue");

/// Head and body of a chat request.
fn parts(headers: &[(&str, &str)], body: &str) -> (Vec<u8>, Vec<u8>) {
    let request = post_with(CHAT, headers, body);
    let (head, body) = request.split_at(request.len() - body.len());
    (head.to_vec(), body.to_vec())
}

#[tokio::test]
async fn a_client_that_waits_is_invited() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    for size in [100, 5_000, 200_000] {
        let (head, body) = parts(&[EXPECT], &super::chat_of(size));
        client.send(&head).await.unwrap();
        let interim = soon(client.head()).await.unwrap();
        assert_eq!(interim.raw, b"HTTP/1.1 100 Continue\r\n\r\n");
        client.send(&body).await.unwrap();
        let answer = soon(client.answer()).await.unwrap();
        assert_eq!(answer.head.status, 200, "{size}: {}", answer.text());
    }
    let asked = engine.inference_requests();
    assert!(asked.iter().all(|request| request.head.header("expect").is_none()));
    gateway.idle().await;
}

#[tokio::test]
async fn a_client_that_does_not_wait_gets_its_answer_only() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    let (head, body) = parts(&[EXPECT], &chat(&json!({})));
    let answer = soon(client.exchange(&[head, body].concat())).await.unwrap();
    assert_eq!(answer.head.status, 200);
    gateway.idle().await;
}

#[tokio::test]
async fn an_early_refusal_comes_without_an_invitation() {
    let engine = engine().await;
    let limited = "  maxRequestBodyBytes: 4096\n";
    let config = gateway_tests::gateway::pool_config(&[&engine], limited)
        .replace("auth: none", "auth: { apiKeys: [{ name: a, key: secret }] }");
    let gateway = Gateway::start(&config).unwrap();
    let key = ("authorization", "Bearer secret");
    for (headers, status) in [(vec![EXPECT], 401), (vec![EXPECT, key], 413)] {
        let (head, _) = parts(&headers, &super::chat_of(100_000));
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        client.send(&head).await.unwrap();
        let refusal = soon(client.answer()).await.unwrap();
        assert_eq!(refusal.head.status, status);
        assert_eq!(refusal.head.header("connection"), Some("close"));
        soon(client.closed()).await;
    }
    assert!(engine.inference_requests().is_empty());
    gateway.idle().await;
}

// A refusal must also survive a client that is in the middle of sending.
#[tokio::test]
async fn a_refusal_reaches_a_client_that_sends_all_the_same() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "  maxRequestBodyBytes: 4096\n").await.unwrap();
    for _ in 0..20 {
        let (head, body) = parts(&[], &super::chat_of(3_000_000));
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        client.send(&head).await.unwrap();
        soon(client.send(&body)).await.unwrap();
        assert_eq!(soon(client.answer()).await.unwrap().head.status, 413);
    }
    gateway.idle().await;
}

#[tokio::test]
async fn other_expectations_are_417() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let (head, _) = parts(&[("expect", "a-miracle")], &chat(&json!({})));
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    client.send(&head).await.unwrap();
    assert_eq!(soon(client.answer()).await.unwrap().head.status, 417);
}
