//! The profiles we know.
//!
//! Where the published profiles have no row, figures come from the nearest row:
//!
//! - **Another GPU:** decode and prefill scale with memory bandwidth. The rows
//!   themselves do: from H100 to A100 (bandwidth 1/1.6) prefill takes 1.9 times as
//!   long, to L40S (1/3.9) 3.7 times, while the ratio of FLOPs is 3.2 and 2.7.
//!   H200 keeps H100's prefill, for it is the same chip with faster memory.
//! - **235B (mixture of experts, 22B active, FP8):** prefill follows the active
//!   parameters against the 70B row, decode the number of layers (94 against 80),
//!   for at this size a step is bound by launches and all-reduce, not by weights.
//!
//! Bandwidth and memory are those of NVIDIA's data sheets (H100 SXM, H200 SXM, A100
//! 80 GB SXM, L40S, A10G). KV bytes per token are the published 128 KB (8B) and 320 KB
//! (70B); for 32B (64 layers) and 235B (94 layers, 4 KV heads) they follow from
//! layers x KV heads x 128 x 2 x 2 bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Profile;

/// A kind of GPU.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Gpu {
    /// NVIDIA A100, 80 GB.
    A100,
    /// NVIDIA A10G, 24 GB.
    A10G,
    /// NVIDIA H100, 80 GB.
    H100,
    /// NVIDIA H200, 141 GB.
    H200,
    /// NVIDIA L40S, 48 GB.
    L40S,
}

/// A size of model.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Model {
    /// 8 billion parameters, bf16.
    B8,
    /// 30 to 34 billion parameters, bf16.
    B32,
    /// 70 billion parameters, bf16.
    B70,
    /// 235 billion parameters of which 22 are active, FP8.
    B235,
}

/// A combination that the catalogue does not have.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoProfile {
    /// A GPU's name was not known.
    #[error("unknown gpu `{0}`; known: h100, h200, a100, l40s, a10g")]
    UnknownGpu(String),
    /// A model's size was not known.
    #[error("unknown model size `{0}`; known: 8b, 32b, 70b, 235b")]
    UnknownModel(String),
    /// The model has no row on so many GPUs.
    #[error("{model} does not run on {gpus} x {gpu}; known: {}", list(known))]
    UnknownCount {
        /// The model's size.
        model: Model,
        /// The kind of GPU.
        gpu: Gpu,
        /// How many.
        gpus: u32,
        /// How many would do.
        known: &'static [u32],
    },
}

/// A published row, or the nearest one. Times in microseconds.
struct Row {
    gpu: Gpu,
    overhead: u64,
    per_token: u64,
    decode: u64,
}

/// A model's properties, and the rows nearest to a number of GPUs.
struct Sheet {
    /// Slow-down of a decode step with 256 sequences.
    load_factor: f64,
    kv_bytes_per_token: f64,
    weights_gb: f64,
    /// All linear layers at rank 16, bf16.
    adapter_gb: f64,
    rows: &'static [Row],
    /// GPUs that the rows were measured on.
    row_gpus: u32,
}

const fn row(gpu: Gpu, overhead: u64, per_token: u64, decode: u64) -> Row {
    Row { gpu, overhead, per_token, decode }
}

const B8: &[Row] = &[
    row(Gpu::H100, 32_000, 220, 12_000),
    row(Gpu::A100, 32_000, 420, 20_000),
    row(Gpu::L40S, 32_000, 800, 30_000),
];
const B32_TP2: &[Row] = &[row(Gpu::H100, 65_000, 400, 25_000), row(Gpu::A100, 65_000, 900, 37_000)];
const B70_TP4: &[Row] =
    &[row(Gpu::H100, 90_000, 750, 32_000), row(Gpu::A100, 90_000, 1_500, 50_000)];
const B70_TP8: &[Row] =
    &[row(Gpu::H100, 80_000, 500, 23_000), row(Gpu::A100, 80_000, 1_050, 36_000)];
const B235_TP8: &[Row] =
    &[row(Gpu::H100, 80_000, 157, 27_000), row(Gpu::A100, 80_000, 330, 42_000)];

fn sheet(model: Model, gpus: u32) -> Option<Sheet> {
    let (rows, row_gpus) = match (model, gpus) {
        (Model::B8, _) => (B8, 1),
        (Model::B32, _) => (B32_TP2, 2),
        (Model::B70, 4) => (B70_TP4, 4),
        (Model::B70, 8) => (B70_TP8, 8),
        (Model::B235, 8) => (B235_TP8, 8),
        _ => return None,
    };
    let (load_factor, kv_bytes_per_token, weights_gb, adapter_gb) = match model {
        Model::B8 => (2.0, 131_072.0, 16.0, 0.084),
        Model::B32 => (2.0, 262_144.0, 65.0, 0.268),
        Model::B70 => (3.0, 327_680.0, 141.0, 0.414),
        Model::B235 => (3.0, 192_512.0, 235.0, 0.3),
    };
    Some(Sheet { load_factor, kv_bytes_per_token, weights_gb, adapter_gb, rows, row_gpus })
}

