//! One question to the admin port of a running gateway.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Time that an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks with a GET, or with a POST of `body`.
pub(super) fn ask(admin: &str, path: &str, body: Option<Vec<u8>>) -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(TIMEOUT, exchange(admin, path, body))
            .await
            .with_context(|| format!("no answer from {admin} within {} s", TIMEOUT.as_secs()))?
    })
}

async fn exchange(admin: &str, path: &str, body: Option<Vec<u8>>) -> Result<Value> {
    let stream = TcpStream::connect(admin).await.with_context(|| {
        format!("cannot connect to {admin}; is the gateway running, and is this its admin address?")
    })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let method = if body.is_some() { "POST" } else { "GET" };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", admin)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.unwrap_or_default())))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    let value: Value = serde_json::from_slice(&body)
        .with_context(|| format!("{admin} answered {status} with something else than JSON"))?;
    if !status.is_success() {
        bail!("{}", value["error"].as_str().unwrap_or(status.as_str()));
    }
    Ok(value)
}
