//! Who may call, and what engines see of it.

use anyhow::Result;
use gateway_tests::client::{RawAnswer, get, post_with};
use gateway_tests::gateway::{Gateway, pool_config};
use gateway_tests::server::{Options, Simulated};

use super::ask::{CHAT, ask, chat, chat_body, chat_with, engines, reason};

const KEYS: &str = "auth:\n  apiKeys:\n  - { name: app, key: app-key }\n  \
                    - { name: narrow, key: narrow-key, models: [other] }\n";

async fn guarded(extra: &str, options: Options) -> Result<(Simulated, Gateway)> {
    let engine = Simulated::start(options).await?;
    let yaml = pool_config(&[&engine], extra).replace("auth: none\n", KEYS);
    let gateway = Gateway::start(&yaml)?;
    gateway.serving(1).await;
    Ok((engine, gateway))
}

fn bearer(key: &str) -> Vec<u8> {
    chat_with(&[("Authorization", &format!("Bearer {key}"))], "hi")
}

fn code(answer: &RawAnswer) -> String {
    answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
}

// X1
#[tokio::test]
async fn the_engine_gets_its_own_key_and_never_the_clients() -> Result<()> {
    let options = Options { api_key: Some("engine-key".into()), ..Options::fast("e") };
    let (engine, gateway) = guarded("  apiKey: { key: engine-key }\n", options).await?;
    let answer = ask(&gateway, &bearer("app-key")).await?;
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    let headers = [("x-api-key", "app-key")];
    let answer =
        ask(&gateway, &post_with("/v1/messages", &headers, &chat_body("tiny", "hi"))).await?;
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    for request in engine.inference_requests() {
        assert_eq!(request.head.text("authorization"), "Bearer engine-key");
        let sent = format!("{:?}", request.head);
        assert!(!sent.contains("app-key"), "{sent}");
    }
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn a_key_meant_for_the_gateway_ends_there() -> Result<()> {
    let (engine, gateway) = guarded("", Options::fast("e")).await?;
    assert_eq!(ask(&gateway, &bearer("app-key")).await?.head.status, 200);
    assert_eq!(engine.inference_requests()[0].head.text("authorization"), "");
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn without_keys_the_clients_credentials_are_the_engines_business() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = super::ask::over(&engines, "").await?;
    assert_eq!(ask(&gateway, &bearer("whatever")).await?.head.status, 200);
    let request = engines[0].inference_requests().remove(0);
    assert_eq!(request.head.text("authorization"), "Bearer whatever");
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn no_key_and_a_wrong_key_are_401_before_the_body_is_looked_at() -> Result<()> {
    let (engine, gateway) = guarded("", Options::fast("e")).await?;
    let broken = post_with(CHAT, &[("authorization", "Bearer wrong")], "{not json");
    for request in [chat("hi"), bearer("wrong"), bearer(""), bearer("app-ke"), broken] {
        let answer = ask(&gateway, &request).await?;
        assert_eq!((answer.head.status, reason(&answer)), (401, "unauthorized"));
        assert_eq!(code(&answer), "invalid_api_key");
        assert_eq!(answer.head.header("www-authenticate"), Some("Bearer"));
    }
    let answer = ask(&gateway, &post_with("/v1/messages", &[], "{}")).await?;
    assert_eq!(answer.json()["error"]["type"], "authentication_error");
    assert_eq!(engine.counters().inference_requests, 0);
    Ok(())
}

#[tokio::test]
async fn a_key_opens_only_its_models() -> Result<()> {
    let (engine, gateway) = guarded("", Options::fast("e")).await?;
    let answer = ask(&gateway, &bearer("narrow-key")).await?;
    assert_eq!((answer.head.status, reason(&answer)), (403, "forbidden"), "{}", answer.text());
    let listed = |key: &str| {
        format!("GET /v1/models HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {key}\r\n\r\n")
    };
    let all = ask(&gateway, listed("app-key").as_bytes()).await?.json();
    assert_eq!(all["data"][0]["id"], "tiny");
    let none = ask(&gateway, listed("narrow-key").as_bytes()).await?.json();
    assert_eq!(none["data"].as_array().map(Vec::len), Some(0));
    assert_eq!(engine.counters().inference_requests, 0);
    Ok(())
}

// X1: vllm#18892.
#[tokio::test]
async fn nothing_of_an_engine_is_reachable_without_a_key() -> Result<()> {
    let (engine, gateway) = guarded("", Options::fast("e")).await?;
    let body = r#"{"model":"tiny","prompt":"hi","lora_name":"x","lora_path":"/x"}"#;
    let guarded = ["/tokenize", "/detokenize", "/v1/completions", "/pooling", "/v1/anything/new"];
    for path in guarded {
        assert_eq!(ask(&gateway, &post_with(path, &[], body)).await?.head.status, 401, "{path}");
    }
    let closed = [
        "/metrics",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/sleep",
        "/reset_prefix_cache",
        "/version",
        "/server_info",
        "/docs",
        "/openapi.json",
        "/invocations",
    ];
    let key = [("authorization", "Bearer app-key")];
    for path in closed {
        for headers in [&[][..], &key[..]] {
            assert_eq!(
                ask(&gateway, &post_with(path, headers, body)).await?.head.status,
                404,
                "{path}"
            );
        }
        assert_eq!(ask(&gateway, &get(path)).await?.head.status, 404, "{path}");
    }
    let ours = ["/metrics", "/health", "/v1/models"];
    let asked = engine.requests();
    assert!(asked.iter().all(|request| ours.contains(&request.head.path())), "{asked:?}");
    Ok(())
}

#[tokio::test]
async fn health_is_for_everybody_and_models_are_not() -> Result<()> {
    let (_engine, gateway) = guarded("", Options::fast("e")).await?;
    for path in ["/livez", "/readyz", "/healthz", "/health"] {
        assert_eq!(ask(&gateway, &get(path)).await?.head.status, 200, "{path}");
    }
    assert_eq!(ask(&gateway, &get("/v1/models")).await?.head.status, 401);
    assert_eq!(ask(&gateway, &get("/v1/models/tiny")).await?.head.status, 401);
    Ok(())
}
