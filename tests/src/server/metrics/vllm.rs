//! vLLM's page.

use super::super::shared::{Shared, lock};
use super::super::unix_time;
use super::Reading;
use super::exposition::{created, histogram, series};
use crate::engine::FinishReason;
use crate::histogram::Histogram;

const TEMPLATE: &str = include_str!("vllm.txt");

pub(super) fn page(shared: &Shared, readings: &[Reading]) -> String {
    let mut page = String::with_capacity(72 * 1024);
    let mut help = "";
    let with_lora = note_adapters(shared, readings);
    for line in TEMPLATE.lines() {
        if line.contains(" vllm:lora_requests_info ") && !with_lora {
            continue; // only there when the server was started for adapters
        }
        page.push_str(line);
        page.push('\n');
        let words = line.splitn(4, ' ').collect::<Vec<_>>();
        match words.as_slice() {
            ["#", "HELP", _, text] => help = text,
            ["#", "TYPE", name, kind] => family(&mut page, shared, readings, name, kind, help),
            _ => {}
        }
    }
    page
}

fn note_adapters(shared: &Shared, readings: &[Reading]) -> bool {
    let adapters = lock(&shared.adapters);
    let loads = readings.iter().map(|reading| &reading.load);
    lock(&shared.lora_series).note(loads, &adapters, unix_time());
    !adapters.is_empty()
}

fn family(
    page: &mut String,
    shared: &Shared,
    readings: &[Reading],
    name: &str,
    kind: &str,
    help: &str,
) {
    let model = shared.options.models.first().map(String::as_str).unwrap_or_default();
    let model = format!("model_name=\"{model}\"");
    match name {
        "vllm:lora_requests_info" => {
            lock(&shared.lora_series).write(page, name, shared.options.engine.max_loras);
        }
        "vllm:cache_config_info" => cache_config(page, name, shared, readings),
        _ if name.starts_with("http_") => {
            lock(&shared.http).family(page, name, help, shared.created);
        }
        _ if !name.starts_with("vllm:") => {} // Python's, constant
        _ if kind == "histogram" => {
            for (engine, reading) in readings.iter().enumerate() {
                let engine = format!("engine=\"{engine}\"");
                histogram(page, name, (&engine, &model), distribution(reading, name));
            }
            let labels: Vec<String> =
                (0..readings.len()).map(|engine| format!("engine=\"{engine}\",{model}")).collect();
            created(page, name, help, &labels, shared.created);
        }
        _ => {
            let all = labelled(name, &model, readings.len());
            for (labels, variant, engine) in &all {
                series(page, name, labels, value(&readings[*engine], name, variant));
            }
            if kind == "counter" {
                let labels: Vec<String> = all.into_iter().map(|(labels, ..)| labels).collect();
                let name = name.strip_suffix("_total").unwrap_or(name);
                created(page, name, help, &labels, shared.created);
            }
        }
    }
}

/// Labels of a family's series, with the value of the family's own label and the engine.
fn labelled(name: &str, model: &str, engines: usize) -> Vec<(String, &'static str, usize)> {
    let mut all = Vec::new();
    for engine in 0..engines {
        let engine_label = format!("engine=\"{engine}\"");
        for variant in variants(name).1 {
            let own = format!("{}=\"{variant}\"", variants(name).0);
            let labels = match name {
                "vllm:admission_rejections_total" => format!("{model},{own}"),
                _ if variant.is_empty() => format!("{engine_label},{model}"),
                "vllm:request_success_total" => format!("{engine_label},{own},{model}"),
                _ => format!("{engine_label},{model},{own}"),
            };
            all.push((labels, *variant, engine));
        }
        if name == "vllm:admission_rejections_total" {
            break; // counted by the front, not by engine
        }
    }
    all
}

