//! Simulated servers against recorded answers of vLLM 0.32, and their failures.

use serde_json::{Value, json};

use super::*;
use crate::client::{RawAnswer, once, post, post_with};
use crate::wait::soon;

mod failures;
mod lifecycle;
mod pages;
mod shapes;

async fn started(options: Options) -> Simulated {
    Simulated::start(options).await.unwrap()
}

async fn fast() -> Simulated {
    started(Options::fast("test")).await
}

async fn ask(server: &Simulated, path: &str, body: &Value) -> RawAnswer {
    soon(once(server.addr(), &post(path, &body.to_string()))).await.unwrap()
}

async fn look(server: &Simulated, path: &str) -> RawAnswer {
    soon(once(server.addr(), &crate::client::get(path))).await.unwrap()
}

fn chat(fields: &Value) -> Value {
    let mut body = json!({
        "model": "tiny", "messages": [{ "role": "user", "content": "hello there" }],
        "max_tokens": 6,
    });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

const CHAT: &str = "/v1/chat/completions";
