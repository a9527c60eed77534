//! The prompt of a request, as the model would see it.

use serde_json::Value;

use super::error::Refusal;
use super::wire::Api;
use crate::tokenizer;

/// A prompt as text and tokens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) tokens: Vec<u64>,
}

impl Prompt {
    pub(super) fn new(text: String) -> Self {
        let tokens = tokenizer::pieces(&text).map(tokenizer::token).collect();
        Self { text, tokens }
    }

    fn from_tokens(tokens: Vec<u64>) -> Self {
        let text = tokens.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        Self { text, tokens }
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.tokens.len()).unwrap_or(u32::MAX)
    }
}

/// The prompts in a body; only the completions API has more than one.
pub(super) fn read(api: Api, body: &Value) -> Result<Vec<Prompt>, Refusal> {
    match api {
        Api::Chat | Api::Messages => {
            let messages =
                body["messages"].as_array().ok_or_else(|| Refusal::missing("messages"))?;
            let system = body.get("system").filter(|system| !system.is_null());
            let mut text = system.map(|system| turn("system", system)).unwrap_or_default();
            text.extend(messages.iter().map(message));
            Ok(vec![Prompt::new(text + "assistant\n")])
        }
        Api::Completion => match body.get("prompt") {
            None | Some(Value::Null) => Err(Refusal::missing("prompt")),
            Some(prompt) => Ok(inputs(prompt)),
        },
        Api::Responses => {
            let instructions = body["instructions"].as_str();
            let mut text = instructions.map(|text| format!("system\n{text}\n")).unwrap_or_default();
            match body.get("input") {
                Some(input @ Value::String(_)) => text += &turn("user", input),
                Some(Value::Array(items)) => text.extend(items.iter().map(message)),
                _ => return Err(Refusal::missing("input")),
            }
            Ok(vec![Prompt::new(text + "assistant\n")])
        }
    }
}

/// The inputs of the completions and the pooling APIs: a text, texts, tokens, or lists of tokens.
pub(super) fn inputs(value: &Value) -> Vec<Prompt> {
    match value {
        Value::Array(items) if items.iter().all(Value::is_u64) => {
            vec![Prompt::from_tokens(items.iter().filter_map(Value::as_u64).collect())]
        }
        Value::Array(items) => items.iter().flat_map(inputs).collect(),
        other => vec![Prompt::new(content(other))],
    }
}

/// One message as the chat template renders it.
fn message(message: &Value) -> String {
    let role = message["role"].as_str().or_else(|| message["type"].as_str()).unwrap_or("user");
    let content = message.get("content").or_else(|| message.get("output"));
    let mut text = turn(role, content.unwrap_or(&Value::Null));
    if let Some(calls) = message.get("tool_calls").filter(|calls| !calls.is_null()) {
        text += &calls.to_string();
        text.push('\n');
    }
    text
}

fn turn(role: &str, value: &Value) -> String {
    format!("{role}\n{}\n", content(value))
}

/// A content's text: itself, or its parts' texts. Parts of other kinds (images, audio, tool results) count as their JSON.
fn content(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(content).collect(),
        part => match part["text"].as_str() {
            Some(text) => text.to_owned(),
            None => part.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chat(messages: &Value) -> String {
        let body = json!({ "messages": messages });
        read(Api::Chat, &body).unwrap().remove(0).text
    }

    #[test]
    fn parts_read_like_plain_content() {
        let plain = chat(&json!([{ "role": "user", "content": "hi" }]));
        assert_eq!(plain, "user\nhi\nassistant\n");
        let parts = json!([{ "role": "user", "content": [{ "type": "text", "text": "hi" }] }]);
        assert_eq!(chat(&parts), plain);
    }

    #[test]
    fn next_turn_begins_with_this_turn_and_its_answer() {
        let first = json!({ "role": "user", "content": "hi" });
        let answer = json!({ "role": "assistant", "content": "yes" });
        let next = chat(&json!([first.clone(), answer, { "role": "user", "content": "more" }]));
        assert!(next.starts_with(&(chat(&json!([first])) + "yes")));
    }

    #[test]
    fn completions_take_texts_and_tokens() {
        let count = |prompt: Value| {
            let prompts = read(Api::Completion, &json!({ "prompt": prompt })).unwrap();
            prompts.iter().map(Prompt::len).collect::<Vec<_>>()
        };
        assert_eq!(count(json!("a b")), [2]);
        assert_eq!(count(json!(["a", "b c"])), [1, 2]);
        assert_eq!(count(json!([1, 2, 3])), [3]);
        assert_eq!(count(json!([[1, 2], [3]])), [2, 1]);
    }
}
