//! Error answers in vLLM's words.

use serde_json::{Value, json};

use super::outlet::Whole;
use super::wire::Api;

/// An answer other than success.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    kind: &'static str,
    param: Option<String>,
    message: String,
}

impl Refusal {
    pub(super) fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, param: None, message: message.into() }
    }

    fn about(mut self, param: &str) -> Self {
        self.param = Some(param.to_owned());
        self
    }

    /// A model that is not served here.
    pub(super) fn unknown_model(name: &str, served: &[String]) -> Self {
        let served = served.join(", ");
        let message = format!("The model `{name}` does not exist. Valid aliases: {served}.");
        Self::new(404, "NotFoundError", message).about("model")
    }

    /// A body that is not JSON.
    pub(super) fn not_json(body: &[u8], error: &serde_json::Error) -> Self {
        let text = String::from_utf8_lossy(body);
        let before: usize =
            text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let at = format!("body.{}", before + error.column().saturating_sub(1));
        let message = format!(
            "1 validation error:\n  {{'type': 'json_invalid', 'loc': '{at}', 'msg': 'JSON decode \
             error', 'input': '<dict of 0 items>', 'ctx': {{'error': 'Expecting value'}}}}"
        );
        Self::new(400, "Bad Request", message).about(&at)
    }

    /// A body without something it must have.
    pub(super) fn missing(field: &str) -> Self {
        let message = format!(
            "1 validation error:\n  {{'type': 'missing', 'loc': 'body.{field}', 'msg': 'Field \
             required', 'input': '<dict>'}}"
        );
        Self::new(400, "Bad Request", message).about(&format!("body.{field}"))
    }

    /// More output than the context holds.
    pub(super) fn max_tokens(asked: u32, context: u32) -> Self {
        let message = format!(
            "max_tokens={asked} cannot be greater than max_model_len={context}. Please request \
             fewer output tokens. (parameter=max_tokens, value={asked})"
        );
        Self::new(400, "BadRequestError", message).about("max_tokens")
    }

    /// Prompt and output together are more than the context holds.
    pub(super) fn context_length(prompt: u32, output: u32, context: u32) -> Self {
        let message = format!(
            "This model's maximum context length is {context} tokens. However, you requested \
             {output} output tokens and your prompt contains {prompt} input tokens, for a total \
             of {} tokens. Please reduce the length of the input prompt or the number of \
             requested output tokens.",
            prompt + output
        );
        Self::new(400, "BadRequestError", message)
    }

    /// The answer, in the form of the API that was asked.
    pub(super) fn answer(&self, api: Option<Api>) -> Whole {
        let body = match api {
            Some(Api::Messages) => json!({
                "type": "error", "error": { "type": self.kind, "message": self.message },
            }),
            _ => json!({ "error": {
                "message": self.message, "type": self.kind,
                "param": self.param, "code": self.status,
            }}),
        };
        Whole::json(self.status, &body)
    }
}

impl Whole {
    /// A JSON answer.
    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self::typed(status, "application/json", body.to_string().into_bytes())
    }

    /// An answer with a content type.
    pub(super) fn typed(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        Self { status, headers: format!("content-type: {content_type}\r\n"), body }
    }

    /// The web framework's answer to a path or method that is not there.
    pub(super) fn detail(status: u16, detail: &str) -> Self {
        Self::json(status, &json!({ "detail": detail }))
    }

    /// An answer without a content type.
    pub(super) fn bare(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: String::new(), body: body.into() }
    }
}