pub(super) fn profile(gpu: Gpu, model: Model, gpus: Option<u32>) -> Result<Profile, NoProfile> {
    let known = gpu.counts(model);
    let gpus = gpus.or(known.first().copied()).unwrap_or(1);
    let sheet = sheet(model, gpus).filter(|_| known.contains(&gpus));
    let sheet = sheet.ok_or(NoProfile::UnknownCount { model, gpu, gpus, known })?;
    Ok(sheet.profile(gpu, model, gpus))
}

impl Sheet {
    fn profile(&self, gpu: Gpu, model: Model, gpus: u32) -> Profile {
        let row = self.nearest(gpu);
        let all = f64::from(gpus);
        let slower = row.gpu.bandwidth() * f64::from(self.row_gpus) / (gpu.bandwidth() * all);
        let prefill_slower = if gpu == Gpu::H200 { 1.0 } else { slower };
        let kv_read = self.kv_bytes_per_token / (gpu.bandwidth() * all * 1e12);
        let decode = seconds(row.decode) * slower;
        // The published factor is for a full batch of 256; half a thousand tokens of
        // context per sequence are part of it.
        let per_sequence = (self.load_factor - 1.0) * decode / 255.0 - 512.0 * kv_read;
        // vLLM takes 92 % of the memory; 2 GB per GPU go to activations and graphs.
        let kv_gb = (gpu.memory_gb() * 0.92 - 2.0) * all - self.weights_gb;
        Profile {
            name: format!("{model} on {gpus} x {gpu}"),
            prefill_overhead: Duration::from_micros(row.overhead),
            prefill_per_token: Duration::from_secs_f64(seconds(row.per_token) * prefill_slower),
            decode: Duration::from_secs_f64(decode),
            decode_per_sequence: Duration::from_secs_f64(per_sequence.max(0.0)),
            kv_read_per_token_picoseconds: (kv_read * 1e12) as u64,
            kv_tokens: (kv_gb * 1e9 / self.kv_bytes_per_token) as u64,
            // From a local disk at 1 GB/s.
            adapter_load: Duration::from_secs_f64(self.adapter_gb),
        }
    }

    /// This GPU's row, or that of the GPU whose bandwidth is nearest.
    fn nearest(&self, gpu: Gpu) -> &'static Row {
        let distance = |row: &&Row| (row.gpu.bandwidth() / gpu.bandwidth()).ln().abs();
        let nearest = self.rows.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        nearest.unwrap_or(&B8[0]) // no sheet is without rows
    }
}

fn seconds(microseconds: u64) -> f64 {
    Duration::from_micros(microseconds).as_secs_f64()
}

impl Gpu {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::A100, Self::A10G, Self::H100, Self::H200, Self::L40S];

    /// Memory bandwidth in TB/s.
    #[must_use]
    pub const fn bandwidth(self) -> f64 {
        match self {
            Self::A100 => 2.039,
            Self::A10G => 0.6,
            Self::H100 => 3.35,
            Self::H200 => 4.8,
            Self::L40S => 0.864,
        }
    }

    /// Memory in GB.
    #[must_use]
    pub const fn memory_gb(self) -> f64 {
        match self {
            Self::A100 | Self::H100 => 80.0,
            Self::A10G => 24.0,
            Self::H200 => 141.0,
            Self::L40S => 48.0,
        }
    }

    /// How many of these can hold a model, fewest first; none when eight are too few.
    #[must_use]
    pub const fn counts(self, model: Model) -> &'static [u32] {
        match (model, self) {
            (Model::B8, _) => &[1],
            (Model::B32, Self::A10G | Self::L40S) => &[4],
            (Model::B32, _) => &[2],
            (Model::B70, Self::A10G) | (Model::B235, Self::L40S) => &[8],
            (Model::B70, _) => &[4, 8],
            (Model::B235, Self::A10G) => &[],
            (Model::B235, _) => &[8],
        }
    }
}

impl Model {
    /// Every size.
    pub const ALL: [Self; 4] = [Self::B8, Self::B32, Self::B70, Self::B235];
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A100 => "a100",
            Self::A10G => "a10g",
            Self::H100 => "h100",
            Self::H200 => "h200",
            Self::L40S => "l40s",
        })
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::B8 => "8b",
            Self::B32 => "32b",
            Self::B70 => "70b",
            Self::B235 => "235b",
        })
    }
}

impl FromStr for Gpu {
    type Err = NoProfile;

    fn from_str(name: &str) -> Result<Self, NoProfile> {
        let known = Self::ALL.into_iter().find(|gpu| name.eq_ignore_ascii_case(&gpu.to_string()));
        known.ok_or_else(|| NoProfile::UnknownGpu(name.to_owned()))
    }
}

impl FromStr for Model {
    type Err = NoProfile;

    fn from_str(name: &str) -> Result<Self, NoProfile> {
        let known = Self::ALL.into_iter().find(|size| name.eq_ignore_ascii_case(&size.to_string()));
        known.ok_or_else(|| NoProfile::UnknownModel(name.to_owned()))
    }
}

fn list(counts: &[u32]) -> String {
    let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}
