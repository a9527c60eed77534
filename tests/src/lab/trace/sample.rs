//! Generates the samples under `tests/traces`.
//!
//! They are ours, made from round numbers and a seed, and no excerpt of the public
//! files; only the formats are the same. Of Azure's kind: a chat service with bursts.
//! Of Mooncake's kind: conversations over four system prompts, whose turns come back with
//! everything said before. A test below says when the files are not what this generates;
//! run it with `UPDATE_TRACES=1` to write them.

use std::f64::consts::TAU;
use std::fmt::Write as _;

use fastrand::Rng;

const SEED: u64 = 5;
const REQUESTS: usize = 400;

/// Azure's CSV. Calm minutes of 3 requests/s alternate with bursts of 12/s; prompts
/// have a median of 900 tokens, answers of 150.
fn azure() -> String {
    let mut rng = Rng::with_seed(SEED);
    let mut text = String::from("TIMESTAMP,ContextTokens,GeneratedTokens\n");
    let (mut at, mut rate, mut change) = (0.0, 3.0, 30.0);
    for _ in 0..REQUESTS {
        at += exponential(&mut rng, 1.0 / rate);
        if at > change {
            rate = if rate < 5.0 { 12.0 } else { 3.0 };
            change = at + exponential(&mut rng, if rate < 5.0 { 30.0 } else { 8.0 });
        }
        let prompt = log_normal(&mut rng, 900.0, 0.8).clamp(16.0, 8000.0) as u32;
        let output = log_normal(&mut rng, 150.0, 0.8).clamp(1.0, 1000.0) as u32;
        let micros = (at * 1e6) as u64;
        let (minute, second) = (micros / 60_000_000, micros % 60_000_000);
        let (whole, fraction) = (second / 1_000_000, second % 1_000_000);
        let clock = format!("{:02}:{:02}:{whole:02}.{fraction:06}0", minute / 60, minute % 60);
        writeln!(text, "2026-01-01 {clock},{prompt},{output}").unwrap();
    }
    text
}

/// A conversation on its way: the identities of its full blocks, and its length.
struct Conversation {
    at: f64,
    tokens: u32,
    blocks: Vec<u64>,
    turns: u32,
}

/// Mooncake's JSON lines. A conversation starts every 2 s on average over one of four
/// system prompts of 1,024 to 4,096 tokens; it has 4 turns on average, 20 s apart.
fn mooncake() -> String {
    let mut rng = Rng::with_seed(SEED);
    let mut next_id = 0;
    let mut fresh = |blocks: &mut Vec<u64>, wanted: u32| {
        while blocks.len() < wanted as usize {
            blocks.push(next_id);
            next_id += 1;
        }
    };
    let mut systems = vec![Vec::new(); 4];
    for (blocks, wanted) in systems.iter_mut().zip([2, 4, 6, 8]) {
        fresh(blocks, wanted);
    }
    let mut lines: Vec<(f64, String)> = Vec::new();
    let mut start = 0.0;
    while lines.len() < REQUESTS {
        start += exponential(&mut rng, 2.0);
        let blocks = systems[rng.usize(..systems.len())].clone();
        let turns = 1 + exponential(&mut rng, 3.0) as u32;
        let tokens = blocks.len() as u32 * 512;
        let mut talk = Conversation { at: start, tokens, blocks, turns };
        while talk.turns > 0 {
            talk.tokens += log_normal(&mut rng, 300.0, 0.9).clamp(8.0, 6000.0) as u32;
            let full = talk.tokens / 512;
            fresh(&mut talk.blocks, full);
            let mut blocks = talk.blocks.clone();
            fresh(&mut blocks, talk.tokens.div_ceil(512));
            let output = log_normal(&mut rng, 200.0, 0.7).clamp(1.0, 1500.0) as u32;
            let (at, input) = ((talk.at * 1000.0) as u64, talk.tokens);
            let line = format!(
                r#"{{"timestamp": {at}, "input_length": {input}, "output_length": {output}, "hash_ids": {blocks:?}}}"#
            );
            lines.push((talk.at, line));
            talk.tokens += output;
            talk.turns -= 1;
            talk.at += 2.0 + exponential(&mut rng, 18.0);
        }
    }
    lines.sort_by(|a, b| a.0.total_cmp(&b.0));
    lines.into_iter().fold(String::new(), |text, (_, line)| text + &line + "\n")
}

fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.f64()).ln()
}

fn log_normal(rng: &mut Rng, median: f64, sigma: f64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    median * (sigma * radius * (TAU * rng.f64()).cos()).exp()
}

#[test]
fn files_are_what_is_generated() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    for (name, text) in [("azure-sample.csv", azure()), ("mooncake-sample.jsonl", mooncake())] {
        let path = directory.join(name);
        if std::env::var_os("UPDATE_TRACES").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let file = std::fs::read_to_string(&path).unwrap();
        assert!(file == text, "{name} is out of date; run this test with UPDATE_TRACES=1");
    }
}
