//! Requests from their arrival to their end, however it comes.

use super::*;
use crate::client::RawClient;
use crate::wait::eventually;

/// At real speed, so that requests last.
async fn slow() -> Simulated {
    started(Options::default()).await
}

fn endless() -> Value {
    chat(&json!({ "stream": true, "ignore_eos": true, "max_tokens": 100_000 }))
}

#[tokio::test]
async fn text_is_the_expected_one_streamed_or_not() {
    let server = fast().await;
    let options = server.options();
    let body = chat(&json!({ "n": 2, "max_tokens": 30 }));
    let expected = expected_texts(&options.style, options.context_length(), CHAT, &body).unwrap();
    let whole = ask(&server, CHAT, &body).await.json();
    let mut streamed = vec![String::new(); 2];
    let mut stream = body.clone();
    stream["stream"] = json!(true);
    for event in ask(&server, CHAT, &stream).await.events() {
        let event: Value = serde_json::from_str(&event).unwrap_or_default();
        let choice = &event["choices"][0];
        if let Some(text) = choice["delta"]["content"].as_str() {
            streamed[choice["index"].as_u64().unwrap() as usize] += text;
        }
    }
    for choice in 0..2 {
        assert_eq!(whole["choices"][choice]["message"]["content"], expected[choice]);
        assert_eq!(streamed[choice], expected[choice]);
    }
}

#[tokio::test]
async fn second_request_finds_its_prefix_in_the_cache() {
    let server = fast().await;
    let long = "The same long instructions for everyone. ".repeat(20);
    let body = chat(&json!({ "messages": [{ "role": "user", "content": long }] }));
    let cached = |answer: RawAnswer| {
        answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached(ask(&server, CHAT, &body).await), 0);
    assert!(cached(ask(&server, CHAT, &body).await) > 100);
}

#[tokio::test]
async fn client_that_goes_away_frees_the_engine() {
    let server = slow().await;
    for streaming in [true, false] {
        let mut body = endless();
        body["stream"] = json!(streaming);
        let mut client = RawClient::connect(server.addr()).await.unwrap();
        client.send(&post(CHAT, &body.to_string())).await.unwrap();
        eventually(|| server.load()[0].running == 1).await;
        drop(client);
        eventually(|| server.load()[0].running == 0).await;
        assert_eq!(server.load()[0].kv_blocks_used, 0);
    }
    eventually(|| server.counters().aborted == 2).await;
    assert_eq!(server.stats()[0].aborted, 2);
}

#[tokio::test]
async fn half_a_close_counts_as_a_close() {
    let server = slow().await;
    let mut client = RawClient::connect(server.addr()).await.unwrap();
    client.send(&post(CHAT, &endless().to_string())).await.unwrap();
    eventually(|| server.load()[0].running == 1).await;
    client.finish_sending().await.unwrap();
    eventually(|| server.load()[0].running == 0).await;
}

#[tokio::test]
async fn head_of_a_stream_arrives_before_the_first_token() {
    let server = slow().await;
    let prompt = "word ".repeat(20_000);
    let body = chat(&json!({
        "stream": true, "messages": [{ "role": "user", "content": prompt }],
    }));
    let mut client = RawClient::connect(server.addr()).await.unwrap();
    client.send(&post(CHAT, &body.to_string())).await.unwrap();
    assert_eq!(soon(client.head()).await.unwrap().status, 200);
    assert_eq!(server.stats()[0].generation_tokens, 0);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = fast().await;
    let mut client = RawClient::connect(server.addr()).await.unwrap();
    let request =
        |id: &str| post_with(CHAT, &[("x-request-id", id)], &chat(&json!({})).to_string());
    client.send(&[request("one"), request("two")].concat()).await.unwrap();
    for id in ["one", "two"] {
        let answer = soon(client.answer()).await.unwrap();
        assert_eq!(answer.head.header("x-request-id"), Some(id));
        assert_eq!(answer.json()["id"], format!("chatcmpl-{id}"));
    }
}

