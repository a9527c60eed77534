//! The engines we know, and where each keeps its signals.
//!
//! Several series of one family are combined: data-parallel ranks queue
//! separately, so queues add up and ratios are averaged. What an engine does not
//! say stays missing, and one family that is missing voids no other.

mod builtin;
mod tally;

use std::str::FromStr;

use crate::Signals;
use crate::exposition::{Families, Row};
use tally::Tally;

/// Which series of a metrics page hold which signal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mapping {
    families: Families,
    /// Family of each source, by its place in `families`.
    sources: Vec<(usize, Source)>,
}

/// A series and what it means.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Source {
    series: Series,
    signal: Signal,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Signal {
    Blocks,
    BlockSize,
    CacheInfo(CacheInfo),
    KvUsage,
    LoraLoaded,
    LoraMax,
    LoraRequests,
    OldKvUsage,
    Preemptions,
    Running,
    Waiting,
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
    /// Preemptions since the engine started.
    pub preemptions: Option<Series>,
    /// A series whose labels tell block size and blocks.
    pub cache_info: Option<(Series, CacheInfo)>,
}

/// Labels that hold numbers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CacheInfo {
    /// Label of the tokens per block.
    pub block_size_label: String,
    /// Label of the count of blocks.
    pub blocks_label: String,
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
        let error = || SeriesError { text: text.to_owned() };
        let (name, labels) = match text.trim().split_once('{') {
            Some((name, rest)) => (name, rest.strip_suffix('}').ok_or_else(error)?),
            None => (text.trim(), ""),
        };
        if !is_name(name, ":") {
            return Err(error());
        }
        let labels = labels.split(',').filter(|label| !label.trim().is_empty());
        let labels = labels.map(|label| parse_label(label).ok_or_else(error));
        Ok(Self { name: name.to_owned(), labels: labels.collect::<Result<_, _>>()? })
    }
}

fn parse_label(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let value = match value.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"')?,
        None => value,
    };
    let is_plain = !value.contains(['"', '{', '}']);
    (is_name(name, "") && is_plain).then(|| (name.to_owned(), value.to_owned()))
}

/// Whether this is a name as Prometheus wants it; `more` are further characters.
fn is_name(name: &str, more: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || more.contains(c);
    !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() && name.chars().all(is_part)
}

impl Mapping {
    /// The mapping of a known engine.
    #[must_use]
    pub fn of(engine: Engine) -> Self {
        Self::new(builtin::sources(engine))
    }

    /// A mapping of an operator's own.
    #[must_use]
    pub fn custom(custom: CustomMapping) -> Self {
        let CustomMapping {
            waiting,
            running,
            kv_usage,
            lora,
            block_size,
            blocks,
            preemptions,
            cache_info,
        } = custom;
        let sources = [
            waiting.map(|series| (series, Signal::Waiting)),
            running.map(|series| (series, Signal::Running)),
            kv_usage.map(|series| (series, Signal::KvUsage)),
            lora.map(|series| (series, Signal::LoraRequests)),
            block_size.map(|series| (series, Signal::BlockSize)),
            blocks.map(|series| (series, Signal::Blocks)),
            preemptions.map(|series| (series, Signal::Preemptions)),
            cache_info.map(|(series, labels)| (series, Signal::CacheInfo(labels))),
        ];
        let sources = sources.into_iter().flatten();
        Self::new(sources.map(|(series, signal)| Source { series, signal }).collect())
    }

    fn new(sources: Vec<Source>) -> Self {
        let mut names: Vec<String> = sources.iter().map(|s| s.series.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let place = |source: &Source| names.iter().position(|name| *name == source.series.name);
        let sources = sources.into_iter().filter_map(|s| Some((place(&s)?, s))).collect();
        Self { families: Families::new(&names), sources }
    }

    /// Reads a metrics page.
    ///
    /// When the page speaks of several models, rows that name another one than
    /// `model` do not count; rows that name none do. A page of one model counts
    /// whole, for the engine may know the model by another name.
    #[must_use]
    pub fn read(&self, page: &[u8], model: Option<&str>) -> Signals {
        let (mut all, mut own) = (Tally::default(), Tally::default());
        let mut named = Named::Nothing;
        self.families.read(page, |row| {
            let name = row.labels.value("model_name");
            let is_own = name.is_none() || name.as_deref() == model;
            named.see(name);
            for signal in self.signals(&row) {
                all.count(signal, &row);
                if is_own {
                    own.count(signal, &row);
                }
            }
        });
        let tally = if named == Named::Several && model.is_some() { own } else { all };
        tally.into_signals()
    }

    /// Signals that a row is a source of.
    fn signals<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = &'a Signal> {
        let has_labels =
            |series: &Series| series.labels.iter().all(|(name, value)| row.labels.is(name, value));
        let of_family = self.sources.iter().filter(|(family, _)| *family == row.family);
        of_family
            .map(|(_, source)| source)
            .filter(move |s| has_labels(&s.series))
            .map(|s| &s.signal)
    }
}

/// Models that the rows of a page name.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Named {
    Nothing,
    One(String),
    Several,
}

impl Named {
    fn see(&mut self, name: Option<String>) {
        let Some(name) = name else { return };
        match self {
            Self::Nothing => *self = Self::One(name),
            Self::One(first) if *first != name => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }
}

#[cfg(test)]
mod tests;
