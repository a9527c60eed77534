//! A client that leaves stops its generation within a second, and whatever ends a
//! request gives everything back.

use std::time::{Duration, Instant};

use gateway_tests::client::{RawClient, post};
use gateway_tests::place::Place;
use gateway_tests::server::{AnswerFault, Failures, Simulated};
use gateway_tests::wait::{eventually, soon};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::scripted::Scripted;
use super::{
    CHAT, Gateway, MEBIBYTE, ask, chat, engine, failing, http2, slow_engine, until_metric,
    unwatched,
};

const QUEUED: &str = "inference_gateway_queued_requests{pool=\"p\"}";
const WITHIN: Duration = Duration::from_secs(1);

/// Waits until the engine has noticed that its client is gone.
async fn aborted_at_once(engine: &Simulated, gone: Instant) {
    eventually(|| engine.counters().aborted == 1).await;
    assert!(gone.elapsed() < WITHIN, "{:?}", gone.elapsed());
}

async fn generating(engine: &Simulated) {
    eventually(|| engine.counters().inference_requests == 1).await;
}

fn long(fields: &Value) -> String {
    let mut body: Value = serde_json::from_str(&chat(fields)).unwrap();
    body["max_tokens"] = json!(2000);
    body["ignore_eos"] = json!(true);
    body.to_string()
}

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    Closing,
    Shutting,
}

async fn leave(client: RawClient, how: Leaves) -> Option<RawClient> {
    let mut client = client;
    match how {
        Leaves::Closing => None,
        Leaves::Shutting => {
            client.finish_sending().await.unwrap();
            Some(client)
        }
    }
}

