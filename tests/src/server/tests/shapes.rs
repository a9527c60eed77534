//! Answers have the heads and members of the recorded ones, in the same order.

use super::*;

/// Head and body of a recorded answer.
fn recorded(text: &str) -> (Vec<String>, &str) {
    let (head, body) = text.split_once("\r\n\r\n").or_else(|| text.split_once("\n\n")).unwrap();
    let names = head.lines().skip(1).map(|line| line.split(':').next().unwrap().to_owned());
    (names.collect(), body.trim_end())
}

fn header_names(answer: &RawAnswer) -> Vec<String> {
    answer.head.headers.iter().map(|(name, _)| name.clone()).collect()
}

/// The members of a value in order, those of nested values included. Of a list, the first.
fn members(value: &Value) -> Vec<String> {
    match value {
        Value::Object(object) => {
            let below = |(name, value): (&String, &Value)| {
                let nested = members(value).into_iter().map(move |below| format!("{name}.{below}"));
                std::iter::once(name.clone()).chain(nested).collect::<Vec<_>>()
            };
            object.iter().flat_map(below).collect()
        }
        Value::Array(items) => items.first().map(members).unwrap_or_default(),
        _ => Vec::new(),
    }
}

macro_rules! fixture {
    ($name:literal) => {
        recorded(include_str!(concat!("../../../fixtures/vllm-0.32/", $name, ".txt")))
    };
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn chat_answer_has_the_recorded_shape() {
    let server = fast().await;
    let answer = ask(&server, CHAT, &chat(&json!({}))).await;
    let (headers, body) = fixture!("chat");
    assert_eq!(header_names(&answer), headers);
    let mut expected = parsed(body);
    expected["choices"][0]["logprobs"] = Value::Null; // recorded with log probabilities
    assert_eq!(members(&answer.json()), members(&expected));
}

#[tokio::test]
async fn completion_answer_has_the_recorded_shape() {
    let server = fast().await;
    let body = json!({ "model": "tiny", "prompt": [1, 2, 3, 4], "n": 2, "max_tokens": 3 });
    let answer = ask(&server, "/v1/completions", &body).await.json();
    assert_eq!(members(&answer), members(&parsed(fixture!("completion-ids").1)));
    assert_eq!(answer["usage"]["prompt_tokens"], 4);
    assert_eq!(answer["usage"]["completion_tokens"], 6);
}

#[tokio::test]
async fn responses_and_messages_answers_have_the_recorded_shape() {
    let server = fast().await;
    let body = json!({ "model": "tiny", "input": "hi", "max_output_tokens": 4 });
    let answer = ask(&server, "/v1/responses", &body).await.json();
    assert_eq!(members(&answer), members(&parsed(fixture!("responses").1)));
    let answer = ask(&server, "/v1/messages", &chat(&json!({}))).await.json();
    assert_eq!(members(&answer), members(&parsed(fixture!("messages").1)));
}

/// Event names and the members of each event's data.
fn stream_shape(text: &str) -> Vec<String> {
    let line = |line: &str| match line.strip_prefix("data: ") {
        Some(data) => {
            serde_json::from_str(data).map_or(data.to_owned(), |value| members(&value).join(" "))
        }
        None => line.to_owned(),
    };
    text.trim_end().lines().map(line).collect()
}

#[tokio::test]
async fn streams_have_the_recorded_shape_event_by_event() {
    let server = fast().await;
    let usage = json!({ "include_usage": true, "continuous_usage_stats": true });
    let body = chat(&json!({ "stream": true, "stream_options": usage }));
    let answer = ask(&server, CHAT, &body).await;
    let (headers, recorded) = fixture!("chat-stream");
    assert_eq!(header_names(&answer), headers);
    assert_eq!(stream_shape(&answer.text()), stream_shape(recorded));

    let body = json!({ "model": "tiny", "prompt": "x", "stream": true, "max_tokens": 6 });
    let answer = ask(&server, "/v1/completions", &body).await;
    assert_eq!(stream_shape(&answer.text()), stream_shape(fixture!("completion-stream").1));

    let body = chat(&json!({ "stream": true, "max_tokens": 4 }));
    let answer = ask(&server, "/v1/messages", &body).await;
    assert_eq!(stream_shape(&answer.text()), stream_shape(fixture!("messages-stream").1));
}

#[tokio::test]
async fn every_event_is_a_chunk_of_its_own() {
    let server = fast().await;
    let answer = ask(&server, CHAT, &chat(&json!({ "stream": true }))).await;
    for chunk in &answer.chunks {
        let text = String::from_utf8(chunk.bytes.clone()).unwrap();
        assert!(text.starts_with("data: ") && text.ends_with("\n\n"), "{text:?}");
        assert_eq!(text.matches("data: ").count(), 1);
    }
}

#[tokio::test]
async fn errors_have_the_recorded_texts() {
    let options = Options {
        models: vec!["tiny".to_owned(), "tiny-alias".to_owned()],
        max_model_len: 2048,
        ..Options::fast("test")
    };
    let server = started(options).await;
    let cases = [
        (r#"{"model":"nope","messages":[]}"#, fixture!("err-model").1, 404),
        (r#"{"model":}"#, fixture!("err-json").1, 400),
        (r#"{"model":"tiny","messages":[],"max_tokens":99999}"#, fixture!("err-len").1, 400),
    ];
    for (body, expected, status) in cases {
        let answer = soon(once(server.addr(), &post(CHAT, body))).await.unwrap();
        assert_eq!((answer.head.status, answer.text().as_str()), (status, expected));
    }
    let missing = look(&server, "/v1/embeddings/nothing").await;
    assert_eq!((missing.head.status, missing.text().as_str()), (404, fixture!("embeddings").1));
}

#[tokio::test]
async fn adapters_come_and_go_with_the_recorded_words() {
    let adapters = vec![Adapter::new("lora-a"), Adapter::new("lora-b")];
    let models = vec!["tiny".to_owned(), "tiny-alias".to_owned()];
    let server = started(Options { models, adapters, ..Options::fast("test") }).await;
    let adapter = json!({ "lora_name": "lora-c", "lora_path": "/models/lora-c" });
    let (load, unload) = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter");
    let loaded = ask(&server, load, &adapter).await;
    let (headers, text) = fixture!("lora-load");
    assert_eq!((header_names(&loaded), loaded.text().as_str()), (headers, text));
    let models = look(&server, "/v1/models").await.json();
    let expected = parsed(fixture!("models").1);
    assert_eq!(members(&models), members(&expected));
    for (card, expected) in
        models["data"].as_array().unwrap().iter().zip(expected["data"].as_array().unwrap())
    {
        for member in ["id", "parent", "root"] {
            assert_eq!(card[member], expected[member]);
        }
    }
    assert_eq!(ask(&server, load, &adapter).await.text(), fixture!("lora-load-dup").1);
    assert_eq!(ask(&server, unload, &adapter).await.text(), fixture!("lora-unload").1);
    let gone = chat(&json!({ "model": "lora-c" }));
    assert_eq!(ask(&server, CHAT, &gone).await.head.status, 404);
}

#[tokio::test]
async fn head_of_health_is_refused_without_a_body() {
    let server = fast().await;
    let request = b"HEAD /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut client = crate::client::RawClient::connect(server.addr()).await.unwrap();
    client.send(request).await.unwrap();
    let head = soon(client.head()).await.unwrap();
    assert_eq!((head.status, head.header("content-length")), (405, Some("31")));
    assert_eq!(soon(client.rest()).await.unwrap(), b"");
}

#[tokio::test]
async fn tokens_can_be_turned_back_into_their_text() {
    let server = fast().await;
    let text = "héllo wörld, 日本語 and more";
    let body = json!({ "model": "tiny", "prompt": text });
    let answer = ask(&server, "/tokenize", &body).await.json();
    assert_eq!(members(&answer), members(&parsed(fixture!("tokenize").1)));
    let back = ask(&server, "/detokenize", &json!({ "tokens": answer["tokens"] })).await;
    assert_eq!(back.json()["prompt"], text);
}

#[tokio::test]
async fn responses_stream_numbers_its_events_and_ends_with_the_whole_answer() {
    let server = fast().await;
    let body = json!({ "model": "tiny", "input": "hi", "max_output_tokens": 4, "stream": true });
    let events = ask(&server, "/v1/responses", &body).await.events();
    let events: Vec<Value> = events.iter().map(|event| parsed(event)).collect();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let deltas = events.iter().filter_map(|event| event["delta"].as_str());
    let last = &events.last().unwrap()["response"];
    assert_eq!(members(last), members(&parsed(fixture!("responses").1)));
    assert_eq!(last["output"][0]["content"][0]["text"], deltas.collect::<String>());
}
