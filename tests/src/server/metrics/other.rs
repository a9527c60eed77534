//! The signals of engines other than vLLM, under their names and labels.
//!
//! Only what a router reads, and a little around it; the names are those of the
//! inference extension's model-server protocol and of the engines' own pages.

use super::super::options::Flavour;
use super::super::shared::Shared;
use super::Reading;
use super::exposition::{header, series};

pub(super) fn page(flavour: Flavour, shared: &Shared, readings: &[Reading]) -> String {
    let model = shared.options.models.first().map(String::as_str).unwrap_or_default();
    let mut page = String::new();
    let mut described = "";
    for family in families(flavour, shared.options.engine.block_size) {
        if family.name != described {
            header(&mut page, family.name, family.help, "gauge");
            described = family.name;
        }
        for (rank, reading) in readings.iter().enumerate() {
            let common = common_labels(flavour, model, rank, readings.len());
            let own = if family.label.is_empty() { common } else { join(&family.label, &common) };
            series(&mut page, family.name, &own, (family.value)(reading));
        }
    }
    page
}

struct Family {
    name: &'static str,
    help: &'static str,
    /// The family's own label, if any.
    label: String,
    value: Box<dyn Fn(&Reading) -> f64>,
}

fn families(flavour: Flavour, block_size: u32) -> Vec<Family> {
    let tokens_per_block = move |_: &Reading| f64::from(block_size);
    let capacity = move |r: &Reading| f64::from(r.load.kv_blocks) * f64::from(block_size);
    let in_use = move |r: &Reading| f64::from(r.load.kv_blocks_used) * f64::from(block_size);
    match flavour {
        Flavour::Sglang => vec![
            family("sglang:max_total_num_tokens", "Tokens the KV cache holds", capacity),
            family("sglang:page_size", "Tokens per page", tokens_per_block),
            family("sglang:num_pages", "Pages of the KV cache", blocks),
            family("sglang:num_running_reqs", "The number of running requests.", running),
            family(
                "sglang:num_queue_reqs",
                "The number of requests in the waiting queue.",
                waiting,
            ),
            family("sglang:num_used_tokens", "The number of used tokens.", in_use),
            family("sglang:token_usage", "The token usage.", usage),
            family("sglang:cache_hit_rate", "The prefix cache hit rate.", hit_rate),
        ],
        Flavour::Tgi => vec![
            family("tgi_queue_size", "Requests waiting", waiting),
            family("tgi_batch_current_size", "Requests in the batch", running),
            family("tgi_batch_current_max_tokens", "Tokens the batch may grow to", in_use),
            family("tgi_request_count", "Requests finished", |r| r.stats.finished as f64),
        ],
        Flavour::TrtllmServe => vec![
            family("trtllm_num_requests_running", "Number of running requests", running),
            family("trtllm_num_requests_waiting", "Number of waiting requests", waiting),
            family("trtllm_kv_cache_utilization", "KV cache utilization", usage),
            family("trtllm_kv_cache_tokens_per_block", "Tokens per block", tokens_per_block),
            family("trtllm_kv_cache_max_blocks", "Blocks of the KV cache", blocks),
        ],
        Flavour::Triton => triton(block_size),
        Flavour::Vllm => Vec::new(), // has a page of its own
    }
}

/// Triton has few families with many series each; a family here is a series there.
fn triton(block_size: u32) -> Vec<Family> {
    let tokens_per_block = move |_: &Reading| f64::from(block_size);
    let request = |kind: &str, value: fn(&Reading) -> f64| Family {
        label: format!("request_type=\"{kind}\""),
        ..family("nv_trt_llm_request_metrics", "TRT LLM request metrics", value)
    };
    let block = |kind: &str, value: Box<dyn Fn(&Reading) -> f64>| Family {
        label: format!("kv_cache_block_type=\"{kind}\""),
        name: "nv_trt_llm_kv_cache_block_metrics",
        help: "TRT LLM KV cache block metrics",
        value,
    };
    vec![
        request("waiting", waiting),
        request("scheduled", running),
        request("active", |r| running(r) + waiting(r)),
        block("fraction", Box::new(usage)),
        block("tokens_per", Box::new(tokens_per_block)),
        block("max", Box::new(blocks)),
        block("used", Box::new(|r| f64::from(r.load.kv_blocks_used))),
        block("free", Box::new(|r| f64::from(r.load.kv_blocks - r.load.kv_blocks_used))),
    ]
}

fn family(
    name: &'static str,
    help: &'static str,
    value: impl Fn(&Reading) -> f64 + 'static,
) -> Family {
    Family { name, help, label: String::new(), value: Box::new(value) }
}

fn common_labels(flavour: Flavour, model: &str, rank: usize, ranks: usize) -> String {
    match flavour {
        Flavour::Sglang => {
            let rank = if ranks > 1 { format!("dp_rank=\"{rank}\",") } else { String::new() };
            format!(
                "{rank}engine_type=\"unified\",model_name=\"{model}\",moe_ep_rank=\"0\",\
                 pp_rank=\"0\",tp_rank=\"0\""
            )
        }
        Flavour::Triton => format!("model=\"{model}\",version=\"{}\"", rank + 1),
        Flavour::TrtllmServe => {
            format!("engine_type=\"trtllm\",model_name=\"{model}\"")
        }
        Flavour::Tgi | Flavour::Vllm => String::new(),
    }
}

fn join(first: &str, second: &str) -> String {
    if second.is_empty() { first.to_owned() } else { format!("{first},{second}") }
}

fn running(reading: &Reading) -> f64 {
    reading.load.running as f64
}

fn waiting(reading: &Reading) -> f64 {
    reading.load.waiting() as f64
}

fn usage(reading: &Reading) -> f64 {
    reading.load.kv_usage()
}

fn blocks(reading: &Reading) -> f64 {
    f64::from(reading.load.kv_blocks)
}

fn hit_rate(reading: &Reading) -> f64 {
    reading.stats.prefix_hits as f64 / reading.stats.prefix_queries.max(1) as f64
}
