//! Active probes, and the gateway's own readiness.

use anyhow::Result;
use gateway_tests::client::get;
use gateway_tests::gateway::{Gateway, pool_config};
use gateway_tests::server::{Failures, Options, Simulated};
use gateway_tests::wait::{eventually, until};

use super::ask::{ask, becomes, chat, engines, left_out_while_failing, over};

const PROBES: &str = "  health: { interval: 20ms, failures: 2, successes: 2 }\n";

#[tokio::test]
async fn an_endpoint_that_is_loading_gets_nothing_until_it_is_done() -> Result<()> {
    let engines = engines(2).await?;
    let gateway = over(&engines, &format!("  policy: round_robin\n{PROBES}")).await?;
    let failures = Failures { loading: true, ..Failures::default() };
    left_out_while_failing(&gateway, &engines, failures, "probe_failing").await
}

// H5
#[tokio::test]
async fn everything_that_is_asked_of_an_engine_carries_its_key() -> Result<()> {
    let options = Options { api_key: Some("engine-key".into()), ..Options::fast("e") };
    let engines = [Simulated::start(options).await?];
    let gateway =
        over(&engines, "  apiKey: { key: engine-key }\n  health: { interval: 20ms }\n").await?;
    assert_eq!(ask(&gateway, &chat("hi")).await?.head.status, 200);
    let listed = ask(&gateway, &get("/v1/models")).await?;
    assert_eq!(listed.json()["data"][0]["id"], "tiny");
    for path in ["/health", "/metrics", "/v1/models", super::ask::CHAT] {
        let seen = |request: &gateway_tests::server::LoggedRequest| request.head.path() == path;
        eventually(|| engines[0].requests().iter().any(seen)).await;
        for request in engines[0].requests().iter().filter(|request| seen(request)) {
            assert_eq!(request.head.text("authorization"), "Bearer engine-key", "{path}");
        }
    }
    gateway.idle().await;
    Ok(())
}

// H6
#[tokio::test]
async fn the_gateway_is_ready_when_an_endpoint_can_serve() -> Result<()> {
    let engine = Simulated::start(Options::fast("e")).await?;
    engine.set_failures(Failures { loading: true, ..Failures::default() });
    let gateway = Gateway::start(&pool_config(&[&engine], PROBES))?;
    becomes(&gateway, &engine, "probe_failing").await?;
    for path in ["/readyz", "/healthz", "/health"] {
        assert_eq!(gateway.ask(path).await?.head.status, 503, "{path}");
        assert_eq!(ask(&gateway, &get(path)).await?.head.status, 503, "{path} for clients");
    }
    assert_eq!(gateway.ask("/livez").await?.head.status, 200);
    let verbose = gateway.ask("/readyz?verbose").await?;
    assert_eq!((verbose.head.status, &verbose.json()["ready"]), (503, &false.into()));
    engine.set_failures(Failures::default());
    until(async || anyhow::Ok(gateway.ask("/readyz").await?.head.status == 200)).await?;
    let verbose = gateway.ask("/readyz?verbose").await?.json();
    assert_eq!((&verbose["pools"][0]["serving"], &verbose["ready"]), (&1.into(), &true.into()));
    assert_eq!(ask(&gateway, &get("/health")).await?.head.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_gateway_without_endpoints_is_alive_but_not_ready() -> Result<()> {
    let gateway = Gateway::start(
        "listen: [\"127.0.0.1:0\"]\nadmin: { listen: \"127.0.0.1:0\" }\nauth: none\n\
         log: { access: off }\npools: [{ name: p, modelName: tiny }]\n",
    )?;
    assert_eq!(gateway.ask("/livez").await?.head.status, 200);
    assert_eq!(gateway.ask("/readyz").await?.head.status, 503);
    let answer = ask(&gateway, &chat("hi")).await?;
    assert_eq!(answer.head.status, 503, "{}", answer.text());
    assert!(answer.head.header("retry-after").is_some());
    gateway.idle().await;
    Ok(())
}
