//! What passes the gateway, byte by byte: streams, headers, bodies, large bodies,
//! clients that leave, timeouts, connections, errors and token counts.
//!
//! The ids in comments are those of reports on other gateways; each test holds the
//! value that is right.
#![allow(
    clippy::float_cmp,
    clippy::format_collect,
    clippy::needless_for_each,
    clippy::unwrap_used,
    reason = "counters are whole numbers, what fails in a helper fails its test, and short reads well"
)]

use std::fmt::Write as _;
use std::future::Future;
use std::net::SocketAddr;

use gateway_tests::client::{RawAnswer, once, post};
use gateway_tests::gateway::Gateway;
use gateway_tests::server::{Failures, Options, Simulated};
use gateway_tests::wait::soon;
use serde_json::{Value, json};

mod bodies;
mod broken;
mod connections;
mod disconnect;
mod errors;
mod expect;
mod fidelity;
mod headers;
mod http2;
mod large;
mod model_names;
mod pressure;
mod request_ids;
#[allow(dead_code, reason = "shared with the scenarios of the kernel path")]
mod scripted;
mod streaming;
mod timeouts;
mod usage;

const CHAT: &str = "/v1/chat/completions";
const MEBIBYTE: usize = 1024 * 1024;

/// A chat request of the model that every simulated engine serves.
fn chat(fields: &Value) -> String {
    let mut body = json!({
        "model": "tiny", "messages": [{ "role": "user", "content": "hello there" }],
        "max_tokens": 6,
    });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body.to_string()
}

/// A chat request with a prompt of this many bytes.
fn chat_of(bytes: usize) -> String {
    let messages = json!([{ "role": "user", "content": "word ".repeat(bytes / 5) }]);
    chat(&json!({ "messages": messages }))
}

async fn engine() -> Simulated {
    Simulated::start(Options::fast("engine")).await.unwrap()
}

async fn failing(failures: Failures) -> Simulated {
    let engine = engine().await;
    engine.set_failures(failures);
    engine
}

/// An engine whose answers take minutes.
async fn slow_engine() -> Simulated {
    Simulated::start(Options { time_scale: 0.01, ..Options::fast("slow") }).await.unwrap()
}

/// The gateway over one pool of endpoints that are neither scraped nor probed.
/// `top` is YAML of the whole, `extra` of the pool, two spaces deep.
fn unwatched(endpoints: &[SocketAddr], top: &str, extra: &str) -> Gateway {
    let mut list = String::new();
    for endpoint in endpoints {
        writeln!(list, "  - http://{endpoint}").unwrap();
    }
    Gateway::start(&format!(
        "listen: [\"127.0.0.1:0\"]\nadmin: {{ listen: \"127.0.0.1:0\" }}\nauth: none\n\
         log: {{ access: off }}\ndrain: {{ settle: 0s }}\ndefaultPool: p\n{top}\
         pools:\n- name: p\n  metrics: off\n  health: off\n{extra}  endpoints:\n{list}"
    ))
    .unwrap()
}

async fn ask(addr: SocketAddr, path: &str, body: &str) -> RawAnswer {
    soon(once(addr, &post(path, body))).await.unwrap()
}

/// Waits until `condition` holds on the operators' page.
async fn until_metric(gateway: &Gateway, series: &str, expected: f64) {
    let reached = async {
        while gateway.metric(series).await.unwrap() != expected {
            tokio::task::yield_now().await;
        }
    };
    soon(reached).await;
}

/// Runs futures at the same time, and returns what they return.
async fn together<T: Send + 'static>(
    futures: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let mut set = tokio::task::JoinSet::new();
    for future in futures {
        set.spawn(future);
    }
    set.join_all().await
}
