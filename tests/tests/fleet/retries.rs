//! Attempts at other endpoints, before anything of an answer is seen.

use anyhow::Result;
use gateway_tests::client::{RawAnswer, post};
use gateway_tests::gateway::Gateway;
use gateway_tests::server::{AnswerFault, Failures, LoggedRequest, Simulated};

use super::ask::{
    CHAT, ask, chat, chat_body, endpoint, engines, fail, over, reason, shares, status,
};

const TURNS: &str = "  policy: round_robin\n  ejection: off\n";

fn attempts(engines: &[Simulated]) -> u64 {
    shares(engines).iter().sum()
}

/// Sends one request to a pool of which every engine has this fault.
async fn ask_all_failing(
    engines: &[Simulated],
    extra: &str,
    fault: &AnswerFault,
) -> Result<RawAnswer> {
    let gateway = over(engines, extra).await?;
    engines.iter().for_each(|engine| fail(engine, fault.clone()));
    let answer = ask(&gateway, &chat("hi")).await?;
    gateway.idle().await;
    Ok(answer)
}

// Y4, Y5
#[tokio::test]
async fn retries_end_and_the_engines_own_error_is_the_answer() -> Result<()> {
    let engines = engines(5).await?;
    let answer = ask_all_failing(&engines, TURNS, &status(503)).await?;
    assert_eq!(answer.head.status, 503);
    assert_eq!(reason(&answer), "", "not an error of the gateway");
    assert!(answer.json()["error"].is_object(), "the engine's body: {}", answer.text());
    assert_eq!(attempts(&engines), 3);
    assert_eq!(shares(&engines).into_iter().max(), Some(1), "never twice at one endpoint");
    Ok(())
}

// Y5
#[tokio::test]
async fn the_number_of_retries_is_the_operators() -> Result<()> {
    for (retry, expected) in [("off", 1), ("{ attempts: 1 }", 2), ("{ attempts: 4 }", 5)] {
        let engines = engines(6).await?;
        let extra = format!("{TURNS}  retry: {retry}\n");
        let answer = ask_all_failing(&engines, &extra, &AnswerFault::CloseBeforeHead).await?;
        assert_eq!((answer.head.status, reason(&answer)), (502, "upstream-closed"));
        assert_eq!(attempts(&engines), expected, "{retry}");
    }
    Ok(())
}

