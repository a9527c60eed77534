//! Request bodies reach the engine byte for byte, or are refused with a reason.

use gateway_tests::client::{RawClient, once, post, post_with};
use gateway_tests::server::{AnswerFault, Failures, Simulated};
use gateway_tests::wait::soon;
use serde_json::json;

use super::{CHAT, Gateway, ask, chat, engine, failing, http2};

/// The body of the last request that an engine got.
fn got(engine: &Simulated) -> Vec<u8> {
    engine.inference_requests().pop().expect("a request came").body
}

// B13, B14, B15: nulls, unknown fields and parts, numbers that do not fit a double,
// escapes, odd spacing, order. The engine judges them; nobody else does.
const ODD: &str = "\n { \"stream\" :null,\"zzz\":{\"b\":1,\"a\":[]} ,\"logprobs\": null, \
    \"min_tokens\": 0,\"seed\":12345678901234567890123,\"temperature\":1.0e0,\"top_p\":0.10000000000000000001,\
    \"stop\":[\"a\",\"\\u00e9\\ud83d\\ude42\"],\"messages\":[{\"role\":\"user\",\"content\":[\
    {\"type\":\"text\",\"text\":\"h\\u0069 \\/ \u{e9}\"},{\"type\":\"unknown_part\",\"x\":{\"model\":\"decoy\"}}],\
    \"model\":\"decoy\"}],\"max_tokens\":3,\t\"model\":\"tiny\",\"aaa\":-0.0}\r\n ";

#[tokio::test]
async fn odd_bodies_reach_the_engine_byte_for_byte() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "  modelName: tiny\n").await.unwrap();
    // What the engine says about unknown parts is its own affair.
    let answer = ask(gateway.addr(), CHAT, ODD).await;
    assert_eq!(answer.head.status, ask(engine.addr(), CHAT, ODD).await.head.status);
    engine.clear_requests();
    ask(gateway.addr(), CHAT, ODD).await;
    assert_eq!(got(&engine), ODD.as_bytes());
    let client = http2::connect(gateway.addr()).await;
    engine.clear_requests();
    http2::send(&client, http2::post(CHAT, ODD)).await;
    assert_eq!(got(&engine), ODD.as_bytes());
    for stop in [json!("a"), json!(["a", "b"]), json!(null)] {
        let body = chat(&json!({ "stop": stop, "stream": null }));
        assert_eq!(ask(gateway.addr(), CHAT, &body).await.head.status, 200, "{body}");
        assert_eq!(got(&engine), body.as_bytes());
    }
    gateway.idle().await;
}

// B11: only the name changes, and the length with it.
#[tokio::test]
async fn an_alias_is_replaced_and_nothing_else() {
    let engine = engine().await;
    let extra = "  modelName: tiny\n  aliases: [an-alias-longer-than-the-name]\n";
    let gateway = Gateway::over(&[&engine], extra).await.unwrap();
    let aliased = ODD.replace("\"tiny\"", "\"an-alias-longer\\u002dthan-the-name\"");
    ask(gateway.addr(), CHAT, &aliased).await;
    assert_eq!(got(&engine), ODD.as_bytes());
    let request = engine.inference_requests().pop().unwrap();
    assert_eq!(request.head.text("content-length"), ODD.len().to_string());
    gateway.idle().await;
}

// B7: the next endpoint gets what the client sent, not what was left of it.
#[tokio::test]
async fn a_retry_sends_the_same_body_again() {
    let fault = AnswerFault::Status { code: 503, retry_after: None };
    let engines = [
        failing(Failures { answers: Some(fault.clone()), ..Failures::default() }).await,
        failing(Failures { answers: Some(AnswerFault::CloseBeforeHead), ..Failures::default() })
            .await,
        engine().await,
    ];
    let extra = "  modelName: tiny\n  aliases: [other]\n  policy: round_robin\n  \
        retry: { attempts: 2, minRetriesPerSecond: 1000 }\n";
    let gateway = Gateway::over(&[&engines[0], &engines[1], &engines[2]], extra).await.unwrap();
    for (path, prompt) in [(CHAT, 10), (CHAT, 300_000)] {
        let sent = super::chat_of(prompt).replace("\"tiny\"", "\"other\"");
        for _ in 0..3 {
            let answer = ask(gateway.addr(), path, &sent).await;
            assert_eq!(answer.head.status, 200, "{}", answer.text());
            assert_eq!(answer.json()["model"], "other");
        }
        let expected = super::chat_of(prompt);
        for engine in &engines {
            let requests = engine.inference_requests();
            assert!(!requests.is_empty());
            assert!(requests.iter().all(|request| request.body == expected.as_bytes()));
            engine.clear_requests();
        }
    }
    gateway.idle().await;
}

