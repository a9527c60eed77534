//! What no policy can do better.
//!
//! A request's floor is its time to first token alone on an idle engine of the fleet's
//! fastest kind, with everything in its cache that any earlier request can have left
//! anywhere. Queues, batches, order and knowledge play no part in it: a goal below the floor is out of
//! everybody's reach.

use std::time::Duration;

use super::request::{BLOCK_TOKENS, LabRequest};
use super::scenario::EngineSpec;
use crate::block_map::BlockSet;
use crate::profile::Profile;

/// Works out the floors of requests, which have to come in the order of their arrival.
#[derive(Debug)]
pub(super) struct Floor<'a> {
    kinds: Vec<&'a Profile>,
    /// Blocks of all requests so far, answers included.
    seen: BlockSet,
}

impl<'a> Floor<'a> {
    pub(super) fn of(fleet: &'a [EngineSpec]) -> Self {
        let mut kinds: Vec<&Profile> = Vec::new();
        for spec in fleet {
            if !kinds.contains(&&spec.profile) {
                kinds.push(&spec.profile);
            }
        }
        Self { kinds, seen: BlockSet::default() }
    }

    /// The least time to first token of a request.
    pub(super) fn least(&mut self, request: &LabRequest) -> Duration {
        let blocks = request.prompt_blocks();
        let cached = blocks.iter().take_while(|block| self.seen.contains(block)).count() as u32;
        // The last token is always computed.
        let uncached = request.prompt_tokens().saturating_sub(cached * BLOCK_TOKENS).max(1);
        self.seen.extend(&request.engine.block_hashes);
        let alone = self.kinds.iter().map(|kind| kind.time_to_first_token(uncached));
        alone.min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, EngineRequest, EventKind, Settings};
    use crate::profile::{Gpu, Model};
    use gateway_core::Time;

    fn spec(gpu: Gpu) -> EngineSpec {
        let profile = Profile::of(gpu, Model::B8).unwrap();
        EngineSpec { profile, settings: Settings::default() }
    }

    fn request(prompt_tokens: u32, block_hashes: Vec<u64>) -> LabRequest {
        let engine =
            EngineRequest { prompt_tokens, output_tokens: 1, block_hashes, ..Default::default() };
        LabRequest { engine, ..LabRequest::default() }
    }

    /// Time to first token on an idle engine.
    fn alone(spec: &EngineSpec, request: &LabRequest) -> Duration {
        let mut engine: Engine = spec.start();
        engine.submit(Time::ZERO, request.engine.clone()).unwrap();
        let mut events = Vec::new();
        while let Some(at) = engine.next_event() {
            engine.advance(at, &mut events);
            let first = events.iter().find(|event| event.kind == EventKind::FirstToken);
            if let Some(event) = first {
                return event.at.since(Time::ZERO);
            }
        }
        panic!("no first token")
    }

    #[test]
    fn it_is_what_the_fastest_engine_takes_alone() {
        let fleet = [spec(Gpu::A10G), spec(Gpu::H100)];
        // The second one takes several steps.
        for tokens in [100, 20_000] {
            let request = request(tokens, Vec::new());
            let least = Floor::of(&fleet).least(&request);
            assert!(least.abs_diff(alone(&fleet[1], &request)) < Duration::from_micros(1));
        }
    }

    #[test]
    fn what_came_before_may_be_cached() {
        let fleet = [spec(Gpu::H100)];
        let mut floor = Floor::of(&fleet);
        // 64 tokens of a prompt, and 32 of the answer.
        floor.least(&request(64, (1..=6).collect()));
        let per_token = fleet[0].profile.prefill_per_token;
        let overhead = fleet[0].profile.prefill_overhead;
        let next = request(100, (1..=6).collect());
        assert_eq!(floor.least(&next), overhead + per_token * 4);
        let stranger = request(100, (20..=26).collect());
        assert_eq!(floor.least(&stranger), overhead + per_token * 100);
    }
}
