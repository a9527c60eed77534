//! The engine's promises, for any sequence of requests, aborts and pauses.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::profile::{Gpu, Model};

fn engine(settings: Settings) -> Engine {
    Engine::new(Profile::of(Gpu::H100, Model::B8).unwrap(), settings)
}

fn request(prompt_tokens: u32, output_tokens: u32) -> EngineRequest {
    EngineRequest { prompt_tokens, output_tokens, ..EngineRequest::default() }
}

/// A request whose blocks can be found again by others of the same `family`.
fn cacheable(family: u64, prompt_tokens: u32, output_tokens: u32) -> EngineRequest {
    let blocks = u64::from((prompt_tokens + output_tokens) / 16);
    let block_hashes = (0..blocks).map(|block| family * 1_000_000 + block).collect();
    EngineRequest { block_hashes, ..request(prompt_tokens, output_tokens) }
}

fn at(milliseconds: u64) -> Time {
    Time::from_origin(Duration::from_millis(milliseconds))
}

/// Runs to the end of all work.
fn finish(engine: &mut Engine) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(next) = engine.next_event() {
        engine.advance(next, &mut events);
    }
    events
}

fn ended(events: &[Event], id: RequestId) -> (Time, Ended) {
    let found = events.iter().filter(|event| event.request == id).find_map(|event| {
        let EventKind::Finished(ended) = event.kind else { return None };
        Some((event.at, ended))
    });
    found.unwrap()
}

fn first_token(events: &[Event], id: RequestId) -> Time {
    ended(events, id).1.first_token
}

#[test]
fn lone_request_takes_what_the_profile_says() {
    let mut engine = engine(Settings::default());
    let id = engine.submit(Time::ZERO, request(256, 11)).unwrap();
    let events = finish(&mut engine);
    let (finished, ended) = ended(&events, id);
    let profile = engine.profile();
    assert_eq!(ended.first_token.since_origin(), profile.time_to_first_token(256));
    let mean = finished.since(ended.first_token) / 10;
    let reading = Duration::from_micros(20);
    assert!((profile.decode..profile.decode + reading).contains(&mean), "{mean:?}");
    assert_eq!(events.iter().filter(|event| event.kind == EventKind::Token).count(), 10);
}

#[test]
fn long_prompt_slows_down_those_being_answered() {
    let gap = |prompt: Option<u32>| {
        let mut engine = engine(Settings::default());
        let id = engine.submit(Time::ZERO, request(16, 100)).unwrap();
        if let Some(prompt) = prompt {
            engine.submit(at(200), request(prompt, 1)).unwrap();
        }
        let events = finish(&mut engine);
        let times: Vec<Time> =
            events.iter().filter(|event| event.request == id).map(|event| event.at).collect();
        times.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap()
    };
    assert!(gap(None) < Duration::from_millis(40), "{:?}", gap(None));
    assert!(gap(Some(4000)) > Duration::from_millis(800), "{:?}", gap(Some(4000)));
}

#[test]
fn prompt_beyond_the_budget_is_computed_in_chunks_and_others_go_on_between() {
    let mut engine = engine(Settings { max_num_batched_tokens: 512, ..Settings::default() });
    let short = engine.submit(Time::ZERO, request(16, 100)).unwrap();
    let long = engine.submit(at(50), request(4096, 1)).unwrap();
    let events = finish(&mut engine);
    let until = first_token(&events, long);
    let between = events.iter().filter(|event| event.request == short && event.at < until);
    assert!(between.count() > 4096 / 512);
}

#[test]
fn batch_is_never_larger_than_allowed_and_the_queue_keeps_its_order() {
    let mut engine = engine(Settings { max_num_seqs: 2, ..Settings::default() });
    let ids: Vec<_> = (0..5).map(|_| engine.submit(Time::ZERO, request(64, 8)).unwrap()).collect();
    let load = engine.load();
    assert_eq!((load.running, load.waiting_for_capacity), (1, 4));
    let events = finish(&mut engine);
    let firsts: Vec<Time> = ids.iter().map(|id| first_token(&events, *id)).collect();
    assert!(firsts.is_sorted(), "{firsts:?}");
}

#[test]
fn known_prefix_is_not_computed_again() {
    let mut engine = engine(Settings::default());
    engine.submit(Time::ZERO, cacheable(1, 1024, 16)).unwrap();
    finish(&mut engine);
    let start = at(10_000);
    let again = engine.submit(start, cacheable(1, 1024, 16)).unwrap();
    let other = engine.submit(at(60_000), cacheable(2, 1024, 16)).unwrap();
    let events = finish(&mut engine);
    assert_eq!(ended(&events, again).1.cached_tokens, 1008); // the last token is always computed
    assert_eq!(ended(&events, other).1.cached_tokens, 0);
    let profile = engine.profile();
    let wait = first_token(&events, again).since(start);
    assert_eq!(wait, profile.time_to_first_token(16));
}