// B8
#[tokio::test]
async fn malformed_bodies_are_400_and_the_next_request_works() {
    let engine = engine().await;
    let closed = "  modelName: tiny\n";
    let gateway = Gateway::over(&[&engine], closed).await.unwrap();
    let deep = format!("{{\"model\":\"tiny\",\"a\":{}", "[".repeat(100_000));
    for body in
        ["{", "not json", "[]", "\"text\"", "{\"model\":\"tiny\"", "{\"model\":}", "\0", &deep]
    {
        let answer = ask(gateway.addr(), CHAT, body).await;
        assert_eq!(answer.head.status, 400, "{}", answer.text());
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
        assert_eq!(answer.head.header("x-inference-gateway-reason"), Some("invalid-body"));
        let client = http2::connect(gateway.addr()).await;
        let response = http2::send(&client, http2::post(CHAT, body.to_owned())).await;
        assert_eq!(response.status(), 400);
        let answer = ask(gateway.addr(), CHAT, &chat(&json!({}))).await;
        assert_eq!(answer.head.status, 200);
    }
    assert_eq!(engine.inference_requests().len(), 8, "only the whole ones");
    gateway.idle().await;
}

// B8 (empty), B2: an empty body is an error of the client, whoever finds it.
#[tokio::test]
async fn empty_bodies_are_400_however_they_are_framed() {
    let engine = engine().await;
    let by_default = Gateway::over(&[&engine], "").await.unwrap();
    let config = gateway_tests::gateway::pool_config(&[&engine], "  modelName: tiny\n");
    let strict = Gateway::start(&config.replace("defaultPool: p\n", "")).unwrap();
    strict.serving(1).await;
    for gateway in [&by_default, &strict] {
        for framing in [
            "content-length: 0\r\n\r\n",
            "\r\n",
            "transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "content-encoding: gzip\r\ncontent-length: 0\r\n\r\n",
        ] {
            let request = format!("POST {CHAT} HTTP/1.1\r\nhost: h\r\n{framing}");
            let answer = soon(once(gateway.addr(), request.as_bytes())).await.unwrap();
            assert_eq!(answer.head.status, 400, "{framing}: {}", answer.text());
            assert!(answer.json()["error"].is_object(), "{framing}: {}", answer.text());
        }
        let client = http2::connect(gateway.addr()).await;
        let response = http2::send(&client, http2::post(CHAT, "")).await;
        assert_eq!(response.status(), 400);
        gateway.idle().await;
    }
}

// A POST without a body is right on some routes, such as the cancelling of a response.
#[tokio::test]
async fn a_post_without_a_body_reaches_the_default_pool() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let path = "/v1/responses/resp_1/cancel";
    for framing in ["content-length: 0\r\n", ""] {
        let request = format!("POST {path} HTTP/1.1\r\nhost: h\r\n{framing}\r\n");
        let answer = soon(once(gateway.addr(), request.as_bytes())).await.unwrap();
        assert_eq!(answer.head.status, 404, "the engine has no such route: {}", answer.text());
        let request = engine.requests().into_iter().find(|request| request.head.path() == path);
        assert!(request.is_some(), "{framing:?}");
        engine.clear_requests();
    }
    gateway.idle().await;
}

