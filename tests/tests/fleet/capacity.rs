//! A pool that is full: who waits, who is sent away, and with what advice.

use anyhow::Result;
use gateway_tests::client::{RawAnswer, RawClient, post_with};
use gateway_tests::gateway::{Gateway, pool_config};
use gateway_tests::server::{AnswerFault, Failures, Simulated};
use gateway_tests::wait::{eventually, soon};

use super::ask::{ask, chat, chat_body, chat_with, engines, fail, metric_becomes, reason, send};

const QUEUED: &str = r#"inference_gateway_queued_requests{pool="p"}"#;

/// A gateway that lets one request at a time to its engine, which holds the first one.
async fn full(bands: &str) -> Result<(Simulated, Gateway, RawClient)> {
    let engine = engines(1).await?.remove(0);
    let extra = format!("  flowControl: {{ maxInFlightPerEndpoint: 1, bands: {{ {bands} }} }}\n");
    let objectives = "objectives: { urgent: 10, later: -5 }\n";
    let gateway = Gateway::start(&format!("{objectives}{}", pool_config(&[&engine], &extra)))?;
    gateway.serving(1).await;
    fail(&engine, AnswerFault::HangBeforeHead);
    let held = send(&gateway, &chat("held")).await?;
    eventually(|| engine.counters().inference_requests == 1).await;
    engine.set_failures(Failures::default());
    Ok((engine, gateway, held))
}

fn with_objective(objective: &str, text: &str) -> Vec<u8> {
    chat_with(&[("x-gateway-inference-objective", objective)], text)
}

fn advice(answer: &RawAnswer) -> u64 {
    answer.head.header("retry-after").and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// What the engine was asked, in order, without the request that is held.
fn asked(engine: &Simulated) -> Vec<String> {
    let body = |request: &gateway_tests::server::LoggedRequest| {
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        body["messages"][0]["content"].as_str().unwrap_or_default().to_owned()
    };
    engine.inference_requests().iter().skip(1).map(body).collect()
}

// F5, E3
#[tokio::test]
async fn a_full_queue_is_429_with_the_time_to_wait() -> Result<()> {
    let (engine, gateway, held) = full("standard: { maxRequests: 1 }").await?;
    let mut waiting = send(&gateway, &chat("waiting")).await?;
    metric_becomes(&gateway, QUEUED, 1.0).await?;
    let answer = ask(&gateway, &chat("one too many")).await?;
    assert_eq!((answer.head.status, reason(&answer)), (429, "queue-full"), "{}", answer.text());
    assert!((1..=60).contains(&advice(&answer)), "{}", advice(&answer));
    assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
    drop(held);
    assert_eq!(soon(waiting.answer()).await?.head.status, 200);
    assert_eq!(asked(&engine), ["waiting"]);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn who_waits_too_long_is_sent_away() -> Result<()> {
    let (_engine, gateway, held) = full("standard: { timeout: 200ms }").await?;
    let answer = ask(&gateway, &chat("patient")).await?;
    assert_eq!((answer.head.status, reason(&answer)), (429, "queue-timeout"));
    assert!((1..=60).contains(&advice(&answer)));
    metric_becomes(&gateway, QUEUED, 0.0).await?;
    let waits = gateway.metric(r#"inference_gateway_queue_wait_seconds_count{pool="p"}"#).await?;
    assert!((waits - 1.0).abs() < f64::EPSILON, "{waits} waits");
    drop(held);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn the_sheddable_are_refused_while_others_wait() -> Result<()> {
    let (_engine, gateway, held) = full("").await?;
    let mut waiting = send(&gateway, &chat("waiting")).await?;
    metric_becomes(&gateway, QUEUED, 1.0).await?;
    let answer = ask(&gateway, &with_objective("later", "sheddable")).await?;
    assert_eq!((answer.head.status, reason(&answer)), (429, "shed"), "{}", answer.text());
    assert!(advice(&answer) >= 1);
    drop(held);
    assert_eq!(soon(waiting.answer()).await?.head.status, 200);
    let calm = ask(&gateway, &with_objective("later", "now there is room")).await?;
    assert_eq!(calm.head.status, 200);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn the_urgent_go_before_those_who_came_earlier() -> Result<()> {
    let (engine, gateway, held) = full("").await?;
    let mut clients = Vec::new();
    let requests = [
        chat("first"),
        with_objective("no such objective", "second"),
        with_objective("urgent", "urgent"),
    ];
    for (index, request) in requests.iter().enumerate() {
        clients.push(send(&gateway, request).await?);
        metric_becomes(&gateway, QUEUED, index as f64 + 1.0).await?;
    }
    drop(held);
    for client in &mut clients {
        assert_eq!(soon(client.answer()).await?.head.status, 200);
    }
    assert_eq!(asked(&engine), ["urgent", "first", "second"]);
    gateway.idle().await;
    Ok(())
}

// D3
#[tokio::test]
async fn who_leaves_the_queue_gives_up_the_place() -> Result<()> {
    let (engine, gateway, held) = full("standard: { maxRequests: 1 }").await?;
    let leaving = send(&gateway, &chat("leaving")).await?;
    metric_becomes(&gateway, QUEUED, 1.0).await?;
    drop(leaving);
    metric_becomes(&gateway, QUEUED, 0.0).await?;
    let mut staying = send(&gateway, &chat("staying")).await?;
    metric_becomes(&gateway, QUEUED, 1.0).await?;
    drop(held);
    assert_eq!(soon(staying.answer()).await?.head.status, 200);
    assert_eq!(asked(&engine), ["staying"]);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn bytes_that_wait_are_bounded_too() -> Result<()> {
    let (_engine, gateway, held) = full("standard: { maxBytes: 2KiB }").await?;
    let answer = ask(&gateway, &chat(&"long ".repeat(1000))).await?;
    assert_eq!((answer.head.status, reason(&answer)), (429, "queue-full"));
    drop(held);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn messages_are_refused_in_their_own_dialect() -> Result<()> {
    let (_engine, gateway, held) = full("standard: { maxRequests: 0 }").await?;
    let body = chat_body("tiny", "hi");
    let answer = ask(&gateway, &post_with("/v1/messages", &[], &body)).await?;
    assert_eq!(answer.head.status, 429);
    assert_eq!(answer.json()["type"], "error");
    assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
    drop(held);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn a_bound_without_a_queue_is_429_at_once() -> Result<()> {
    let (_engine, gateway, held) = full(
        "critical: { maxRequests: 0 }, standard: { maxRequests: 0 }, sheddable: { maxRequests: 0 }",
    )
    .await?;
    for objective in ["urgent", "none", "later"] {
        let answer = ask(&gateway, &with_objective(objective, "hi")).await?;
        assert_eq!(answer.head.status, 429, "{objective}: {}", answer.text());
    }
    drop(held);
    gateway.idle().await;
    Ok(())
}
