//! How requests spread over equal endpoints.

use anyhow::Result;
use gateway_tests::client::{once, post};
use gateway_tests::gateway::Gateway;
use gateway_tests::server::{AnswerFault, Failures};
use gateway_tests::wait::{eventually, soon};

use super::ask::{
    CHAT, Stopped, ask, chat, chat_body, endpoint, engines, fail, held, over, send, shares, spread,
    start_again, stop,
};

// R6
#[tokio::test]
async fn round_robin_is_uniform() -> Result<()> {
    let engines = engines(5).await?;
    let gateway = over(&engines, "  policy: round_robin\n").await?;
    let spread = spread(&gateway, 50).await?;
    assert_eq!(spread.into_values().collect::<Vec<_>>(), [10; 5]);
    gateway.idle().await;
    Ok(())
}

// R6, R5
#[tokio::test]
async fn no_endpoint_of_equals_starves_under_any_policy() -> Result<()> {
    let engines = engines(3).await?;
    let policies =
        ["predicted", "weighted", "random", "least_request", "power_of_two", "round_robin"];
    for policy in policies {
        let gateway = over(&engines, &format!("  policy: {policy}\n")).await?;
        engines.iter().for_each(|engine| fail(engine, AnswerFault::HangBeforeHead));
        let held = held(&gateway, &engines, 36).await?;
        assert!(held.iter().all(|&count| (1..=30).contains(&count)), "{policy}: {held:?}");
        engines.iter().for_each(|engine| engine.set_failures(Failures::default()));
    }
    Ok(())
}

// R5: gateways that see the same picture.
#[tokio::test]
async fn replicas_do_not_all_pick_the_same_endpoint() -> Result<()> {
    let engines = engines(4).await?;
    let mut picked = std::collections::BTreeSet::new();
    for _ in 0..12 {
        let gateway = over(&engines, "").await?;
        picked.insert(endpoint(&ask(&gateway, &chat("the same for all")).await?).to_owned());
    }
    assert!(picked.len() > 1, "{picked:?}");
    Ok(())
}

// R2, R3: load counts on every route, known to the gateway or not.
#[tokio::test]
async fn requests_in_flight_count_on_every_route() -> Result<()> {
    let engines = engines(4).await?;
    for engine in &engines {
        fail(engine, AnswerFault::HangBeforeHead);
    }
    let gateway = over(&engines, "  policy: least_request\n").await?;
    let score = r#"{"model":"tiny","text_1":"a","text_2":"b"}"#;
    let embed = r#"{"model":"tiny","input":"a"}"#;
    let chat = chat_body("tiny", "a");
    let mut waiting = Vec::new();
    for _ in 0..4 {
        for (path, body) in [("/v1/score", score), ("/v1/embeddings", embed), (CHAT, &*chat)] {
            waiting.push(send(&gateway, &post(path, body)).await?);
            let sent = waiting.len() as u64;
            eventually(|| shares(&engines).iter().sum::<u64>() == sent).await;
        }
    }
    assert_eq!(shares(&engines), [3; 4]);
    drop(waiting);
    gateway.idle().await;
    Ok(())
}

// R13
#[tokio::test]
async fn pools_take_their_turns_by_themselves() -> Result<()> {
    let engines = engines(4).await?;
    let url = |index: usize| engines[index].url();
    let gateway = Gateway::start(&format!(
        "listen: [\"127.0.0.1:0\"]\nadmin: {{ listen: \"127.0.0.1:0\" }}\nauth: none\n\
         log: {{ access: off }}\npools:\n\
         - {{ name: a, aliases: [one], modelName: tiny, policy: round_robin, endpoints: [\"{}\", \"{}\"] }}\n\
         - {{ name: b, modelName: two, policy: round_robin, endpoints: [\"{}\", \"{}\"] }}\n",
        url(0),
        url(1),
        url(2),
        url(3)
    ))?;
    gateway.serving(4).await;
    for _ in 0..6 {
        assert_eq!(ask(&gateway, &post(CHAT, &chat_body("one", "hi"))).await?.head.status, 200);
        // These engines do not know the model, and say so; it counts all the same.
        assert_eq!(ask(&gateway, &post(CHAT, &chat_body("two", "hi"))).await?.head.status, 404);
    }
    assert_eq!(shares(&engines), [3; 4]);
    gateway.idle().await;
    Ok(())
}

