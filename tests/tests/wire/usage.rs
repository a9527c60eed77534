//! Tokens are counted as the engine counted them, wherever it says so.

use gateway_tests::client::{RawClient, post};
use gateway_tests::wait::soon;
use serde_json::json;

use super::scripted::{END, EVENTS, Exchange, Scripted, chunk, whole};
use super::{CHAT, Gateway, ask, chat, engine, until_metric, unwatched};

async fn counted(gateway: &Gateway, prompt: u32, cached: u32, output: u32) {
    for (kind, tokens) in [("prompt", prompt), ("cached", cached), ("output", output)] {
        let series =
            format!("inference_gateway_tokens_total{{kind=\"{kind}\",model=\"tiny\",pool=\"p\"}}");
        until_metric(gateway, &series, f64::from(tokens)).await;
    }
}

/// Counts the tokens of one answer with these events.
async fn of_events(path: &'static str, events: &[&str]) -> Gateway {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let addr = gateway.addr();
    let asking =
        tokio::spawn(async move { ask(addr, path, &chat(&json!({ "stream": true }))).await });
    let mut stream = EVENTS.to_vec();
    events.iter().for_each(|event| stream.extend(chunk(event.as_bytes())));
    stream.extend_from_slice(END);
    engine.answer(&stream).await;
    assert_eq!(asking.await.unwrap().text(), events.concat());
    gateway.idle().await;
    gateway
}

// U2
#[tokio::test]
async fn usage_of_a_response_is_counted_however_it_ended() {
    for ended in ["completed", "incomplete", "failed"] {
        let event = format!(
            "event: response.{ended}\ndata: {{\"type\":\"response.{ended}\",\"response\":{{\"id\":\"r\",\
             \"usage\":{{\"input_tokens\":70,\"input_tokens_details\":{{\"cached_tokens\":64}},\
             \"output_tokens\":9,\"total_tokens\":79}}}}}}\n\n"
        );
        let gateway = of_events("/v1/responses", &[&event]).await;
        counted(&gateway, 70, 64, 9).await;
    }
}

// S2, S3: no space after the colon, and an event in pieces.
#[tokio::test]
async fn usage_in_a_split_event_without_a_space_is_counted() {
    let event = "data:{\"choices\":[],\"usage\":{\"prompt_tokens\":31,\"completion_tokens\":17,\
        \"prompt_tokens_details\":{\"cached_tokens\":16}}}\n\n";
    for cut in [1, 7, 20, 29, 30, 48, 60, event.len() - 1] {
        let (first, rest) = event.split_at(cut);
        let gateway = of_events(CHAT, &[first, rest, "data:[DONE]\n\n"]).await;
        counted(&gateway, 31, 16, 17).await;
    }
}

#[tokio::test]
async fn usage_of_messages_is_counted_with_its_cache() {
    let gateway = of_events(
        "/v1/messages",
        &[
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":\
             {\"input_tokens\":10,\"cache_read_input_tokens\":90,\"output_tokens\":1}}}\n\n",
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":25}}\n\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ],
    )
    .await;
    counted(&gateway, 100, 90, 25).await;
}

#[tokio::test]
async fn usage_of_a_whole_answer_is_counted() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let addr = gateway.addr();
    let asking = tokio::spawn(async move { ask(addr, CHAT, &chat(&json!({}))).await });
    let body = json!({ "choices": [{ "message": { "content": "\"usage\":{\"prompt_tokens\":1}" } }],
        "usage": { "prompt_tokens": 31, "completion_tokens": 17,
            "prompt_tokens_details": { "cached_tokens": 16 } } });
    engine.answer(&whole("application/json", body.to_string().as_bytes())).await;
    asking.await.unwrap();
    counted(&gateway, 31, 16, 17).await;
}

// S17: completions, against what the client itself was told.
#[tokio::test]
async fn counts_are_those_the_client_saw() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let body = json!({ "model": "tiny", "prompt": "a b c d e", "max_tokens": 12, "stream": true,
        "stream_options": { "include_usage": true } });
    let answer = ask(gateway.addr(), "/v1/completions", &body.to_string()).await;
    let events = answer.events();
    let last: serde_json::Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    let tokens = |name: &str| last["usage"][name].as_u64().unwrap() as u32;
    counted(&gateway, tokens("prompt_tokens"), 0, tokens("completion_tokens")).await;
    gateway.idle().await;
}

// U3: what an aborted stream brought is counted, and no more.
#[tokio::test]
async fn an_aborted_stream_counts_for_what_was_sent() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    client.send(&post(CHAT, &chat(&json!({ "stream": true, "max_tokens": 1000 })))).await.unwrap();
    let mut exchange = engine.exchange().await;
    begin(&mut exchange).await;
    soon(client.head()).await.unwrap();
    for _ in 0..5 {
        exchange.send(&chunk(b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n")).await;
        soon(client.chunk()).await.unwrap();
    }
    drop(client);
    exchange.closed().await;
    counted(&gateway, 0, 0, 5).await;
    gateway.idle().await;
}

async fn begin(exchange: &mut Exchange) {
    exchange.body().await;
    exchange.send(EVENTS).await;
}
