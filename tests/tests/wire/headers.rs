//! Header fields: what passes, what stays, what is replaced.

use gateway_tests::client::{RawClient, get, post, post_with};
use gateway_tests::place::Place;
use gateway_tests::wait::soon;
use serde_json::json;

use super::scripted::{Scripted, whole};
use super::{CHAT, Gateway, ask, chat, engine, http2, unwatched};

const OK: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

/// Sends these header lines to an engine through the gateway; the head it got.
async fn passed_on(request: Vec<u8>) -> String {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    client.send(&request).await.unwrap();
    let exchange = engine.answer(OK).await;
    assert_eq!(soon(client.answer()).await.unwrap().head.status, 200);
    gateway.idle().await;
    exchange.head
}

/// What the client gets of this answer.
async fn passed_back(answer: &[u8]) -> gateway_tests::client::RawAnswer {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    client.send(&post(CHAT, &chat(&json!({})))).await.unwrap();
    engine.answer(answer).await;
    let answer = soon(client.answer()).await.unwrap();
    gateway.idle().await;
    answer
}

fn count(head: &str, name: &str) -> usize {
    let is = |line: &&str| line.to_ascii_lowercase().starts_with(&format!("{name}:"));
    head.lines().filter(is).count()
}

// B3
#[tokio::test]
async fn method_path_and_query_are_kept() {
    let body = chat(&json!({}));
    let target = "/v1/brand/new%20route?api-version=2&x=a%2Fb&empty=";
    let head = passed_on(post(target, &body)).await;
    assert!(head.starts_with(&format!("POST {target} HTTP/1.1\r\n")), "{head}");
    let head = passed_on(get("/v1/responses/resp_1?include[]=a")).await;
    assert!(head.starts_with("GET /v1/responses/resp_1?include[]=a HTTP/1.1\r\n"), "{head}");
    assert_eq!(count(&head, "content-length"), 0, "{head}");
    let delete = "DELETE /v1/responses/resp_1 HTTP/1.1\r\nhost: h\r\n\r\n";
    assert!(passed_on(delete.into()).await.starts_with("DELETE /v1/responses/resp_1 "));
}

// B3: one server header, the engine's.
#[tokio::test]
async fn answers_have_one_server_header() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let answer = ask(gateway.addr(), CHAT, &chat(&json!({}))).await;
    let head = String::from_utf8(answer.head.raw).unwrap();
    assert_eq!((count(&head, "server"), count(&head, "date")), (1, 1), "{head}");
    gateway.idle().await;
}

// B5
#[tokio::test]
async fn headers_that_only_gateways_set_are_stripped() {
    let owned = [
        ("X-Gateway-Destination-Endpoint", "203.0.113.9:1"),
        ("x-gateway-destination-endpoint-subset", "203.0.113.9"),
        ("x-gateway-model-name-rewrite", "203.0.113.9"),
        ("X-Inference-Gateway-Endpoint", "203.0.113.9:1"),
    ];
    let head = passed_on(post_with(CHAT, &owned, &chat(&json!({})))).await;
    assert!(!head.contains("203.0.113.9"), "{head}");
    let claimed =
        "HTTP/1.1 200 OK\r\nx-inference-gateway-reason: shed\r\ncontent-length: 0\r\n\r\n";
    let answer = passed_back(claimed.as_bytes()).await;
    assert_eq!(answer.head.header("x-inference-gateway-reason"), None);
}