// D2: streaming, after the first token.
#[tokio::test]
async fn a_client_that_leaves_its_stream_stops_the_engine() {
    for how in [Leaves::Closing, Leaves::Shutting] {
        let engine = slow_engine().await;
        let gateway = Gateway::over(&[&engine], "").await.unwrap();
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        client.send(&post(CHAT, &long(&json!({ "stream": true })))).await.unwrap();
        soon(client.head()).await.unwrap();
        soon(client.chunk()).await.unwrap();
        // D4: the reservation lives as long as the stream does.
        assert_eq!(gateway.in_flight().0, 1);
        let gone = Instant::now();
        let _half = leave(client, how).await;
        aborted_at_once(&engine, gone).await;
        gateway.idle().await;
        let series =
            "inference_gateway_requests_total{model=\"tiny\",outcome=\"cancelled\",pool=\"p\"}";
        until_metric(&gateway, series, 1.0).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_a_whole_answer_stops_the_engine() {
    for how in [Leaves::Closing, Leaves::Shutting] {
        let engine = slow_engine().await;
        let gateway = Gateway::over(&[&engine], "").await.unwrap();
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        client.send(&post(CHAT, &long(&json!({})))).await.unwrap();
        generating(&engine).await;
        let gone = Instant::now();
        let _half = leave(client, how).await;
        aborted_at_once(&engine, gone).await;
        gateway.idle().await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_a_silent_engine_is_noticed() {
    for fault in [AnswerFault::HangBeforeHead, AnswerFault::HangAfterChunks { chunks: 1 }] {
        let engine = failing(Failures { answers: Some(fault), ..Failures::default() }).await;
        let gateway = Gateway::over(&[&engine], "").await.unwrap();
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        client.send(&post(CHAT, &chat(&json!({ "stream": true })))).await.unwrap();
        generating(&engine).await;
        let gone = Instant::now();
        drop(client);
        aborted_at_once(&engine, gone).await;
        gateway.idle().await;
    }
}

#[tokio::test]
async fn an_http2_client_that_cancels_stops_the_engine() {
    for stream in [true, false] {
        let engine = slow_engine().await;
        let gateway = Gateway::over(&[&engine], "").await.unwrap();
        let client = http2::connect(gateway.addr()).await;
        let request = http2::post(CHAT, long(&json!({ "stream": stream })));
        let gone = if stream {
            let mut response = http2::send(&client, request).await;
            http2::piece(&mut response).await.unwrap().unwrap();
            let gone = Instant::now();
            drop(response);
            gone
        } else {
            let asking = tokio::spawn({
                let client = client.clone();
                async move { http2::send(&client, request).await }
            });
            generating(&engine).await;
            asking.abort();
            Instant::now()
        };
        aborted_at_once(&engine, gone).await;
        gateway.idle().await;
        // Only that stream: the connection serves on.
        let listed = http2::send(&client, http2::post("/tokenize", chat(&json!({})))).await;
        assert_eq!(listed.status(), 200);
    }
}

#[tokio::test]
async fn an_http2_connection_that_closes_stops_all_its_streams() {
    let engine = slow_engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let client = http2::connect(gateway.addr()).await;
    let mut responses = Vec::new();
    for _ in 0..5 {
        let request = http2::post(CHAT, long(&json!({ "stream": true })));
        responses.push(http2::send(&client, request).await);
    }
    assert_eq!(gateway.in_flight().0, 5);
    let gone = Instant::now();
    drop((responses, client));
    eventually(|| engine.counters().aborted == 5).await;
    assert!(gone.elapsed() < WITHIN, "{:?}", gone.elapsed());
    gateway.idle().await;
}

// D3: the request waits in the gateway's own queue.
#[tokio::test]
async fn a_client_that_leaves_the_queue_takes_nothing_with_it() {
    let engine = slow_engine().await;
    let extra = "  flowControl: { maxInFlightPerEndpoint: 1 }\n";
    let gateway = Gateway::over(&[&engine], extra).await.unwrap();
    let mut first = RawClient::connect(gateway.addr()).await.unwrap();
    first.send(&post(CHAT, &long(&json!({ "stream": true })))).await.unwrap();
    soon(first.head()).await.unwrap();
    let mut second = RawClient::connect(gateway.addr()).await.unwrap();
    second.send(&post(CHAT, &long(&json!({})))).await.unwrap();
    until_metric(&gateway, QUEUED, 1.0).await;
    drop(second);
    until_metric(&gateway, QUEUED, 0.0).await;
    drop(first);
    gateway.idle().await;
    assert_eq!(engine.counters().inference_requests, 1);
}

#[tokio::test]
async fn a_client_that_leaves_during_its_upload_leaves_nothing_behind() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let body = chat(&json!({ "user": "x".repeat(8 * MEBIBYTE) }));
    let request = post(CHAT, &body);
    // Before anything could be routed, and with part of it at the engine.
    for sent in [200, 100_000, 4 * MEBIBYTE] {
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        let uploading = async {
            client.send(&request[..sent]).await.unwrap();
            if sent > 2 * MEBIBYTE {
                let mut exchange = engine.exchange().await;
                drop(client);
                exchange.closed().await;
            }
        };
        soon(uploading).await;
        gateway.idle().await;
    }
    let metric = "inference_gateway_client_connections{protocol=\"http1\"}";
    until_metric(&gateway, metric, 0.0).await;
}

// The engine reads nothing of a large upload; its client leaves. What the kernel holds
// for the gateway must not hide that.
#[tokio::test]
async fn a_client_that_leaves_a_held_up_upload_is_noticed() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "workers: 1\n", "");
    let request = post(CHAT, &chat(&json!({ "user": "x".repeat(64 * MEBIBYTE) })));
    // How much fits between a client and an engine that does not read.
    let mut client = narrow(&gateway).await;
    let mut fits = 0;
    for part in request.chunks(65_536) {
        let sending = tokio::time::timeout(Duration::from_millis(300), client.write_all(part));
        if sending.await.is_err() {
            break;
        }
        fits += part.len();
    }
    drop((engine.exchange().await, client));
    gateway.idle().await;

    // Less than that, so that there is room for the news of the end; how much fits
    // varies a little.
    for less in [1, 2, 4, 8] {
        let mut client = narrow(&gateway).await;
        let part = &request[..fits - less * MEBIBYTE / 4];
        let sending = tokio::time::timeout(Duration::from_secs(1), client.write_all(part)).await;
        let held = engine.exchange().await;
        let gone = Instant::now();
        drop(client);
        if sending.is_ok() {
            gateway.idle().await;
            assert!(gone.elapsed() < WITHIN, "{:?}", gone.elapsed());
            return;
        }
        drop(held);
        gateway.idle().await;
    }
    panic!("nothing fits any more");
}

/// A client whose kernel takes little of what it sends.
async fn narrow(gateway: &Gateway) -> TcpStream {
    let socket = Place::Client.socket(gateway.addr()).unwrap();
    socket.set_send_buffer_size(64 * 1024).unwrap();
    socket.connect(gateway.addr()).await.unwrap()
}

// smg load_guard_raii_test: every way out gives the reservation back.
#[tokio::test]
async fn every_way_out_gives_the_reservation_back() {
    let engine = engine().await;
    let extra = "  timeouts: { firstByte: 200ms }\n  retry: off\n  ejection: off\n";
    let gateway = Gateway::over(&[&engine], extra).await.unwrap();
    let faults = [
        (None, 200),
        (Some(AnswerFault::Status { code: 500, retry_after: None }), 500),
        (Some(AnswerFault::Status { code: 429, retry_after: Some(1) }), 429),
        (Some(AnswerFault::CloseBeforeHead), 502),
        (Some(AnswerFault::Garbage), 502),
        (Some(AnswerFault::HangBeforeHead), 504),
    ];
    for (answers, status) in faults {
        engine.set_failures(Failures { answers: answers.clone(), ..Failures::default() });
        for stream in [true, false] {
            let answer = ask(gateway.addr(), CHAT, &chat(&json!({ "stream": stream }))).await;
            assert_eq!(answer.head.status, status, "{answers:?}");
            gateway.idle().await;
        }
    }
    let extra = "  timeouts: { idle: 200ms }\n  retry: off\n  ejection: off\n";
    let gateway = Gateway::over(&[&engine], extra).await.unwrap();
    for fault in [
        AnswerFault::CloseAfterChunks { chunks: 1, within_chunk: true },
        AnswerFault::HangAfterChunks { chunks: 1 },
        AnswerFault::BadFraming,
    ] {
        engine.set_failures(Failures { answers: Some(fault.clone()), ..Failures::default() });
        let mut client = RawClient::connect(gateway.addr()).await.unwrap();
        client.send(&post(CHAT, &chat(&json!({ "stream": true })))).await.unwrap();
        soon(client.closed()).await;
        gateway.idle().await;
        let client = http2::connect(gateway.addr()).await;
        let response =
            http2::send(&client, http2::post(CHAT, chat(&json!({ "stream": true })))).await;
        assert!(http2::body(response).await.is_err(), "{fault:?}");
        gateway.idle().await;
    }
    let series = "inference_objective_running_requests{model_name=\"tiny\"}";
    until_metric(&gateway, series, 0.0).await;
}

// D3: a thousand cancelled requests leave no trace.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_cancelled_requests_leave_nothing_in_flight() {
    let engine = slow_engine().await;
    let gateway = unwatched(&[engine.addr()], "", "");
    let addr = gateway.addr();
    super::together((0..1000_u32).map(|number| async move {
        let mut client = RawClient::connect(addr).await.unwrap();
        let body = long(&json!({ "stream": number % 2 == 0 }));
        client.send(&post(CHAT, &body)).await.unwrap();
        for _ in 0..number % 10 {
            tokio::task::yield_now().await;
        }
    }))
    .await;
    gateway.idle().await;
    until_metric(&gateway, "inference_gateway_client_connections{protocol=\"http1\"}", 0.0).await;
    eventually(|| {
        let counters = engine.counters();
        counters.aborted == counters.inference_requests
    })
    .await;
}
