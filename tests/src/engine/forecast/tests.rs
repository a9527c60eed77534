//! A forecast is what happens then, if nobody else comes.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::engine::{AdapterId, EventDetail, EventKind, Settings};
use crate::profile::{Gpu, Model, Profile};

fn engine(settings: Settings) -> Engine {
    Engine::new(Profile::of(Gpu::H100, Model::B8).unwrap(), settings)
}

/// A request of one of a few families that share their prompts' beginnings.
fn request(family: u64, shared: u32, own: u32, output_tokens: u32) -> EngineRequest {
    let block = |index: u32| {
        let private = if index < shared / 16 { 0 } else { u64::from(own) + 1 };
        family << 48 | private << 24 | u64::from(index)
    };
    EngineRequest {
        prompt_tokens: shared + own,
        output_tokens,
        block_hashes: (0..(shared + own) / 16).map(block).collect(),
        ..EngineRequest::default()
    }
}

/// Forecasts and truths of requests that come one by one, each `Duration` after the last.
fn compare(
    settings: &Settings,
    requests: &[(Duration, EngineRequest)],
) -> Vec<(Forecast, Option<Forecast>)> {
    let mut engine = engine(settings.clone());
    let (mut now, mut pairs) = (Time::ZERO, Vec::new());
    for (pause, request) in requests {
        now += *pause;
        // As the runner does: steps that end now are over.
        let mut events = Vec::new();
        while engine.next_event().is_some_and(|next| next <= now) {
            engine.advance(now, &mut events);
        }
        let Some(forecast) = engine.forecast(now, request, Time::MAX) else { continue };
        pairs.push((forecast, truth(settings, requests, pairs.len())));
        engine.submit(now, request.clone()).unwrap();
    }
    pairs
}

/// What becomes of request `asked` when nobody comes after it.
fn truth(
    settings: &Settings,
    requests: &[(Duration, EngineRequest)],
    asked: usize,
) -> Option<Forecast> {
    let mut engine = engine(settings.clone());
    let (mut now, mut events) = (Time::ZERO, Vec::new());
    let mut last = None;
    for (pause, request) in &requests[..=asked] {
        now += *pause;
        while engine.next_event().is_some_and(|next| next <= now) {
            engine.advance(now, &mut events);
        }
        last = Some(engine.submit(now, request.clone()).unwrap());
    }
    while let Some(next) = engine.next_event() {
        engine.advance(next, &mut events);
    }
    let mut found = events.iter().filter(|event| Some(event.request) == last);
    found.find_map(|event| match event.kind {
        EventKind::Finished(ended) => {
            Some(Forecast { first_token: ended.first_token, cached_tokens: ended.cached_tokens })
        }
        _ => None,
    })
}

fn any_requests(longest: u32) -> impl Strategy<Value = Vec<(Duration, EngineRequest)>> {
    let one = (0_u64..400, 0_u64..4, 0_u32..8, 1..longest, 0_u32..300, 0_u32..6);
    proptest::collection::vec(one, 1..25).prop_map(|requests| {
        let request = |(pause, family, shared, own, output, adapter)| {
            let mut request = request(family, shared * 256, own, output);
            request.adapter = (adapter > 0).then_some(AdapterId(adapter));
            (Duration::from_millis(pause), request)
        };
        requests.into_iter().map(request).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn forecast_comes_true(requests in any_requests(3000), seqs in 1_usize..9, budget in 64_u32..4096) {
        for events in [EventDetail::FirstAndLast, EventDetail::EveryToken] {
            let settings = Settings {
                max_num_seqs: seqs,
                max_num_batched_tokens: budget,
                max_loras: 2,
                events,
                ..Settings::default()
            };
            for (forecast, truth) in compare(&settings, &requests) {
                prop_assert_eq!(Some(forecast), truth);
            }
        }
    }
}

#[test]
fn nothing_is_forecast_beyond_the_limit_or_the_cache() {
    let mut busy = engine(Settings { max_num_seqs: 1, ..Settings::default() });
    busy.submit(Time::ZERO, request(0, 0, 1000, 1000)).unwrap();
    let asked = request(1, 0, 1000, 1);
    let soon = Time::from_origin(Duration::from_secs(1));
    assert_eq!(busy.forecast(Time::ZERO, &asked, soon), None);
    assert!(busy.forecast(Time::ZERO, &asked, Time::MAX).is_some());
    let small = engine(Settings { kv_blocks: Some(8), ..Settings::default() });
    assert_eq!(small.forecast(Time::ZERO, &asked, Time::MAX), None);
}

/// 6,400 tokens of KV cache for requests of up to 3,300: everybody waits for blocks.
#[test]
fn forecast_is_too_hopeful_by_a_fifth_when_the_cache_is_full() {
    let mut rng = fastrand::Rng::with_seed(1);
    let settings = Settings { kv_blocks: Some(400), ..Settings::default() };
    let mut ratios = Vec::new();
    for _ in 0..30 {
        let one = |rng: &mut fastrand::Rng| {
            let (family, shared) = (rng.u64(0..4), rng.u32(0..8) * 256);
            let request = request(family, shared, rng.u32(1..1500), rng.u32(0..300));
            (Duration::from_millis(rng.u64(0..400)), request)
        };
        let requests: Vec<_> = (0..25).map(|_| one(&mut rng)).collect();
        let mut now = Time::ZERO;
        for ((forecast, truth), (pause, _)) in compare(&settings, &requests).iter().zip(&requests) {
            now += *pause;
            let wait = |of: &Forecast| of.first_token.since(now).as_secs_f64();
            ratios.push(wait(forecast) / wait(truth.as_ref().unwrap()));
        }
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| ratios[(share * ratios.len() as f64) as usize];
    assert!(
        at(0.5) > 0.75 && at(0.05) > 0.5 && at(0.95) < 1.1,
        "{} {} {}",
        at(0.05),
        at(0.5),
        at(0.95)
    );
}