// B17, B23
#[tokio::test]
async fn the_rest_keeps_name_case_order_and_number() {
    let fields = [
        ("X-Session-ID", "s 1"),
        ("x-lower", "1"),
        ("X-Twice", "a"),
        ("X-TWICE", "b"),
        ("Accept", "text/event-stream"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("Authorization", "Bearer user-key"),
    ];
    let head = passed_on(post_with(CHAT, &fields, &chat(&json!({})))).await;
    let lines: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    assert!(head.contains(&lines.concat()), "{head}");
}

#[tokio::test]
async fn what_belongs_to_one_connection_stays_on_it() {
    let fields = [
        ("Connection", "keep-alive, X-Private"),
        ("X-Private", "secret"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Upgrade", "h2c"),
        ("Proxy-Authorization", "secret"),
    ];
    let head = passed_on(post_with(CHAT, &fields, &chat(&json!({})))).await;
    for (name, _) in fields {
        assert_eq!(count(&head, &name.to_ascii_lowercase()), 0, "{name}: {head}");
    }
    let answer = passed_back(
        b"HTTP/1.1 200 OK\r\nConnection: close, X-Private\r\nX-Private: secret\r\n\
          Keep-Alive: timeout=5\r\nX-Public: 1\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    assert_eq!(answer.head.header("x-private"), None);
    assert_eq!(answer.head.header("keep-alive"), None);
    assert_eq!(answer.head.header("connection"), None, "the client's connection stays");
    assert_eq!(answer.head.header("x-public"), Some("1"));
}

#[tokio::test]
async fn forwarded_for_keeps_every_line_and_adds_the_peer() {
    let fields = [("X-Forwarded-For", "198.51.100.1"), ("x-forwarded-for", "198.51.100.2")];
    let head = passed_on(post_with(CHAT, &fields, &chat(&json!({})))).await;
    let all =
        format!("x-forwarded-for: 198.51.100.1, 198.51.100.2, {}\r\n", Place::Client.address());
    assert!(head.contains(&all), "{head}");
    assert_eq!(count(&head, "x-forwarded-for"), 1);
}

// S16: the type is the engine's, and no type stays none.
#[tokio::test]
async fn the_content_type_is_the_engines() {
    for given in ["application/json; charset=utf-8", "text/plain", "audio/mpeg"] {
        let answer = passed_back(&whole(given, b"{}")).await;
        assert_eq!(answer.head.header("content-type"), Some(given));
    }
    let answer = passed_back(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    assert_eq!(answer.head.header("content-type"), None);
}

// B2
#[tokio::test]
async fn a_compressed_answer_without_a_body_passes() {
    let empty = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n";
    let answer = passed_back(empty).await;
    assert_eq!((answer.head.status, answer.body().len()), (200, 0));
    let chunked =
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(passed_back(chunked).await.body().len(), 0);
}

#[tokio::test]
async fn bytes_that_are_not_ascii_pass_in_values() {
    let fields = [("X-Name", "Zoë")];
    let head = passed_on(post_with(CHAT, &fields, &chat(&json!({})))).await;
    assert!(head.contains("X-Name: Zoë\r\n"), "{head}");
}

// RFC 9113, 8.2.3: HTTP/2 may split a cookie, HTTP/1.1 must not see it so.
#[tokio::test]
async fn cookies_split_by_http2_are_joined() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let mut request = http2::post(CHAT, chat(&json!({})));
    for crumb in ["a=1", "b=2"] {
        request.headers_mut().append("cookie", crumb.parse().unwrap());
    }
    let client = http2::connect(gateway.addr()).await;
    let asking = tokio::spawn(async move { http2::send(&client, request).await });
    let exchange = engine.answer(OK).await;
    assert_eq!(asking.await.unwrap().status(), 200);
    assert_eq!(exchange.header("cookie"), Some("a=1; b=2"), "{}", exchange.head);
    assert_eq!(count(&exchange.head, "cookie"), 1);
    gateway.idle().await;
}

#[tokio::test]
async fn answers_without_a_body_say_nothing_of_a_length_over_http2() {
    let mut engine = Scripted::start().await;
    let gateway = unwatched(&[engine.addr], "", "");
    let client = http2::connect(gateway.addr()).await;
    let asking =
        tokio::spawn(
            async move { http2::send(&client, http2::post(CHAT, chat(&json!({})))).await },
        );
    engine.answer(b"HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n").await;
    let response = asking.await.unwrap();
    assert_eq!((response.status().as_u16(), http2::header(&response, "x-a")), (204, Some("1")));
    assert_eq!(http2::header(&response, "content-length"), None);
    gateway.idle().await;
}

#[tokio::test]
async fn head_requests_get_a_head_and_nothing_more() {
    let engine = engine().await;
    let gateway = Gateway::over(&[&engine], "").await.unwrap();
    let mut client = RawClient::connect(gateway.addr()).await.unwrap();
    client.send(b"HEAD /v1/models HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
    assert_eq!(soon(client.head()).await.unwrap().status, 200);
    // Were a body behind it, it would be taken for the next answer.
    assert_eq!(soon(client.exchange(&get("/v1/models"))).await.unwrap().head.status, 200);
    let connection = http2::connect(gateway.addr()).await;
    let request = http::Request::head("http://test/v1/models").body(http2::nothing()).unwrap();
    let response = http2::send(&connection, request).await;
    assert_eq!(response.status(), 200);
    assert_eq!(http2::body(response).await.unwrap(), b"");
}
