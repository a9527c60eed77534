//! `/v1/completions`.

use serde_json::{Value, json};

use super::{FINGERPRINT, Job, StreamUsage, data};

/// What answers and events call themselves.
pub(super) const OBJECT: &str = "text_completion";

pub(super) fn token(job: &Job, choice: usize, text: &str, last: bool) -> String {
    let (finish, stop) = if last {
        (json!(job.finish_reason(choice)), job.stop_reason(choice))
    } else {
        (Value::Null, Value::Null)
    };
    let choices = json!([{
        "index": choice, "text": text, "logprobs": null, "finish_reason": finish,
        "stop_reason": stop, "prompt_token_ids": null, "token_ids": null,
    }]);
    let mut event = job.chunk(OBJECT, &choices);
    if last && job.stream_usage() == StreamUsage::Never {
        event["system_fingerprint"] = json!(FINGERPRINT);
    }
    data(&event)
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
    let nulls = ["kv_transfer_params", "ec_transfer_params", "metrics"];
    job.envelope(OBJECT, &choices, &nulls)
}
