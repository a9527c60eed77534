//! Tenants share a full pool by tokens.

use anyhow::Result;
use gateway_tests::client::RawClient;
use gateway_tests::gateway::{Gateway, pool_config};
use gateway_tests::server::{AnswerFault, Failures, Simulated};
use gateway_tests::wait::{eventually, soon};

use super::ask::{chat, chat_with, engines, fail, metric_becomes, send};

const QUEUED: &str = r#"inference_gateway_queued_requests{pool="p"}"#;

async fn one_at_a_time(auth: &str) -> Result<(Simulated, Gateway)> {
    let engine = engines(1).await?.remove(0);
    let pool = pool_config(&[&engine], "  flowControl: { maxInFlightPerEndpoint: 1 }\n");
    let gateway = Gateway::start(&pool.replace("auth: none\n", auth))?;
    gateway.serving(1).await;
    Ok((engine, gateway))
}

/// Holds the engine while `requests` join the queue in this order; then lets them go, and
/// tells in which order they reached the engine, by the value of `header`.
async fn served(
    engine: &Simulated,
    gateway: &Gateway,
    requests: &[Vec<u8>],
    first: &[u8],
) -> Result<Vec<String>> {
    fail(engine, AnswerFault::HangBeforeHead);
    let held = send(gateway, first).await?;
    eventually(|| engine.counters().inference_requests == 1).await;
    engine.set_failures(Failures::default());
    let mut clients: Vec<RawClient> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        clients.push(send(gateway, request).await?);
        metric_becomes(gateway, QUEUED, index as f64 + 1.0).await?;
    }
    drop(held);
    for client in &mut clients {
        assert_eq!(soon(client.answer()).await?.head.status, 200);
    }
    let requests = engine.inference_requests();
    let tenant =
        |request: &gateway_tests::server::LoggedRequest| request.head.text("x-tenant").to_owned();
    Ok(requests.iter().skip(1).map(tenant).collect())
}

// F2
#[tokio::test]
async fn a_heavy_tenant_does_not_starve_a_light_one() -> Result<()> {
    let (engine, gateway) = one_at_a_time("auth: none\n").await?;
    let from = |tenant: &str, text: &str| {
        let headers = [("x-gateway-inference-fairness-id", tenant), ("x-tenant", tenant)];
        chat_with(&headers, text)
    };
    let mut requests: Vec<_> =
        (0..20).map(|_| from("heavy", &"a long prompt ".repeat(200))).collect();
    requests.extend((0..3).map(|_| from("light", "hi")));
    let order = served(&engine, &gateway, &requests, &chat("held")).await?;
    let light: Vec<_> = order.iter().enumerate().filter(|(_, tenant)| *tenant == "light").collect();
    assert_eq!((order.len(), light.len()), (23, 3));
    assert!(light[2].0 <= 5, "behind {} of 20 heavy ones: {order:?}", light[2].0 - 2);
    gateway.idle().await;
    Ok(())
}

// F2: without a header it is the key that counts.
#[tokio::test]
async fn keys_are_tenants_when_nobody_says_otherwise() -> Result<()> {
    let keys =
        "auth: { apiKeys: [{ name: heavy, key: k-heavy }, { name: light, key: k-light }] }\n";
    let (engine, gateway) = one_at_a_time(keys).await?;
    let from = |tenant: &str| {
        let key = format!("Bearer k-{tenant}");
        chat_with(&[("authorization", &key), ("x-tenant", tenant)], &format!("from {tenant}"))
    };
    let mut requests: Vec<_> = (0..10).map(|_| from("heavy")).collect();
    requests.push(from("light"));
    let order = served(&engine, &gateway, &requests, &from("heavy")).await?;
    let light = order.iter().position(|tenant| tenant == "light");
    assert!(light.is_some_and(|place| place <= 2), "{order:?}");
    gateway.idle().await;
    Ok(())
}
