//! Prompts that begin alike go where their beginning is cached.

use anyhow::Result;
use gateway_tests::server::AnswerFault;
use gateway_tests::wait::eventually;

use super::ask::{ask, chat, endpoint, engines, fail, over, send};

/// Text that no other prompt begins with.
fn text(seed: usize, bytes: usize) -> String {
    let words: String = (0..).map(|n| format!("{seed}.{n} ")).take(bytes).collect();
    words[..bytes].to_owned()
}

// R12: a short prompt is remembered, too.
#[tokio::test]
async fn a_longer_prompt_finds_the_beginning_that_a_short_one_left() -> Result<()> {
    let engines = engines(4).await?;
    let gateway = over(&engines, "  weights: { prefix: 1 }\n").await?;
    for seed in 0..12 {
        let first = ask(&gateway, &chat(&text(seed, 400))).await?;
        let second = ask(&gateway, &chat(&text(seed, 4000))).await?;
        assert_eq!(endpoint(&first), endpoint(&second), "prompt {seed}");
    }
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn a_conversation_returns_to_its_endpoint_by_default() -> Result<()> {
    let engines = engines(4).await?;
    let gateway = over(&engines, "").await?;
    let first = ask(&gateway, &chat(&text(1, 60_000))).await?;
    for turn in 1..5 {
        let answer = ask(&gateway, &chat(&text(1, 60_000 + turn * 400))).await?;
        assert_eq!(endpoint(&answer), endpoint(&first), "turn {turn}");
    }
    let hits: u64 = engines.iter().map(|engine| engine.stats()[0].prefix_hits).sum();
    assert!(hits > 40_000, "the engines found only {hits} tokens in their caches");
    gateway.idle().await;
    Ok(())
}

// R7: a moment of imbalance must not cost the affinity of everything afterwards.
#[tokio::test]
async fn affinity_survives_a_moment_of_imbalance() -> Result<()> {
    let engines = engines(2).await?;
    let gateway = over(&engines, "").await?;
    let first = ask(&gateway, &chat(&text(7, 60_000))).await?;
    let home = engines.iter().find(|e| e.addr().to_string() == endpoint(&first)).unwrap();
    for engine in &engines {
        fail(engine, AnswerFault::HangBeforeHead);
    }
    let mut burst = Vec::new();
    for number in 0..20 {
        burst.push(send(&gateway, &chat(&text(100 + number, 8_000))).await?);
        eventually(|| gateway.in_flight().0 == number as u64 + 1).await;
    }
    drop(burst);
    gateway.idle().await;
    for engine in &engines {
        engine.set_failures(gateway_tests::server::Failures::default());
    }
    eventually(|| engines.iter().all(|engine| engine.load()[0].running == 0)).await;
    let mut back = 0;
    for turn in 1..=10 {
        let answer = ask(&gateway, &chat(&text(7, 60_000 + turn * 400))).await?;
        back += usize::from(endpoint(&answer) == home.addr().to_string());
    }
    assert!(back >= 9, "{back} of 10 came back");
    gateway.idle().await;
    Ok(())
}
