//! Requests that scenarios send, and what they look for in answers.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;
use gateway_tests::client::{RawAnswer, RawClient, once, post, post_with};
use gateway_tests::gateway::Gateway;
use gateway_tests::server::{AnswerFault, Failures, Options, Simulated};
use gateway_tests::wait::{eventually, soon, until};
use serde_json::json;

pub(crate) const CHAT: &str = "/v1/chat/completions";

/// The model that simulated servers have unless told otherwise.
pub(crate) const MODEL: &str = "tiny";

/// Body of a short chat request.
pub(crate) fn chat_body(model: &str, text: &str) -> String {
    let messages = json!([{ "role": "user", "content": text }]);
    json!({ "model": model, "messages": messages, "max_tokens": 4 }).to_string()
}

/// Body of a streamed chat request that is answered with `tokens` tokens.
pub(crate) fn stream_body(text: &str, tokens: u32) -> String {
    let messages = json!([{ "role": "user", "content": text }]);
    json!({
        "model": MODEL, "messages": messages, "max_tokens": tokens, "ignore_eos": true,
        "stream": true,
    })
    .to_string()
}

pub(crate) fn chat(text: &str) -> Vec<u8> {
    post(CHAT, &chat_body(MODEL, text))
}

pub(crate) fn chat_with(headers: &[(&str, &str)], text: &str) -> Vec<u8> {
    post_with(CHAT, headers, &chat_body(MODEL, text))
}

/// Sends a request and waits for its whole answer.
pub(crate) async fn ask(gateway: &Gateway, request: &[u8]) -> Result<RawAnswer> {
    Ok(soon(once(gateway.addr(), request)).await?)
}

/// Sends a request that is not answered for now.
pub(crate) async fn send(gateway: &Gateway, request: &[u8]) -> Result<RawClient> {
    let mut client = RawClient::connect(gateway.addr()).await?;
    client.send(request).await?;
    Ok(client)
}

/// `count` fast engines.
pub(crate) async fn engines(count: usize) -> Result<Vec<Simulated>> {
    let mut engines = Vec::new();
    for index in 0..count {
        engines.push(Simulated::start(Options::fast(&format!("e{index}"))).await?);
    }
    Ok(engines)
}

/// A gateway over them.
pub(crate) async fn over(engines: &[Simulated], extra: &str) -> Result<Gateway> {
    Gateway::over(&engines.iter().collect::<Vec<_>>(), extra).await
}

/// Makes a server behave in this way towards requests for inference.
pub(crate) fn fail(engine: &Simulated, fault: AnswerFault) {
    engine.set_failures(Failures { answers: Some(fault), ..Failures::default() });
}

pub(crate) fn status(code: u16) -> AnswerFault {
    AnswerFault::Status { code, retry_after: None }
}

/// Name of the endpoint that answered.
pub(crate) fn endpoint(answer: &RawAnswer) -> &str {
    answer.head.header("x-inference-gateway-endpoint").unwrap_or_default()
}

/// Why the gateway answered by itself, if it did.
pub(crate) fn reason(answer: &RawAnswer) -> &str {
    answer.head.header("x-inference-gateway-reason").unwrap_or_default()
}

/// Inference requests that each engine has got.
pub(crate) fn shares(engines: &[Simulated]) -> Vec<u64> {
    engines.iter().map(|engine| engine.counters().inference_requests).collect()
}

/// Sends `count` requests of different prompts one after the other, all of which must
/// succeed; counts them by endpoint.
pub(crate) async fn spread(gateway: &Gateway, count: usize) -> Result<BTreeMap<String, usize>> {
    let mut spread = BTreeMap::new();
    for number in 0..count {
        let answer = ask(gateway, &chat(&format!("question {number}"))).await?;
        assert_eq!(answer.head.status, 200, "{}", answer.text());
        *spread.entry(endpoint(&answer).to_owned()).or_default() += 1;
    }
    Ok(spread)
}

/// The first of two engines fails so: it enters `state` and gets nothing. It stops failing: it
/// serves again.
pub(crate) async fn left_out_while_failing(
    gateway: &Gateway,
    engines: &[Simulated],
    failures: Failures,
    state: &str,
) -> Result<()> {
    engines[0].set_failures(failures);
    becomes(gateway, &engines[0], state).await?;
    let only = spread(gateway, 20).await?;
    assert_eq!(only.into_keys().collect::<Vec<_>>(), [engines[1].addr().to_string()]);
    engines[0].set_failures(Failures::default());
    becomes(gateway, &engines[0], "serving").await?;
    assert_eq!(spread(gateway, 10).await?.len(), 2);
    gateway.idle().await;
    Ok(())
}

/// The state of the endpoint at this engine, as the status page tells it.
pub(crate) async fn state(gateway: &Gateway, engine: impl At) -> Result<serde_json::Value> {
    let status = gateway.ask("/status.json").await?.json();
    let endpoints = status["pools"].as_array().into_iter().flatten();
    let mut endpoints =
        endpoints.flat_map(|pool| pool["endpoints"].as_array().into_iter().flatten());
    let name = engine.at().to_string();
    Ok(endpoints.find(|endpoint| endpoint["name"] == name.as_str()).cloned().unwrap_or_default())
}

/// Waits until the status page says that the endpoint is in this state.
pub(crate) async fn becomes(gateway: &Gateway, engine: impl At, wanted: &str) -> Result<()> {
    let addr = engine.at();
    until(async || Ok(state(gateway, addr).await?["state"] == wanted)).await
}

/// Waits until the metrics page says so.
pub(crate) async fn metric_becomes(gateway: &Gateway, series: &str, wanted: f64) -> Result<()> {
    until(async || Ok((gateway.metric(series).await? - wanted).abs() < f64::EPSILON)).await
}

/// Something with an address.
pub(crate) trait At {
    fn at(&self) -> SocketAddr;
}

impl At for &Simulated {
    fn at(&self) -> SocketAddr {
        self.addr()
    }
}

impl At for SocketAddr {
    fn at(&self) -> SocketAddr {
        *self
    }
}

/// Engines of which one is gone, with every connection to it.
pub(crate) struct Stopped {
    pub(crate) addr: SocketAddr,
    pub(crate) others: Vec<Simulated>,
}

/// Stops one engine.
pub(crate) fn stop(mut engines: Vec<Simulated>, index: usize) -> Stopped {
    let addr = engines.remove(index).addr();
    Stopped { addr, others: engines }
}

/// Starts a fast engine where one was stopped.
pub(crate) async fn start_again(addr: SocketAddr) -> Simulated {
    let options = Options { bind: addr, ..Options::fast("again") };
    let mut started = None;
    let starting = async || {
        // The port may not be free yet.
        started = Simulated::start(options.clone()).await.ok();
        Ok::<_, std::convert::Infallible>(started.is_some())
    };
    let Ok(()) = until(starting).await;
    started.unwrap()
}

/// Sends `count` requests one after the other to engines that do not answer, and counts
/// them by engine.
pub(crate) async fn held(
    gateway: &Gateway,
    engines: &[Simulated],
    count: usize,
) -> Result<Vec<u64>> {
    let before = shares(engines);
    let mut clients = Vec::new();
    for number in 1..=count {
        clients.push(send(gateway, &chat(&format!("held {number}"))).await?);
        eventually(|| gateway.in_flight().0 == number as u64).await;
    }
    let sent = || -> Vec<u64> {
        shares(engines).iter().zip(&before).map(|(now, before)| now - before).collect()
    };
    eventually(|| sent().iter().sum::<u64>() == count as u64).await;
    drop(clients);
    gateway.idle().await;
    Ok(sent())
}
