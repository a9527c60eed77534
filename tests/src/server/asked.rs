//! What a request for text asks for, read from any of the four APIs' bodies.

use serde_json::Value;

use super::error::Refusal;
use super::prompt::{self, Prompt};
use super::wire::Api;
use crate::answer::{self, Answer, Form, Limits, Style};

/// A request for text.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) api: Api,
    pub(super) model: String,
    pub(super) streaming: Streaming,
    pub(super) prompts: Vec<Prompt>,
    /// Answers per prompt.
    pub(super) choices: u32,
    pub(super) limits: Limits,
    /// Schema of the JSON that is asked for; `null` for any object.
    json: Option<Value>,
    pub(super) tool: Option<Tool>,
    /// Limit as it was asked for.
    pub(super) max_tokens: Option<u32>,
}

/// How an answer is to be delivered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Streaming {
    /// In one piece.
    #[default]
    Off,
    /// As events.
    On { usage: StreamUsage },
}

/// Where a stream tells token counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum StreamUsage {
    /// With every event, and once more at the end.
    Always,
    /// At the end.
    End,
    #[default]
    Never,
}

/// A tool that the answer calls.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tool {
    pub(super) name: String,
    parameters: Value,
}

impl Asked {
    pub(super) fn parse(api: Api, body: &Value) -> Result<Self, Refusal> {
        let max_tokens = ["max_completion_tokens", "max_tokens", "max_output_tokens"]
            .iter()
            .find_map(|key| integer(body, key));
        Ok(Self {
            api,
            model: body["model"].as_str().unwrap_or_default().to_owned(),
            streaming: streaming(body),
            prompts: prompt::read(api, body)?,
            choices: integer(body, "n").unwrap_or(1).clamp(1, 128),
            limits: Limits {
                // The completions API has a limit of its own.
                max_tokens: max_tokens.unwrap_or(if api == Api::Completion {
                    16
                } else {
                    u32::MAX
                }),
                min_tokens: integer(body, "min_tokens").unwrap_or(0),
                ignore_eos: body["ignore_eos"].as_bool().unwrap_or(false),
                stop: texts(body.get("stop").or_else(|| body.get("stop_sequences"))),
            },
            json: json_schema(body),
            tool: tool(body),
            max_tokens,
        })
    }

    /// Fits the limits into a context of so many tokens.
    pub(super) fn fit(&mut self, context: u32) -> Result<(), Refusal> {
        if let Some(asked) = self.max_tokens.filter(|asked| *asked > context) {
            return Err(Refusal::max_tokens(asked, context));
        }
        let longest = self.prompts.iter().map(Prompt::len).max().unwrap_or(0);
        let wanted = self.max_tokens.unwrap_or(1);
        if longest.saturating_add(wanted) > context {
            return Err(Refusal::context_length(longest, wanted, context));
        }
        self.limits.max_tokens = self.limits.max_tokens.min(context - longest);
        Ok(())
    }

    /// Answers every choice, prompt by prompt.
    pub(super) fn answers(&self, style: &Style) -> Vec<Answer> {
        let choices = self.prompts.iter().flat_map(|prompt| {
            (0..self.choices).map(move |choice| self.answer(style, prompt, choice))
        });
        choices.collect()
    }

    fn answer(&self, style: &Style, prompt: &Prompt, choice: u32) -> Answer {
        if let Some(tool) = &self.tool {
            let tokens = answer::arguments(style, &prompt.text, &tool.parameters);
            return Answer { tokens, end: answer::End::Complete };
        }
        let form = self.json.as_ref().map_or(Form::Prose, Form::Json);
        answer::answer(style, &prompt.text, choice, form, &self.limits)
    }
}

/// A number that may be missing or `null`.
pub(super) fn integer(body: &Value, key: &str) -> Option<u32> {
    body[key].as_u64().map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn streaming(body: &Value) -> Streaming {
    if body["stream"].as_bool() != Some(true) {
        return Streaming::Off;
    }
    let options = &body["stream_options"];
    let asked = |key: &str| options[key].as_bool() == Some(true);
    let usage = match (asked("include_usage"), asked("continuous_usage_stats")) {
        (true, true) => StreamUsage::Always,
        (true, false) => StreamUsage::End,
        (false, _) => StreamUsage::Never,
    };
    Streaming::On { usage }
}

/// A text or a list of texts.
fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(texts)) => {
            texts.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// The schema of JSON mode: chat has `response_format`, responses `text.format`.
fn json_schema(body: &Value) -> Option<Value> {
    let format = body.get("response_format").or_else(|| body["text"].get("format"))?;
    match format["type"].as_str()? {
        "json_object" => Some(Value::Null),
        "json_schema" => {
            let nested = format["json_schema"].get("schema").or_else(|| format.get("schema"));
            Some(nested.cloned().unwrap_or_default())
        }
        _ => None,
    }
}

/// The tool to call: the one that is demanded, else the first one. With `auto`,
/// nothing is called once a tool's result is there, so that agents come to an end.
fn tool(body: &Value) -> Option<Tool> {
    let tools = body["tools"].as_array()?;
    let choice = &body["tool_choice"];
    let kind = choice.as_str().or_else(|| choice["type"].as_str()).unwrap_or("auto");
    let demanded = choice["function"]["name"].as_str().or_else(|| choice["name"].as_str());
    if kind == "none" || (kind == "auto" && has_tool_result(body)) {
        return None;
    }
    let tools = tools.iter().map(|tool| tool.get("function").unwrap_or(tool));
    let wanted = |tool: &&Value| demanded.is_none() || tool["name"].as_str() == demanded;
    let tool = tools.into_iter().find(wanted)?;
    let parameters = tool.get("parameters").or_else(|| tool.get("input_schema"));
    Some(Tool {
        name: tool["name"].as_str()?.to_owned(),
        parameters: parameters.cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new())),
    })
}

fn has_tool_result(body: &Value) -> bool {
    let messages = body["messages"].as_array().or_else(|| body["input"].as_array());
    messages.and_then(|messages| messages.last()).is_some_and(|last| {
        last["role"] == "tool"
            || last["type"] == "function_call_output"
            || last["content"][0]["type"] == "tool_result"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chat(body: &Value) -> Asked {
        let mut whole = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
        whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        Asked::parse(Api::Chat, &whole).unwrap()
    }

    #[test]
    fn null_means_absent() {
        let asked = chat(&json!({ "stream": null, "max_tokens": null, "n": null, "stop": null }));
        assert_eq!((asked.streaming, asked.max_tokens, asked.choices), (Streaming::Off, None, 1));
    }

    #[test]
    fn tool_is_called_until_its_result_is_there() {
        let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
        assert_eq!(chat(&json!({ "tools": tools })).tool.unwrap().name, "f");
        assert_eq!(chat(&json!({ "tools": tools, "tool_choice": "none" })).tool, None);
        let messages = json!([{ "role": "tool", "content": "7" }]);
        assert_eq!(chat(&json!({ "tools": tools, "messages": messages })).tool, None);
    }

    #[test]
    fn output_beyond_the_context_is_refused() {
        let mut asked = chat(&json!({ "max_tokens": 99_999 }));
        assert_eq!(asked.fit(2048), Err(Refusal::max_tokens(99_999, 2048)));
    }
}