#[tokio::test]
async fn a_compressed_request_is_415() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let request = post_with(CHAT, &[("content-encoding", "gzip")], "\u{1f}\u{8b}...");
    let answer = soon(once(gateway.addr(), &request)).await.unwrap();
    assert_eq!(answer.head.status, 415);
    let plain = post_with(CHAT, &[("content-encoding", "identity")], &chat(&json!({})));
    assert_eq!(soon(once(gateway.addr(), &plain)).await.unwrap().head.status, 200);
    gateway.idle().await;
}

// smg payload_size_test
#[tokio::test]
async fn bodies_up_to_the_limit_pass_and_one_byte_more_is_413() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "  maxRequestBodyBytes: 4096\n").await.unwrap();
    let of_size = |size: usize| {
        let body = chat(&json!({}));
        let pad = size - body.len();
        body + &" ".repeat(pad)
    };
    for (size, status) in [(200, 200), (4095, 200), (4096, 200), (4097, 413), (100_000, 413)] {
        let body = of_size(size);
        let answer = ask(gateway.addr(), CHAT, &body).await;
        assert_eq!(answer.head.status, status, "{size} bytes");
        let chunked = chunked_post(&body, 1000);
        let answer = soon(once(gateway.addr(), &chunked)).await.unwrap();
        assert_eq!(answer.head.status, status, "{size} bytes in chunks");
        let client = http2::connect(gateway.addr()).await;
        let response = http2::send(&client, http2::post(CHAT, body)).await;
        assert_eq!(response.status(), status, "{size} bytes over HTTP/2");
        if status == 413 {
            assert_eq!(answer.json()["error"]["code"], "request_too_large");
            assert_eq!(answer.head.header("x-inference-gateway-reason"), Some("too-large"));
        }
    }
    gateway.idle().await;
}

// B25: chunked requests, with extensions and trailers, in odd cuts.
#[tokio::test]
async fn a_chunked_request_arrives_with_its_whole_body() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let body = chat(&json!({}));
    let (first, rest) = body.split_at(7);
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunks =
        format!("7;a=b\r\n{first}\r\n{:X}\r\n{rest}\r\n0\r\nx-trailer: 1\r\n\r\n", rest.len());
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    for cut in 1..chunks.len() {
        client.send(&[head.as_bytes(), &chunks.as_bytes()[..cut]].concat()).await.unwrap();
        tokio::task::yield_now().await;
        client.send(&chunks.as_bytes()[cut..]).await.unwrap();
        let answer = soon(client.answer()).await.unwrap();
        assert_eq!(answer.head.status, 200, "cut at {cut}: {}", answer.text());
        assert_eq!(got(&engine), body.as_bytes(), "cut at {cut}");
    }
    gateway.idle().await;
}

#[tokio::test]
async fn malformed_chunks_of_a_request_are_400() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    for chunks in ["zz\r\n", "-1\r\n", "5\r\nabcdeXX", "fffffffffffffffff\r\n"] {
        let request = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"
        );
        let answer = soon(once(gateway.addr(), request.as_bytes())).await.unwrap();
        assert_eq!(answer.head.status, 400, "{chunks:?}");
        assert_eq!(answer.head.header("connection"), Some("close"));
    }
    assert_eq!(ask(gateway.addr(), CHAT, &chat(&json!({}))).await.head.status, 200);
    assert_eq!(engine.inference_requests().len(), 1);
    gateway.idle().await;
}

fn chunked_post(body: &str, size: usize) -> Vec<u8> {
    let mut request =
        format!("POST {CHAT} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n")
            .into_bytes();
    for part in body.as_bytes().chunks(size) {
        request.extend(super::scripted::chunk(part));
    }
    request.extend_from_slice(super::scripted::END);
    request
}

// The next request on a connection is not harmed by a refusal.
#[tokio::test]
async fn a_refused_body_that_was_read_keeps_the_connection() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    for _ in 0..3 {
        assert_eq!(soon(client.exchange(&post(CHAT, "{"))).await.unwrap().head.status, 400);
        let good = post(CHAT, &chat(&json!({})));
        assert_eq!(soon(client.exchange(&good)).await.unwrap().head.status, 200);
    }
    gateway.idle().await;
}
