//! An engine whose batch is full: prompts wait in the gateway and start together.

use anyhow::Result;
use gateway_tests::engine::Settings;
use gateway_tests::gateway::Gateway;
use gateway_tests::server::{Options, Simulated};
use gateway_tests::wait::until;

use super::ask::{metric_becomes, stream_body};
use super::crowd::Crowd;

const QUEUED: &str = r#"inference_gateway_queued_requests{pool="p"}"#;
const BATCH: usize = 64;

/// An engine with so small a batch.
async fn engine() -> std::io::Result<Simulated> {
    let engine = Settings { max_num_seqs: BATCH, ..Settings::default() };
    Simulated::start(Options { name: "e0".to_owned(), engine, ..Options::default() }).await
}

/// More clients than the batch has places.
fn crowd(gateway: &Gateway) -> Crowd {
    Crowd::start(gateway, BATCH * 3 / 2, |client, sent| {
        let tokens = 10 + (client * 37 + sent * 11) as u32 % 90;
        stream_body(&format!("client {client}, request {sent}"), tokens)
    })
}

#[tokio::test]
async fn prompts_that_find_a_full_batch_wait_in_the_gateway() -> Result<()> {
    let engine = engine().await?;
    let gateway = Gateway::over(&[&engine], "").await?;
    let crowd = crowd(&gateway);
    // The limit is learnt from what the engine leaves behind; then nothing waits there.
    until(async || {
        let queued = gateway.metric(QUEUED).await?;
        let waiting: usize = engine.load().iter().map(|load| load.waiting_for_capacity).sum();
        anyhow::Ok(queued >= 8.0 && waiting == 0)
    })
    .await?;
    crowd.stop().await?;
    metric_becomes(&gateway, QUEUED, 0.0).await?;
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn lots_can_be_turned_off() -> Result<()> {
    let engine = engine().await?;
    let gateway = Gateway::over(&[&engine], "  predicted: { startInLots: off }\n").await?;
    let crowd = crowd(&gateway);
    until(async || {
        let finished: u64 = engine.stats().iter().map(|stats| stats.finished).sum();
        anyhow::ensure!(gateway.metric(QUEUED).await? == 0.0, "somebody is held back");
        anyhow::Ok(finished > 2 * BATCH as u64)
    })
    .await?;
    crowd.stop().await?;
    gateway.idle().await;
    Ok(())
}
