//! The operator's port: metrics, health, status, and why a request goes where it goes.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::IntCounterVec;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::drain::{Phase, Watcher};
use crate::gateway::Gateway;
use crate::kernel::steer::Picked;
use crate::metrics::sample::PoolSample;
use crate::peers;
use crate::proxy::reply::{Reply, ReplyBody};
use crate::readiness;

mod explain;
mod status;

/// Largest request body the admin port reads: a prompt to explain.
const BODY_BYTES: usize = 32 * 1024 * 1024;

/// Serves until the daemon stops.
pub(crate) async fn serve(listener: TcpListener, gateway: Arc<Gateway>, mut drain: Watcher) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, Arc::clone(&gateway)));
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            // The last to go: an operator wants to see the drain.
            () = drain.reached(Phase::Stopping) => return,
        }
    }
}

async fn connection(stream: TcpStream, gateway: Arc<Gateway>) {
    let service = service_fn(|request| answer(request, Arc::clone(&gateway)));
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "admin connection ended");
    }
}

async fn answer(
    request: Request<Incoming>,
    gateway: Arc<Gateway>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let verbose = request.uri().query().is_some_and(|query| query.contains("verbose"));
    let reply = match (request.method(), path.as_str()) {
        (&Method::GET | &Method::HEAD, "/livez" | "/liveness" | "/live") => readiness::live(),
        (
            &Method::GET | &Method::HEAD,
            "/readyz" | "/readiness" | "/healthz" | "/health" | "/ready",
        ) => {
            if verbose {
                readiness::verbose(&gateway)
            } else {
                readiness::ready(&gateway)
            }
        }
        (&Method::GET, "/metrics") => metrics(&gateway),
        (&Method::GET, "/peer/v1") => {
            let query = request.uri().query().unwrap_or_default();
            let cursor = query.strip_prefix("since=").unwrap_or_default();
            match peers::page(&gateway, cursor) {
                Some(page) => json(&page),
                None => problem(404, "this gateway has no peers; name them under `peers`"),
            }
        }
        (&Method::GET, "/status.json") => json(&status::status(&gateway)),
        (&Method::GET, "/config") => {
            let yaml = gateway.site.load().config.to_yaml();
            Reply::full(200, "application/yaml", Bytes::from(yaml))
        }
        (&Method::GET, "/") => {
            Reply::full(200, "text/html; charset=utf-8", Bytes::from_static(PAGE.as_bytes()))
        }
        (&Method::POST, "/debug/explain") => {
            match Limited::new(request.into_body(), BODY_BYTES).collect().await {
                Ok(body) => explained(&gateway, &body.to_bytes()),
                Err(_) => problem(413, "the body is larger than 32 MiB, or broke off"),
            }
        }
        (&Method::GET, "/debug/explain") => {
            problem(405, "POST the request body whose routing you want explained")
        }
        _ => problem(
            404,
            "known: /metrics /livez /readyz /healthz /status.json /config /debug/explain /peer/v1 /",
        ),
    };
    Ok(reply.into_response(|body| match body {
        ReplyBody::Full(body) => Full::new(body),
        ReplyBody::Answer(..) => Full::default(),
    }))
}

/// The status page. It draws what `/status.json` says and needs nothing else.
const PAGE: &str = include_str!("admin/status.html");

fn metrics(gateway: &Gateway) -> Reply {
    let site = gateway.site.load();
    let samples: Vec<_> = site
        .pools
        .iter()
        .map(|pool| PoolSample {
            pool: pool.name(),
            endpoints: pool.endpoints(),
            queued: pool.queued(),
            deferred: pool.deferred(),
        })
        .collect();
    gateway.metrics.sampled.update(&samples);
    gateway.metrics.sampled.update_peers(&gateway.peers, gateway.clock.now());
    if let Some(node) = &gateway.node {
        count_steered(&gateway.metrics.steered, &node.picked());
    }
    let all = crate::app::buffers_kib(&site.config);
    let held = all.saturating_sub(gateway.buffers.available_permits());
    gateway.metrics.buffered_bytes.set(i64::try_from(held * 1024).unwrap_or(i64::MAX));
    Reply::full(200, "text/plain; version=0.0.4", Bytes::from(gateway.metrics.render()))
}

/// Replaces the counters by the kernel's, so that those of endpoints that are gone go.
fn count_steered(counters: &IntCounterVec, picked: &[Picked]) {
    // Of two pages at the same time neither may add to what the other has set.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _held = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    counters.reset();
    for Picked { pool, endpoint, connections } in picked {
        counters.with_label_values(&[&**pool, &**endpoint]).inc_by(*connections);
    }
}

fn explained(gateway: &Gateway, body: &[u8]) -> Reply {
    match explain::explain(gateway, body) {
        Ok(explanation) => json(&explanation),
        Err(error) => problem(error.status(), &error.to_string()),
    }
}

fn json(value: &impl serde::Serialize) -> Reply {
    match serde_json::to_vec(value) {
        Ok(body) => Reply::full(200, "application/json", Bytes::from(body)),
        Err(error) => problem(500, &error.to_string()),
    }
}

fn problem(status: u16, message: &str) -> Reply {
    let body = serde_json::json!({ "error": message }).to_string();
    Reply::full(status, "application/json", Bytes::from(body))
}
