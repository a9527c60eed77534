//! `LoRA` adapters: a request goes only to endpoints that have its adapter.

use anyhow::Result;
use gateway_tests::client::{once, post};
use gateway_tests::gateway::Gateway;
use gateway_tests::server::{Adapter, AnswerFault, Options, Simulated};
use gateway_tests::wait::until;
use serde_json::json;

use super::ask::{
    CHAT, Stopped, ask, becomes, chat_body, endpoint, fail, over, reason, shares, stop,
};

async fn with_adapters(names: &[&str]) -> Result<Simulated> {
    let adapters = names.iter().map(|name| Adapter::new(name)).collect();
    Ok(Simulated::start(Options { adapters, ..Options::fast("e") }).await?)
}

fn asking(adapter: &str, number: usize) -> Vec<u8> {
    post(CHAT, &chat_body(adapter, &format!("question {number}")))
}

/// Tells the engine itself to load or unload an adapter.
async fn change(engine: &Simulated, verb: &str, name: &str) -> Result<()> {
    let body = json!({ "lora_name": name, "lora_path": format!("/models/{name}") });
    let path = format!("/v1/{verb}_lora_adapter");
    let answer = once(engine.addr(), &post(&path, &body.to_string())).await?;
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    Ok(())
}

async fn lists(gateway: &Gateway, name: &str) -> Result<bool> {
    let models = ask(gateway, &gateway_tests::client::get("/v1/models")).await?.json();
    let mut models = models["data"].as_array().into_iter().flatten();
    Ok(models.any(|model| model["id"] == name))
}

// A6
#[tokio::test]
async fn requests_for_an_adapter_go_only_to_its_holders() -> Result<()> {
    let engines = [with_adapters(&["sql"]).await?, with_adapters(&[]).await?];
    for policy in ["predicted", "weighted", "round_robin", "least_request"] {
        let gateway = over(&engines, &format!("  policy: {policy}\n")).await?;
        let before = shares(&engines);
        for number in 0..10 {
            let answer = ask(&gateway, &asking("sql", number)).await?;
            assert_eq!(answer.head.status, 200, "{policy}: {}", answer.text());
            assert_eq!(endpoint(&answer), engines[0].addr().to_string());
        }
        assert_eq!(shares(&engines), [before[0] + 10, before[1]], "{policy}");
        gateway.idle().await;
    }
    Ok(())
}

// A6
#[tokio::test]
async fn an_adapter_loaded_at_run_time_is_found_at_its_endpoint() -> Result<()> {
    let engines = [with_adapters(&[]).await?, with_adapters(&[]).await?, with_adapters(&[]).await?];
    let gateway = over(&engines, "").await?;
    change(&engines[2], "load", "poems").await?;
    until(async || lists(&gateway, "poems").await).await?;
    for number in 0..10 {
        let answer = ask(&gateway, &asking("poems", number)).await?;
        assert_eq!(answer.head.status, 200, "{}", answer.text());
    }
    assert_eq!(shares(&engines), [0, 0, 10]);
    gateway.idle().await;
    let gateway = over(&engines, "  policy: round_robin\n").await?;
    change(&engines[0], "load", "poems").await?;
    let asked = |engine: &Simulated| engine.counters().inference_requests > 0;
    let mut number = 10;
    until(async || {
        number += 1;
        let known = lists(&gateway, "poems").await?;
        let answer = ask(&gateway, &asking("poems", number)).await?;
        assert_eq!(answer.head.status, 200, "{}", answer.text());
        anyhow::Ok(known && asked(&engines[0]))
    })
    .await?;
    assert_eq!(engines[1].counters().inference_requests, 0);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn the_first_request_for_a_new_adapter_finds_it_without_a_listing() -> Result<()> {
    let engines = [with_adapters(&[]).await?, with_adapters(&[]).await?];
    let gateway = over(&engines, "").await?;
    change(&engines[1], "load", "new").await?;
    // Engines are not asked twice within a second; after that the request itself asks.
    until(async || {
        ask(&gateway, &asking("new", 0)).await?;
        let explain = post("/debug/explain", &chat_body("new", "hi"));
        anyhow::Ok(once(gateway.admin(), &explain).await?.json()["adapter"] == "new")
    })
    .await?;
    let before = shares(&engines)[0];
    for number in 0..10 {
        assert_eq!(ask(&gateway, &asking("new", number)).await?.head.status, 200);
    }
    assert_eq!(shares(&engines)[0], before);
    gateway.idle().await;
    Ok(())
}

// A6
#[tokio::test]
async fn an_unloaded_adapter_leaves_the_list_and_its_endpoint() -> Result<()> {
    let engines = [with_adapters(&["sql"]).await?, with_adapters(&["sql"]).await?];
    let gateway = over(&engines, "").await?;
    assert!(lists(&gateway, "sql").await?);
    change(&engines[0], "unload", "sql").await?;
    until(async || {
        lists(&gateway, "sql").await?;
        let body = chat_body("sql", "explain");
        let explained = once(gateway.admin(), &post("/debug/explain", &body)).await?.json();
        let mut endpoints = explained["endpoints"].as_array().into_iter().flatten();
        anyhow::Ok(endpoints.any(|endpoint| endpoint["dropped"] == "adapter_missing"))
    })
    .await?;
    for number in 0..10 {
        assert_eq!(ask(&gateway, &asking("sql", number)).await?.head.status, 200);
    }
    assert_eq!(shares(&engines), [0, 10]);
    change(&engines[1], "unload", "sql").await?;
    until(async || Ok::<_, anyhow::Error>(!lists(&gateway, "sql").await?)).await?;
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn an_adapter_whose_only_endpoint_is_out_is_unavailable_not_unknown() -> Result<()> {
    let engines = vec![with_adapters(&["sql"]).await?, with_adapters(&[]).await?];
    let gateway = over(&engines, "").await?;
    assert_eq!(ask(&gateway, &asking("sql", 0)).await?.head.status, 200);
    let Stopped { addr, others } = stop(engines, 0);
    becomes(&gateway, addr, "stale").await?;
    let answer = ask(&gateway, &asking("sql", 1)).await?;
    assert_eq!((answer.head.status, reason(&answer)), (503, "no-endpoint"), "{}", answer.text());
    assert_eq!(shares(&others), [0]);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn a_failed_request_for_an_adapter_is_retried_only_at_its_holders() -> Result<()> {
    let engines =
        [with_adapters(&["sql"]).await?, with_adapters(&["sql"]).await?, with_adapters(&[]).await?];
    let gateway = over(&engines, "  policy: round_robin\n").await?;
    fail(&engines[0], AnswerFault::CloseBeforeHead);
    for number in 0..4 {
        let answer = ask(&gateway, &asking("sql", number)).await?;
        assert_eq!(endpoint(&answer), engines[1].addr().to_string());
    }
    assert_eq!(shares(&engines)[2], 0);
    gateway.idle().await;
    Ok(())
}

// X1
#[tokio::test]
async fn loading_an_adapter_through_the_gateway_is_refused() -> Result<()> {
    let engines = [with_adapters(&[]).await?];
    let gateway = over(&engines, "").await?;
    for path in ["/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/load_lora_adapter/"] {
        let body = r#"{"model":"tiny","lora_name":"x","lora_path":"/x"}"#;
        assert_eq!(ask(&gateway, &post(path, body)).await?.head.status, 404, "{path}");
    }
    let asked = engines[0].requests();
    assert!(!asked.iter().any(|request| request.head.path().contains("lora")));
    Ok(())
}
