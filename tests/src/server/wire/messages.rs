//! `/v1/messages`, Anthropic's API.

use serde_json::{Value, json};

use super::{Job, named};
use crate::answer::End;

pub(super) fn opening(job: &Job) -> Vec<String> {
    let start = json!({ "type": "message_start", "message": {
        "id": job.id, "type": "message", "role": "assistant", "content": [],
        "model": job.asked.model, "stop_reason": null, "stop_sequence": null,
        "usage": { "input_tokens": job.prompt_tokens(), "output_tokens": 0 },
    }});
    let block = match &job.asked.tool {
        Some(tool) => {
            json!({ "type": "tool_use", "id": tool_use_id(job), "name": tool.name, "input": {} })
        }
        None => json!({ "type": "text", "text": "" }),
    };
    let block = json!({ "type": "content_block_start", "content_block": block, "index": 0 });
    vec![named("message_start", &start), named("content_block_start", &block)]
}

pub(super) fn token(job: &Job, text: &str) -> String {
    let delta = match job.asked.tool {
        Some(_) => json!({ "type": "input_json_delta", "partial_json": text }),
        None => json!({ "type": "text_delta", "text": text }),
    };
    let event = json!({ "type": "content_block_delta", "delta": delta, "index": 0 });
    named("content_block_delta", &event)
}

pub(super) fn closing(job: &Job) -> Vec<String> {
    let (reason, sequence) = stop(job);
    let delta = json!({
        "type": "message_delta",
        "delta": { "stop_reason": reason, "stop_sequence": sequence }, "usage": usage(job),
    });
    vec![
        named("content_block_stop", &json!({ "type": "content_block_stop", "index": 0 })),
        named("message_delta", &delta),
        named("message_stop", &json!({ "type": "message_stop" })),
    ]
}

pub(super) fn whole(job: &Job) -> Value {
    let text = job.answers.first().map(crate::answer::Answer::text).unwrap_or_default();
    let block = match &job.asked.tool {
        Some(tool) => json!({
            "type": "tool_use", "id": tool_use_id(job), "name": tool.name,
            "input": serde_json::from_str::<Value>(&text).unwrap_or_default(),
        }),
        None => json!({ "type": "text", "text": text }),
    };
    json!({
        "id": job.id, "type": "message", "role": "assistant", "content": [block],
        "model": job.asked.model, "stop_reason": stop(job).0, "usage": usage(job),
    })
}

fn stop(job: &Job) -> (&'static str, Value) {
    match job.answers.first().map(|answer| &answer.end) {
        _ if job.asked.tool.is_some() => ("tool_use", Value::Null),
        Some(End::Length) => ("max_tokens", Value::Null),
        Some(End::StopText(stop)) => ("stop_sequence", json!(stop)),
        _ => ("end_turn", Value::Null),
    }
}

fn usage(job: &Job) -> Value {
    json!({
        "input_tokens": job.prompt_tokens(), "output_tokens": job.completion_tokens(),
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": job.cached_tokens,
    })
}

fn tool_use_id(job: &Job) -> String {
    format!("chatcmpl-tool-{}", job.part_id)
}
