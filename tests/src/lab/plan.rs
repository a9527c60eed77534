//! A scenario as HTTP requests, to be run against real gateways in real time.
//!
//! Virtual time is only worth something if it tells the same as real sockets do. A plan is
//! one scenario in a form that anything can send: descriptions of the engines for
//! `simulated-engine`, and each request's body with its moment. Text is made from block
//! hashes, a word of four bytes per token, so that engines find the same prefixes as they
//! do in the lab and a gateway that counts four bytes per token counts right.
//!
//! Only scenarios of independent requests can become plans: what a model answers is text of
//! its own over HTTP, so that a next turn would not find it in the cache.

use serde::Serialize;

use super::report::Row;
use super::request::{BLOCK_TOKENS, LabRequest};
use super::scenario::{EngineSpec, Scenario};
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
    /// In order of time.
    pub requests: Vec<Planned>,
    /// Requests that are sent earlier do not count, in milliseconds.
    pub warm_up_ms: f64,
    /// What virtual time says, per policy and run.
    pub predictions: Vec<Row>,
}

/// A request to be sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Planned {
    /// When, in milliseconds since the start.
    pub at_ms: f64,
    /// Prompt length in tokens.
    pub prompt_tokens: u32,
    /// Body of the request to `/v1/completions`.
    pub body: String,
}

/// A scenario that cannot be sent.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoPlan {
    /// A session has more than one turn.
    #[error("scenario {0} has conversations; only independent requests can be sent over HTTP")]
    Conversations(String),
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
    /// [`NoPlan`] when its requests depend on each other, or on adapters, or on more than engines
    /// and one gateway.
    pub fn of(scenario: &Scenario, load: f64, seed: u64) -> Result<Self, NoPlan> {
        if !scenario.faults.is_empty() || scenario.replicas > 1 {
            return Err(NoPlan::Adversity(scenario.name.clone()));
        }
        let mut requests = Vec::with_capacity(scenario.sessions.len());
        for (number, session) in scenario.sessions.iter().enumerate() {
            let [turn] = &session.turns[..] else {
                return Err(NoPlan::Conversations(scenario.name.clone()));
            };
            if turn.request.adapter.is_some() {
                return Err(NoPlan::Adapters(scenario.name.clone()));
            }
            requests.push(Planned {
                at_ms: session.start.since_origin().as_secs_f64() * 1e3,
                prompt_tokens: turn.request.prompt_tokens(),
                body: body(&turn.request, number),
            });
        }
        requests.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
        Ok(Self {
            scenario: scenario.name.clone(),
            load,
            seed,
            model: MODEL,
            engines: scenario.fleet.iter().enumerate().map(description).collect(),
            requests,
            warm_up_ms: scenario.warm_up.as_secs_f64() * 1e3,
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

fn body(request: &LabRequest, number: usize) -> String {
    serde_json::json!({
        "model": MODEL,
        "prompt": text(request, number),
        "max_tokens": request.engine.output_tokens.max(1),
        "ignore_eos": true,
        "stream": true,
        "stream_options": { "include_usage": true },
    })
    .to_string()
}

/// A prompt with as many tokens as the request has: the words of each known block, and
/// words of the request's own behind them.
fn text(request: &LabRequest, number: usize) -> String {
    let tokens = request.prompt_tokens() as usize;
    let own = |block: u64| (number as u64) << 32 | block;
    let blocks = request.prompt_blocks().iter().copied().chain((0_u64..).map(own));
    let words = blocks.flat_map(|block| {
        // Each word is a function of its block and its place in it.
        let mut rng = fastrand::Rng::with_seed(block);
        std::iter::repeat_with(move || std::array::from_fn::<char, 3, _>(|_| rng.lowercase()))
            .take(BLOCK_TOKENS as usize)
    });
    let mut text = String::with_capacity(tokens * 4);
    for word in words.take(tokens) {
        text.push(' ');
        text.extend(word);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gateway_core::Time;

    use super::*;
    use crate::engine::{EngineRequest, Settings};
    use crate::lab::scenario::{Scraping, Session};
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
            target: Duration::from_secs(1),
            warm_up: Duration::from_secs(2),
            length: Duration::from_secs(10),
        }
    }

    /// Tokens of the prompt, as the simulated engine reads it.
    fn tokens(request: &LabRequest, number: usize) -> Vec<u64> {
        tokenizer::pieces(&text(request, number)).map(tokenizer::token).collect()
    }

    #[test]
    fn engine_counts_the_tokens_that_the_lab_counts() {
        for length in [1, 15, 16, 17, 100] {
            assert_eq!(tokens(&request(length, &[1, 2]), 0).len(), length as usize);
        }
        assert_eq!(text(&request(100, &[]), 0).len(), 400);
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
        let moments: Vec<f64> = plan.requests.iter().map(|request| request.at_ms).collect();
        assert_eq!(moments, [1000.0, 3000.0]);
        let body: serde_json::Value = serde_json::from_str(&plan.requests[0].body).unwrap();
        assert_eq!((body["max_tokens"].as_u64(), body["stream"].as_bool()), (Some(7), Some(true)));
    }

    #[test]
    fn what_cannot_be_sent_is_refused_by_name() {
        let several = Scenario { replicas: 2, ..scenario(Vec::new()) };
        let error = Plan::of(&several, 0.5, 9).unwrap_err();
        assert_eq!(error, NoPlan::Adversity("few".to_owned()));
        let mut session = Session::single(Time::ZERO, request(20, &[1]));
        session.turns.push(session.turns[0].clone());
        let error = Plan::of(&scenario(vec![session]), 0.5, 9).unwrap_err();
        assert_eq!(error, NoPlan::Conversations("few".to_owned()));
        let adapted = LabRequest { adapter: Some("a".into()), ..request(20, &[1]) };
        let session = Session::single(Time::ZERO, adapted);
        let error = Plan::of(&scenario(vec![session]), 0.5, 9).unwrap_err();
        assert_eq!(error, NoPlan::Adapters("few".to_owned()));
    }
}
