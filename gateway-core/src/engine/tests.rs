//! Pages of real engines, and of the ones we have no capture of.

use super::*;
use crate::signals::Adapters;
use proptest::prelude::*;

const VLLM: &[u8] = include_bytes!("../../tests/fixtures/vllm-metrics.txt");
const SGLANG: &[u8] = include_bytes!("../../tests/fixtures/sglang-metrics.txt");
const LLAMACPP: &[u8] = include_bytes!("../../tests/fixtures/llamacpp-metrics.txt");

fn read(engine: Engine, page: &str) -> Signals {
    Mapping::of(engine).read(page.as_bytes(), None)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn a_real_vllm_page_is_read() {
    let signals = Mapping::of(Engine::Vllm).read(VLLM, Some("tiny"));
    let both = names(&["lora-a", "lora-b"]);
    let expected = Signals {
        waiting: Some(20.0),
        running: Some(4.0),
        kv_usage: Some(0.149_019_607_843_137_28),
        adapters: Some(Adapters { max: 2, running: both.clone(), waiting: both }),
        block_size: Some(32),
        blocks: Some(256),
        preemptions: Some(0.0),
    };
    assert_eq!(signals, expected);
    // One model on the page: a name it does not know makes no difference.
    assert_eq!(Mapping::of(Engine::Vllm).read(VLLM, Some("alias")), expected);
}

#[test]
fn real_sglang_and_llamacpp_pages_are_read() {
    let sglang = Mapping::of(Engine::Sglang).read(SGLANG, None);
    assert_eq!(
        (sglang.waiting, sglang.running, sglang.kv_usage),
        (Some(8.0), Some(4.0), Some(0.02))
    );
    assert_eq!((sglang.block_size, sglang.blocks), (Some(16), Some(1_024)));
    let llamacpp = Mapping::of(Engine::LlamaCpp).read(LLAMACPP, None);
    assert_eq!((llamacpp.waiting, llamacpp.running), (Some(16.0), Some(4.0)));
    assert_eq!(llamacpp.kv_usage, None);
}

#[test]
fn the_other_engines_names_are_known() {
    let tgi = read(Engine::Tgi, "tgi_queue_size 3\ntgi_batch_current_size 2\n");
    assert_eq!((tgi.waiting, tgi.running, tgi.kv_usage), (Some(3.0), Some(2.0), None));

    let trtllm = read(
        Engine::TrtllmServe,
        "trtllm_num_requests_waiting 1\ntrtllm_num_requests_running 2\ntrtllm_kv_cache_utilization 0.5\n\
         trtllm_kv_cache_tokens_per_block 64\ntrtllm_kv_cache_max_blocks 100\n",
    );
    assert_eq!((trtllm.waiting, trtllm.kv_usage), (Some(1.0), Some(0.5)));
    assert_eq!((trtllm.block_size, trtllm.blocks), (Some(64), Some(100)));

    let triton = read(
        Engine::TritonTensorrtLlm,
        "nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\",version=\"1\"} 7\n\
         nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\",version=\"1\"} 8\n\
         nv_trt_llm_request_metrics{model=\"m\",request_type=\"max\",version=\"1\"} 512\n\
         nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.25\n\
         nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} 32\n",
    );
    assert_eq!((triton.waiting, triton.running), (Some(7.0), Some(8.0)));
    assert_eq!((triton.kv_usage, triton.block_size, triton.blocks), (Some(0.25), Some(32), None));
}

#[test]
fn ranks_add_up_and_ratios_are_averaged() {
    let signals = read(
        Engine::Vllm,
        "vllm:num_requests_waiting{engine=\"0\"} 3\nvllm:num_requests_waiting{engine=\"1\"} 4\n\
         vllm:kv_cache_usage_perc{engine=\"0\"} 0.2\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.6\n",
    );
    assert_eq!(signals.waiting, Some(7.0));
    assert!((signals.kv_usage.unwrap() - 0.4).abs() < 1e-9);
    assert_eq!(signals.running, None);
}

#[test]
fn the_old_kv_name_counts_when_the_new_one_is_missing() {
    let old = "vllm:gpu_cache_usage_perc 0.3\n";
    assert_eq!(read(Engine::Vllm, old).kv_usage, Some(0.3));
    let both = format!("{old}vllm:kv_cache_usage_perc 0.5\n");
    assert_eq!(read(Engine::Vllm, &both).kv_usage, Some(0.5));
}

#[test]
fn rows_of_other_models_do_not_count() {
    let page = b"vllm:num_requests_waiting{model_name=\"a\"} 3\nvllm:num_requests_waiting{model_name=\"b\"} 40\n\
        vllm:num_requests_running 2\n";
    let of = |model| Mapping::of(Engine::Vllm).read(page, model);
    assert_eq!(of(Some("a")).waiting, Some(3.0));
    assert_eq!(of(Some("b")).waiting, Some(40.0));
    assert_eq!(of(Some("a")).running, Some(2.0));
    assert_eq!(of(Some("c")).waiting, None);
    assert_eq!(of(None).waiting, Some(43.0));
}

#[test]
fn nonsense_is_missing_and_voids_nothing_else() {
    for value in ["NaN", "+Inf", "-1", "x", ""] {
        let page = format!("vllm:num_requests_waiting {value}\nvllm:num_requests_running 2\n");
        let signals = read(Engine::Vllm, &page);
        assert_eq!((signals.waiting, signals.running), (None, Some(2.0)), "{value}");
    }
    assert_eq!(read(Engine::Vllm, ""), Signals::default());
}

#[test]
fn of_the_adapter_rows_the_newest_wins_in_any_order() {
    let mut rows = [
        "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"old\",waiting_lora_adapters=\"\"} 1.7e9",
        "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\" b , a,b\",waiting_lora_adapters=\"c\"} 1.8e9",
        "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"x\",waiting_lora_adapters=\"\"} NaN",
    ];
    let expected = Adapters { max: 4, running: names(&["a", "b"]), waiting: names(&["c"]) };
    for _ in 0..rows.len() {
        rows.rotate_left(1);
        assert_eq!(read(Engine::Vllm, &rows.join("\n")).adapters.as_ref(), Some(&expected));
    }
}

#[test]
fn resident_adapters_count_as_running() {
    let adapters = read(
        Engine::Vllm,
        "vllm:lora_adapter_loaded{adapter_name=\"a\",level=\"gpu\"} 1\n\
         vllm:lora_adapter_loaded{adapter_name=\"b\",level=\"cpu\"} 1\n\
         vllm:lora_adapter_loaded{adapter_name=\"c\",level=\"gpu\"} 0\nvllm:max_gpu_lora_adapters 8\n",
    );
    let expected = Adapters { max: 8, running: names(&["a"]), waiting: Vec::new() };
    assert_eq!(adapters.adapters, Some(expected));
}

#[test]
fn a_custom_mapping_reads_its_own_names() {
    let series = |text: &str| Some(text.parse::<Series>().unwrap());
    let mapping = Mapping::custom(CustomMapping {
        waiting: series("my_requests{state=waiting, zone=\"a\"}"),
        running: series("my_requests{state=\"running\"}"),
        ..CustomMapping::default()
    });
    let page = b"my_requests{state=\"waiting\",zone=\"a\"} 1\nmy_requests{state=\"waiting\",zone=\"b\"} 2\n\
        my_requests{state=\"running\"} 4\n";
    let signals = mapping.read(page, None);
    assert_eq!((signals.waiting, signals.running, signals.kv_usage), (Some(1.0), Some(4.0), None));
}

#[test]
fn a_malformed_series_is_refused() {
    for text in ["", "{a=b}", "na me", "1name", "name{a}", "name{a=b", "name{a=\"b}", "name{a:=b}"]
    {
        let error = text.parse::<Series>().unwrap_err();
        assert!(error.to_string().contains("write name or name{label=value}"), "{error}");
    }
}

#[test]
fn engines_are_known_by_name() {
    for engine in Engine::ALL {
        assert_eq!(engine.name().parse(), Ok(engine));
    }
    assert!(
        "ollama".parse::<Engine>().unwrap_err().to_string().contains("known engines: llamacpp, ")
    );
}

proptest! {
    #[test]
    fn a_cut_page_never_invents_a_signal(len in 0..VLLM.len()) {
        let signals = Mapping::of(Engine::Vllm).read(&VLLM[..len], None);
        prop_assert!([None, Some(4.0)].contains(&signals.running));
        prop_assert!(signals.kv_usage.is_none_or(|usage| (0.0..=1.0).contains(&usage)));
    }
}
