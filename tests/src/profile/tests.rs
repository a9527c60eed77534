//! Simulated latencies against the published ranges.

use gateway_core::Time;

use super::*;
use crate::engine::{Engine, EngineRequest, EventKind, Settings};

/// Time to first token and mean inter-token latency of a lone request, in milliseconds.
fn lone_request(profile: Profile, prompt_tokens: u32) -> (f64, f64) {
    let mut engine = Engine::new(profile, Settings::default());
    let request = EngineRequest { prompt_tokens, output_tokens: 33, ..EngineRequest::default() };
    engine.submit(Time::ZERO, request).unwrap();
    let mut events = Vec::new();
    while let Some(next) = engine.next_event() {
        engine.advance(next, &mut events);
    }
    let ended = events.iter().find_map(|event| match event.kind {
        EventKind::Finished(ended) => Some((event.at, ended)),
        _ => None,
    });
    let (finished, ended) = ended.unwrap();
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let first = milliseconds(ended.first_token.since_origin());
    (first, milliseconds(finished.since(ended.first_token)) / 32.0)
}

#[test]
fn lone_requests_fall_into_the_published_ranges() {
    // GPU, model, GPUs; milliseconds to first token at 256 tokens; between tokens.
    let rows = [
        (Gpu::H100, Model::B8, 1, 60.0..120.0, 10.0..15.0),
        (Gpu::A100, Model::B8, 1, 100.0..180.0, 15.0..25.0),
        (Gpu::L40S, Model::B8, 1, 180.0..280.0, 25.0..35.0),
        (Gpu::H100, Model::B32, 2, 160.0..280.0, 20.0..30.0),
        (Gpu::A100, Model::B32, 2, 280.0..450.0, 30.0..45.0),
        (Gpu::H100, Model::B70, 8, 150.0..250.0, 18.0..28.0),
        (Gpu::A100, Model::B70, 8, 250.0..400.0, 28.0..45.0),
        (Gpu::H100, Model::B70, 4, 250.0..400.0, 25.0..40.0),
        (Gpu::A100, Model::B70, 4, 400.0..700.0, 40.0..60.0),
    ];
    for (gpu, model, gpus, first_token, inter_token) in rows {
        let profile = Profile::tensor_parallel(gpu, model, gpus).unwrap();
        let name = profile.name.clone();
        let (first, inter) = lone_request(profile, 256);
        assert!(first_token.contains(&first), "{name}: first token after {first} ms");
        assert!(inter_token.contains(&inter), "{name}: {inter} ms between tokens");
    }
}

#[test]
fn prefill_grows_by_the_published_time_per_token() {
    let rows = [
        (Gpu::H100, Model::B8, 1, 0.15..0.30),
        (Gpu::A100, Model::B8, 1, 0.30..0.55),
        (Gpu::L40S, Model::B8, 1, 0.65..1.00),
        (Gpu::H100, Model::B70, 4, 0.60..0.90),
        (Gpu::A100, Model::B70, 8, 0.80..1.30),
    ];
    for (gpu, model, gpus, per_token) in rows {
        let profile = Profile::tensor_parallel(gpu, model, gpus).unwrap();
        let (short, _) = lone_request(profile.clone(), 256);
        let (long, _) = lone_request(profile, 2256);
        let grown = (long - short) / 2000.0;
        assert!(per_token.contains(&grown), "{model} on {gpu}: {grown} ms per token");
    }
}

#[test]
fn full_batch_is_slower_by_the_published_factor() {
    let profile = Profile::of(Gpu::H100, Model::B8).unwrap();
    let step = |sequences: u32| {
        let kv_tokens = 512 * u64::from(sequences);
        let work = StepWork { decoding: sequences, kv_tokens, ..StepWork::default() };
        profile.step_picoseconds(&work) as f64
    };
    let factor = step(256) / step(1);
    assert!((1.9..2.1).contains(&factor), "{factor}");
}

#[test]
fn faster_memory_decodes_faster_for_every_model() {
    let order = [Gpu::H200, Gpu::H100, Gpu::A100, Gpu::L40S, Gpu::A10G];
    let decode = |gpu| Profile::of(gpu, Model::B8).unwrap().decode;
    assert!(order.map(decode).is_sorted());
}

#[test]
fn every_combination_has_room_for_a_conversation() {
    for gpu in Gpu::ALL {
        for model in Model::ALL {
            for gpus in gpu.counts(model) {
                let profile = Profile::tensor_parallel(gpu, model, *gpus).unwrap();
                assert!(
                    profile.kv_tokens > 16_384,
                    "{}: {} tokens",
                    profile.name,
                    profile.kv_tokens
                );
            }
        }
    }
}

#[test]
fn unknown_combination_names_the_known_ones() {
    let error = Profile::tensor_parallel(Gpu::H100, Model::B70, 2).unwrap_err();
    assert_eq!(error.to_string(), "70b does not run on 2 x h100; known: 4, 8");
    assert_eq!("b200".parse::<Gpu>(), Err(NoProfile::UnknownGpu("b200".to_owned())));
}
