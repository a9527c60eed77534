//! Passive health: endpoints that keep failing are left out for a while.

use anyhow::Result;
use gateway_tests::client::post;
use gateway_tests::server::{AnswerFault, Failures};
use gateway_tests::wait::{eventually, until};

use super::ask::{
    CHAT, ask, becomes, chat, endpoint, engines, fail, over, reason, send, shares, spread, state,
    status, stop, stream_body,
};

const THREE: &str = "  policy: round_robin\n  retry: off\n  \
                     ejection: { consecutiveFailures: 3, base: 60s }\n";

// H8
#[tokio::test]
async fn only_the_endpoint_that_fails_is_ejected() -> Result<()> {
    let engines = engines(3).await?;
    let gateway = over(&engines, THREE).await?;
    fail(&engines[1], status(500));
    let mut failed = 0;
    for number in 0..9 {
        let answer = ask(&gateway, &chat(&number.to_string())).await?;
        failed += usize::from(answer.head.status == 500);
    }
    assert_eq!(failed, 3);
    becomes(&gateway, &engines[1], "ejected").await?;
    assert!(state(&gateway, &engines[1]).await?["returns_in_seconds"].as_f64() > Some(30.0));
    for index in [0, 2] {
        assert_eq!(state(&gateway, &engines[index]).await?["state"], "serving");
        assert_eq!(state(&gateway, &engines[index]).await?["consecutive_failures"], 0);
    }
    let before = shares(&engines)[1];
    assert_eq!(spread(&gateway, 20).await?.len(), 2);
    assert_eq!(shares(&engines)[1], before);
    gateway.idle().await;
    Ok(())
}

// H2: a breaker that has opened closes again.
#[tokio::test]
async fn an_ejected_endpoint_returns_by_itself() -> Result<()> {
    let engines = engines(2).await?;
    let extra = "  policy: round_robin\n  retry: off\n  \
                 ejection: { consecutiveFailures: 2, base: 200ms, max: 400ms }\n";
    let gateway = over(&engines, extra).await?;
    fail(&engines[0], AnswerFault::CloseBeforeHead);
    until(async || {
        ask(&gateway, &chat("hi")).await?;
        anyhow::Ok(state(&gateway, &engines[0]).await?["state"] == "ejected")
    })
    .await?;
    engines[0].set_failures(Failures::default());
    becomes(&gateway, &engines[0], "serving").await?;
    assert_eq!(spread(&gateway, 10).await?.len(), 2);
    assert_eq!(state(&gateway, &engines[0]).await?["consecutive_failures"], 0);
    gateway.idle().await;
    Ok(())
}

// H2: not 404.
#[tokio::test]
async fn when_all_are_ejected_the_answer_is_unavailable() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, THREE).await?;
    fail(&engines[0], AnswerFault::CloseBeforeHead);
    for _ in 0..3 {
        assert_eq!(ask(&gateway, &chat("hi")).await?.head.status, 502);
    }
    let answer = ask(&gateway, &chat("hi")).await?;
    assert_eq!((answer.head.status, reason(&answer)), (503, "no-endpoint"), "{}", answer.text());
    assert_eq!(answer.json()["error"]["type"], "service_unavailable");
    assert!(answer.head.header("retry-after").is_some());
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn part_of_the_pool_always_stays() -> Result<()> {
    let engines = engines(4).await?;
    let gateway = over(&engines, THREE).await?;
    engines.iter().for_each(|engine| fail(engine, status(500)));
    for _ in 0..40 {
        assert_eq!(ask(&gateway, &chat("hi")).await?.head.status, 500);
    }
    let mut out = 0;
    for engine in &engines {
        out += usize::from(state(&gateway, engine).await?["state"] == "ejected");
    }
    assert_eq!(out, 2, "half of them, and no more");
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn what_is_the_clients_fault_ejects_nobody() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, THREE).await?;
    for code in [400, 404, 422, 429] {
        fail(&engines[0], status(code));
        for _ in 0..5 {
            assert_eq!(ask(&gateway, &chat("hi")).await?.head.status, code);
        }
    }
    fail(&engines[0], AnswerFault::HangAfterChunks { chunks: 1 });
    for _ in 0..5 {
        let mut client = send(&gateway, &post(CHAT, &stream_body("hi", 50))).await?;
        client.head().await?;
        drop(client);
        gateway.idle().await;
    }
    engines[0].set_failures(Failures::default());
    assert_eq!(state(&gateway, &engines[0]).await?["consecutive_failures"], 0);
    assert_eq!(ask(&gateway, &chat("hi")).await?.head.status, 200);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn answers_that_break_off_count_as_failures() -> Result<()> {
    let engines = engines(2).await?;
    let gateway = over(&engines, THREE).await?;
    fail(&engines[0], AnswerFault::CloseAfterChunks { chunks: 2, within_chunk: false });
    for _ in 0..6 {
        // One of two breaks off; either way it begins well.
        let answer = send(&gateway, &post(CHAT, &stream_body("hi", 50))).await?.answer().await;
        assert!(answer.is_err() || answer.is_ok_and(|answer| answer.head.status == 200));
    }
    becomes(&gateway, &engines[0], "ejected").await?;
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn ejection_can_be_turned_off() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "  retry: off\n  ejection: off\n").await?;
    fail(&engines[0], status(500));
    for _ in 0..20 {
        assert_eq!(ask(&gateway, &chat("hi")).await?.head.status, 500);
    }
    engines[0].set_failures(Failures::default());
    assert_eq!(ask(&gateway, &chat("hi")).await?.head.status, 200);
    gateway.idle().await;
    Ok(())
}

// T4: an endpoint that vanishes after it was picked.
#[tokio::test]
async fn an_endpoint_that_has_just_died_costs_its_client_nothing() -> Result<()> {
    let engines = engines(3).await?;
    let gateway = over(&engines, "  policy: round_robin\n").await?;
    spread(&gateway, 6).await?; // connections to all of them are kept
    let _others = stop(engines, 2);
    for number in 0..9 {
        let answer = ask(&gateway, &chat(&number.to_string())).await?;
        assert_eq!(answer.head.status, 200, "{}", answer.text());
        assert!(!endpoint(&answer).is_empty());
    }
    eventually(|| gateway.in_flight() == (0, 0)).await;
    Ok(())
}
