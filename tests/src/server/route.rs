//! Which path does what.

use serde_json::{Value, json};

use super::asked::Asked;
use super::error::Refusal;
use super::generation::Generation;
use super::http::Head;
use super::outlet::Whole;
use super::pooling::{self, Task};
use super::prompt::{self, Prompt};
use super::shared::Shared;
use super::wire::Api;
use super::{adapter, admin, audio, metrics};
use crate::tokenizer;

/// An answer, or the work that leads to one.
pub(super) enum Reply {
    Generation(Box<Generation>),
    Whole(Whole),
}

const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";

/// Whether ordered failures strike this path.
pub(super) fn is_inference(path: &str) -> bool {
    Api::of(path).is_some() || Task::of(path).is_some() || path == TRANSCRIPTIONS
}

/// Answers a request, or starts the work.
pub(super) async fn respond(shared: &Shared, head: &Head, body: &[u8]) -> Reply {
    let api = Api::of(head.path());
    match dispatch(shared, head, body, api).await {
        Ok(reply) => reply,
        Err(refusal) => Reply::Whole(refusal.answer(api)),
    }
}

async fn dispatch(
    shared: &Shared,
    head: &Head,
    body: &[u8],
    api: Option<Api>,
) -> Result<Reply, Refusal> {
    let path = head.path();
    if path.starts_with("/v1") && !is_authorised(shared, head) {
        return Ok(Reply::Whole(Whole::json(401, &json!({ "error": "Unauthorized" }))));
    }
    let Some(methods) = methods(path) else {
        return Ok(Reply::Whole(Whole::detail(404, "Not Found")));
    };
    if !methods.contains(&head.method.as_str()) {
        let mut refused = Whole::detail(405, "Method Not Allowed");
        refused.headers = format!("allow: {}\r\n{}", methods.join(", "), refused.headers);
        return Ok(Reply::Whole(refused));
    }
    if head.method == "GET" {
        return Ok(Reply::Whole(read_only(shared, path).await));
    }
    let given = Some(head.text("x-request-id")).filter(|id| !id.is_empty());
    if let Some(api) = api {
        let asked = Asked::parse(api, &json_of(body)?)?;
        return Ok(Reply::Generation(Box::new(Generation::start(shared, asked, given)?)));
    }
    if let Some(task) = Task::of(path) {
        let whole = pooling::respond(shared, task, &json_of(body)?, given).await?;
        return Ok(Reply::Whole(whole));
    }
    Ok(Reply::Whole(match path {
        TRANSCRIPTIONS => audio::transcribe(shared, head.text("content-type"), body).await?,
        "/tokenize" => tokenize(shared, &json_of(body)?)?,
        "/detokenize" => detokenize(&json_of(body)?)?,
        "/v1/load_lora_adapter" => adapter::load(shared, &json_of(body)?).await?,
        "/v1/unload_lora_adapter" => adapter::unload(shared, &json_of(body)?)?,
        "/v1/messages/count_tokens" => {
            let prompts = prompt::read(Api::Messages, &json_of(body)?)?;
            Whole::json(
                200,
                &json!({ "input_tokens": prompts.iter().map(Prompt::len).sum::<u32>() }),
            )
        }
        "/admin/failures" => admin::set_failures(shared, body),
        _ => Whole::bare(200, ""), // POST /ping
    }))
}

/// The methods of a path; `None` when there is no such path.
fn methods(path: &str) -> Option<&'static [&'static str]> {
    match path {
        "/health" | "/version" | "/load" | "/metrics" | "/v1/models" | "/admin/counters" => {
            Some(&["GET"])
        }
        "/ping" | "/admin/failures" => Some(&["GET", "POST"]),
        "/tokenize"
        | "/detokenize"
        | "/v1/load_lora_adapter"
        | "/v1/unload_lora_adapter"
        | "/v1/messages/count_tokens" => Some(&["POST"]),
        path if is_inference(path) => Some(&["POST"]),
        _ => None,
    }
}

async fn read_only(shared: &Shared, path: &str) -> Whole {
    match path {
        "/health" if shared.is_loading() => Whole::bare(503, ""),
        "/metrics" => metrics::respond(shared).await,
        "/v1/models" => adapter::models(shared),
        "/version" => Whole::json(200, &json!({ "version": "0.32.0" })),
        // vLLM counts only when it is told to; without that flag it says zero.
        "/load" => Whole::json(200, &json!({ "server_load": 0 })),
        "/admin/failures" => admin::failures_now(shared),
        "/admin/counters" => admin::counters(shared),
        _ => Whole::bare(200, ""), // health, ping
    }
}

fn is_authorised(shared: &Shared, head: &Head) -> bool {
    let Some(key) = &shared.options.api_key else { return true };
    head.text("authorization").strip_prefix("Bearer ") == Some(key)
}

fn json_of(body: &[u8]) -> Result<Value, Refusal> {
    if body.is_empty() {
        return Err(Refusal::missing("model"));
    }
    serde_json::from_slice(body).map_err(|error| Refusal::not_json(body, &error))
}

fn tokenize(shared: &Shared, body: &Value) -> Result<Whole, Refusal> {
    let api = if body.get("messages").is_some() { Api::Chat } else { Api::Completion };
    let tokens: Vec<u64> =
        prompt::read(api, body)?.into_iter().flat_map(|prompt| prompt.tokens).collect();
    Ok(Whole::json(
        200,
        &json!({
            "count": tokens.len(), "max_model_len": shared.options.context_length(),
            "tokens": tokens, "token_strs": null,
        }),
    ))
}

fn detokenize(body: &Value) -> Result<Whole, Refusal> {
    let tokens = body["tokens"].as_array().ok_or_else(|| Refusal::missing("tokens"))?;
    let tokens = tokens.iter().filter_map(Value::as_u64);
    let bytes: Vec<u8> = tokens.flat_map(tokenizer::token_bytes).collect();
    Ok(Whole::json(200, &json!({ "prompt": String::from_utf8_lossy(&bytes) })))
}
