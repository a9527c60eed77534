//! Decisions worked out by hand.

mod smg;

use std::sync::Arc;

use fastrand::Rng;
use gateway_core::signals::Adapters;
use gateway_core::{Signals, Time};

use super::*;
use crate::engine::{EngineRequest, Settings};
use crate::lab::policy::{Decision, Policy, Seen, Setup};
use crate::lab::request::LabRequest;
use crate::lab::scenario::EngineSpec;
use crate::profile::{Gpu, Model, Profile};

/// A prompt of 16 tokens per block.
fn prompt(blocks: &[u64]) -> Arc<LabRequest> {
    let engine = EngineRequest {
        prompt_tokens: blocks.len() as u32 * 16,
        block_hashes: blocks.to_vec(),
        ..EngineRequest::default()
    };
    Arc::new(LabRequest { engine, ..LabRequest::default() })
}

fn seen(waiting: f64, kv_usage: f64) -> Seen {
    let signals =
        Signals { waiting: Some(waiting), kv_usage: Some(kv_usage), ..Signals::default() };
    Seen { signals: Some(Arc::new(signals)), ready: true, ..Seen::default() }
}

fn busy(in_flight: u32) -> Seen {
    Seen { in_flight, ready: true, ..Seen::default() }
}

fn asked(request: &Arc<LabRequest>) -> Asked<'_> {
    Asked { number: 0, request, tried: &[] }
}

fn sight(endpoints: &[Seen]) -> Sight<'_> {
    Sight { now: Time::ZERO, endpoints, truth: &[] }
}

fn with_fleet<P>(endpoints: usize, start: impl FnOnce(&Setup<'_>) -> P) -> P {
    let profile = Profile::of(Gpu::H100, Model::B8).unwrap();
    let fleet = vec![EngineSpec { profile, settings: Settings::default() }; endpoints];
    start(&Setup { fleet: &fleet, scrape_interval: SELDOM, exchange: None })
}

fn extension(endpoints: usize, weights: Weights) -> Extension {
    with_fleet(endpoints, |setup| Extension::new(setup, weights, Grid::EXTENSION))
}

/// Where a router would send the request.
fn chosen(router: &CacheAware, request: &Arc<LabRequest>, endpoints: &[Seen]) -> Option<usize> {
    let all: Vec<usize> = (0..endpoints.len()).collect();
    router.choose(&asked(request), &sight(endpoints), &all, &mut Rng::with_seed(1))
}

/// Where the request goes; the policy hears of it.
fn send(policy: &mut impl Policy, request: &Arc<LabRequest>, endpoints: &[Seen]) -> usize {
    match policy.decide(asked(request), &sight(endpoints), &mut Rng::with_seed(1)) {
        Decision::Send(endpoint) => {
            policy.picked(asked(request), endpoint, Time::ZERO);
            endpoint
        }
        other => panic!("{other:?}"),
    }
}

fn assert_scores(found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    let close = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-12);
    assert!(close, "{found:?} instead of {wanted:?}");
}

#[test]
fn extension_adds_up_queue_cache_and_prefix() {
    let mut picker = extension(3, Weights::EXTENSION);
    picker.picked(asked(&prompt(&[1, 2, 3])), 2, Time::ZERO);
    let endpoints = [seen(0.0, 0.5), seen(5.0, 0.0), seen(10.0, 0.9)];
    let scores = picker.scores(&prompt(&[1, 2, 3, 4]), &sight(&endpoints), &[0, 1, 2]);
    // 2·queue + 2·(1 − usage) + 3·matched/blocks
    assert_scores(&scores, &[2.0 + 1.0, 1.0 + 2.0, 0.2 + 3.0 * 0.75]);
}

#[test]
fn extension_takes_a_missing_signal_for_an_idle_endpoint() {
    let picker = extension(2, Weights::EXTENSION);
    let endpoints = [seen(4.0, 0.5), Seen { ready: true, ..Seen::default() }];
    let scores = picker.scores(&prompt(&[]), &sight(&endpoints), &[0, 1]);
    assert_scores(&scores, &[1.0, 4.0]);
}

#[test]
fn extension_sends_a_burst_to_one_endpoint_until_it_reads_again() {
    let mut picker = extension(2, Weights::EXTENSION);
    let endpoints = [seen(0.0, 0.5), seen(0.0, 0.4)];
    for number in 0..20 {
        assert_eq!(send(&mut picker, &prompt(&[number]), &endpoints), 1);
    }
}

