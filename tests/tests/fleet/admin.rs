//! The operators' port.

use anyhow::Result;
use gateway_tests::client::{once, post};
use gateway_tests::gateway::{Gateway, pool_config};
use gateway_tests::server::AnswerFault;
use gateway_tests::wait::eventually;
use serde_json::Value;

use super::ask::{ask, chat, chat_body, engines, fail, over, send, state};

#[tokio::test]
async fn every_page_is_there_under_each_of_its_names() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "").await?;
    let pages = [
        "/livez",
        "/liveness",
        "/live",
        "/readyz",
        "/readiness",
        "/healthz",
        "/health",
        "/ready",
        "/metrics",
        "/status.json",
        "/config",
        "/",
        "/readyz?verbose",
    ];
    for page in pages {
        let answer = gateway.ask(page).await?;
        assert_eq!(answer.head.status, 200, "{page}");
        assert!(!answer.body().is_empty(), "{page}");
    }
    assert_eq!(gateway.ask("/no/such/page").await?.head.status, 404);
    assert_eq!(gateway.ask("/debug/explain").await?.head.status, 405);
    assert_eq!(once(gateway.admin(), &post("/metrics", "")).await?.head.status, 404);
    Ok(())
}

#[tokio::test]
async fn what_clients_may_ask_is_not_what_operators_may() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "").await?;
    for page in ["/metrics", "/status.json", "/config", "/"] {
        assert_eq!(
            ask(&gateway, &gateway_tests::client::get(page)).await?.head.status,
            404,
            "{page}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_decision_is_explained_before_it_is_made() -> Result<()> {
    let engines = engines(3).await?;
    for policy in ["predicted", "weighted", "round_robin"] {
        let gateway = over(&engines, &format!("  policy: {policy}\n  retry: off\n  ejection: {{ consecutiveFailures: 1, base: 60s }}\n")).await?;
        fail(&engines[0], AnswerFault::CloseBeforeHead);
        gateway_tests::wait::until(async || {
            ask(&gateway, &chat("hi")).await?;
            anyhow::Ok(state(&gateway, &engines[0]).await?["state"] == "ejected")
        })
        .await?;
        let body = chat_body("tiny", &"explain this ".repeat(100));
        let answer = once(gateway.admin(), &post("/debug/explain", &body)).await?;
        assert_eq!(answer.head.status, 200, "{}", answer.text());
        let explained = answer.json();
        assert_eq!(explained["policy"], policy);
        assert_eq!((&explained["model"], &explained["pool"]), (&"tiny".into(), &"p".into()));
        assert!(explained["prompt_tokens"].as_u64() > Some(100), "{explained}");
        let endpoints = explained["endpoints"].as_array().cloned().unwrap_or_default();
        let of = |index: usize| {
            let name = engines[index].addr().to_string();
            endpoints.iter().find(|endpoint| endpoint["name"] == name.as_str()).unwrap()
        };
        assert_eq!(of(0)["dropped"], "ejected");
        assert!(of(1)["dropped"].is_null() && of(1)["total"].is_number(), "{explained}");
        let winners = explained["winners"].as_array().cloned().unwrap_or_default();
        assert!(!winners.is_empty() && !winners.contains(&engines[0].addr().to_string().into()));
        assert_eq!(engines[1].requests().iter().filter(|r| r.body == body.as_bytes()).count(), 0);
        engines[0].set_failures(gateway_tests::server::Failures::default());
    }
    Ok(())
}

#[tokio::test]
async fn explaining_a_name_nobody_serves_says_so() -> Result<()> {
    let engines = engines(1).await?;
    let yaml = pool_config(&[&engines[0]], "  modelName: tiny\n").replace("defaultPool: p\n", "");
    let gateway = Gateway::start(&yaml)?;
    let explain = async |body: &str| once(gateway.admin(), &post("/debug/explain", body)).await;
    let unknown = explain(&chat_body("other", "hi")).await?;
    assert_eq!(unknown.head.status, 404);
    assert!(unknown.json()["error"].as_str().is_some_and(|error| error.contains("other")));
    assert_eq!(explain("{not json").await?.head.status, 400);
    Ok(())
}

#[tokio::test]
async fn the_configuration_is_shown_with_its_defaults_and_without_its_keys() -> Result<()> {
    let engines = engines(1).await?;
    let keys = "auth: { apiKeys: [{ name: app, key: sk-app-12345 }] }\n";
    let pool = pool_config(&[&engines[0]], "  apiKey: { key: sk-engine-12345 }\n");
    let gateway = Gateway::start(&pool.replace("auth: none\n", keys))?;
    let shown = gateway.ask("/config").await?.text();
    assert!(!shown.contains("12345"), "{shown}");
    assert!(shown.contains("name: app") && shown.contains(&engines[0].url()), "{shown}");
    assert!(shown.contains("staleAfter") && shown.contains("consecutiveFailures"), "{shown}");
    // It says where it stands, too, and it can be read again.
    let reread = shown.replace("<redacted>", "another");
    assert!(inference_gateway::config::Config::parse(&reread).is_ok(), "{shown}");
    Ok(())
}

#[tokio::test]
async fn the_status_follows_what_is_in_flight() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "").await?;
    fail(&engines[0], AnswerFault::HangBeforeHead);
    let held = send(&gateway, &chat("held")).await?;
    eventually(|| gateway.in_flight().0 == 1).await;
    let status: Value = gateway.ask("/status.json").await?.json();
    assert_eq!((&status["ready"], &status["phase"]), (&true.into(), &"serving".into()));
    assert_eq!(status["pools"][0]["endpoints"][0]["in_flight"], 1);
    assert_eq!(status["pools"][0]["endpoints"][0]["picks"], 1);
    drop(held);
    gateway.idle().await;
    assert_eq!(state(&gateway, &engines[0]).await?["in_flight"], 0);
    Ok(())
}
