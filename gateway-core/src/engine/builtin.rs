//! Metric names of the engines we know.
//!
//! Sources: the engines' own pages (vLLM 0.32, SGLang 0.5.23, llama.cpp b11434) and
//! the model server protocol of the Gateway API inference extension.

use super::{CacheInfo, Engine, Series, Signal, Source};

/// Name, labels and meaning of the series of an engine.
pub(super) fn sources(engine: Engine) -> Vec<Source> {
    match engine {
        Engine::LlamaCpp => llamacpp(),
        Engine::Sglang => sglang(),
        Engine::Tgi => tgi(),
        Engine::TrtllmServe => trtllm_serve(),
        Engine::Triton => triton(),
        Engine::TritonTensorrtLlm => triton_tensorrt_llm(),
        Engine::Vllm => vllm(),
    }
}

fn plain(name: &str, signal: Signal) -> Source {
    Source { series: Series { name: name.to_owned(), labels: Vec::new() }, signal }
}

fn labelled(name: &str, label: &str, value: &str, signal: Signal) -> Source {
    let labels = vec![(label.to_owned(), value.to_owned())];
    Source { series: Series { name: name.to_owned(), labels }, signal }
}

fn cache_info(name: &str, block_size: &str, blocks: &str) -> Source {
    let labels =
        CacheInfo { block_size_label: block_size.to_owned(), blocks_label: blocks.to_owned() };
    plain(name, Signal::CacheInfo(labels))
}

fn vllm() -> Vec<Source> {
    vec![
        plain("vllm:num_requests_waiting", Signal::Waiting),
        plain("vllm:num_requests_running", Signal::Running),
        plain("vllm:kv_cache_usage_perc", Signal::KvUsage),
        // The name before vLLM 0.9.
        plain("vllm:gpu_cache_usage_perc", Signal::OldKvUsage),
        plain("vllm:lora_requests_info", Signal::LoraRequests),
        plain("vllm:lora_adapter_loaded", Signal::LoraLoaded),
        plain("vllm:max_gpu_lora_adapters", Signal::LoraMax),
        cache_info("vllm:cache_config_info", "block_size", "num_gpu_blocks"),
        plain("vllm:num_preemptions_total", Signal::Preemptions),
    ]
}

fn sglang() -> Vec<Source> {
    vec![
        plain("sglang:num_queue_reqs", Signal::Waiting),
        plain("sglang:num_running_reqs", Signal::Running),
        plain("sglang:token_usage", Signal::KvUsage),
        plain("sglang:page_size", Signal::BlockSize),
        plain("sglang:num_pages", Signal::Blocks),
        // Instead of those two before SGLang 0.5.
        cache_info("sglang:cache_config_info", "page_size", "num_pages"),
    ]
}

/// TGI tells nothing of its KV cache.
fn tgi() -> Vec<Source> {
    vec![plain("tgi_queue_size", Signal::Waiting), plain("tgi_batch_current_size", Signal::Running)]
}

fn trtllm_serve() -> Vec<Source> {
    vec![
        plain("trtllm_num_requests_waiting", Signal::Waiting),
        plain("trtllm_num_requests_running", Signal::Running),
        plain("trtllm_kv_cache_utilization", Signal::KvUsage),
        plain("trtllm_kv_cache_tokens_per_block", Signal::BlockSize),
        plain("trtllm_kv_cache_max_blocks", Signal::Blocks),
    ]
}

fn triton_tensorrt_llm() -> Vec<Source> {
    const REQUESTS: &str = "nv_trt_llm_request_metrics";
    const CACHE: &str = "nv_trt_llm_kv_cache_block_metrics";
    vec![
        labelled(REQUESTS, "request_type", "waiting", Signal::Waiting),
        labelled(REQUESTS, "request_type", "scheduled", Signal::Running),
        labelled(CACHE, "kv_cache_block_type", "fraction", Signal::KvUsage),
        labelled(CACHE, "kv_cache_block_type", "tokens_per", Signal::BlockSize),
        labelled(CACHE, "kv_cache_block_type", "max", Signal::Blocks),
    ]
}

/// The extension takes `nv_inference_exec_count` for running requests. It counts
/// executions since the start and only grows, so it is left out.
fn triton() -> Vec<Source> {
    vec![plain("nv_inference_pending_request_count", Signal::Waiting)]
}

fn llamacpp() -> Vec<Source> {
    vec![
        plain("llamacpp:requests_deferred", Signal::Waiting),
        plain("llamacpp:requests_processing", Signal::Running),
        plain("llamacpp:kv_cache_usage_ratio", Signal::KvUsage),
    ]
}
