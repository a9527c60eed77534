//! The command line of `simulated-engine`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser;
use gateway_tests::answer::{Style, Vocabulary};
use gateway_tests::engine::{PrefixCaching, Settings};
use gateway_tests::profile::{Gpu, Model, Profile};
use gateway_tests::server::{Adapter, LogDetail, Options};

/// Simulated model servers that look like vLLM to clients and scrapers.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// One server, as `key=value,...`; may be repeated. Every flag below is the
    /// default for the key of the same name, lists are separated by `|`.
    #[arg(long = "server", value_name = "KEY=VALUE,...")]
    server: Vec<String>,
    /// Address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port; 0 takes any that is free.
    #[arg(long, default_value = "0")]
    port: String,
    /// Names the model is served by.
    #[arg(long, default_value = "tiny")]
    model: String,
    /// Size of the model: 8b, 32b, 70b, 235b; by default read from its name, else 8b.
    #[arg(long)]
    size: Option<String>,
    /// Kind of GPU: h100, h200, a100, l40s, a10g.
    #[arg(long, default_value = "h100")]
    gpu: String,
    /// GPUs the model is spread over; by default as few as hold it.
    #[arg(long)]
    tp: Option<String>,
    /// Adapters that are loaded from the start.
    #[arg(long, default_value = "")]
    adapters: String,
    /// Adapters that can be in use at once.
    #[arg(long, default_value = "4")]
    max_loras: String,
    /// Data-parallel engines.
    #[arg(long, default_value = "1")]
    ranks: String,
    /// How many times faster than real time.
    #[arg(long, default_value = "1")]
    time_scale: String,
    /// Whose metrics to show: vllm, sglang, tgi, trtllm-serve, triton.
    #[arg(long, default_value = "vllm")]
    flavour: String,
    /// Key that clients must present.
    #[arg(long)]
    api_key: Option<String>,
    /// Longest context in tokens.
    #[arg(long, default_value = "131072")]
    max_model_len: String,
    /// Most sequences in one batch.
    #[arg(long, default_value = "256")]
    max_num_seqs: String,
    /// Most tokens per step.
    #[arg(long, default_value = "8192")]
    max_num_batched_tokens: String,
    /// Tokens per KV block.
    #[arg(long, default_value = "16")]
    block_size: String,
    /// KV blocks, instead of what the GPU's memory holds.
    #[arg(long)]
    kv_blocks: Option<String>,
    /// Whether prefixes are cached: on, off.
    #[arg(long, default_value = "on")]
    prefix_caching: String,
    /// Length of answers that no limit cuts, as `shortest-longest`.
    #[arg(long, default_value = "20-200")]
    answer_tokens: String,
    /// Words of answers: ascii, multibyte.
    #[arg(long, default_value = "ascii")]
    vocabulary: String,
    /// Changes every answer.
    #[arg(long, default_value = "0")]
    seed: String,
    /// Seconds during which `/health` says 503 after the start.
    #[arg(long, default_value = "0")]
    startup: String,
    /// End when standard input closes.
    #[arg(long)]
    pub(crate) exit_with_stdin: bool,
}

/// The value of a key: a server's own, else the flag's.
struct Keys<'a> {
    own: Vec<(&'a str, &'a str)>,
}

impl Args {
    /// The servers to start; one when none is described.
    pub(crate) fn servers(&self) -> anyhow::Result<Vec<Options>> {
        if self.server.is_empty() {
            return Ok(vec![self.options("simulated", &Keys { own: Vec::new() })?]);
        }
        let described = self.server.iter().enumerate();
        let options = described.map(|(index, text)| {
            let keys = Keys::parse(text).with_context(|| format!("--server {text}"))?;
            let name = keys.or("name", "");
            let unnamed = format!("engine-{index}");
            let name = if name.is_empty() { &unnamed } else { name };
            self.options(name, &keys).with_context(|| format!("--server {text}"))
        });
        options.collect()
    }

    fn options(&self, name: &str, keys: &Keys<'_>) -> anyhow::Result<Options> {
        let models = list(keys.or("model", &self.model));
        let adapters = list(keys.or("adapters", &self.adapters));
        Ok(Options {
            name: name.to_owned(),
            bind: (self.host, number(keys, "port", &self.port)?).into(),
            profile: self.profile(keys, &models)?,
            models,
            adapters: adapters.iter().map(|name| Adapter::new(name)).collect(),
            max_model_len: number(keys, "max-model-len", &self.max_model_len)?,
            engine: self.settings(keys)?,
            time_scale: number(keys, "time-scale", &self.time_scale)?,
            ranks: number(keys, "ranks", &self.ranks)?,
            flavour: keys.or("flavour", &self.flavour).parse().map_err(anyhow::Error::msg)?,
            api_key: keys.optional("api-key", self.api_key.as_deref()).map(str::to_owned),
            style: self.style(keys)?,
            startup: Duration::try_from_secs_f64(number(keys, "startup", &self.startup)?)?,
            log: LogDetail::Off,
        })
    }

