//! `weighted` equals the extension on the same inputs.

use super::*;
use crate::policy::Weights;
use crate::pool::Verdict;
use crate::signals::Adapters;

fn totals(world: &World, request: &RequestView<'_>) -> Vec<f64> {
    let explanation = world.pool.explain(request, world.now);
    let total = |verdict: &Verdict| match verdict {
        Verdict::Rated { total, .. } => *total,
        Verdict::Dropped(name) => panic!("dropped: {name}"),
    };
    explanation.endpoints.iter().map(|endpoint| total(&endpoint.verdict)).collect()
}

fn weights(weights: Weights) -> PoolSettings {
    PoolSettings { policy: PolicySettings::Weighted(weights), ..PoolSettings::default() }
}

const ZERO: Weights = Weights {
    queue: 0.0,
    kv_cache: 0.0,
    prefix: 0.0,
    running_requests: 0.0,
    lora_affinity: 0.0,
    no_hit_lru: 0.0,
    token_load: 0.0,
    predicted_latency: 0.0,
    session_affinity: 0.0,
};

#[test]
fn the_default_is_two_two_three_of_queue_cache_and_prefix() {
    let mut world = World::with_policy(3, "weighted");
    for (index, signals) in
        [load(0.0, 9.0, 0.5), load(2.0, 9.0, 0.25), load(8.0, 9.0, 0.0)].iter().enumerate()
    {
        world.observe(index, signals);
    }
    let prompt: Vec<u64> = (1..=8).collect();
    world.pool.prefixes.insert(1, &prompt[..4]);
    world.pool.prefixes.insert(2, &prompt[..2]);
    // 2·1 + 2·0.5 + 3·0; 2·0.75 + 2·0.75 + 3·0.5; 2·0 + 2·1 + 3·0.25
    assert_eq!(totals(&world, &blocks(&prompt)), [3.0, 4.5, 2.75]);
    assert_eq!(world.touch(&blocks(&prompt)), 1);
}

#[test]
fn equal_queues_all_score_one() {
    let mut world = World::with_policy(2, "weighted");
    world.observe(0, &load(7.0, 0.0, 0.5));
    world.observe(1, &load(7.0, 0.0, 0.5));
    assert_eq!(totals(&world, &prompt(10)), [3.0, 3.0]);
}

#[test]
fn an_endpoint_without_a_queue_metric_is_neither_idle_nor_lost() {
    let mut world = World::with_policy(3, "weighted");
    world.observe(0, &load(0.0, 0.0, 0.5));
    world.observe(1, &load(4.0, 0.0, 0.5));
    world.observe(2, &Signals { kv_usage: Some(0.5), ..Signals::default() });
    assert_eq!(totals(&world, &prompt(10)), [3.0, 1.0, 2.0]);
}

#[test]
fn an_endpoint_without_a_cache_metric_scores_half_there() {
    let mut world = World::with_policy(2, "weighted");
    world.observe(0, &Signals { kv_usage: None, ..load(0.0, 0.0, 0.0) });
    world.observe(1, &load(0.0, 0.0, 0.9));
    let totals = totals(&world, &prompt(10));
    assert_eq!(totals[0], 3.0);
    assert!((totals[1] - 2.2).abs() < 1e-12);
}

#[test]
fn engines_without_any_metric_are_told_apart_by_own_requests() {
    let mut world = World::with_policy(2, "weighted");
    for index in 0..2 {
        world.observe(index, &Signals::default());
    }
    let (busy, lease) = world.send(&prompt(10));
    assert_eq!(world.shares(20, &prompt(10))[busy], 0);
    world.finish(lease);
}

#[test]
fn nonsense_signals_are_missing_not_idle() {
    let mut world = World::with_policy(1, "weighted");
    for nonsense in [f64::NAN, f64::INFINITY, -1.0] {
        world.observe(0, &load(nonsense, nonsense, nonsense));
        let row = &world.pool.rows[0];
        assert_eq!((row.waiting, row.running, row.kv_usage), (None, None, None));
    }
}

#[test]
fn running_requests_scores_like_the_queue() {
    let mut world = World::new(3, weights(Weights { running_requests: 4.0, ..ZERO }));
    for (index, running) in [10.0, 30.0, 15.0].into_iter().enumerate() {
        world.observe(index, &load(0.0, running, 0.0));
    }
    assert_eq!(totals(&world, &prompt(10)), [4.0, 0.0, 3.0]);
}

#[test]
fn adapters_score_in_the_extensions_tiers() {
    let mut world = World::new(4, weights(Weights { lora_affinity: 1.0, ..ZERO }));
    let adapters = |running: &[&str], waiting: &[&str]| Signals {
        adapters: Some(Adapters {
            max: 2,
            running: running.iter().map(ToString::to_string).collect(),
            waiting: waiting.iter().map(ToString::to_string).collect(),
        }),
        ..load(0.0, 0.0, 0.0)
    };
    world.observe(0, &adapters(&["sql", "x"], &[]));
    world.observe(1, &adapters(&["x"], &[]));
    world.observe(2, &adapters(&["x"], &["sql"]));
    world.observe(3, &adapters(&["x", "y"], &[]));
    let request = RequestView { adapter: Some("sql"), ..prompt(10) };
    assert_eq!(totals(&world, &request), [1.0, 0.8, 0.6, 0.0]);
    assert_eq!(totals(&world, &prompt(10)), [1.0; 4]);
}

#[test]
fn cold_requests_go_round_by_least_recent_use() {
    let mut world = World::new(3, weights(Weights { no_hit_lru: 1.0, ..ZERO }));
    let order: Vec<_> = (0..6_u64).map(|miss| world.touch(&blocks(&[100 + miss]))).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    assert_eq!(totals(&world, &blocks(&[100])), [0.5; 3], "a hit makes all equal");
}

#[test]
fn the_session_scores_at_its_endpoint() {
    let mut world = World::new(3, weights(Weights { session_affinity: 1.0, ..ZERO }));
    let request = RequestView { session: Some(5), ..prompt(10) };
    let home = world.touch(&request);
    let mut expected = [0.0; 3];
    expected[home] = 1.0;
    assert_eq!(totals(&world, &request), expected);
}

#[test]
fn token_load_counts_tokens_in_flight_and_own() {
    let mut world = World::new(1, weights(Weights { token_load: 1.0, ..ZERO }));
    let (_, lease) = world.send(&prompt(1_048_576));
    assert_eq!(totals(&world, &prompt(1_048_576)), [0.5]);
    world.finish(lease);
}
