//! A metrics page yields sane signals, and a malformed line costs only itself.
#![no_main]

use gateway_core::engine::{Engine, Mapping, Series};
use gateway_core::{Signals, dcgm};
use libfuzzer_sys::fuzz_target;

fn check(signals: &Signals) {
    let numbers = [signals.waiting, signals.running, signals.preemptions, signals.kv_usage];
    assert!(numbers.into_iter().flatten().all(|number| number >= 0.0));
    assert!(signals.kv_usage.is_none_or(|usage| usage <= 1.0));
    if let Some(adapters) = &signals.adapters {
        assert!(adapters.running.is_sorted() && adapters.waiting.is_sorted());
    }
}

fuzz_target!(|input: &[u8]| {
    for engine in Engine::ALL {
        let mapping = Mapping::of(engine);
        check(&mapping.read(input, Some("m")));
        check(&mapping.read(input, None));
    }
    // A good row after any page counts, whatever came before.
    let mapping = Mapping::of(Engine::Tgi);
    let before = mapping.read(input, None).waiting.unwrap_or(0.0);
    let page = [input, b"\ntgi_queue_size 1\n"].concat();
    let after = mapping.read(&page, None).waiting;
    assert_eq!(after, Some(before + 1.0).filter(|sum| sum.is_finite()).or(after));
    assert!(after.is_some());

    let gpu = dcgm::read(input, &dcgm::Filter::default());
    let shares = [gpu.utilization, gpu.memory_usage];
    assert!(shares.into_iter().flatten().all(|share| (0.0..=1.0).contains(&share)));

    if let Some(series) =
        std::str::from_utf8(input).ok().and_then(|text| text.parse::<Series>().ok())
    {
        assert!(!series.name.is_empty());
    }
});