// R1: a worker that comes back empty.
#[tokio::test]
async fn an_endpoint_that_comes_back_empty_does_not_get_every_miss() -> Result<()> {
    let engines = engines(4).await?;
    let gateway = over(&engines, "").await?;
    spread(&gateway, 40).await?;
    let Stopped { addr, mut others } = stop(engines, 0);
    gateway.serving(3).await;
    others.push(start_again(addr).await);
    gateway.serving(4).await;
    others.iter().for_each(|engine| fail(engine, AnswerFault::HangBeforeHead));
    let held = held(&gateway, &others, 40).await?;
    // Not equal shares: the one that came back has been silent for less long.
    let some = held.iter().all(|share| (1..=20).contains(share));
    assert!(some, "40 requests went as {held:?}; the last is the one that came back");
    gateway.idle().await;
    Ok(())
}

// R24: an engine version that lacks a metric.
#[tokio::test]
async fn an_endpoint_that_lacks_a_metric_is_routed_to() -> Result<()> {
    let engines = engines(2).await?;
    let mut failures = Failures::default();
    failures.metrics.missing = vec!["vllm:num_requests_waiting".to_owned()];
    failures.answers = Some(AnswerFault::HangBeforeHead);
    engines[0].set_failures(failures);
    fail(&engines[1], AnswerFault::HangBeforeHead);
    for policy in ["predicted", "weighted"] {
        let gateway = over(&engines, &format!("  policy: {policy}\n")).await?;
        let held = held(&gateway, &engines, 20).await?;
        assert!(held.iter().all(|&count| count > 0), "{policy}: {held:?}");
        let state = super::ask::state(&gateway, &engines[0]).await?;
        assert!(state["waiting"].is_null(), "missing is not zero: {state}");
        assert!(state["running"].is_number() && state["kv_usage"].is_number(), "{state}");
        gateway.idle().await;
    }
    Ok(())
}

// R9
#[tokio::test]
async fn health_probes_leave_load_counters_alone() -> Result<()> {
    let engines = engines(2).await?;
    let health = "  policy: least_request\n  health: { interval: 10ms }\n";
    let gateway = over(&engines, health).await?;
    fail(&engines[0], AnswerFault::HangBeforeHead);
    fail(&engines[1], AnswerFault::HangBeforeHead);
    let mut held = Vec::new();
    for number in 0..4 {
        held.push(send(&gateway, &chat("held")).await?);
        eventually(|| gateway.in_flight().0 == number + 1).await;
    }
    let probes = |index: usize| {
        let requests = engines[index].requests();
        requests.iter().filter(|request| request.head.path() == "/health").count()
    };
    let before = probes(0).max(probes(1));
    eventually(|| probes(0).min(probes(1)) >= before + 20).await;
    assert_eq!(gateway.in_flight().0, 4);
    assert_eq!(shares(&engines), [2, 2]);
    drop(held);
    gateway.idle().await;
    Ok(())
}

// R26, as far as a person sees it.
#[tokio::test]
async fn a_large_fleet_is_listed_in_no_time() -> Result<()> {
    let endpoints: String =
        (0..4000).map(|n| format!("  - 127.9.{}.{}:9\n", n / 250, n % 250 + 1)).collect();
    let gateway = Gateway::start(&format!(
        "listen: [\"127.0.0.1:0\"]\nadmin: {{ listen: \"127.0.0.1:0\" }}\nauth: none\n\
         log: {{ access: off }}\npools:\n- name: p\n  modelName: tiny\n  metrics: off\n  health: off\n  \
         endpoints:\n{endpoints}"
    ))?;
    let mut fastest = std::time::Duration::MAX;
    for _ in 0..10 {
        let start = std::time::Instant::now();
        let listed =
            soon(once(gateway.admin(), &gateway_tests::client::get("/status.json"))).await?;
        fastest = fastest.min(start.elapsed());
        assert_eq!(listed.json()["pools"][0]["endpoints"].as_array().map(Vec::len), Some(4000));
    }
    assert!(fastest.as_millis() < 400, "{fastest:?}, in an unoptimised build");
    Ok(())
}
