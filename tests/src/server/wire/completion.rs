//! `/v1/completions`.

use serde_json::{Value, json};

use super::{FINGERPRINT, Job, StreamUsage, data};

pub(super) fn token(job: &Job, choice: usize, text: &str, last: bool) -> String {
    let (finish, stop) = if last {
        (json!(job.finish_reason(choice)), job.stop_reason(choice))
    } else {
        (Value::Null, Value::Null)
    };
    let mut event = json!({
        "id": job.id, "object": "text_completion", "created": job.created,
        "model": job.asked.model,
        "choices": [{
            "index": choice, "text": text, "logprobs": null, "finish_reason": finish,
            "stop_reason": stop, "prompt_token_ids": null, "token_ids": null,
        }],
    });
    if job.stream_usage() == StreamUsage::Always {
        event["usage"] = job.running_usage();
    }
    if last && job.stream_usage() == StreamUsage::Never {
        event["system_fingerprint"] = json!(FINGERPRINT);
    }
    data(&event)
}

pub(super) fn closing(job: &Job) -> Vec<String> {
    let mut events = Vec::new();
    if job.stream_usage() != StreamUsage::Never {
        events.push(data(&json!({
            "id": job.id, "object": "text_completion", "created": job.created,
            "model": job.asked.model, "choices": [], "usage": job.final_usage(),
            "system_fingerprint": FINGERPRINT,
        })));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}

pub(super) fn whole(job: &Job) -> Value {
    let choice = |choice: usize| {
        json!({
            "index": choice, "text": job.answers[choice].text(), "logprobs": null,
            "finish_reason": job.finish_reason(choice), "stop_reason": job.stop_reason(choice),
            "token_ids": null, "prompt_logprobs": null, "prompt_token_ids": null,
            "routed_experts": null,
        })
    };
    let choices: Vec<Value> = (0..job.answers.len()).map(choice).collect();
    json!({
        "id": job.id, "object": "text_completion", "created": job.created,
        "model": job.asked.model, "choices": choices, "service_tier": null,
        "system_fingerprint": FINGERPRINT, "usage": job.whole_usage(),
        "kv_transfer_params": null, "ec_transfer_params": null, "metrics": null,
    })
}