#[test]
fn extension_remembers_as_many_blocks_as_the_engine_has() {
    let mut picker = extension(1, Weights::EXTENSION);
    let told = Signals { blocks: Some(2), block_size: Some(16), ..Signals::default() };
    picker.scraped(0, &told, Time::ZERO);
    picker.picked(asked(&prompt(&[1, 2, 3])), 0, Time::ZERO);
    let endpoints = [seen(0.0, 0.0)];
    let scores = picker.scores(&prompt(&[2, 3]), &sight(&endpoints), &[0]);
    assert_scores(&scores, &[2.0 + 2.0 + 3.0]);
    let scores = picker.scores(&prompt(&[1, 2, 3]), &sight(&endpoints), &[0]);
    assert_scores(&scores, &[2.0 + 2.0]);
}

#[test]
fn llm_d_sends_cold_prompts_to_who_had_none_for_longest() {
    let mut picker = extension(3, Weights::LLM_D);
    picker.picked(asked(&prompt(&[1])), 1, Time::ZERO);
    picker.picked(asked(&prompt(&[2])), 0, Time::ZERO);
    let endpoints = [seen(0.0, 1.0), seen(0.0, 1.0), seen(0.0, 1.0)];
    let cold = picker.scores(&prompt(&[3]), &sight(&endpoints), &[0, 1, 2]);
    assert_scores(&cold, &[2.0, 2.0 + 2.0 * 0.5, 2.0 + 2.0]);
    // A hit anywhere makes the scorer neutral.
    let warm = picker.scores(&prompt(&[1]), &sight(&endpoints), &[0, 1, 2]);
    assert_scores(&warm, &[3.0, 3.0 + 3.0, 3.0]);
}

#[test]
fn lora_affinity_has_four_steps() {
    let picker = extension(4, Weights { lora: 1.0, ..Weights::default() });
    let endpoint = |running: &[&str], waiting: &[&str]| {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        let adapters = Adapters { max: 2, running: names(running), waiting: names(waiting) };
        let signals = Signals { adapters: Some(adapters), ..Signals::default() };
        Seen { signals: Some(Arc::new(signals)), ready: true, ..Seen::default() }
    };
    let endpoints = [
        endpoint(&["a", "b"], &[]),
        endpoint(&["b"], &[]),
        endpoint(&["b", "c"], &["a"]),
        endpoint(&["b", "c"], &[]),
    ];
    let mut request = LabRequest::clone(&prompt(&[1]));
    request.adapter = Some("a".into());
    let scores = picker.scores(&request, &sight(&endpoints), &[0, 1, 2, 3]);
    assert_scores(&scores, &[1.0, 0.8, 0.6, 0.0]);
}

#[test]
fn llm_d_grid_has_blocks_of_64_tokens_and_a_partial_one() {
    let mut picker = with_fleet(1, |setup| {
        let weights = Weights { prefix: 1.0, ..Weights::default() };
        Extension::new(setup, weights, Grid::LLM_D)
    });
    picker.picked(asked(&prompt(&[1, 2, 3, 4, 5])), 0, Time::ZERO);
    let endpoints = [seen(0.0, 0.0)];
    let scores = picker.scores(&prompt(&[1, 2, 3, 4, 5, 6]), &sight(&endpoints), &[0]);
    assert_scores(&scores, &[0.5]); // the partial blocks differ
}

