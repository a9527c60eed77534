//! Gateways in front of the same engines that tell each other what they do.

use anyhow::Result;
use gateway_tests::gateway::{Gateway, pool_config};
use gateway_tests::server::{AnswerFault, Failures, Simulated};
use gateway_tests::wait::{eventually, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::ask::{ask, chat, endpoint, engines, fail, metric_becomes, send};

/// Where nobody answers: a gateway tells its news only if it has peers itself.
const NOBODY: &str = "127.0.0.1:9";

/// A gateway over these engines, with these peers; `extra` is YAML of the pool.
async fn gateway(engines: &[Simulated], peers: &[&str], extra: &str) -> Result<Gateway> {
    let gateway = Gateway::start(&config(engines, peers, extra))?;
    gateway.serving(engines.len()).await;
    Ok(gateway)
}

fn config(engines: &[Simulated], peers: &[&str], extra: &str) -> String {
    let engines: Vec<&Simulated> = engines.iter().collect();
    format!(
        "peers: {{ addresses: {peers:?}, idleInterval: 50ms, staleAfter: 500ms }}\n{}",
        pool_config(&engines, extra)
    )
}

/// Two gateways of which the second one reads what the first one tells.
async fn two(engines: &[Simulated], extra: &str) -> Result<(Gateway, Gateway)> {
    let first = gateway(engines, &[NOBODY], extra).await?;
    let second = gateway(engines, &[&first.admin().to_string()], extra).await?;
    metric_becomes(&second, &up(&first.admin().to_string()), 1.0).await?;
    Ok((first, second))
}

fn up(peer: &str) -> String {
    format!("inference_gateway_peer_up{{peer=\"{peer}\"}}")
}

/// Series of an endpoint on the metrics page.
fn of_endpoint(name: &str, endpoint: &str) -> String {
    format!("inference_gateway_{name}{{endpoint=\"{endpoint}\",pool=\"p\"}}")
}

#[tokio::test]
async fn prefix_goes_where_another_gateway_has_put_it() -> Result<()> {
    let engines = engines(4).await?;
    let (first, second) = two(&engines, "  weights: { prefix: 1 }\n").await?;
    for seed in 0..8 {
        let text = format!("{seed} ").repeat(2_000);
        let home = endpoint(&ask(&first, &chat(&text)).await?).to_owned();
        let blocks = of_endpoint("prefix_index_blocks", &home);
        let known = first.metric(&blocks).await?;
        until(async || Ok::<_, anyhow::Error>(second.metric(&blocks).await? >= known)).await?;
        let answer = ask(&second, &chat(&text)).await?;
        assert_eq!(endpoint(&answer), home, "prompt {seed}");
        // What the second one sends is not known to the first.
        second.idle().await;
    }
    first.idle().await;
    Ok(())
}

/// Lets `gateway` send a long prompt that no engine's page shows; returns where it went.
async fn load_one(
    gateway: &Gateway,
    engines: &[Simulated],
) -> Result<(String, impl Sized + use<>)> {
    engines.iter().for_each(|engine| fail(engine, AnswerFault::HangBeforeHead));
    let held = send(gateway, &chat(&"long ".repeat(12_000))).await?;
    let asked = |engine: &&Simulated| engine.counters().inference_requests > 0;
    eventually(|| engines.iter().any(|engine| asked(&engine))).await;
    engines.iter().for_each(|engine| engine.set_failures(Failures::default()));
    let loaded = engines.iter().find(asked).map(|engine| engine.addr().to_string());
    Ok((loaded.unwrap_or_default(), held))
}

#[tokio::test]
async fn endpoint_that_another_gateway_has_loaded_is_avoided() -> Result<()> {
    let engines = engines(2).await?;
    let (first, second) = two(&engines, "").await?;
    let (loaded, held) = load_one(&first, &engines).await?;
    let told = of_endpoint("endpoint_peer_requests", &loaded);
    metric_becomes(&second, &told, 1.0).await?;
    assert!(engines.iter().all(|engine| engine.load()[0].running == 0));
    for number in 0..6 {
        let answer = ask(&second, &chat(&format!("short {number}"))).await?;
        assert_ne!(endpoint(&answer), loaded);
    }
    second.idle().await;
    let own = of_endpoint("endpoint_in_flight_requests", &loaded);
    assert_eq!(second.metric(&own).await?, 0.0);
    let explained = second.ask("/status.json").await?.json();
    let endpoints = explained["pools"][0]["endpoints"].as_array().unwrap();
    let told_tokens: u64 = endpoints.iter().map(|e| e["peer_tokens"].as_u64().unwrap()).sum();
    assert!(told_tokens > 10_000, "{explained}");
    // Its end is told, too.
    drop(held);
    metric_becomes(&second, &told, 0.0).await?;
    first.idle().await;
    Ok(())
}

#[tokio::test]
async fn requests_of_a_gateway_that_is_gone_count_no_longer() -> Result<()> {
    let engines = engines(2).await?;
    let (first, second) = two(&engines, "").await?;
    let (loaded, _held) = load_one(&first, &engines).await?;
    let told = of_endpoint("endpoint_peer_requests", &loaded);
    metric_becomes(&second, &told, 1.0).await?;
    let peer = first.admin().to_string();
    drop(first);
    metric_becomes(&second, &told, 0.0).await?;
    metric_becomes(&second, &up(&peer), 0.0).await?;
    ask(&second, &chat("still served")).await?;
    second.idle().await;
    Ok(())
}

/// An admin port that answers every request with this.
async fn imposter(answer: String) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    Ok(address)
}

