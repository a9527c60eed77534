//! `/v1/responses`.

use serde_json::{Value, json};

use super::{Job, named};
use crate::answer::{Answer, End};

pub(super) fn opening(job: &mut Job) -> Vec<String> {
    let response = response(job, "in_progress", &json!([]));
    let item = item(job, "in_progress", "");
    let mut events = vec![
        event(job, "response.created", json!({ "response": response })),
        event(job, "response.in_progress", json!({ "response": response })),
        event(job, "response.output_item.added", json!({ "output_index": 0, "item": item })),
    ];
    if job.asked.tool.is_none() {
        let part = part("");
        events.push(event(
            job,
            "response.content_part.added",
            located(job, json!({ "part": part })),
        ));
    }
    events
}

pub(super) fn token(job: &mut Job, text: &str) -> String {
    let name = match job.asked.tool {
        Some(_) => "response.function_call_arguments.delta",
        None => "response.output_text.delta",
    };
    let mut fields = located(job, json!({ "delta": text }));
    if job.asked.tool.is_none() {
        fields["logprobs"] = json!([]);
    }
    event(job, name, fields)
}

pub(super) fn closing(job: &mut Job) -> Vec<String> {
    let text = text(job);
    let mut events = if job.asked.tool.is_some() {
        let fields = located(job, json!({ "arguments": text }));
        vec![event(job, "response.function_call_arguments.done", fields)]
    } else {
        let done = located(job, json!({ "text": text, "logprobs": [] }));
        let part = located(job, json!({ "part": part(&text) }));
        vec![
            event(job, "response.output_text.done", done),
            event(job, "response.content_part.done", part),
        ]
    };
    let item = item(job, "completed", &text);
    let done = json!({ "output_index": 0, "item": item });
    events.push(event(job, "response.output_item.done", done));
    let whole = whole(job);
    // Also when the limit cut the answer: engines know no `response.incomplete`.
    events.push(event(job, "response.completed", json!({ "response": whole })));
    events
}

pub(super) fn whole(job: &Job) -> Value {
    let status = if is_complete(job) { "completed" } else { "incomplete" };
    let output = json!([item(job, "completed", &text(job))]);
    response(job, status, &output)
}

fn event(job: &mut Job, name: &str, fields: Value) -> String {
    let mut value = json!({ "type": name, "sequence_number": job.sequence });
    job.sequence += 1;
    if let (Value::Object(value), Value::Object(fields)) = (&mut value, fields) {
        value.extend(fields);
    }
    named(name, &value)
}

/// Says which item and part an event is about.
fn located(job: &Job, mut fields: Value) -> Value {
    fields["item_id"] = json!(item_id(job));
    fields["output_index"] = json!(0);
    if job.asked.tool.is_none() {
        fields["content_index"] = json!(0);
    }
    fields
}

fn response(job: &Job, status: &str, output: &Value) -> Value {
    let incomplete = match status {
        "incomplete" => json!({ "reason": "max_output_tokens" }),
        _ => Value::Null,
    };
    let usage = if status == "in_progress" { Value::Null } else { usage(job) };
    json!({
        "id": job.id, "created_at": job.created, "incomplete_details": incomplete,
        "instructions": null, "metadata": null, "model": job.asked.model, "object": "response",
        "output": output, "parallel_tool_calls": true, "temperature": 1.0,
        "tool_choice": if job.asked.tool.is_some() { "auto" } else { "none" }, "tools": [],
        "top_p": 1.0, "background": false, "max_output_tokens": job.asked.max_tokens,
        "max_tool_calls": null, "previous_response_id": null, "prompt": null, "reasoning": null,
        "service_tier": "auto", "status": status, "text": null, "top_logprobs": null,
        "truncation": "disabled", "usage": usage, "user": null, "presence_penalty": 0.0,
        "frequency_penalty": 0.0, "kv_transfer_params": null, "ec_transfer_params": null,
        "input_messages": null, "output_messages": null,
    })
}

fn item(job: &Job, status: &str, text: &str) -> Value {
    if let Some(tool) = &job.asked.tool {
        return json!({
            "arguments": text, "call_id": format!("call_{}", job.part_id), "name": tool.name,
            "type": "function_call", "id": item_id(job), "status": status,
        });
    }
    let content = if status == "in_progress" { json!([]) } else { json!([part(text)]) };
    json!({
        "id": item_id(job), "content": content, "role": "assistant", "status": status,
        "type": "message", "phase": null,
    })
}

fn part(text: &str) -> Value {
    json!({ "annotations": [], "text": text, "type": "output_text", "logprobs": null })
}

fn usage(job: &Job) -> Value {
    let (input, output) = (job.prompt_tokens(), job.completion_tokens());
    json!({
        "input_tokens": input,
        "input_tokens_details": {
            "cached_tokens": job.cached_tokens, "cache_write_tokens": 0,
            "input_tokens_per_turn": [], "cached_tokens_per_turn": [],
        },
        "output_tokens": output,
        "output_tokens_details": {
            "reasoning_tokens": 0, "tool_output_tokens": 0, "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": input + output,
    })
}

fn is_complete(job: &Job) -> bool {
    job.answers.first().is_none_or(|answer| answer.end != End::Length)
}

fn text(job: &Job) -> String {
    job.answers.first().map(Answer::text).unwrap_or_default()
}

fn item_id(job: &Job) -> String {
    let kind = if job.asked.tool.is_some() { "fc" } else { "msg" };
    format!("{kind}_{}", job.part_id)
}
