//! `/v1/chat/completions`.

use serde_json::{Value, json};

use super::{FINGERPRINT, Job, StreamUsage, data};

/// What events call themselves.
pub(super) const CHUNK: &str = "chat.completion.chunk";

pub(super) fn opening(job: &Job, choice: usize) -> Vec<String> {
    let choices = json!([{
        "index": choice, "delta": { "role": "assistant", "content": "" },
        "logprobs": null, "finish_reason": null,
    }]);
    let mut event = chunk(job, &choices);
    event["prompt_token_ids"] = Value::Null;
    event["prompt_text"] = Value::Null;
    let mut events = vec![data(&event)];
    if let Some(tool) = &job.asked.tool {
        let call = json!({
            "id": tool_call_id(job, choice), "type": "function", "index": 0,
            "function": { "name": tool.name, "arguments": "" },
        });
        events.push(data(&chunk(job, &one_delta(choice, &json!({ "tool_calls": [call] })))));
    }
    events
}

pub(super) fn token(job: &Job, choice: usize, text: &str, last: bool) -> String {
    let delta = match job.asked.tool {
        Some(_) => json!({ "tool_calls": [{ "index": 0, "function": { "arguments": text } }] }),
        None => json!({ "content": text }),
    };
    if !last {
        return data(&chunk(job, &one_delta(choice, &delta)));
    }
    let choices = json!([{
        "index": choice, "delta": delta, "logprobs": null,
        "finish_reason": job.finish_reason(choice),
        "stop_reason": job.stop_reason(choice), "token_ids": null,
    }]);
    let mut event = chunk(job, &choices);
    if job.stream_usage() == StreamUsage::Never {
        event["system_fingerprint"] = json!(FINGERPRINT);
    }
    data(&event)
}

pub(super) fn whole(job: &Job) -> Value {
    let choices: Vec<Value> =
        (0..job.answers.len()).map(|choice| whole_choice(job, choice)).collect();
    let nulls = [
        "prompt_logprobs",
        "prompt_token_ids",
        "prompt_text",
        "kv_transfer_params",
        "ec_transfer_params",
        "metrics",
    ];
    job.envelope("chat.completion", &choices, &nulls)
}

fn whole_choice(job: &Job, choice: usize) -> Value {
    let text = job.answers[choice].text();
    let content = if job.asked.tool.is_some() { Value::Null } else { json!(text) };
    let mut message = json!({
        "role": "assistant", "content": content, "refusal": null, "annotations": null,
        "audio": null, "function_call": null, "reasoning": null,
    });
    if let Some(tool) = &job.asked.tool {
        message["tool_calls"] = json!([{
            "id": tool_call_id(job, choice), "type": "function",
            "function": { "name": tool.name, "arguments": text },
        }]);
    }
    json!({
        "index": choice, "message": message, "logprobs": null,
        "finish_reason": job.finish_reason(choice), "stop_reason": job.stop_reason(choice),
        "token_ids": null, "routed_experts": null,
    })
}

fn chunk(job: &Job, choices: &Value) -> Value {
    job.chunk(CHUNK, choices)
}

fn one_delta(choice: usize, delta: &Value) -> Value {
    json!([{
        "index": choice, "delta": delta, "logprobs": null, "finish_reason": null,
        "token_ids": null,
    }])
}

fn tool_call_id(job: &Job, choice: usize) -> String {
    format!("chatcmpl-tool-{}{choice}", job.part_id)
}
