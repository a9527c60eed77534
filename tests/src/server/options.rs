//! What a simulated model server is told when it starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::answer::Style;
use crate::engine::Settings;
use crate::profile::{Gpu, Model, NoProfile, Profile};

/// All choices for one server; the default is an 8B model on an H100 at real speed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name for people and logs.
    pub name: String,
    /// Address to listen on; port 0 takes any.
    pub bind: SocketAddr,
    /// Names the model is served by; the first is its name in metrics.
    pub models: Vec<String>,
    /// Adapters that are there from the start.
    pub adapters: Vec<Adapter>,
    /// Most tokens of prompt and answer together; never more than the KV cache holds.
    pub max_model_len: u32,
    /// Speed and memory.
    pub profile: Profile,
    /// Scheduler settings.
    pub engine: Settings,
    /// How many times faster than real time the engine runs.
    pub time_scale: f64,
    /// Data-parallel engines behind the one address, each with its own series.
    pub ranks: usize,
    /// What `/metrics` looks like.
    pub flavour: Flavour,
    /// Key that `/v1` demands.
    pub api_key: Option<String>,
    /// How the model answers.
    pub style: Style,
    /// How long `/health` says 503 after the start.
    pub startup: Duration,
    /// What of each request is kept for tests to read.
    pub log: LogDetail,
}

/// A `LoRA` adapter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Adapter {
    /// Name that requests use.
    pub name: String,
    /// Path, told by `/v1/models` as root.
    pub path: String,
}

/// Whose `/metrics` a server shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flavour {
    /// SGLang.
    Sglang,
    /// Text Generation Inference.
    Tgi,
    /// TensorRT-LLM behind Triton.
    Triton,
    /// TensorRT-LLM's own server.
    TrtllmServe,
    /// vLLM.
    Vllm,
}

/// What of each request is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogDetail {
    /// Heads and bodies.
    Bodies,
    /// Nothing; for long runs.
    Off,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "simulated".to_owned(),
            bind: (Ipv4Addr::LOCALHOST, 0).into(),
            models: vec!["tiny".to_owned()],
            adapters: Vec::new(),
            max_model_len: 131_072,
            profile: default_profile(),
            engine: Settings::default(),
            time_scale: 1.0,
            ranks: 1,
            flavour: Flavour::Vllm,
            api_key: None,
            style: Style::default(),
            startup: Duration::ZERO,
            log: LogDetail::Bodies,
        }
    }
}

impl Options {
    /// A server of one model on one kind of GPU, other choices by default.
    ///
    /// # Errors
    ///
    /// [`NoProfile`] when the model does not run on such GPUs.
    pub fn new(name: &str, gpu: Gpu, model: Model) -> Result<Self, NoProfile> {
        let profile = Profile::of(gpu, model)?;
        Ok(Self { name: name.to_owned(), profile, ..Self::default() })
    }

    /// A server for tests that are not about speed: a thousand times faster than an H100.
    #[must_use]
    pub fn fast(name: &str) -> Self {
        Self { name: name.to_owned(), time_scale: 1000.0, ..Self::default() }
    }

    /// Longest context: the limit asked for, or what the KV cache holds.
    #[must_use]
    pub fn context_length(&self) -> u32 {
        let size = self.engine.block_size.max(1);
        let blocks = self.engine.kv_blocks.unwrap_or_else(|| self.profile.kv_blocks(size));
        self.max_model_len.min(blocks.saturating_mul(size))
    }
}

fn default_profile() -> Profile {
    // The catalogue's tests show that this one is there.
    Profile::of(Gpu::H100, Model::B8).unwrap_or_else(|missing| panic!("{missing}"))
}

impl Adapter {
    /// An adapter stored under its own name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), path: format!("/models/{name}") }
    }
}

impl std::str::FromStr for Flavour {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "sglang" => Ok(Self::Sglang),
            "tgi" => Ok(Self::Tgi),
            "triton" => Ok(Self::Triton),
            "trtllm-serve" => Ok(Self::TrtllmServe),
            "vllm" => Ok(Self::Vllm),
            _ => Err(format!(
                "unknown flavour `{name}`; known: vllm, sglang, tgi, trtllm-serve, triton"
            )),
        }
    }
}
