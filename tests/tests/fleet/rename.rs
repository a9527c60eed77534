//! Names that clients use and names that engines know.

use anyhow::Result;
use gateway_tests::client::{RawAnswer, post};
use gateway_tests::gateway::{Gateway, pool_config};
use gateway_tests::server::{LoggedRequest, Options, Simulated};
use serde_json::{Value, json};

use super::ask::{CHAT, ask, chat_body, engines, over};

fn model_of(request: &LoggedRequest) -> Value {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    body["model"].clone()
}

fn model_in(answer: &RawAnswer) -> Value {
    answer.json()["model"].clone()
}

async fn two_models() -> Result<Simulated> {
    let models = vec!["small".to_owned(), "large".to_owned()];
    Ok(Simulated::start(Options { models, ..Options::fast("e") }).await?)
}

fn with_rules(engine: &Simulated, rules: &str) -> String {
    let pool = pool_config(&[engine], "  modelName: small\n  servedNames: [large]\n");
    format!("{rules}{pool}")
}

// B16
#[tokio::test]
async fn an_alias_is_known_to_the_client_alone() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "  modelName: tiny\n  aliases: [gpt-4]\n").await?;
    let answer = ask(&gateway, &post(CHAT, &chat_body("gpt-4", "hi"))).await?;
    assert_eq!((answer.head.status, model_in(&answer)), (200, "gpt-4".into()));
    assert_eq!(model_of(&engines[0].inference_requests()[0]), "tiny");
    let length: usize = answer.head.header("content-length").unwrap_or("0").parse()?;
    assert!(length == 0 || length == answer.body().len());
    gateway.idle().await;
    Ok(())
}

// B16
#[tokio::test]
async fn every_event_of_a_stream_names_the_alias() -> Result<()> {
    let engines = engines(1).await?;
    let gateway =
        over(&engines, "  modelName: tiny\n  aliases: [an-alias-of-another-length]\n").await?;
    let mut body: Value = serde_json::from_str(&chat_body("an-alias-of-another-length", "hi"))?;
    body["stream"] = true.into();
    body["max_tokens"] = 50.into();
    let events = ask(&gateway, &post(CHAT, &body.to_string())).await?.events();
    assert!(events.len() > 3 && events.last().is_some_and(|last| last == "[DONE]"), "{events:?}");
    for event in &events[..events.len() - 1] {
        let event: Value = serde_json::from_str(event)?;
        assert_eq!(event["model"], "an-alias-of-another-length");
    }
    gateway.idle().await;
    Ok(())
}

// B16: every route, not only chat.
#[tokio::test]
async fn an_alias_works_on_every_route() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "  modelName: tiny\n  aliases: [gpt-4]\n").await?;
    let requests = [
        ("/v1/completions", json!({ "model": "gpt-4", "prompt": "hi", "max_tokens": 2 })),
        ("/v1/embeddings", json!({ "model": "gpt-4", "input": "hi" })),
        ("/v1/responses", json!({ "model": "gpt-4", "input": "hi", "max_output_tokens": 2 })),
        (
            "/v1/messages",
            json!({ "model": "gpt-4", "max_tokens": 2, "messages": [{ "role": "user", "content": "hi" }] }),
        ),
        ("/tokenize", json!({ "model": "gpt-4", "prompt": "hi" })),
    ];
    for (path, body) in requests {
        let answer = ask(&gateway, &post(path, &body.to_string())).await?;
        assert_eq!(answer.head.status, 200, "{path}: {}", answer.text());
        let name = model_in(&answer);
        assert!(name == "gpt-4" || name.is_null(), "{path} names {name}");
    }
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn only_the_name_changes_in_a_renamed_body() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "  modelName: tiny\n  aliases: [gpt-4]\n").await?;
    let body = "{\"seed\": 1e0,\n \"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9 gpt-4 \\\"model\\\": \"}],\
                \"model\" : \"gpt-4\" , \"max_tokens\":1}";
    assert_eq!(ask(&gateway, &post(CHAT, body)).await?.head.status, 200);
    let sent = String::from_utf8(engines[0].inference_requests()[0].body.clone())?;
    assert_eq!(sent, body.replace("\"model\" : \"gpt-4\"", "\"model\" : \"tiny\""));
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn a_canary_gets_its_share_and_the_client_does_not_see_it() -> Result<()> {
    let engine = two_models().await?;
    let rules = "rewrites:\n- matches: [{ model: { value: chat } }]\n  targets:\n  \
                 - { modelRewrite: small, weight: 3 }\n  - { modelRewrite: large, weight: 1 }\n";
    let gateway = Gateway::start(&with_rules(&engine, rules))?;
    gateway.serving(1).await;
    for number in 0..80 {
        let answer = ask(&gateway, &post(CHAT, &chat_body("chat", &number.to_string()))).await?;
        assert_eq!((answer.head.status, model_in(&answer)), (200, "chat".into()));
    }
    let requests = engine.inference_requests();
    let large = requests.iter().filter(|request| model_of(request) == "large").count();
    // Of 80 with a chance of a quarter: five deviations either way.
    assert!((1..=40).contains(&large), "{large} of 80");
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn a_rule_without_matches_takes_names_nobody_serves() -> Result<()> {
    let engine = two_models().await?;
    let rules = "rewrites:\n- targets: [{ modelRewrite: large }]\n";
    let gateway = Gateway::start(&with_rules(&engine, rules))?;
    gateway.serving(1).await;
    for (asked, served) in [("whatever", "large"), ("small", "small"), ("large", "large")] {
        let answer = ask(&gateway, &post(CHAT, &chat_body(asked, "hi"))).await?;
        assert_eq!((answer.head.status, model_in(&answer)), (200, asked.into()));
        assert_eq!(engine.inference_requests().last().map(model_of), Some(served.into()));
    }
    gateway.idle().await;
    Ok(())
}
