//! How answers look in each API.

use serde_json::{Value, json};

use super::asked::{Asked, StreamUsage, Streaming};
use crate::answer::{Answer, End};

mod chat;
mod completion;
mod messages;
mod responses;

/// vLLM's mark of version and configuration.
pub(super) const FINGERPRINT: &str = "vllm-0.32.0-90754f50";

/// The APIs that generate text.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Api {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completion,
    /// `/v1/messages` (Anthropic)
    Messages,
    /// `/v1/responses`
    Responses,
}

impl Api {
    pub(super) fn of(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completion),
            "/v1/messages" => Some(Self::Messages),
            "/v1/responses" => Some(Self::Responses),
            _ => None,
        }
    }

    pub(super) fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "chatcmpl",
            Self::Completion => "cmpl",
            Self::Responses => "resp",
        }
    }
}

/// An answer being given.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) asked: Asked,
    pub(super) answers: Vec<Answer>,
    pub(super) id: String,
    /// For the ids of parts: messages, tool calls.
    pub(super) part_id: String,
    /// Unix seconds.
    pub(super) created: u64,
    pub(super) cached_tokens: u32,
    /// Tokens sent per choice.
    pub(super) sent: Vec<u32>,
    /// Numbers the events of the responses API.
    pub(super) sequence: u64,
}

impl Job {
    /// Events before a choice's first token.
    pub(super) fn opening(&mut self, choice: usize) -> Vec<String> {
        match self.asked.api {
            Api::Chat => chat::opening(self, choice),
            Api::Completion => Vec::new(),
            Api::Messages => messages::opening(self),
            Api::Responses => responses::opening(self),
        }
    }

    /// The event of a choice's next token.
    pub(super) fn token(&mut self, choice: usize) -> String {
        let place = self.sent[choice] as usize;
        self.sent[choice] += 1;
        let answer = &self.answers[choice];
        let text = answer.tokens.get(place).cloned().unwrap_or_default();
        let last = place + 1 >= answer.tokens.len();
        match self.asked.api {
            Api::Chat => chat::token(self, choice, &text, last),
            Api::Completion => completion::token(self, choice, &text, last),
            Api::Messages => messages::token(self, &text),
            Api::Responses => responses::token(self, &text),
        }
    }

    /// Events after the last token of all.
    pub(super) fn closing(&mut self) -> Vec<String> {
        match self.asked.api {
            Api::Chat => self.stream_end(chat::CHUNK),
            Api::Completion => self.stream_end(completion::OBJECT),
            Api::Messages => messages::closing(self),
            Api::Responses => responses::closing(self),
        }
    }

    /// The answer in one piece.
    pub(super) fn whole(&self) -> Value {
        match self.asked.api {
            Api::Chat => chat::whole(self),
            Api::Completion => completion::whole(self),
            Api::Messages => messages::whole(self),
            Api::Responses => responses::whole(self),
        }
    }

    fn prompt_tokens(&self) -> u32 {
        self.asked.prompts.iter().map(super::prompt::Prompt::len).sum()
    }

    fn completion_tokens(&self) -> u32 {
        self.sent.iter().sum()
    }

    fn stream_usage(&self) -> StreamUsage {
        match self.asked.streaming {
            Streaming::Off => StreamUsage::Never,
            Streaming::On { usage } => usage,
        }
    }

    /// Token counts as they stand within a stream.
    fn running_usage(&self) -> Value {
        let (prompt, completion) = (self.prompt_tokens(), self.completion_tokens());
        json!({
            "prompt_tokens": prompt, "total_tokens": prompt + completion,
            "completion_tokens": completion, "completion_tokens_details": null,
        })
    }

    /// Token counts at the end of a stream.
    fn final_usage(&self) -> Value {
        let (prompt, completion) = (self.prompt_tokens(), self.completion_tokens());
        json!({
            "prompt_tokens": prompt, "total_tokens": prompt + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": { "cached_tokens": self.cached_tokens, "created_cache_tokens": 0 },
        })
    }

    /// Token counts of a whole answer.
    fn whole_usage(&self) -> Value {
        let (prompt, completion) = (self.prompt_tokens(), self.completion_tokens());
        json!({
            "prompt_tokens": prompt, "total_tokens": prompt + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": {
                "cached_tokens": self.cached_tokens, "created_cache_tokens": 0,
                "multimodal_tokens": null,
            },
            "completion_tokens_details": null,
        })
    }

    fn finish_reason(&self, choice: usize) -> &'static str {
        match self.answers[choice].end {
            _ if self.asked.tool.is_some() => "tool_calls",
            End::Length => "length",
            End::Complete | End::StopText(_) => "stop",
        }
    }

    /// A whole answer of the chat or the completions API; `nulls` are fields without a value.
    fn envelope(&self, object: &str, choices: &[Value], nulls: &[&str]) -> Value {
        let mut answer = json!({
            "id": self.id, "object": object, "created": self.created,
            "model": self.asked.model, "choices": choices, "service_tier": null,
            "system_fingerprint": FINGERPRINT, "usage": self.whole_usage(),
        });
        for field in nulls {
            answer[*field] = Value::Null;
        }
        answer
    }

    /// An event of a stream of these APIs.
    fn chunk(&self, object: &str, choices: &Value) -> Value {
        let mut event = json!({
            "id": self.id, "object": object, "created": self.created,
            "model": self.asked.model, "choices": choices,
        });
        if self.stream_usage() == StreamUsage::Always {
            event["usage"] = self.running_usage();
        }
        event
    }

    /// How such a stream ends: with usage if it is wanted, and a mark.
    fn stream_end(&self, object: &str) -> Vec<String> {
        let mut events = Vec::new();
        if self.stream_usage() != StreamUsage::Never {
            events.push(data(&json!({
                "id": self.id, "object": object, "created": self.created,
                "model": self.asked.model, "choices": [], "usage": self.final_usage(),
                "system_fingerprint": FINGERPRINT,
            })));
        }
        events.push("data: [DONE]\n\n".to_owned());
        events
    }

    fn stop_reason(&self, choice: usize) -> Value {
        match &self.answers[choice].end {
            End::StopText(stop) => json!(stop),
            End::Complete | End::Length => Value::Null,
        }
    }
}

/// An event of the OpenAI APIs.
fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// An event with a name, as Anthropic's API and the responses API have them.
fn named(name: &str, value: &Value) -> String {
    format!("event: {name}\ndata: {value}\n\n")
}
