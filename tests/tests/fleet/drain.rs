//! Shutting down without cutting anybody off.

use anyhow::Result;
use gateway_tests::client::{RawClient, get, post};
use gateway_tests::gateway::Gateway;
use gateway_tests::server::{Options, Simulated};
use gateway_tests::wait::{soon, until};
use inference_gateway::drain::Phase;

use super::ask::{CHAT, ask, chat, send, stream_body};

/// A gateway over an engine that takes some seconds for a thousand tokens.
async fn unhurried() -> Result<(Simulated, Gateway)> {
    let engine = Simulated::start(Options { time_scale: 10.0, ..Options::fast("e") }).await?;
    let gateway = Gateway::over(&[&engine], "").await?;
    Ok((engine, gateway))
}

// H6
#[tokio::test]
async fn while_settling_requests_are_answered_but_the_gateway_is_not_ready() -> Result<()> {
    let (_engine, gateway) = unhurried().await?;
    gateway.enter(Phase::Settling);
    assert_eq!(gateway.ask("/readyz").await?.head.status, 503);
    assert_eq!(gateway.ask("/livez").await?.head.status, 200);
    assert_eq!(gateway.ask("/status.json").await?.json()["phase"], "settling");
    assert_eq!(ask(&gateway, &chat("hi")).await?.head.status, 200);
    assert_eq!(ask(&gateway, &get("/readyz")).await?.head.status, 503);
    gateway.idle().await;
    Ok(())
}

// H6
#[tokio::test]
async fn a_stream_that_runs_is_finished_and_nothing_new_is_begun() -> Result<()> {
    let (_engine, gateway) = unhurried().await?;
    let mut client = send(&gateway, &post(CHAT, &stream_body("a long answer", 1000))).await?;
    client.head().await?;
    client.chunk().await?;
    gateway.enter(Phase::Draining);
    let refused = || async {
        match RawClient::connect(gateway.addr()).await {
            // The port may be open a little longer than anybody listens.
            Ok(mut late) => late.exchange(&chat("late")).await.is_err(),
            Err(_) => true,
        }
    };
    until(async || anyhow::Ok(refused().await)).await?;
    assert_eq!(gateway.ask("/status.json").await?.json()["phase"], "draining");
    let mut text = Vec::new();
    while let Some(chunk) = soon(client.chunk()).await? {
        text.extend_from_slice(&chunk.bytes);
    }
    assert!(text.ends_with(b"data: [DONE]\n\n"), "{}", String::from_utf8_lossy(&text));
    soon(client.closed()).await;
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn a_connection_that_waits_for_its_next_request_is_closed() -> Result<()> {
    let (_engine, gateway) = unhurried().await?;
    let mut client = RawClient::connect(gateway.addr()).await?;
    assert_eq!(client.exchange(&chat("hi")).await?.head.status, 200);
    gateway.enter(Phase::Draining);
    soon(client.closed()).await;
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn the_last_answer_on_a_connection_says_that_it_closes() -> Result<()> {
    let (_engine, gateway) = unhurried().await?;
    let body = stream_body("an answer", 300).replace("\"stream\":true", "\"stream\":false");
    let mut client = send(&gateway, &post(CHAT, &body)).await?;
    until(async || anyhow::Ok(gateway.in_flight().0 == 1)).await?;
    gateway.enter(Phase::Draining);
    let answer = soon(client.answer()).await?;
    assert_eq!(answer.head.status, 200);
    assert_eq!(answer.head.header("connection"), Some("close"));
    soon(client.closed()).await;
    gateway.idle().await;
    Ok(())
}