    fn profile(&self, keys: &Keys<'_>, models: &[String]) -> anyhow::Result<Profile> {
        let gpu: Gpu = keys.or("gpu", &self.gpu).parse()?;
        let model = match keys.optional("size", self.size.as_deref()) {
            Some(size) => size.parse()?,
            None => size_in_name(models.first().map(String::as_str).unwrap_or_default()),
        };
        Ok(match keys.optional("tp", self.tp.as_deref()) {
            Some(gpus) => Profile::tensor_parallel(gpu, model, gpus.parse().context("tp")?)?,
            None => Profile::of(gpu, model)?,
        })
    }

    fn settings(&self, keys: &Keys<'_>) -> anyhow::Result<Settings> {
        let kv_blocks = keys.optional("kv-blocks", self.kv_blocks.as_deref());
        let batched = &self.max_num_batched_tokens;
        Ok(Settings {
            max_num_seqs: number(keys, "max-num-seqs", &self.max_num_seqs)?,
            max_num_batched_tokens: number(keys, "max-num-batched-tokens", batched)?,
            block_size: number(keys, "block-size", &self.block_size)?,
            kv_blocks: kv_blocks.map(str::parse).transpose().context("kv-blocks")?,
            prefix_caching: match keys.or("prefix-caching", &self.prefix_caching) {
                "on" => PrefixCaching::On,
                "off" => PrefixCaching::Off,
                other => bail!("unknown prefix-caching `{other}`; known: on, off"),
            },
            max_loras: number(keys, "max-loras", &self.max_loras)?,
            ..Settings::default()
        })
    }

    fn style(&self, keys: &Keys<'_>) -> anyhow::Result<Style> {
        let range = keys.or("answer-tokens", &self.answer_tokens);
        let (shortest, longest) = range.split_once('-').unwrap_or((range, range));
        let (shortest, longest): (u32, u32) = (shortest.parse()?, longest.parse()?);
        if shortest > longest {
            bail!("answer-tokens `{range}` is empty; write the shorter length first");
        }
        Ok(Style {
            seed: number(keys, "seed", &self.seed)?,
            tokens: shortest..=longest,
            vocabulary: match keys.or("vocabulary", &self.vocabulary) {
                "ascii" => Vocabulary::Ascii,
                "multibyte" => Vocabulary::Multibyte,
                other => bail!("unknown vocabulary `{other}`; known: ascii, multibyte"),
            },
        })
    }
}

const KNOWN: &[&str] = &[
    "adapters",
    "answer-tokens",
    "api-key",
    "block-size",
    "flavour",
    "gpu",
    "kv-blocks",
    "max-loras",
    "max-model-len",
    "max-num-batched-tokens",
    "max-num-seqs",
    "model",
    "name",
    "port",
    "prefix-caching",
    "ranks",
    "seed",
    "size",
    "startup",
    "time-scale",
    "tp",
    "vocabulary",
];

impl<'a> Keys<'a> {
    fn parse(text: &'a str) -> anyhow::Result<Self> {
        let pairs = text.split(',').filter(|pair| !pair.is_empty()).map(|pair| {
            let Some((key, value)) = pair.split_once('=') else {
                bail!("`{pair}` is not key=value");
            };
            if !KNOWN.contains(&key) {
                bail!("unknown key `{key}`; known: {}", KNOWN.join(", "));
            }
            Ok((key, value))
        });
        Ok(Self { own: pairs.collect::<anyhow::Result<_>>()? })
    }

    fn or<'b>(&'b self, key: &str, default: &'b str) -> &'b str {
        self.optional(key, Some(default)).unwrap_or(default)
    }

    fn optional<'b>(&'b self, key: &str, default: Option<&'b str>) -> Option<&'b str> {
        self.own.iter().find(|(own, _)| *own == key).map(|(_, value)| *value).or(default)
    }
}

fn number<T>(keys: &Keys<'_>, key: &'static str, default: &str) -> anyhow::Result<T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    keys.or(key, default).parse().context(key)
}

fn list(text: &str) -> Vec<String> {
    text.split('|').filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// The size that a model's name ends with or has between dashes, as in `llama-3.1-8b-instruct`.
fn size_in_name(name: &str) -> Model {
    let parts = name.split(['-', '_', '/', ':']);
    parts.filter_map(|part| part.parse().ok()).next_back().unwrap_or(Model::B8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(arguments: &[&str]) -> anyhow::Result<Vec<Options>> {
        Args::parse_from([&["simulated-engine"], arguments].concat()).servers()
    }

    #[test]
    fn keys_of_a_server_win_over_flags() {
        let arguments =
            ["--gpu", "a10g", "--ranks", "2", "--server", "name=a,gpu=h100", "--server"];
        let both = servers(&[&arguments[..], &["name=b,ranks=1"]].concat()).unwrap();
        assert_eq!(both[0].profile, Profile::of(Gpu::H100, Model::B8).unwrap());
        assert_eq!(both[1].profile, Profile::of(Gpu::A10G, Model::B8).unwrap());
        assert_eq!((both[0].ranks, both[1].ranks), (2, 1));
    }

    #[test]
    fn size_is_read_from_the_models_name() {
        assert_eq!(size_in_name("meta/Llama-3.1-70B-Instruct"), Model::B70);
        assert_eq!(size_in_name("tiny"), Model::B8);
    }

    #[test]
    fn misspelt_key_is_refused() {
        let error = servers(&["--server", "gqu=h100"]).unwrap_err();
        assert!(format!("{error:#}").contains("unknown key `gqu`; known: adapters"));
    }
}
