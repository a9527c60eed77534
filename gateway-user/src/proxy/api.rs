//! The routes of the OpenAI and Anthropic APIs, as far as a proxy must know them.
//!
//! What matters of a route is which error dialect its clients speak, whether its
//! body is JSON or a form, and a bounded name for metrics. Everything under
//! `/v1/` that we do not know is passed on by its model, so a new engine route
//! works on the day it appears.

use super::error::Dialect;

/// How a route is answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Route<'a> {
    /// Passed to an endpoint of the model's pool.
    Inference(Api),
    /// `GET /v1/models`
    Models,
    /// `GET /v1/models/{id}`; the id is still percent-encoded.
    Model(&'a str),
    /// Liveness of the gateway itself.
    Live,
    /// Readiness of the gateway itself.
    Ready,
    /// Nobody serves this.
    Unknown,
}

/// A route that engines serve.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Api {
    /// Bounded name for metrics and logs.
    pub name: &'static str,
    /// Error objects its clients understand.
    pub dialect: Dialect,
}

impl Api {
    const fn openai(name: &'static str) -> Self {
        Self { name, dialect: Dialect::OpenAi }
    }

    const fn anthropic(name: &'static str) -> Self {
        Self { name, dialect: Dialect::Anthropic }
    }
}

/// Routes outside `/v1/` that engines serve and clients may use. Anything an
/// operator would not open to the world (`/metrics`, LoRA loading, sleep, cache
/// flushes) is left out on purpose.
const BARE: &[&str] = &[
    "classify",
    "detokenize",
    "generate",
    "inference/v1/generate",
    "pooling",
    "rerank",
    "score",
    "tokenize",
    "v2/rerank",
];

/// Routes under `/v1/` that change an engine's state: never passed on.
const ADMINISTRATIVE: &[&str] = &["load_lora_adapter", "unload_lora_adapter"];

/// Finds the route of a request path (without its query).
#[must_use]
pub fn route<'a>(method: &str, path: &'a str) -> Route<'a> {
    match path {
        "/livez" | "/liveness" | "/live" | "/v1/health/live" => return Route::Live,
        "/readyz" | "/readiness" | "/healthz" | "/health" | "/ready" | "/v1/health/ready" => {
            return Route::Ready;
        }
        "/v1/models" | "/v1/models/" if method == "GET" || method == "HEAD" => {
            return Route::Models;
        }
        _ => {}
    }
    let Some(rest) = path.strip_prefix("/v1/") else {
        let bare = path.strip_prefix('/').unwrap_or(path);
        return match BARE.iter().find(|known| **known == bare) {
            Some(name) => Route::Inference(Api::openai(name)),
            None => Route::Unknown,
        };
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest == "models" || rest.starts_with("models/") {
        return match (rest.strip_prefix("models/"), method) {
            (Some(id), "GET" | "HEAD") => Route::Model(id),
            _ => Route::Unknown,
        };
    }
    if rest.is_empty() || ADMINISTRATIVE.contains(&rest) || rest.contains("..") {
        return Route::Unknown;
    }
    Route::Inference(versioned(rest))
}

fn versioned(rest: &str) -> Api {
    match rest {
        "chat/completions" => Api::openai("chat_completions"),
        "completions" => Api::openai("completions"),
        "embeddings" => Api::openai("embeddings"),
        "messages" => Api::anthropic("messages"),
        "messages/count_tokens" => Api::anthropic("messages_count_tokens"),
        "rerank" => Api::openai("rerank"),
        "score" => Api::openai("score"),
        "pooling" => Api::openai("pooling"),
        "classify" => Api::openai("classify"),
        "tokenize" => Api::openai("tokenize"),
        "detokenize" => Api::openai("detokenize"),
        _ if rest == "responses" || rest.starts_with("responses/") => Api::openai("responses"),
        _ if rest.starts_with("audio/") => Api::openai("audio"),
        _ => Api::openai("other"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(path: &str) -> &'static str {
        match route("POST", path) {
            Route::Inference(api) => api.name,
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn every_vllm_route_is_known() {
        assert_eq!(name("/v1/chat/completions"), "chat_completions");
        assert_eq!(name("/v1/responses"), "responses");
        assert_eq!(name("/v1/responses/resp_1/cancel"), "responses");
        assert_eq!(name("/v1/audio/transcriptions"), "audio");
        assert_eq!(name("/v1/rerank"), "rerank");
        assert_eq!(name("/rerank"), "rerank");
        assert_eq!(name("/tokenize"), "tokenize");
        assert_eq!(name("/inference/v1/generate"), "inference/v1/generate");
        assert_eq!(name("/v1/brand/new"), "other");
    }

    #[test]
    fn messages_speak_anthropic() {
        let Route::Inference(api) = route("POST", "/v1/messages") else { panic!() };
        assert_eq!(api.dialect, Dialect::Anthropic);
    }

    #[test]
    fn model_names_may_contain_slashes_and_a_trailing_slash_is_fine() {
        assert_eq!(route("GET", "/v1/models/"), Route::Models);
        assert_eq!(route("GET", "/v1/models/org%2Fname"), Route::Model("org%2Fname"));
        assert_eq!(route("GET", "/v1/models/org/name"), Route::Model("org/name"));
    }

    #[test]
    fn models_are_only_read() {
        for method in ["POST", "DELETE", "PUT"] {
            assert_eq!(route(method, "/v1/models"), Route::Unknown);
            assert_eq!(route(method, "/v1/models/x"), Route::Unknown);
        }
    }

    #[test]
    fn what_administers_an_engine_is_not_passed_on() {
        for path in ["/metrics", "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/sleep"] {
            assert_eq!(route("POST", path), Route::Unknown, "{path}");
        }
    }
}