#[test]
fn answers_become_part_of_the_next_turns_prefix() {
    let mut engine = engine(Settings::default());
    engine.submit(Time::ZERO, cacheable(1, 64, 64)).unwrap();
    finish(&mut engine);
    let next = engine.submit(at(10_000), cacheable(1, 256, 1)).unwrap();
    let events = finish(&mut engine);
    // 127 of the 128 tokens were computed: the last one generated never is.
    assert_eq!(ended(&events, next).1.cached_tokens, 112);
}

#[test]
fn cleared_cache_computes_everything_again() {
    let mut engine = engine(Settings::default());
    engine.submit(Time::ZERO, cacheable(1, 256, 1)).unwrap();
    finish(&mut engine);
    engine.clear_prefix_cache();
    let again = engine.submit(at(10_000), cacheable(1, 256, 1)).unwrap();
    assert_eq!(ended(&finish(&mut engine), again).1.cached_tokens, 0);
}

#[test]
fn full_cache_makes_requests_wait() {
    let mut engine = engine(Settings { kv_blocks: Some(64), ..Settings::default() });
    let first = engine.submit(Time::ZERO, request(800, 100)).unwrap();
    let second = engine.submit(at(1), request(800, 100)).unwrap();
    let events = finish(&mut engine);
    assert!(ended(&events, second).1.scheduled >= ended(&events, first).0);
}

#[test]
fn youngest_gives_way_when_decoding_runs_out_of_blocks() {
    let mut engine = engine(Settings { kv_blocks: Some(64), ..Settings::default() });
    let old = engine.submit(Time::ZERO, request(400, 200)).unwrap();
    let young = engine.submit(at(1), request(400, 200)).unwrap();
    let events = finish(&mut engine);
    assert_eq!(ended(&events, old).1.preemptions, 0);
    assert_eq!(ended(&events, young).1.preemptions, 1);
    assert_eq!(engine.stats().preemptions, 1);
}

#[test]
fn request_that_could_never_run_is_refused() {
    let mut engine = engine(Settings { kv_blocks: Some(4), ..Settings::default() });
    let refused = engine.submit(Time::ZERO, request(60, 5));
    assert_eq!(refused, Err(TooLarge { needed: 5, capacity: 4 }));
    assert!(engine.submit(Time::ZERO, request(60, 4)).is_ok());
}

#[test]
fn adapter_that_is_not_resident_is_loaded_first() {
    let mut engine = engine(Settings::default());
    let with = |adapter: u32| EngineRequest { adapter: Some(AdapterId(adapter)), ..request(64, 1) };
    let cold = engine.submit(Time::ZERO, with(1)).unwrap();
    let warm = engine.submit(at(5_000), with(1)).unwrap();
    let events = finish(&mut engine);
    let waits = [cold, warm].map(|id| first_token(&events, id).since(ended(&events, id).1.arrived));
    assert_eq!(waits[0], waits[1] + engine.profile().adapter_load);
    assert_eq!(engine.stats().adapter_loads, 1);
}

#[test]
fn adapters_beyond_the_slots_wait_and_let_others_pass() {
    let mut engine = engine(Settings { max_loras: 1, ..Settings::default() });
    let with =
        |adapter: u32| EngineRequest { adapter: Some(AdapterId(adapter)), ..request(64, 50) };
    engine.submit(Time::ZERO, with(1)).unwrap();
    let deferred = engine.submit(at(1), with(2)).unwrap();
    let passing = engine.submit(at(2), request(64, 1)).unwrap();
    let load = engine.load();
    assert_eq!((load.waiting_deferred, load.waiting_for_capacity), (1, 1));
    assert_eq!(load.waiting_adapters, [AdapterId(2)]);
    let events = finish(&mut engine);
    assert!(first_token(&events, passing) < first_token(&events, deferred));
}

#[test]
fn pooling_request_ends_without_a_token() {
    let mut engine = engine(Settings::default());
    let id = engine.submit(Time::ZERO, request(100, 0)).unwrap();
    let events = finish(&mut engine);
    assert_eq!(ended(&events, id).1.output_tokens, 0);
    assert!(!events.iter().any(|event| event.kind == EventKind::FirstToken));
}