fn page(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

#[tokio::test]
async fn what_is_no_report_is_ignored() -> Result<()> {
    let engines = engines(2).await?;
    let huge = "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n".to_owned();
    let older = page(r#"{"version":0,"instance":"00000000000000aa","cursor":"","pools":[]}"#);
    let missing = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned();
    for answer in [page("garbage"), page("{}"), huge, older, missing] {
        let peer = imposter(answer).await?;
        let gateway = gateway(&engines, &[&peer], "").await?;
        let failed = "inference_gateway_peer_reports_total{result=\"error\"}";
        until(async || Ok::<_, anyhow::Error>(gateway.metric(failed).await? >= 2.0)).await?;
        assert_eq!(gateway.metric(&up(&peer)).await?, 0.0);
        assert_eq!(ask(&gateway, &chat("served")).await?.head.status, 200);
        gateway.idle().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_is_named_itself_is_no_peer_of_itself() -> Result<()> {
    let engines = engines(2).await?;
    let path = std::env::temp_dir().join(format!("gateway-peers-{}.yaml", std::process::id()));
    std::fs::write(&path, config(&engines, &[NOBODY], ""))?;
    let gateway = Gateway::from_file(&path)?;
    gateway.serving(engines.len()).await;
    let other = self::gateway(&engines, &[NOBODY], "").await?;
    let (itself, peer) = (gateway.admin().to_string(), other.admin().to_string());
    // As a headless service would have it: everybody.
    std::fs::write(&path, config(&engines, &[&itself, &peer], ""))?;
    metric_becomes(&gateway, &up(&peer), 1.0).await?;
    let state = async || {
        let status = gateway.ask("/status.json").await?.json();
        let peers = status["peers"].as_array().cloned().unwrap_or_default();
        let found = peers.into_iter().find(|entry| entry["address"] == itself.as_str());
        Ok::<_, anyhow::Error>(found.map(|entry| entry["state"].clone()))
    };
    until(async || Ok::<_, anyhow::Error>(state().await? == Some("itself".into()))).await?;
    assert!(!gateway.ask("/metrics").await?.text().contains(&up(&itself)));
    let (loaded, held) = load_one(&gateway, &engines).await?;
    let told = of_endpoint("endpoint_peer_requests", &loaded);
    assert_eq!(gateway.metric(&told).await?, 0.0);
    drop(held);
    gateway.idle().await;
    std::fs::remove_file(&path)?;
    Ok(())
}

#[tokio::test]
async fn a_gateway_without_peers_tells_nothing() -> Result<()> {
    let engines = engines(1).await?;
    let alone = Gateway::over(&[&engines[0]], "").await?;
    let answer = alone.ask("/peer/v1").await?;
    assert_eq!(answer.head.status, 404);
    assert!(answer.text().contains("`peers`"), "{}", answer.text());
    Ok(())
}