#[tokio::test]
async fn a_retry_is_sent_somewhere_else_and_the_client_sees_only_success() -> Result<()> {
    let faults = [AnswerFault::CloseBeforeHead, AnswerFault::Garbage, status(502), status(503)];
    for fault in faults {
        let engines = engines(2).await?;
        let gateway = over(&engines, TURNS).await?;
        fail(&engines[0], fault.clone());
        for number in 0..4 {
            let answer = ask(&gateway, &chat(&number.to_string())).await?;
            assert_eq!(answer.head.status, 200, "{fault:?}: {}", answer.text());
            assert_eq!(endpoint(&answer), engines[1].addr().to_string());
        }
        assert!(engines[0].counters().inference_requests > 0, "{fault:?}");
        gateway.idle().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_refused_connection_is_retried_and_counted() -> Result<()> {
    let engines = engines(2).await?;
    let gateway = over(&engines, TURNS).await?;
    engines[0].set_failures(Failures { refuse_connections: true, ..Failures::default() });
    for number in 0..4 {
        assert_eq!(ask(&gateway, &chat(&number.to_string())).await?.head.status, 200);
    }
    let retries = r#"inference_gateway_retries_total{pool="p",reason="connect"}"#;
    assert!(gateway.metric(retries).await? >= 1.0);
    gateway.idle().await;
    Ok(())
}

// Y4: neither what is slow nor what an engine answers for good.
#[tokio::test]
async fn slow_answers_and_plain_errors_are_not_retried() -> Result<()> {
    let engines_of = engines(3).await?;
    let slow = format!("{TURNS}  timeouts: {{ firstByte: 200ms }}\n");
    let answer = ask_all_failing(&engines_of, &slow, &AnswerFault::HangBeforeHead).await?;
    assert_eq!((answer.head.status, reason(&answer)), (504, "upstream-timeout"));
    assert_eq!(attempts(&engines_of), 1);
    for code in [400, 401, 404, 422, 429, 500, 501, 504] {
        let engines = engines(2).await?;
        let answer = ask_all_failing(&engines, TURNS, &status(code)).await?;
        assert_eq!(answer.head.status, code);
        assert_eq!(attempts(&engines), 1, "{code}");
    }
    Ok(())
}

// Y3
#[tokio::test]
async fn an_engines_429_reaches_the_client_with_its_advice() -> Result<()> {
    let engines = engines(2).await?;
    let fault = AnswerFault::Status { code: 429, retry_after: Some(17) };
    let answer = ask_all_failing(&engines, TURNS, &fault).await?;
    assert_eq!(answer.head.status, 429);
    assert_eq!(answer.head.header("retry-after"), Some("17"));
    assert_eq!(attempts(&engines), 1);
    Ok(())
}

// Y3
#[tokio::test]
async fn a_request_shed_by_the_gateway_reaches_no_engine() -> Result<()> {
    let engines = engines(2).await?;
    let extra = format!(
        "{TURNS}  flowControl: {{ maxInFlightPerEndpoint: 1, \
         bands: {{ standard: {{ maxRequests: 0 }} }} }}\n"
    );
    let gateway = over(&engines, &extra).await?;
    engines.iter().for_each(|engine| fail(engine, AnswerFault::HangBeforeHead));
    let mut held = Vec::new();
    for number in 1..=2 {
        held.push(super::ask::send(&gateway, &chat("held")).await?);
        gateway_tests::wait::eventually(|| gateway.in_flight().0 == number).await;
    }
    let answer = ask(&gateway, &chat("one too many")).await?;
    assert_eq!(answer.head.status, 429, "{}", answer.text());
    assert_eq!(attempts(&engines), 2);
    drop(held);
    gateway.idle().await;
    Ok(())
}

// Y3: no storm.
#[tokio::test]
async fn retries_stay_within_a_fifth_of_the_traffic() -> Result<()> {
    let engines = engines(2).await?;
    let extra = format!("{TURNS}  retry: {{ minRetriesPerSecond: 0 }}\n");
    let gateway = over(&engines, &extra).await?;
    engines.iter().for_each(|engine| fail(engine, AnswerFault::CloseBeforeHead));
    for number in 0..100 {
        assert_eq!(ask(&gateway, &chat(&number.to_string())).await?.head.status, 502);
    }
    let extra = attempts(&engines) - 100;
    assert!((1..=20).contains(&extra), "{extra} retries of 100 requests");
    gateway.idle().await;
    Ok(())
}

// B7
#[tokio::test]
async fn a_retry_sends_the_same_body_again() -> Result<()> {
    let engines = engines(2).await?;
    let gateway =
        over(&engines, &format!("{TURNS}  modelName: tiny\n  aliases: [gpt-4]\n")).await?;
    fail(&engines[0], AnswerFault::CloseBeforeHead);
    for _ in 0..2 {
        let answer = ask(&gateway, &post(CHAT, &chat_body("gpt-4", "what was asked"))).await?;
        assert_eq!((answer.head.status, &answer.json()["model"]), (200, &"gpt-4".into()));
    }
    let (failed, answered) = (engines[0].inference_requests(), engines[1].inference_requests());
    assert_eq!(answered.len(), 2);
    let sent = chat_body("tiny", "what was asked").into_bytes();
    assert!(failed.iter().chain(&answered).all(|request| request.body == sent));
    let ids = |requests: &[LoggedRequest]| requests[0].head.text("x-request-id").to_owned();
    assert_eq!(ids(&failed), ids(&answered), "one request, one id");
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn nothing_is_retried_once_an_answer_has_begun() -> Result<()> {
    let engines = engines(3).await?;
    let gateway: Gateway = over(&engines, TURNS).await?;
    let broken = AnswerFault::CloseAfterChunks { chunks: 1, within_chunk: false };
    engines.iter().for_each(|engine| fail(engine, broken.clone()));
    let body = super::ask::stream_body("hi", 50);
    let mut client = super::ask::send(&gateway, &post(CHAT, &body)).await?;
    assert_eq!(client.head().await?.status, 200);
    client.closed().await;
    assert_eq!(attempts(&engines), 1);
    gateway.idle().await;
    Ok(())
}
