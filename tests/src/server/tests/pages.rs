//! `/metrics` pages.

use std::collections::BTreeMap;

use super::*;
use crate::client::get;

const RECORDED: &str = include_str!("../../../fixtures/vllm-0.32/metrics.txt");

/// Family name to type, help and the label names of its first series.
fn families(page: &str) -> BTreeMap<String, (String, String, Vec<String>)> {
    let mut families: BTreeMap<String, (String, String, Vec<String>)> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            families.entry(name.to_owned()).or_default().1 = help.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            name.clone_into(&mut current);
            families.entry(name.to_owned()).or_default().0 = kind.to_owned();
        } else {
            let family = families.entry(current.clone()).or_default();
            if family.2.is_empty() {
                family.2 = label_names(line);
            }
        }
    }
    families
}

fn label_names(series: &str) -> Vec<String> {
    let Some((_, rest)) = series.split_once('{') else { return Vec::new() };
    let labels = rest.rsplit_once('}').unwrap().0.split("\",");
    labels.map(|label| label.split('=').next().unwrap().to_owned()).collect()
}

/// The value of a series.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(series)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

async fn page(server: &Simulated) -> String {
    look(server, "/metrics").await.text()
}

#[tokio::test]
async fn page_has_every_recorded_family_with_its_type_help_and_labels() {
    let adapters = vec![Adapter::new("lora-a")];
    let server = started(Options { adapters, ..Options::fast("test") }).await;
    ask(&server, CHAT, &chat(&json!({ "model": "lora-a" }))).await;
    let page = page(&server).await;
    let (ours, theirs) = (families(&page), families(RECORDED));
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (name, family) in &theirs {
        if name != "vllm:lora_requests_info" {
            assert_eq!(&ours[name], family, "{name}");
        }
    }
    assert!((45_000..75_000).contains(&page.len()), "{} bytes", page.len());
}

#[tokio::test]
async fn histograms_have_the_recorded_bounds() {
    let server = fast().await;
    let page = page(&server).await;
    let bounds = |page: &str| {
        let mut bounds: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in page.lines().filter(|line| line.starts_with("vllm:") && line.contains("le=")) {
            let name = line.split('{').next().unwrap().to_owned();
            let bound = line.split("le=\"").nth(1).unwrap().split('"').next().unwrap();
            bounds.entry(name).or_default().push(bound.to_owned());
        }
        bounds
    };
    assert_eq!(bounds(&page), bounds(RECORDED));
}

#[tokio::test]
async fn counters_tell_what_was_done() {
    let server = fast().await;
    for _ in 0..2 {
        ask(&server, CHAT, &chat(&json!({ "ignore_eos": true, "max_tokens": 40 }))).await;
    }
    let page = page(&server).await;
    assert!((value(&page, "vllm:generation_tokens_total") - 80.0).abs() < 0.1);
    let finished = "vllm:request_success_total{engine=\"0\",finished_reason=\"length\"";
    assert!((value(&page, finished) - 2.0).abs() < 0.1);
    assert!((value(&page, "vllm:time_to_first_token_seconds_count") - 2.0).abs() < 0.1);
    assert!(
        (value(&page, "http_requests_total{handler=\"/v1/chat/completions\"") - 2.0).abs() < 0.1
    );
}

#[tokio::test]
async fn each_rank_has_series_of_its_own() {
    let server = started(Options { ranks: 3, ..Options::fast("test") }).await;
    let page = page(&server).await;
    let series = page.lines().filter(|line| line.starts_with("vllm:num_requests_running{"));
    assert_eq!(series.count(), 3);
    assert!(page.contains("vllm:kv_cache_usage_perc{engine=\"2\",model_name=\"tiny\"} 0.0"));
}

#[tokio::test]
async fn other_engines_have_their_own_names() {
    let cases = [
        (Flavour::Sglang, "sglang:num_queue_reqs{"),
        (Flavour::Tgi, "tgi_queue_size 0.0"),
        (Flavour::TrtllmServe, "trtllm_num_requests_waiting{"),
        (Flavour::Triton, "nv_trt_llm_request_metrics{request_type=\"waiting\","),
    ];
    for (flavour, series) in cases {
        let server = started(Options { flavour, ..Options::fast("test") }).await;
        let page = page(&server).await;
        assert!(page.lines().any(|line| line.starts_with(series)), "{page}");
        let types = page.lines().filter(|line| line.starts_with("# TYPE "));
        let names: Vec<_> = types.collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), distinct.len(), "a family is described once: {names:?}");
    }
}

#[tokio::test]
async fn metrics_can_be_frozen_cut_and_refused() {
    let server = fast().await;
    let order = |metrics: MetricsFault| {
        server.set_failures(Failures { metrics, ..Failures::default() });
    };
    order(MetricsFault { frozen: true, ..MetricsFault::default() });
    let before = page(&server).await;
    ask(&server, CHAT, &chat(&json!({}))).await;
    assert_eq!(page(&server).await, before);
    order(MetricsFault::default());
    assert_ne!(page(&server).await, before);
    let missing = vec!["vllm:num_requests_waiting".to_owned()];
    order(MetricsFault { missing, ..MetricsFault::default() });
    let cut = page(&server).await;
    assert!(!cut.contains("vllm:num_requests_waiting{"));
    assert!(cut.contains("vllm:num_requests_waiting_by_reason{"));
    order(MetricsFault { status: Some(500), ..MetricsFault::default() });
    let refused = soon(once(server.addr(), &get("/metrics"))).await.unwrap();
    assert_eq!(refused.head.status, 500);
}