#[test]
fn routers_follow_a_prefix_only_above_the_threshold() {
    let mut router = CacheAware::new(OnHit::FirstHolder);
    router.picked(asked(&prompt(&[1, 2, 3])), 1, Time::ZERO);
    let endpoints = [busy(5), busy(9)];
    // 3 of 10 blocks is 0.3, which is not more than 0.3: the least loaded.
    let at_threshold = prompt(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(chosen(&router, &at_threshold, &endpoints), Some(0));
    let above = prompt(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(chosen(&router, &above, &endpoints), Some(1));
}

#[test]
fn routers_leave_the_prefix_when_both_thresholds_are_passed() {
    let mut router = CacheAware::new(OnHit::FirstHolder);
    router.picked(asked(&prompt(&[1])), 1, Time::ZERO);
    let goes = |loads: [u32; 2]| chosen(&router, &prompt(&[1]), &loads.map(busy));
    assert_eq!(goes([0, 64]), Some(1)); // not more than 64
    assert_eq!(goes([0, 65]), Some(0));
    assert_eq!(goes([200, 300]), Some(1)); // not more than 1.5 times
    assert_eq!(goes([200, 301]), Some(0));
}

#[test]
fn first_holder_keeps_a_prefix_that_others_hold_too() {
    let mut router = CacheAware::new(OnHit::FirstHolder);
    router.picked(asked(&prompt(&[1])), 2, Time::ZERO);
    router.picked(asked(&prompt(&[1])), 1, Time::ZERO);
    let endpoints = [busy(0), busy(3), busy(7)];
    assert_eq!(chosen(&router, &prompt(&[1]), &endpoints), Some(2));
}

#[test]
fn equally_loaded_workers_are_told_apart_in_two_ways() {
    let endpoints = [busy(0), busy(0), busy(1)];
    let served = |on_hit| {
        let (mut router, mut served) = (CacheAware::new(on_hit), [0; 3]);
        let mut rng = Rng::with_seed(3);
        for number in 0..1000 {
            let request = prompt(&[number]);
            let decision = router.decide(asked(&request), &sight(&endpoints), &mut rng);
            let Decision::Send(at) = decision else { panic!("{decision:?}") };
            router.picked(asked(&request), at, Time::ZERO);
            served[at] += 1;
        }
        served
    };
    assert_eq!(served(OnHit::SessionThenFirstHolder), [1000, 0, 0]);
    let by_chance = served(OnHit::FirstHolder);
    assert!((450..550).contains(&by_chance[0]) && by_chance[2] == 0, "{by_chance:?}");
}

#[test]
fn vllm_router_keeps_sessions_whatever_they_ask() {
    let mut router = CacheAware::new(OnHit::SessionThenFirstHolder);
    let turn = |block| {
        let mut request = LabRequest::clone(&prompt(&[block]));
        request.session = Some(9);
        Arc::new(request)
    };
    router.picked(asked(&turn(1)), 1, Time::ZERO);
    assert_eq!(chosen(&router, &turn(2), &[busy(0), busy(9)]), Some(1));
    router.unlisted(1, Time::ZERO);
    assert_eq!(chosen(&router, &turn(2), &[busy(0), busy(9)]), Some(0));
}

#[test]
fn round_robin_passes_over_endpoints_that_are_not_ready() {
    let mut policy = RoundRobin::default();
    let endpoints = [busy(0), Seen::default(), busy(0)];
    let request = prompt(&[1]);
    let turns: Vec<usize> = (0..4).map(|_| send(&mut policy, &request, &endpoints)).collect();
    assert_eq!(turns, [0, 2, 0, 2]);
}

#[test]
fn power_of_two_never_takes_the_busiest_of_three() {
    let endpoints = [busy(1), busy(9), busy(2)];
    let mut rng = Rng::with_seed(3);
    let mut counts = [0; 3];
    for _ in 0..3000 {
        match PowerOfTwo.decide(asked(&prompt(&[])), &sight(&endpoints), &mut rng) {
            Decision::Send(endpoint) => counts[endpoint] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(counts[1], 0);
    // Two of three pairs have endpoint 0, which wins both.
    assert!((1900..2100).contains(&counts[0]), "{counts:?}");
}

#[test]
fn least_request_breaks_ties_by_chance_and_random_takes_all() {
    let endpoints = [busy(1), busy(1), busy(2)];
    let mut rng = Rng::with_seed(3);
    let mut count = |policy: &mut dyn Policy| {
        let mut counts = [0; 3];
        for _ in 0..3000 {
            if let Decision::Send(at) =
                policy.decide(asked(&prompt(&[])), &sight(&endpoints), &mut rng)
            {
                counts[at] += 1;
            }
        }
        counts
    };
    let least = count(&mut LeastRequest);
    assert!((1400..1600).contains(&least[0]) && least[2] == 0, "{least:?}");
    assert!(count(&mut Random).iter().all(|count| (900..1100).contains(count)));
}

#[test]
fn nobody_left_is_a_refusal() {
    let endpoints = [busy(0)];
    for contender in CONTENDERS {
        let mut policy = with_fleet(1, contender.start);
        let request = prompt(&[1]);
        let asked = Asked { number: 0, request: &request, tried: &[0] };
        let decision = policy.decide(asked, &sight(&endpoints), &mut Rng::with_seed(1));
        assert_eq!(decision, Decision::Shed, "{}", contender.name);
    }
}
