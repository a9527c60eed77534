//! What is counted, and what ties a request to its traces.

use anyhow::Result;
use gateway_tests::client::post;
use serde_json::Value;

use super::ask::{
    CHAT, ask, chat, chat_body, chat_with, endpoint, engines, fail, metric_becomes, over, send,
    spread, status, stream_body,
};

// The inference extension's names, for dashboards that exist; O3.
#[tokio::test]
async fn the_extensions_names_are_on_the_page_with_buckets_up_to_an_hour() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "").await?;
    let answer = ask(&gateway, &post(CHAT, &stream_body("hi", 20))).await?;
    assert_eq!(answer.head.status, 200);
    gateway.idle().await;
    let model = r#"model_name="tiny",target_model_name="tiny""#;
    let seconds = "inference_objective_request_duration_seconds";
    metric_becomes(&gateway, &format!("{seconds}_count{{{model}}}"), 1.0).await?;
    let page = gateway.ask("/metrics").await?.text();
    let series = [
        "inference_objective_request_total{model_name=\"tiny\",priority=\"0\",target_model_name=\"tiny\"} 1".to_string(),
        format!("{seconds}_bucket{{{model},le=\"3600\"}} 1"),
        format!("inference_objective_request_ttft_seconds_count{{{model}}} 1"),
        format!("inference_objective_normalized_time_per_output_token_seconds_count{{{model}}} 1"),
        format!("inference_objective_request_sizes_count{{{model}}} 1"),
        format!("inference_objective_response_sizes_count{{{model}}} 1"),
        "inference_objective_running_requests{model_name=\"tiny\"} 0".to_owned(),
        "inference_pool_ready_pods{name=\"p\"} 1".to_owned(),
        "inference_pool_average_kv_cache_utilization{name=\"p\"}".to_owned(),
        "inference_pool_average_queue_size{name=\"p\"}".to_owned(),
        format!(
            "inference_pool_per_pod_queue_size{{model_server_pod=\"{}\",name=\"p\"}}",
            engines[0].addr()
        ),
        "inference_extension_scheduler_e2e_duration_seconds_count 1".to_owned(),
    ];
    for wanted in series {
        assert!(page.contains(&wanted), "{wanted} is not on the page");
    }
    Ok(())
}

