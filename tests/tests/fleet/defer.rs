//! A prompt that is much longer than others gives way to them.

use anyhow::Result;
use gateway_tests::client::{RawClient, post};
use gateway_tests::gateway::Gateway;
use gateway_tests::server::{Options, Simulated};
use gateway_tests::wait::{soon, until};

use super::ask::{CHAT, metric_becomes, send, stream_body};
use super::crowd::Crowd;

const DEFERRED: &str = r#"inference_gateway_deferred_requests{pool="p"}"#;

/// A text of about so many tokens that begins like no other.
fn text(name: &str, tokens: usize) -> String {
    name.to_owned() + &" word".repeat(tokens)
}

async fn engine() -> std::io::Result<Simulated> {
    Simulated::start(Options { time_scale: 4.0, ..Options::default() }).await
}

/// Clients with short questions, so many that prompts wait while others are answered.
async fn crowd(gateway: &Gateway) -> Result<Crowd> {
    let question = |client, sent| stream_body(&text(&format!("{client} {sent}"), 250), 2);
    let crowd = Crowd::start(gateway, 128, question);
    until(async || anyhow::Ok(crowd.answered() >= 50)).await?;
    Ok(crowd)
}

/// Asks for an answer to a long prompt.
async fn long(gateway: &Gateway) -> Result<RawClient> {
    send(gateway, &post(CHAT, &stream_body(&text("long", 8_000), 2))).await
}

#[tokio::test]
async fn a_long_prompt_waits_while_short_ones_are_answered() -> Result<()> {
    let engine = engine().await?;
    let gateway = Gateway::over(&[&engine], "").await?;
    let crowd = crowd(&gateway).await?;
    let mut long = long(&gateway).await?;
    metric_becomes(&gateway, DEFERRED, 1.0).await?;
    let before = crowd.answered();
    until(async || {
        anyhow::ensure!(gateway.metric(DEFERRED).await? == 1.0, "it did not give way");
        anyhow::Ok(crowd.answered() >= before + 50)
    })
    .await?;
    crowd.stop().await?;
    let answer = soon(long.answer()).await?;
    assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
    metric_becomes(&gateway, DEFERRED, 0.0).await?;
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_meanwhile_is_forgotten() -> Result<()> {
    let engine = engine().await?;
    let gateway = Gateway::over(&[&engine], "").await?;
    let crowd = crowd(&gateway).await?;
    let long = long(&gateway).await?;
    metric_becomes(&gateway, DEFERRED, 1.0).await?;
    drop(long);
    metric_becomes(&gateway, DEFERRED, 0.0).await?;
    crowd.stop().await?;
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn giving_way_can_be_limited_and_turned_off() -> Result<()> {
    for setting in ["0s", "10ms"] {
        let engine = engine().await?;
        let settings = format!("  predicted: {{ maxDeferral: {setting} }}\n");
        let gateway = Gateway::over(&[&engine], &settings).await?;
        let crowd = crowd(&gateway).await?;
        let mut long = long(&gateway).await?;
        // It is answered though short ones never cease.
        let answer = soon(long.answer()).await?;
        assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
        crowd.stop().await?;
        gateway.idle().await;
    }
    Ok(())
}
