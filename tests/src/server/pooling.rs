//! APIs that compute vectors and scores: embeddings, pooling, classify, rerank, score.
//!
//! Values are pure functions of the inputs, so that the same text always has the
//! same vector.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use xxhash_rust::xxh64::xxh64;

use super::adapter::resolve;
use super::asked::integer;
use super::error::Refusal;
use super::generation::compute;
use super::outlet::Whole;
use super::prompt::{Prompt, inputs, read};
use super::shared::Shared;
use super::unix_time;
use super::wire::Api;

/// Length of a vector unless `dimensions` asks for another.
const DIMENSIONS: u32 = 384;

/// The APIs of this family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Task {
    Classify,
    Embed,
    Pool,
    Rerank,
    Score,
}

impl Task {
    pub(super) fn of(path: &str) -> Option<Self> {
        match path {
            "/classify" => Some(Self::Classify),
            "/v1/embeddings" => Some(Self::Embed),
            "/pooling" => Some(Self::Pool),
            "/rerank" | "/v1/rerank" | "/v2/rerank" => Some(Self::Rerank),
            "/score" | "/v1/score" => Some(Self::Score),
            _ => None,
        }
    }

    fn id_prefix(self) -> &'static str {
        match self {
            Self::Classify => "classify",
            Self::Embed => "embd",
            Self::Pool => "pool",
            Self::Rerank => "rerank",
            Self::Score => "score",
        }
    }

    fn prompts(self, body: &Value) -> Result<Vec<Prompt>, Refusal> {
        let list = |keys: &[&str]| {
            let found = keys.iter().find_map(|key| body.get(key).filter(|value| !value.is_null()));
            found.map(inputs)
        };
        match self {
            Self::Rerank => {
                let query = list(&["query"]).ok_or_else(|| Refusal::missing("query"))?;
                let texts = list(&["documents"]).ok_or_else(|| Refusal::missing("documents"))?;
                Ok(pairs(&query, &texts))
            }
            Self::Score => {
                let first = list(&["text_1", "queries", "data_1"]);
                let second = list(&["text_2", "documents", "items", "data_2"]);
                let first = first.ok_or_else(|| Refusal::missing("text_1"))?;
                Ok(pairs(&first, &second.ok_or_else(|| Refusal::missing("text_2"))?))
            }
            _ if body.get("messages").is_some() => read(Api::Chat, body),
            _ => list(&["input"]).ok_or_else(|| Refusal::missing("input")),
        }
    }
}

/// Answers one request of this family.
pub(super) async fn respond(
    shared: &Shared,
    task: Task,
    body: &Value,
    request_id: Option<&str>,
) -> Result<Whole, Refusal> {
    let model = body["model"].as_str().unwrap_or_default();
    let served = resolve(shared, model)?;
    let prompts = task.prompts(body)?;
    compute(shared, &served, &prompts).await?;
    let id = request_id.map_or_else(|| shared.hex_id(), str::to_owned);
    let id = format!("{}-{id}", task.id_prefix());
    let tokens: u32 = prompts.iter().map(Prompt::len).sum();
    if task == Task::Rerank {
        return Ok(Whole::json(
            200,
            &json!({
                "id": id, "model": model, "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
                "results": ranking(body, &prompts),
            }),
        ));
    }
    let data: Vec<Value> = prompts
        .iter()
        .enumerate()
        .map(|(index, prompt)| result(task, body, index, prompt))
        .collect();
    Ok(Whole::json(
        200,
        &json!({
            "id": id, "object": "list", "created": unix_time().as_secs(), "model": model, "data": data,
            "usage": {
                "prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0,
                "prompt_tokens_details": null,
            },
        }),
    ))
}

fn result(task: Task, body: &Value, index: usize, prompt: &Prompt) -> Value {
    match task {
        Task::Classify => {
            let probability = score(prompt);
            let label = if probability < 0.5 { "LABEL_0" } else { "LABEL_1" };
            let probabilities = [1.0 - probability, probability];
            json!({ "index": index, "label": label, "probs": probabilities, "num_classes": 2 })
        }
        Task::Pool => {
            json!({ "index": index, "object": "pooling", "data": [vector(prompt, DIMENSIONS)] })
        }
        Task::Rerank | Task::Score => {
            json!({ "index": index, "object": "score", "score": score(prompt) })
        }
        Task::Embed => {
            let vector = vector(prompt, integer(body, "dimensions").unwrap_or(DIMENSIONS));
            let embedding = match body["encoding_format"].as_str() {
                Some("base64") => {
                    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                    json!(STANDARD.encode(bytes))
                }
                _ => json!(vector),
            };
            json!({ "index": index, "object": "embedding", "embedding": embedding })
        }
    }
}

/// Documents by score, best first, as many as `top_n` asks for.
fn ranking(body: &Value, prompts: &[Prompt]) -> Vec<Value> {
    let mut ranked: Vec<(usize, f64)> = prompts.iter().map(score).enumerate().collect();
    ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    ranked.truncate(integer(body, "top_n").filter(|n| *n > 0).unwrap_or(u32::MAX) as usize);
    let result = |(index, score): (usize, f64)| {
        let document = &body["documents"][index];
        let text = document.get("text").unwrap_or(document);
        json!({
            "index": index, "document": { "text": text, "multi_modal": null },
            "relevance_score": score,
        })
    };
    ranked.into_iter().map(result).collect()
}

/// Each query with its text, or one query with every text.
fn pairs(first: &[Prompt], second: &[Prompt]) -> Vec<Prompt> {
    let both = |(a, b): (&Prompt, &Prompt)| Prompt::new(format!("{}\n{}", a.text, b.text));
    match first {
        [one] => second.iter().map(|text| both((one, text))).collect(),
        many => many.iter().zip(second).map(both).collect(),
    }
}

/// A unit vector.
fn vector(prompt: &Prompt, dimensions: u32) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(xxh64(prompt.text.as_bytes(), 0));
    let raw: Vec<f32> = (0..dimensions).map(|_| rng.f32() - 0.5).collect();
    let length = raw.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    raw.into_iter().map(|x| x / length).collect()
}

/// Between 0 and 1.
fn score(prompt: &Prompt) -> f64 {
    fastrand::Rng::with_seed(xxh64(prompt.text.as_bytes(), 1)).f64()
}