/// A family's own label and its values.
fn variants(name: &str) -> (&'static str, &'static [&'static str]) {
    match name {
        "vllm:num_requests_waiting_by_reason" => ("reason", &["capacity", "deferred"]),
        "vllm:engine_sleep_state" => {
            ("sleep_state", &["awake", "weights_offloaded", "discard_all"])
        }
        "vllm:prompt_tokens_by_source_total" => {
            ("source", &["local_compute", "local_cache_hit", "external_kv_transfer"])
        }
        "vllm:prompt_tokens_cached_by_source_total" => {
            ("source", &["device", "host", "p2p", "disk", "external_unspecified"])
        }
        "vllm:request_success_total" => {
            ("finished_reason", &["stop", "length", "abort", "error", "repetition"])
        }
        "vllm:admission_rejections_total" => {
            ("reason", &["max_num_queued_reqs", "max_num_queued_tokens"])
        }
        _ => ("", &[""]),
    }
}

fn value(reading: &Reading, name: &str, variant: &str) -> f64 {
    let Reading { load, stats, latencies } = reading;
    let finished = |reason| latencies.finished.get(&reason).copied().unwrap_or(0);
    let total = match (name, variant) {
        ("vllm:num_requests_running", _) => load.running as u64,
        ("vllm:num_requests_waiting", _) => load.waiting() as u64,
        ("vllm:num_requests_waiting_by_reason", "capacity") => load.waiting_for_capacity as u64,
        ("vllm:num_requests_waiting_by_reason", _) => load.waiting_deferred as u64,
        ("vllm:engine_sleep_state", "awake") => 1,
        ("vllm:kv_cache_usage_perc", _) => return load.kv_usage(),
        ("vllm:prefix_cache_queries_total", _) => stats.prefix_queries,
        ("vllm:prefix_cache_hits_total" | "vllm:prompt_tokens_cached_total", _)
        | ("vllm:prompt_tokens_by_source_total", "local_cache_hit")
        | ("vllm:prompt_tokens_cached_by_source_total", "device") => stats.prefix_hits,
        ("vllm:prompt_tokens_by_source_total", "local_compute") => {
            stats.prefix_queries - stats.prefix_hits
        }
        ("vllm:num_preemptions_total", _) => stats.preemptions,
        ("vllm:prompt_tokens_total", _) => latencies.prompt_total,
        ("vllm:generation_tokens_total", _) => stats.generation_tokens,
        ("vllm:request_success_total", "stop") => finished(FinishReason::Stop),
        ("vllm:request_success_total", "length") => finished(FinishReason::Length),
        ("vllm:request_success_total", "abort") => stats.aborted,
        _ => 0,
    };
    total as f64
}

fn distribution<'a>(reading: &'a Reading, name: &str) -> &'a Histogram {
    let latencies = &reading.latencies;
    match name {
        "vllm:request_prompt_tokens" => &latencies.prompt_tokens,
        "vllm:request_generation_tokens" => &latencies.generation_tokens,
        "vllm:iteration_tokens_total" => &reading.stats.step_tokens,
        "vllm:request_max_num_generation_tokens" | "vllm:request_params_max_tokens" => {
            &latencies.max_tokens
        }
        "vllm:request_params_n" => &latencies.choices,
        "vllm:time_to_first_token_seconds" => &latencies.first_token,
        "vllm:inter_token_latency_seconds" => &latencies.inter_token,
        "vllm:request_time_per_output_token_seconds" => &latencies.per_output_token,
        "vllm:e2e_request_latency_seconds" => &latencies.whole,
        "vllm:request_queue_time_seconds" => &latencies.queue,
        "vllm:request_inference_time_seconds" => &latencies.inference,
        "vllm:request_prefill_time_seconds" => &latencies.prefill,
        "vllm:request_decode_time_seconds" => &latencies.decode,
        "vllm:request_num_preemptions" => &latencies.preemptions,
        _ => &latencies.computed_tokens, // request_prefill_kv_computed_tokens
    }
}

fn cache_config(page: &mut String, name: &str, shared: &Shared, readings: &[Reading]) {
    let size = shared.options.engine.block_size;
    let overridden = match shared.options.engine.kv_blocks {
        Some(blocks) => blocks.to_string(),
        None => "None".to_owned(),
    };
    for (engine, reading) in readings.iter().enumerate() {
        let blocks = reading.load.kv_blocks;
        let tokens = u64::from(blocks) * u64::from(size);
        let concurrency = tokens as f64 / f64::from(shared.options.context_length().max(1));
        let labels = format!(
            "_block_size_resolved=\"True\",block_size=\"{size}\",cache_dtype=\"auto\",\
             cache_hit_alignment_tokens=\"None\",effective_attention_block_size=\"{size}\",\
             enable_mamba_shared_prefix_checkpoint=\"False\",enable_prefix_caching=\"True\",\
             engine=\"{engine}\",gpu_memory_utilization=\"0.92\",hash_block_size=\"None\",\
             is_attention_free=\"False\",kv_cache_dtype_skip_layers=\"[]\",\
             kv_cache_layout=\"None\",kv_cache_max_concurrency=\"{concurrency:?}\",\
             kv_cache_memory_bytes=\"None\",kv_cache_size_tokens=\"{tokens}\",\
             kv_offloading_backend=\"native\",kv_offloading_size=\"None\",\
             kv_sharing_fast_prefill=\"False\",mamba_block_size=\"None\",\
             mamba_cache_dtype=\"auto\",mamba_cache_mode=\"none\",\
             mamba_page_size_padded=\"None\",mamba_ssm_cache_dtype=\"float32\",\
             num_cpu_blocks=\"None\",num_gpu_blocks=\"{blocks}\",\
             num_gpu_blocks_override=\"{overridden}\",prefix_cache_retention_interval=\"0\",\
             prefix_caching_hash_algo=\"sha256\",prefix_match_unit=\"None\",\
             replayssm_buffer_len=\"16\",skip_page_size_padded=\"None\",\
             sliding_window=\"None\",swa_bounded_replay=\"True\",use_kda_recoverssm=\"False\",\
             use_replayssm=\"False\",user_specified_block_size=\"True\""
        );
        series(page, name, &labels, 1.0);
    }
}