/// Something that is done to an engine.
#[derive(Clone, Debug)]
enum Act {
    Submit { family: u64, prompt: u32, output: u32, adapter: Option<u32> },
    Abort { which: usize },
    Pass { milliseconds: u64 },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0..4_u64, 1..300_u32, 0..60_u32, prop::option::of(0..4_u32)).prop_map(
            |(family, prompt, output, adapter)| Act::Submit { family, prompt, output, adapter }
        ),
        1 => (0..64_usize).prop_map(|which| Act::Abort { which }),
        3 => (0..300_u64).prop_map(|milliseconds| Act::Pass { milliseconds }),
    ];
    prop::collection::vec(act, 1..60)
}

fn tight(events: EventDetail) -> Settings {
    Settings {
        max_num_seqs: 6,
        max_num_batched_tokens: 200,
        kv_blocks: Some(40),
        max_loras: 2,
        events,
        ..Settings::default()
    }
}

/// Does all of it, checks what must hold at every moment, and returns the events.
fn play(acts: &[Act], events: EventDetail) -> (Engine, Vec<RequestId>, Vec<RequestId>, Vec<Event>) {
    let mut engine = engine(tight(events));
    let (mut now, mut ids, mut aborted, mut seen) = (Time::ZERO, vec![], vec![], vec![]);
    for act in acts {
        match act {
            Act::Submit { family, prompt, output, adapter } => {
                let adapter = adapter.map(AdapterId);
                let request = EngineRequest { adapter, ..cacheable(*family, *prompt, *output) };
                ids.push(engine.submit(now, request).unwrap());
            }
            Act::Abort { which } => {
                let id = ids.get(*which).copied();
                aborted.extend(id.filter(|id| engine.abort(now, *id)));
            }
            Act::Pass { milliseconds } => {
                now += Duration::from_millis(*milliseconds);
                engine.advance(now, &mut seen);
            }
        }
        let load = engine.load();
        assert!(load.kv_blocks_used <= load.kv_blocks && load.running <= 6);
    }
    seen.extend(finish(&mut engine));
    (engine, ids, aborted, seen)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn every_request_ends_once_and_everything_is_freed(acts in acts()) {
        let (engine, ids, aborted, events) = play(&acts, EventDetail::EveryToken);
        let load = engine.load();
        prop_assert_eq!((load.running, load.waiting(), load.kv_blocks_used), (0, 0, 0));
        let mut endings: HashMap<RequestId, u32> = aborted.iter().map(|id| (*id, 1)).collect();
        for event in events.iter().filter(|event| matches!(event.kind, EventKind::Finished(_))) {
            *endings.entry(event.request).or_default() += 1;
        }
        prop_assert!(ids.iter().all(|id| endings.get(id) == Some(&1)), "{:?}", endings);
        prop_assert_eq!(engine.stats().aborted as usize, aborted.len());
    }

    #[test]
    fn tokens_come_in_order_and_never_before_the_prompt_is_computed(acts in acts()) {
        let (engine, _, aborted, events) = play(&acts, EventDetail::EveryToken);
        let mut tokens: HashMap<RequestId, u32> = HashMap::new();
        let mut scheduled: HashMap<RequestId, (Time, u32)> = HashMap::new();
        for event in &events {
            match event.kind {
                EventKind::Scheduled { cached_tokens } => {
                    scheduled.insert(event.request, (event.at, cached_tokens));
                }
                EventKind::FirstToken | EventKind::Token => {
                    let count = tokens.entry(event.request).or_default();
                    prop_assert_eq!(*count == 0, event.kind == EventKind::FirstToken);
                    *count += 1;
                }
                EventKind::Preempted => {}
                EventKind::Finished(ended) => {
                    let count = tokens.get(&event.request).copied().unwrap_or(0);
                    prop_assert_eq!(ended.output_tokens, count);
                    let (start, cached) = scheduled[&event.request];
                    let computed = ended.prompt_tokens - cached;
                    let least = engine.profile().prefill_per_token * computed;
                    prop_assert!(ended.first_token.since(start) >= least);
                }
            }
        }
        let known = tokens.keys().all(|id| scheduled.contains_key(id) || aborted.contains(id));
        prop_assert!(known);
    }

    #[test]
    fn stretches_change_nothing_but_the_number_of_events(acts in acts()) {
        let (one, _, _, every) = play(&acts, EventDetail::EveryToken);
        let (other, _, _, few) = play(&acts, EventDetail::FirstAndLast);
        let without_tokens: Vec<Event> =
            every.into_iter().filter(|event| event.kind != EventKind::Token).collect();
        let differing = without_tokens.iter().zip(&few).find(|(one, other)| one != other);
        prop_assert_eq!(differing, None);
        prop_assert_eq!(without_tokens.len(), few.len());
        prop_assert_eq!(one.stats(), other.stats());
    }
}
