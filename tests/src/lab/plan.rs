//! A scenario as HTTP requests, to be run against real gateways in real time.
//!
//! Virtual time is only worth something if it tells the same as real sockets do. A plan is
//! one scenario in a form that anything can send: descriptions of the engines for
//! `simulated-engine`, and for each session what is said in it and when. Text is made from block
//! hashes, a word of four bytes per token, so that engines find the same prefixes as they
//! do in the lab and a gateway that counts four bytes per token counts right.
//!
//! What a model answers is text of its own over HTTP. A turn therefore has only what it
//! adds: who sends it puts the prompt and the answer before in front, as a client does.

use std::ops::Range;
use std::time::Duration;

use serde::Serialize;

use super::report::Row;
use super::request::{BLOCK_TOKENS, LabRequest};
use super::scenario::{EngineSpec, Scenario, Session, Turn};
use crate::engine::PrefixCaching;

/// The model's name over HTTP.
pub const MODEL: &str = "model";

/// A scenario to be sent.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Name of the scenario.
    pub scenario: String,
    /// Requests offered, as a share of the fleet's capacity.
    pub load: f64,
    /// What the arrivals were made from.
    pub seed: u64,
    /// Name of the model.
    pub model: &'static str,
    /// The engines, as `simulated-engine --server` takes them.
    pub engines: Vec<String>,
    /// In order of their first requests.
    pub sessions: Vec<PlannedSession>,
    /// Requests that are sent earlier do not count, in milliseconds.
    pub warm_up_ms: f64,
    /// Nor do those that are sent later, in milliseconds.
    pub end_ms: f64,
    /// What virtual time says, per policy and run.
    pub predictions: Vec<Row>,
}

/// Requests of which each follows the answer to the one before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedSession {
    /// When the first one is sent, in milliseconds since the start.
    pub at_ms: f64,
    /// The requests.
    pub turns: Vec<PlannedTurn>,
}

/// A request to `/v1/completions`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedTurn {
    /// Time from the end of the answer before, in milliseconds.
    pub pause_ms: f64,
    /// What comes after the prompt and the answer before; of the first turn the prompt.
    pub text: String,
    /// Length of the answer.
    pub output_tokens: u32,
}

/// A scenario that cannot be sent.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoPlan {
    /// Things go wrong on purpose, or there are several gateways.
    #[error("scenario {0} has faults or several gateways; only plain ones can be sent over HTTP")]
    Adversity(String),
    /// Requests want adapters.
    #[error("scenario {0} has adapters; only requests for the base model can be sent over HTTP")]
    Adapters(String),
}

impl Plan {
    /// The scenario's plan, without predictions.
    ///
    /// # Errors
    ///
    /// [`NoPlan`] when its requests depend on adapters, or on more than engines and one gateway.
    pub fn of(scenario: &Scenario, load: f64, seed: u64) -> Result<Self, NoPlan> {
        if !scenario.faults.is_empty() || scenario.replicas > 1 {
            return Err(NoPlan::Adversity(scenario.name.clone()));
        }
        let mut turns = scenario.sessions.iter().flat_map(|session| &session.turns);
        if turns.any(|turn| turn.request.adapter.is_some()) {
            return Err(NoPlan::Adapters(scenario.name.clone()));
        }
        let planned = |(number, session): (usize, &Session)| PlannedSession {
            at_ms: milliseconds(session.start.since_origin()),
            turns: turns_of(session, number),
        };
        let mut sessions: Vec<PlannedSession> =
            scenario.sessions.iter().enumerate().map(planned).collect();
        sessions.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
        Ok(Self {
            scenario: scenario.name.clone(),
            load,
            seed,
            model: MODEL,
            engines: scenario.fleet.iter().enumerate().map(description).collect(),
            sessions,
            warm_up_ms: milliseconds(scenario.warm_up),
            end_ms: milliseconds(scenario.warm_up + scenario.length),
            predictions: Vec::new(),
        })
    }
}