#[tokio::test]
async fn requests_are_kept_as_they_came() {
    let server = fast().await;
    let head = "POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: x\r\nX-Mixed-Case: Yes\r\n\
        Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = chat(&json!({})).to_string();
    let mut client = RawClient::connect(server.addr()).await.unwrap();
    client.send(head.as_bytes()).await.unwrap();
    assert_eq!(soon(client.head()).await.unwrap().status, 100);
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let answer = soon(client.exchange(chunked.as_bytes())).await.unwrap();
    assert_eq!(answer.head.status, 200);
    let logged = server.requests().remove(0);
    assert_eq!(logged.head.target, "/v1/chat/completions?a=b");
    assert!(logged.head.headers.contains(&("X-Mixed-Case".to_owned(), b"Yes".to_vec())));
    assert_eq!(logged.body, body.as_bytes());
}

#[tokio::test]
async fn tool_and_json_answers_parse() {
    let server = fast().await;
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let tool =
        json!({ "type": "function", "function": { "name": "weather", "parameters": schema } });
    let limits = json!({ "max_tokens": 200, "tools": [tool] });
    let choice = ask(&server, CHAT, &chat(&limits)).await.json()["choices"][0].clone();
    let call = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(
        (choice["finish_reason"].as_str(), call["name"].as_str()),
        (Some("tool_calls"), Some("weather"))
    );
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["city"].is_string());
    let format = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    let answer =
        ask(&server, CHAT, &chat(&json!({ "response_format": format, "max_tokens": 200 }))).await;
    let answer = answer.json();
    let content = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(content).unwrap()["city"].is_string());
}

#[tokio::test]
async fn vectors_scores_and_transcripts_are_answered() {
    let server = fast().await;
    let embed = json!({ "model": "tiny", "input": ["a", "b"], "encoding_format": "base64" });
    let vectors = ask(&server, "/v1/embeddings", &embed).await.json();
    assert_eq!(vectors["data"][1]["embedding"].as_str().unwrap().len(), 384 * 4 / 3 * 4);
    let rank = json!({ "model": "tiny", "query": "q", "documents": ["a", "b", "c"], "top_n": 2 });
    let ranked = ask(&server, "/v1/rerank", &rank).await.json();
    let scores: Vec<f64> = ranked["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["relevance_score"].as_f64().unwrap())
        .collect();
    assert!(scores.len() == 2 && scores[0] >= scores[1], "{scores:?}");
    let pair = json!({ "model": "tiny", "text_1": "q", "text_2": ["a", "b"] });
    assert_eq!(ask(&server, "/v1/score", &pair).await.json()["data"][1]["object"], "score");
    for path in ["/pooling", "/classify"] {
        let answer = ask(&server, path, &json!({ "model": "tiny", "input": "a" })).await;
        assert_eq!(answer.head.status, 200, "{path}");
    }
    let form = format!(
        "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\ntiny\r\n--b\r\n\
         content-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n{}\r\n--b--\r\n",
        "s".repeat(64_000)
    );
    let head = format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\ncontent-type: multipart/form-data; \
         boundary=b\r\ncontent-length: {}\r\n\r\n",
        form.len()
    );
    let answer = soon(once(server.addr(), (head + &form).as_bytes())).await.unwrap().json();
    assert_eq!(answer["usage"]["seconds"], 2);
    assert!(!answer["text"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn key_is_demanded_under_v1_only() {
    let api_key = Some("secret".to_owned());
    let server = started(Options { api_key, ..Options::fast("test") }).await;
    let refused = ask(&server, CHAT, &chat(&json!({}))).await;
    assert_eq!(
        (refused.head.status, refused.text().as_str()),
        (401, r#"{"error":"Unauthorized"}"#)
    );
    let key = [("authorization", "Bearer secret")];
    let request = post_with(CHAT, &key, &chat(&json!({})).to_string());
    assert_eq!(soon(once(server.addr(), &request)).await.unwrap().head.status, 200);
    assert_eq!(look(&server, "/metrics").await.head.status, 200);
}

#[tokio::test]
async fn dropped_server_closes_its_connections() {
    let server = slow().await;
    let mut client = RawClient::connect(server.addr()).await.unwrap();
    client.send(&post(CHAT, &endless().to_string())).await.unwrap();
    soon(client.head()).await.unwrap();
    let addr = server.addr();
    drop(server);
    soon(client.closed()).await;
    soon(async { while RawClient::connect(addr).await.is_ok() {} }).await;
}
