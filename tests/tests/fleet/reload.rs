//! A configuration that changes while the gateway runs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use gateway_tests::client::{get, post};
use gateway_tests::gateway::{Gateway, pool_config};
use gateway_tests::server::{Adapter, AnswerFault, Options, Simulated};
use gateway_tests::wait::{eventually, soon, until};

use super::ask::{
    CHAT, ask, chat, chat_body, endpoint, engines, fail, metric_becomes, send, spread, stream_body,
};

const RELOADED: &str = r#"inference_gateway_config_reloads_total{result="ok"}"#;
const REFUSED: &str = r#"inference_gateway_config_reloads_total{result="refused"}"#;

/// A configuration file that is removed in the end.
struct File(PathBuf);

impl File {
    fn new(yaml: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gateway-fleet-{}-{count}.yaml", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write(yaml)?;
        Ok(file)
    }

    /// Replaces the content at one stroke, so that nobody reads half of it.
    fn write(&self, yaml: &str) -> Result<()> {
        let next = self.0.with_extension("next");
        std::fs::write(&next, yaml)?;
        Ok(std::fs::rename(&next, &self.0)?)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn running(engines: &[&Simulated], extra: &str) -> Result<(File, Gateway)> {
    let file = File::new(&pool_config(engines, extra))?;
    let gateway = Gateway::from_file(&file.0)?;
    gateway.serving(engines.len()).await;
    Ok((file, gateway))
}

#[tokio::test]
async fn an_endpoint_that_is_added_gets_requests() -> Result<()> {
    let engines = engines(2).await?;
    let turns = "  policy: round_robin\n";
    let (file, gateway) = running(&[&engines[0]], turns).await?;
    file.write(&pool_config(&[&engines[0], &engines[1]], turns))?;
    metric_becomes(&gateway, RELOADED, 1.0).await?;
    gateway.serving(2).await;
    assert_eq!(spread(&gateway, 10).await?.len(), 2);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_is_removed_finishes_its_streams() -> Result<()> {
    let mut engines = engines(1).await?;
    engines.push(Simulated::start(Options { time_scale: 5.0, ..Options::fast("slow") }).await?);
    let (file, gateway) = running(&[&engines[1]], "").await?;
    let mut client = send(&gateway, &post(CHAT, &stream_body("a long answer", 2000))).await?;
    client.head().await?;
    client.chunk().await?;
    file.write(&pool_config(&[&engines[0]], ""))?;
    metric_becomes(&gateway, RELOADED, 1.0).await?;
    gateway.serving(1).await;
    let only = spread(&gateway, 10).await?;
    assert_eq!(only.into_keys().collect::<Vec<_>>(), [engines[0].addr().to_string()]);
    assert_eq!(engines[1].counters().completed, 0, "the stream still runs");
    let mut text = Vec::new();
    while let Some(chunk) = soon(client.chunk()).await? {
        text.extend_from_slice(&chunk.bytes);
    }
    assert!(text.ends_with(b"data: [DONE]\n\n"));
    assert_eq!(engines[1].counters().aborted, 0);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn a_bad_file_is_refused_and_what_runs_goes_on() -> Result<()> {
    let engines = engines(1).await?;
    let (file, gateway) = running(&[&engines[0]], "").await?;
    let before = gateway.ask("/config").await?.text();
    file.write("listen: 127.0.0.1:0\nauth: none\npools:\n- name: p\n  polcy: random\n")?;
    metric_becomes(&gateway, REFUSED, 1.0).await?;
    assert_eq!(gateway.ask("/config").await?.text(), before);
    assert_eq!(ask(&gateway, &chat("hi")).await?.head.status, 200);
    // A file that is good again is taken.
    file.write(&pool_config(&[&engines[0]], "  policy: random\n"))?;
    metric_becomes(&gateway, RELOADED, 1.0).await?;
    assert_eq!(gateway.ask("/status.json").await?.json()["pools"][0]["policy"], "random");
    assert_eq!(ask(&gateway, &chat("hi")).await?.head.status, 200);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn what_was_learnt_survives_a_reload() -> Result<()> {
    let engines = engines(2).await?;
    let both = [&engines[0], &engines[1]];
    let (file, gateway) = running(&both, "  weights: { prefix: 1 }\n").await?;
    let text = "a beginning that fills more than one block of the index: ".repeat(20);
    let first = ask(&gateway, &chat(&text)).await?;
    file.write(&pool_config(&both, "  weights: { prefix: 2 }\n"))?;
    metric_becomes(&gateway, RELOADED, 1.0).await?;
    for turn in 0..10 {
        let answer = ask(&gateway, &chat(&format!("{text}{turn}"))).await?;
        assert_eq!(endpoint(&answer), endpoint(&first));
    }
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn a_request_that_waits_goes_to_the_endpoint_that_is_added() -> Result<()> {
    let engines = engines(2).await?;
    let bounded = "  flowControl: { maxInFlightPerEndpoint: 1 }\n";
    let (file, gateway) = running(&[&engines[0]], bounded).await?;
    fail(&engines[0], AnswerFault::HangBeforeHead);
    let held = send(&gateway, &chat("held")).await?;
    eventually(|| gateway.in_flight().0 == 1).await;
    let mut waiting = send(&gateway, &chat("waiting")).await?;
    metric_becomes(&gateway, r#"inference_gateway_queued_requests{pool="p"}"#, 1.0).await?;
    file.write(&pool_config(&[&engines[0], &engines[1]], bounded))?;
    let answer = soon(waiting.answer()).await?;
    assert_eq!((answer.head.status, endpoint(&answer)), (200, &*engines[1].addr().to_string()));
    drop(held);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn names_found_at_engines_follow_their_pool_when_pools_move() -> Result<()> {
    let mut engines = engines(1).await?;
    let adapters = vec![Adapter::new("sql")];
    engines.push(Simulated::start(Options { adapters, ..Options::fast("b") }).await?);
    let head = "listen: [\"127.0.0.1:0\"]\nadmin: { listen: \"127.0.0.1:0\" }\nauth: none\n\
                log: { access: off }\ndebugHeaders: true\npools:\n";
    let pool = |name: &str, model: &str, engine: &Simulated| {
        format!("- {{ name: {name}, modelName: {model}, endpoints: [\"{}\"] }}\n", engine.url())
    };
    let (a, b) = (pool("a", "other", &engines[0]), pool("b", "tiny", &engines[1]));
    let file = File::new(&format!("{head}{a}{b}"))?;
    let gateway = Gateway::from_file(&file.0)?;
    gateway.serving(2).await;
    let sql = post(CHAT, &chat_body("sql", "hi"));
    until(async || anyhow::Ok(ask(&gateway, &sql).await?.head.status == 200)).await?;
    // First the pool is alone, then it comes first, then last again.
    for (count, pools) in [b.clone(), format!("{b}{a}"), format!("{a}{b}")].iter().enumerate() {
        file.write(&format!("{head}{pools}"))?;
        metric_becomes(&gateway, RELOADED, count as f64 + 1.0).await?;
        let answer = ask(&gateway, &sql).await?;
        assert_eq!(answer.head.status, 200, "{}", answer.text());
        assert_eq!(endpoint(&answer), engines[1].addr().to_string());
    }
    let listed = ask(&gateway, &get("/v1/models")).await?.json();
    let names: Vec<_> = listed["data"].as_array().into_iter().flatten().map(|m| &m["id"]).collect();
    assert_eq!(names, ["other", "tiny", "sql"]);
    gateway.idle().await;
    Ok(())
}

// O2
#[tokio::test]
async fn series_of_an_endpoint_that_has_left_disappear() -> Result<()> {
    let engines = engines(2).await?;
    let (file, gateway) = running(&[&engines[0], &engines[1]], "  policy: round_robin\n").await?;
    assert_eq!(spread(&gateway, 10).await?.len(), 2);
    let gone = engines[1].addr().to_string();
    let page = gateway.ask("/metrics").await?.text();
    assert!(page.lines().filter(|line| line.contains(&gone)).count() > 5);
    file.write(&pool_config(&[&engines[0]], ""))?;
    metric_becomes(&gateway, RELOADED, 1.0).await?;
    let page = gateway.ask("/metrics").await?.text();
    let left: Vec<_> = page.lines().filter(|line| line.contains(&gone)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(page.contains(&engines[0].addr().to_string()));
    Ok(())
}
