//! Time limits: 504 before an answer, an error event within one.

use gateway_tests::client::{RawClient, post};
use gateway_tests::server::{AnswerFault, Failures, Options, Simulated};
use gateway_tests::wait::{eventually, soon};
use serde_json::json;

use super::{CHAT, Gateway, ask, chat, engine, failing, http2};

async fn hanging(fault: AnswerFault) -> Simulated {
    failing(Failures { answers: Some(fault), ..Failures::default() }).await
}

// T2: 504, once, and the engine hears of it.
#[tokio::test]
async fn an_engine_that_never_answers_is_504() {
    for limit in ["firstByte", "request"] {
        let engines = [
            hanging(AnswerFault::HangBeforeHead).await,
            hanging(AnswerFault::HangBeforeHead).await,
        ];
        let extra = format!("  timeouts: {{ {limit}: 200ms }}\n");
        let gateway = Gateway::over(&[&engines[0], &engines[1]], &extra).await.unwrap();
        let answer = ask(gateway.addr(), CHAT, &chat(&json!({}))).await;
        assert_eq!(answer.head.status, 504, "{limit}");
        assert_eq!(answer.head.header("x-inference-gateway-reason"), Some("upstream-timeout"));
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("200ms"), "{message}");
        // A slow answer is not asked for twice: the engine may still be at work.
        let asked = engines.iter().map(|engine| engine.counters().inference_requests);
        assert_eq!(asked.sum::<u64>(), 1);
        eventually(|| engines.iter().any(|engine| engine.counters().aborted == 1)).await;
        let client = http2::connect(gateway.addr()).await;
        let response = http2::send(&client, http2::post(CHAT, chat(&json!({})))).await;
        assert_eq!(response.status(), 504);
        gateway.idle().await;
    }
}

// T5
#[tokio::test]
async fn a_stream_that_stalls_ends_with_an_error_event() {
    for limit in ["idle", "request"] {
        let engine = hanging(AnswerFault::HangAfterChunks { chunks: 3 }).await;
        let extra = format!("  timeouts: {{ {limit}: 300ms }}\n");
        let gateway = Gateway::over(&[&engine], &extra).await.unwrap();
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        client.send(&post(CHAT, &chat(&json!({ "stream": true })))).await.unwrap();
        soon(client.head()).await.unwrap();
        let rest = String::from_utf8(soon(client.rest()).await.unwrap()).unwrap();
        assert!(rest.contains("data: {\"error\":{") && rest.contains("300ms"), "{rest}");
        assert!(!rest.ends_with("0\r\n\r\n"), "{rest}");
        eventually(|| engine.counters().aborted == 1).await;
        gateway.idle().await;
    }
}

// T8: every chunk starts the silence anew.
#[tokio::test]
async fn a_slow_steady_stream_outlives_the_idle_limit() {
    // A token every 60 ms or so, 40 of them.
    let options = Options { time_scale: 0.1, ..Options::fast("slow") };
    let engine = Simulated::start(options).await.unwrap();
    let extra = "  timeouts: { idle: 1s, firstByte: 20s }\n";
    let gateway = Gateway::over(&[&engine], extra).await.unwrap();
    let body = chat(&json!({ "stream": true, "max_tokens": 40, "ignore_eos": true }));
    let started = std::time::Instant::now();
    let answer = ask(gateway.addr(), CHAT, &body).await;
    assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
    assert!(started.elapsed().as_millis() > 1_500, "too fast to tell: {:?}", started.elapsed());
    gateway.idle().await;
}

// T4: an endpoint that is gone is not waited for.
#[tokio::test]
async fn an_endpoint_that_vanishes_after_the_pick_is_replaced() {
    let engines = [engine().await, engine().await];
    let extra = "  policy: round_robin\n  health: off\n  metrics: off\n";
    let gateway = Gateway::over(&[&engines[0], &engines[1]], extra).await.unwrap();
    for _ in 0..4 {
        assert_eq!(ask(gateway.addr(), CHAT, &chat(&json!({}))).await.head.status, 200);
    }
    let [gone, kept] = engines;
    drop(gone);
    for _ in 0..6 {
        assert_eq!(ask(gateway.addr(), CHAT, &chat(&json!({}))).await.head.status, 200);
    }
    drop(kept);
    gateway.idle().await;
}
