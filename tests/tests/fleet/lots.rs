//! An engine whose batch is full: prompts wait in the gateway and start together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use gateway_tests::client::{once, post};
use gateway_tests::engine::Settings;
use gateway_tests::gateway::Gateway;
use gateway_tests::server::{Options, Simulated};
use gateway_tests::wait::{soon, until};

use super::ask::{CHAT, metric_becomes, stream_body};

const QUEUED: &str = r#"inference_gateway_queued_requests{pool="p"}"#;
const BATCH: usize = 64;

/// An engine with so small a batch.
async fn engine() -> std::io::Result<Simulated> {
    let engine = Settings { max_num_seqs: BATCH, ..Settings::default() };
    Simulated::start(Options { name: "e0".to_owned(), engine, ..Options::default() }).await
}

/// More clients than the batch has places, each with its next request as soon as its last
/// one is answered, until they are told to stop. Says how many answers were whole.
fn clients(gateway: &Gateway, stop: &Arc<AtomicBool>) -> Vec<tokio::task::JoinHandle<usize>> {
    let client = |number: usize| {
        let (addr, stop) = (gateway.addr(), Arc::clone(stop));
        tokio::spawn(async move {
            let mut answered = 0;
            while !stop.load(Ordering::Relaxed) {
                let tokens = 10 + (number * 37 + answered * 11) as u32 % 90;
                let text = format!("client {number}, request {answered}");
                let request = post(CHAT, &stream_body(&text, tokens));
                let answer = soon(once(addr, &request)).await.unwrap();
                assert_eq!(answer.head.status, 200, "{}", answer.text());
                assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
                answered += 1;
            }
            answered
        })
    };
    (0..BATCH * 3 / 2).map(client).collect()
}

#[tokio::test]
async fn prompts_that_find_a_full_batch_wait_in_the_gateway() -> Result<()> {
    let engine = engine().await?;
    let gateway = Gateway::over(&[&engine], "").await?;
    let stop = Arc::new(AtomicBool::new(false));
    let clients = clients(&gateway, &stop);
    // The limit is learnt from what the engine leaves behind; then nothing waits there.
    until(async || {
        let queued = gateway.metric(QUEUED).await?;
        let waiting: usize = engine.load().iter().map(|load| load.waiting_for_capacity).sum();
        anyhow::Ok(queued >= 8.0 && waiting == 0)
    })
    .await?;
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await? > 0);
    }
    metric_becomes(&gateway, QUEUED, 0.0).await?;
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn lots_can_be_turned_off() -> Result<()> {
    let engine = engine().await?;
    let gateway = Gateway::over(&[&engine], "  predicted: { startInLots: off }\n").await?;
    let stop = Arc::new(AtomicBool::new(false));
    let clients = clients(&gateway, &stop);
    until(async || {
        let finished: u64 = engine.stats().iter().map(|stats| stats.finished).sum();
        anyhow::ensure!(gateway.metric(QUEUED).await? == 0.0, "somebody is held back");
        anyhow::Ok(finished > 2 * BATCH as u64)
    })
    .await?;
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await?;
    }
    gateway.idle().await;
    Ok(())
}