/// An engine as `simulated-engine --server` takes it.
fn description((number, spec): (usize, &EngineSpec)) -> String {
    let settings = &spec.settings;
    let caching = match settings.prefix_caching {
        PrefixCaching::On => "on",
        PrefixCaching::Off => "off",
    };
    // A profile's name is `8b on 1 x h100`.
    let profile = spec.profile.name.replacen(" on ", ",tp=", 1).replacen(" x ", ",gpu=", 1);
    let blocks = settings.kv_blocks.map(|blocks| format!(",kv-blocks={blocks}"));
    format!(
        "name=engine-{number},model={MODEL},size={profile},max-num-seqs={},\
         max-num-batched-tokens={},block-size={},prefix-caching={caching}{}",
        settings.max_num_seqs,
        settings.max_num_batched_tokens,
        settings.block_size,
        blocks.unwrap_or_default(),
    )
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The turns of a session with what each adds. A turn that another one follows ends with a line
/// break, so that the answer begins with a token of its own, as it does for the engine.
fn turns_of(session: &Session, number: usize) -> Vec<PlannedTurn> {
    let mut known = 0;
    let last = session.turns.len().saturating_sub(1);
    let planned = |(place, turn): (usize, &Turn)| {
        let request = &turn.request;
        let prompt = request.prompt_tokens() as usize;
        let has_next = place < last;
        let mut text = text(request, number, known..prompt - usize::from(has_next));
        if has_next {
            text.push('\n');
        }
        let output_tokens = request.engine.output_tokens.max(1);
        known = prompt + output_tokens as usize;
        PlannedTurn { pause_ms: milliseconds(turn.pause), text, output_tokens }
    };
    session.turns.iter().enumerate().map(planned).collect()
}

/// Part of a prompt, a word for each token: the words of each known block, and words
/// of the session's own behind them.
fn text(request: &LabRequest, number: usize, tokens: Range<usize>) -> String {
    let own = |block: u64| (number as u64) << 32 | block;
    let blocks = request.prompt_blocks().iter().copied().chain((0_u64..).map(own));
    let words = blocks.flat_map(|block| words(block).take(BLOCK_TOKENS as usize));
    let mut text = String::with_capacity(tokens.len() * 4);
    for word in words.skip(tokens.start).take(tokens.len()) {
        text.push(' ');
        text.extend(word);
    }
    text
}

/// The words of a block's text, each of three letters: the same for equal hashes.
pub(super) fn words(block: u64) -> impl Iterator<Item = [char; 3]> {
    let mut rng = fastrand::Rng::with_seed(block);
    std::iter::repeat_with(move || std::array::from_fn(|_| rng.lowercase()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gateway_core::Time;

    use super::*;
    use crate::engine::{EngineRequest, Settings};
    use crate::lab::scenario::Scraping;
    use crate::profile::{Gpu, Model, Profile};
    use crate::tokenizer;

    fn request(prompt_tokens: u32, block_hashes: &[u64]) -> LabRequest {
        let block_hashes = block_hashes.to_vec();
        let engine = EngineRequest {
            prompt_tokens,
            output_tokens: 7,
            block_hashes,
            ..EngineRequest::default()
        };
        LabRequest { engine, ..LabRequest::default() }
    }

    fn scenario(sessions: Vec<Session>) -> Scenario {
        let profile = Profile::tensor_parallel(Gpu::H100, Model::B70, 8).unwrap();
        Scenario {
            name: "few".to_owned(),
            fleet: vec![EngineSpec { profile, settings: Settings::default() }],
            sessions,
            scraping: Scraping::default(),
            faults: Vec::new(),
            replicas: 1,
            exchange: None,
            target: Duration::from_secs(1),
            warm_up: Duration::from_secs(2),
            length: Duration::from_secs(10),
        }
    }

    /// Tokens of the prompt, as the simulated engine reads it.
    fn tokens(request: &LabRequest, number: usize) -> Vec<u64> {
        let whole = 0..request.prompt_tokens() as usize;
        tokenizer::pieces(&text(request, number, whole)).map(tokenizer::token).collect()
    }

    #[test]
    fn engine_counts_the_tokens_that_the_lab_counts() {
        for length in [1, 15, 16, 17, 100] {
            assert_eq!(tokens(&request(length, &[1, 2]), 0).len(), length as usize);
        }
        assert_eq!(text(&request(100, &[]), 0, 0..100).len(), 400);
    }

    #[test]
    fn prompts_share_the_blocks_that_they_share_in_the_lab() {
        let one = tokens(&request(60, &[1, 2, 3]), 0);
        let other = tokens(&request(60, &[1, 2, 4]), 1);
        let hashes = |tokens| tokenizer::block_hashes(tokens, 16, "");
        let (one, other) = (hashes(&one), hashes(&other));
        assert_eq!(one[..2], other[..2]);
        assert_ne!(one[2], other[2]);
        // What no hash describes is nobody else's.
        assert_ne!(tokens(&request(16, &[]), 0), tokens(&request(16, &[]), 1));
    }

    #[test]
    fn plan_describes_engines_and_sends_in_order() {
        let at = |seconds| Time::from_origin(Duration::from_secs(seconds));
        let sessions = [3, 1].map(|second| Session::single(at(second), request(20, &[1])));
        let plan = Plan::of(&scenario(sessions.to_vec()), 0.5, 9).unwrap();
        assert!(
            plan.engines[0]
                .starts_with("name=engine-0,model=model,size=70b,tp=8,gpu=h100,max-num-seqs=256,")
        );
        let moments: Vec<f64> = plan.sessions.iter().map(|session| session.at_ms).collect();
        assert_eq!(moments, [1000.0, 3000.0]);
        let [turn] = &plan.sessions[0].turns[..] else { panic!("{plan:?}") };
        assert_eq!((turn.output_tokens, turn.text.len()), (7, 80));
        assert_eq!((plan.warm_up_ms, plan.end_ms), (2_000.0, 12_000.0));
    }

    #[test]
    fn next_turn_finds_the_prompt_and_the_answer_before_in_the_cache() {
        // 20 tokens, an answer of 7, and 13 more.
        let turns = [(20, 0), (40, 500)].map(|(prompt, pause)| Turn {
            pause: Duration::from_millis(pause),
            request: Arc::new(request(prompt, &[1])),
        });
        let session = Session { start: Time::ZERO, turns: turns.to_vec() };
        let turns = turns_of(&session, 0);
        assert!((turns[1].pause_ms - 500.0).abs() < 1e-9);
        let answer = "alpha beta gamma delta beta alpha gamma";
        let before: Vec<&str> = tokenizer::pieces(&turns[0].text).collect();
        assert_eq!(before.len(), 20);
        let prompt = format!("{}{answer}{}", turns[0].text, turns[1].text);
        let pieces: Vec<&str> = tokenizer::pieces(&prompt).collect();
        assert_eq!((&pieces[..20], pieces.len()), (&before[..], 40));
        assert_eq!(pieces[20..27].concat(), answer);
    }

    #[test]
    fn what_cannot_be_sent_is_refused_by_name() {
        let several = Scenario { replicas: 2, ..scenario(Vec::new()) };
        let error = Plan::of(&several, 0.5, 9).unwrap_err();
        assert_eq!(error, NoPlan::Adversity("few".to_owned()));
        let adapted = LabRequest { adapter: Some("a".into()), ..request(20, &[1]) };
        let session = Session::single(Time::ZERO, adapted);
        let error = Plan::of(&scenario(vec![session]), 0.5, 9).unwrap_err();
        assert_eq!(error, NoPlan::Adapters("few".to_owned()));
    }
}