// R18: a hot spot can be seen.
#[tokio::test]
async fn the_share_of_each_endpoint_can_be_read() -> Result<()> {
    let engines = engines(3).await?;
    let gateway = over(&engines, "  policy: round_robin\n").await?;
    spread(&gateway, 12).await?;
    for engine in &engines {
        let picks =
            format!(r#"inference_gateway_picks_total{{endpoint="{}",pool="p"}}"#, engine.addr());
        assert_eq!(gateway.metric(&picks).await?, 4.0);
    }
    Ok(())
}

// O5
#[tokio::test]
async fn every_request_is_counted_once_by_how_it_ended() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "  modelName: tiny\n  retry: off\n  ejection: off\n").await?;
    let outcome = |name: &str| {
        format!(r#"inference_gateway_requests_total{{model="tiny",outcome="{name}",pool="p"}}"#)
    };
    ask(&gateway, &chat("hi")).await?;
    metric_becomes(&gateway, &outcome("ok"), 1.0).await?;
    fail(&engines[0], status(400));
    ask(&gateway, &chat("hi")).await?;
    metric_becomes(&gateway, &outcome("client-error"), 1.0).await?;
    fail(&engines[0], status(500));
    ask(&gateway, &chat("hi")).await?;
    metric_becomes(&gateway, &outcome("upstream-error"), 1.0).await?;
    fail(&engines[0], gateway_tests::server::AnswerFault::HangAfterChunks { chunks: 1 });
    let mut client = send(&gateway, &post(CHAT, &stream_body("hi", 20))).await?;
    client.head().await?;
    drop(client);
    metric_becomes(&gateway, &outcome("cancelled"), 1.0).await?;
    fail(&engines[0], gateway_tests::server::AnswerFault::CloseBeforeHead);
    ask(&gateway, &chat("hi")).await?;
    metric_becomes(&gateway, &outcome("upstream-closed"), 1.0).await?;
    let local = |name: &str| format!(r#"inference_gateway_local_replies_total{{reason="{name}"}}"#);
    assert_eq!(gateway.metric(&local("upstream-closed")).await?, 1.0);
    ask(&gateway, &post(CHAT, "{\"model\":")).await?;
    metric_becomes(&gateway, &local("invalid-body"), 1.0).await?;
    let page = gateway.ask("/metrics").await?.text();
    let total: f64 = page
        .lines()
        .filter(|line| line.starts_with("inference_gateway_requests_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert_eq!(total, 5.0);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn tokens_are_counted_as_the_engine_counts_them() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "").await?;
    let usage = ask(&gateway, &chat("how many tokens are in this?")).await?.json()["usage"].clone();
    let mut streamed: Value = serde_json::from_str(&stream_body("and in this?", 33))?;
    streamed["stream_options"] = serde_json::json!({ "include_usage": true });
    ask(&gateway, &post(CHAT, &streamed.to_string())).await?;
    // Without usage in the stream, events are what there is to count.
    ask(&gateway, &post(CHAT, &stream_body("or here?", 21))).await?;
    let tokens = |kind: &str| {
        format!(r#"inference_gateway_tokens_total{{kind="{kind}",model="tiny",pool="p"}}"#)
    };
    let output = usage["completion_tokens"].as_f64().unwrap_or_default() + 33.0 + 21.0;
    metric_becomes(&gateway, &tokens("output"), output).await?;
    assert!(gateway.metric(&tokens("prompt")).await? > usage["prompt_tokens"].as_f64().unwrap());
    gateway.idle().await;
    Ok(())
}

// O6, B17
#[tokio::test]
async fn trace_context_and_request_id_are_passed_on_and_are_independent() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "").await?;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("traceparent", trace), ("tracestate", "a=1"), ("baggage", "b=2")];
    let answer = ask(&gateway, &chat_with(&headers, "hi")).await?;
    let sent = engines[0].inference_requests().remove(0).head;
    assert_eq!(sent.text("traceparent"), trace);
    assert_eq!((sent.text("tracestate"), sent.text("baggage")), ("a=1", "b=2"));
    let id = answer.head.header("x-request-id").unwrap_or_default();
    assert!(!id.is_empty() && !trace.contains(id));
    assert_eq!(sent.text("x-request-id"), id);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn a_request_id_is_the_clients_by_order_of_headers_or_a_new_one() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "").await?;
    let cases: [(&[(&str, &str)], &str); 4] = [
        (&[("X-Request-ID", "a")], "a"),
        (&[("x-correlation-id", "b"), ("x-request-id", "a")], "a"),
        (&[("request-id", "d"), ("x-trace-id", "c")], "c"),
        (&[("request-id", "d")], "d"),
    ];
    for (headers, expected) in cases {
        let answer = ask(&gateway, &chat_with(headers, "hi")).await?;
        assert_eq!(answer.head.header("x-request-id"), Some(expected), "{headers:?}");
        let sent = engines[0].inference_requests().pop().unwrap().head;
        assert_eq!(sent.text("x-request-id"), expected);
    }
    let fresh = async || {
        let answer = ask(&gateway, &chat("hi")).await?;
        anyhow::Ok(answer.head.header("x-request-id").unwrap_or_default().to_owned())
    };
    let (one, two) = (fresh().await?, fresh().await?);
    assert!(one.len() >= 8 && one != two, "{one} {two}");
    // An answer of the gateway's own has one, too.
    let refused =
        ask(&gateway, &chat_with(&[("x-request-id", "r"), ("content-encoding", "br")], "hi"))
            .await?;
    assert_eq!((refused.head.status, refused.head.header("x-request-id")), (415, Some("r")));
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn names_that_clients_make_up_do_not_fill_the_page() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "").await?;
    let mut client = gateway_tests::client::RawClient::connect(gateway.addr()).await?;
    for number in 0..1100 {
        let request = post(CHAT, &chat_body(&format!("made up {number}"), "hi"));
        assert_eq!(client.exchange(&request).await?.head.status, 404);
    }
    let page = gateway.ask("/metrics").await?.text();
    let totals = page.lines().filter(|line| line.starts_with("inference_objective_request_total{"));
    let totals = totals.count();
    assert!(totals <= 1001, "{totals} series");
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn only_whoever_asks_for_it_learns_the_endpoint() -> Result<()> {
    let engines = engines(1).await?;
    let quiet =
        gateway_tests::gateway::pool_config(&[&engines[0]], "").replace("debugHeaders: true\n", "");
    let gateway = gateway_tests::gateway::Gateway::start(&quiet)?;
    gateway.serving(1).await;
    let answer = ask(&gateway, &chat("hi")).await?;
    assert_eq!((answer.head.status, endpoint(&answer)), (200, ""));
    gateway.idle().await;
    Ok(())
}
