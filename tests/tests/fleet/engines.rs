//! Signals are read from every kind of engine.

use anyhow::Result;
use gateway_tests::client::post;
use gateway_tests::gateway::Gateway;
use gateway_tests::server::{Failures, Flavour, Options, Simulated};
use gateway_tests::wait::until;

use super::ask::{
    CHAT, ask, becomes, chat, engines, left_out_while_failing, over, reason, send, spread, state,
    stream_body,
};

/// An engine as slow as a real one.
async fn slow(flavour: Flavour, ranks: usize) -> Result<Simulated> {
    Ok(Simulated::start(Options { flavour, ranks, ..Options::default() }).await?)
}

/// Holds a request at the engine and waits until the gateway reads it from its page.
async fn sees_load(engine: &Simulated, extra: &str) -> Result<()> {
    let gateway = Gateway::over(&[engine], extra).await?;
    let held = send(&gateway, &post(CHAT, &stream_body("a long answer", 4000))).await?;
    until(async || {
        let state = state(&gateway, engine).await?;
        let usage = state["kv_usage"].as_f64();
        let busy = state["running"].as_f64().unwrap_or_default() >= 1.0;
        anyhow::Ok(busy && state["waiting"].is_number() && usage.is_none_or(|usage| usage <= 1.0))
    })
    .await?;
    drop(held);
    until(async || anyhow::Ok(state(&gateway, engine).await?["running"] == 0.0)).await?;
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn load_is_read_from_vllm() -> Result<()> {
    sees_load(&slow(Flavour::Vllm, 1).await?, "  engineType: vllm\n").await
}

#[tokio::test]
async fn load_is_read_from_sglang() -> Result<()> {
    sees_load(&slow(Flavour::Sglang, 1).await?, "  engineType: sglang\n").await
}

#[tokio::test]
async fn load_is_read_from_tgi() -> Result<()> {
    sees_load(&slow(Flavour::Tgi, 1).await?, "  engineType: tgi\n").await
}

#[tokio::test]
async fn load_is_read_from_tensorrt_llm() -> Result<()> {
    sees_load(&slow(Flavour::TrtllmServe, 1).await?, "  engineType: trtllm-serve\n").await
}

#[tokio::test]
async fn load_is_read_from_tensorrt_llm_behind_triton() -> Result<()> {
    sees_load(&slow(Flavour::Triton, 1).await?, "  engineType: triton-tensorrt-llm\n").await
}

#[tokio::test]
async fn load_is_read_by_a_mapping_of_ones_own() -> Result<()> {
    let mapping = "  engineType: custom\n  metrics:\n    mapping:\n      \
                   queuedRequestsSpec: vllm:num_requests_waiting\n      \
                   runningRequestsSpec: vllm:num_requests_running\n";
    sees_load(&slow(Flavour::Vllm, 1).await?, mapping).await
}

#[tokio::test]
async fn data_parallel_ranks_are_added_up() -> Result<()> {
    let engine = slow(Flavour::Vllm, 2).await?;
    let gateway = Gateway::over(&[&engine], "").await?;
    let mut held = Vec::new();
    for number in 0..4 {
        let body = stream_body(&format!("a long answer {number}"), 4000);
        held.push(send(&gateway, &post(CHAT, &body)).await?);
    }
    until(async || anyhow::Ok(state(&gateway, &engine).await?["running"] == 4.0)).await?;
    let usage = state(&gateway, &engine).await?["kv_usage"].as_f64();
    assert!(usage.is_some_and(|usage| usage < 0.5), "a mean, not a sum: {usage:?}");
    drop(held);
    gateway.idle().await;
    Ok(())
}

const TURNS: &str =
    "  policy: round_robin\n  metrics: { idleInterval: 100ms, staleAfter: 1500ms }\n";

// H7
#[tokio::test]
async fn an_endpoint_without_fresh_signals_is_left_out_and_returns() -> Result<()> {
    let engines = engines(2).await?;
    let gateway = over(&engines, TURNS).await?;
    let mut failures = Failures::default();
    failures.metrics.status = Some(500);
    left_out_while_failing(&gateway, &engines, failures, "stale").await
}

// H7
#[tokio::test]
async fn a_page_that_takes_too_long_is_as_good_as_none() -> Result<()> {
    let engines = engines(2).await?;
    let intervals = "  metrics: { idleInterval: 100ms, timeout: 700ms, staleAfter: 1500ms }\n";
    let gateway = over(&engines, intervals).await?;
    let mut failures = Failures::default();
    failures.metrics.delay_seconds = 30.0;
    engines[0].set_failures(failures);
    becomes(&gateway, &engines[0], "stale").await?;
    assert_eq!(spread(&gateway, 10).await?.len(), 1);
    gateway.idle().await;
    Ok(())
}

// H7, X5: what happens when nobody's signals are fresh is the operator's choice.
#[tokio::test]
async fn a_pool_of_stale_endpoints_fails_as_it_is_told() -> Result<()> {
    let engines = engines(2).await?;
    for (mode, expected) in [("FailClosed", 503), ("FailOpen", 200)] {
        let extra = format!(
            "  failureMode: {mode}\n  metrics: {{ idleInterval: 100ms, staleAfter: 1500ms }}\n"
        );
        let gateway = over(&engines, &extra).await?;
        let mut failures = Failures::default();
        failures.metrics.status = Some(404);
        engines.iter().for_each(|engine| engine.set_failures(failures.clone()));
        becomes(&gateway, &engines[0], "stale").await?;
        becomes(&gateway, &engines[1], "stale").await?;
        let answer = ask(&gateway, &chat("hi")).await?;
        assert_eq!(answer.head.status, expected, "{mode}: {}", answer.text());
        if expected == 503 {
            assert_eq!(reason(&answer), "no-endpoint");
            assert!(answer.head.header("retry-after").is_some());
            assert!(answer.text().contains("no_endpoint"), "{}", answer.text());
        }
        engines.iter().for_each(|engine| engine.set_failures(Failures::default()));
        gateway.idle().await;
    }
    Ok(())
}

#[tokio::test]
async fn engines_without_metrics_are_used_when_scraping_is_off() -> Result<()> {
    let engines = engines(2).await?;
    let mut failures = Failures::default();
    failures.metrics.status = Some(404);
    engines.iter().for_each(|engine| engine.set_failures(failures.clone()));
    let gateway = over(&engines, "  policy: round_robin\n  metrics: off\n").await?;
    assert_eq!(spread(&gateway, 10).await?.len(), 2);
    assert_eq!(engines[0].counters().scrapes + engines[1].counters().scrapes, 0);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn an_idle_pool_is_scraped_less_and_a_request_brings_the_pace_back() -> Result<()> {
    let engine = slow(Flavour::Vllm, 1).await?;
    let pace = "  metrics: { interval: 20ms, idleInterval: 60s, staleAfter: 10m }\n";
    let gateway = Gateway::over(&[&engine], pace).await?;
    let held = send(&gateway, &post(CHAT, &stream_body("a long answer", 4000))).await?;
    let before = engine.counters().scrapes;
    until(async || anyhow::Ok(engine.counters().scrapes > before + 10)).await?;
    drop(held);
    gateway.idle().await;
    Ok(())
}
