//! The engines we know, and where each keeps its signals.

use std::str::FromStr;

use crate::Signals;

/// Which series of a metrics page hold which signal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mapping {
    waiting: Vec<Series>,
}

/// A series as an operator writes it: `name` or `name{label=value,...}`, quotes
/// optional (the inference extension's notation).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Series {
    /// Family name.
    pub name: String,
    /// Labels that must have these values.
    pub labels: Vec<(String, String)>,
}

/// A mapping of an operator's own; what is `None` stays missing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CustomMapping {
    /// Requests waiting.
    pub waiting: Option<Series>,
    /// Requests running.
    pub running: Option<Series>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_usage: Option<Series>,
    /// LoRA series in vLLM's `lora_requests_info` form.
    pub lora: Option<Series>,
    /// Gauge of tokens per block.
    pub block_size: Option<Series>,
    /// Gauge of blocks.
    pub blocks: Option<Series>,
    /// Preemptions.
    pub preemptions: Option<Series>,
}

/// Why a series cannot be understood.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{text}` is not a series; write name or name{{label=value}}")]
pub struct SeriesError {
    /// What was given.
    pub text: String,
}

/// An engine with a built-in mapping.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Engine {
    /// llama.cpp's server.
    LlamaCpp,
    /// SGLang.
    Sglang,
    /// Hugging Face TGI.
    Tgi,
    /// `trtllm-serve`.
    TrtllmServe,
    /// Triton without TensorRT-LLM.
    Triton,
    /// Triton with the TensorRT-LLM backend.
    TritonTensorrtLlm,
    /// vLLM.
    Vllm,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::LlamaCpp,
        Self::Sglang,
        Self::Tgi,
        Self::TrtllmServe,
        Self::Triton,
        Self::TritonTensorrtLlm,
        Self::Vllm,
    ];

    /// Name in configuration and in the pod label `inference.networking.k8s.io/engine-type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llamacpp",
            Self::Sglang => "sglang",
            Self::Tgi => "tgi",
            Self::TrtllmServe => "trtllm-serve",
            Self::Triton => "triton",
            Self::TritonTensorrtLlm => "triton-tensorrt-llm",
            Self::Vllm => "vllm",
        }
    }
}

impl FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|engine| engine.name() == name);
        known.ok_or_else(|| UnknownEngine { name: name.to_owned() })
    }
}

/// No engine has this name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown engine `{name}`; known engines: {}", Engine::ALL.map(Engine::name).join(", "))]
pub struct UnknownEngine {
    /// What was given.
    pub name: String,
}

impl FromStr for Series {
    type Err = SeriesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { name: text.to_owned(), labels: Vec::new() })
    }
}

impl Mapping {
    /// The mapping of a known engine.
    #[must_use]
    pub fn of(engine: Engine) -> Self {
        let _ = engine;
        Self { waiting: Vec::new() }
    }

    /// A mapping of an operator's own.
    #[must_use]
    pub fn custom(custom: CustomMapping) -> Self {
        Self { waiting: custom.waiting.into_iter().collect() }
    }

    /// Reads a metrics page. Rows that name another model than `model` do not
    /// count; rows that name none do.
    #[must_use]
    pub fn read(&self, page: &[u8], model: Option<&str>) -> Signals {
        let _ = (page, model);
        Signals::default()
    }
}
