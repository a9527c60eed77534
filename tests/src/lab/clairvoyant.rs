//! A gateway that sees everything: what perfect knowledge of the present is worth.
//!
//! For each request it runs every engine ahead, as the engine is at this moment and with
//! the true length of every answer, and takes the one whose first token comes
//! soonest ([`Engine::forecast`](crate::engine::Engine::forecast)).
//!
//! # What it bounds, and what not
//!
//! - No gateway can place *a* request better for that request's first token: prediction
//!   errors, stale signals and wrong ideas of the caches are all absent. Where the KV cache
//!   is full on the way, forecasts are too hopeful, for all engines alike.
//! - It is greedy, not optimal: it does not know what arrives later. A policy that saves the
//!   fast engine or the warm cache for somebody may end with a better percentile. An
//!   optimum over all arrivals is a scheduling problem that nobody can solve at this size.
//! - Engines serve first come, first served, so a request delays no first token that is on
//!   its way already (preemption and adapters apart). It does delay those that come next,
//!   by its uncached prompt. A price for that, in engine time at 0.25 to 2 times the
//!   request's own wait, made P99 worse on a mixed fleet (by 1 to 80 %) and left it the
//!   same elsewhere, within the spread: who waits least also leaves soonest. So there is
//!   no price.
//! - It never holds a request back: with true forecasts an early choice loses only what a
//!   later arrival would have told.
//! - It keeps to the daemon's rule that an endpoint whose page has not been read for two seconds gets
//!   nothing while there are others: what is lost by the rule no choice can win back.
//! - It does not know which endpoint is going to fail, nor that one is dead before
//!   the list of endpoints says so.

use fastrand::Rng;
use gateway_core::Time;
use gateway_core::pool::PoolSettings;

use super::ours::SCRAPE_INTERVAL;
use super::policy::{Asked, Contender, Decision, Policy, Sight};

/// The policy, as the runner starts it.
pub const CONTENDER: Contender = Contender {
    name: "clairvoyant",
    scrape_interval: SCRAPE_INTERVAL,
    start: |_| Box::new(Clairvoyant),
};

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Clairvoyant;

impl Policy for Clairvoyant {
    fn decide(&mut self, asked: Asked<'_>, sight: &Sight<'_>, _rng: &mut Rng) -> Decision {
        let order = order(&asked, sight);
        let mut best: Option<(Time, usize)> = None;
        for &at in &order {
            let limit = best.map_or(Time::MAX, |(first_token, _)| first_token);
            let forecast = sight.truth[at].forecast(sight.now, &asked.request.engine, limit);
            let Some(forecast) = forecast else { continue };
            if best.is_none_or(|(first_token, _)| forecast.first_token < first_token) {
                best = Some((forecast.first_token, at));
            }
        }
        // Where no engine can ever run it, the first one says so.
        let choice = best.map(|(_, at)| at).or(order.first().copied());
        choice.map_or(Decision::Shed, Decision::Send)
    }
}

/// Engines in the order in which a good one is likely to be found early: a forecast
/// need not look further than the best one so far. Among equals the emptiest is first.
fn order(asked: &Asked<'_>, sight: &Sight<'_>) -> Vec<usize> {
    let may = |at: &usize| sight.endpoints[*at].ready && !asked.tried.contains(at);
    let mut order: Vec<usize> = (0..sight.truth.len()).filter(may).collect();
    let stale_after = PoolSettings::default().stale_after;
    let is_fresh = |at: &usize| sight.now.since(sight.endpoints[*at].read) <= stale_after;
    if order.iter().any(is_fresh) {
        order.retain(is_fresh);
    }
    order.sort_by_cached_key(|&at| (sight.truth[at].load().waiting(), sight.truth[at].in_flight()));
    order
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::engine::{Engine, EngineRequest, Settings};
    use crate::lab::policy::Seen;
    use crate::lab::request::LabRequest;
    use crate::profile::{Gpu, Model, Profile};

    fn engine(gpu: Gpu) -> Engine {
        Engine::new(Profile::of(gpu, Model::B8).unwrap(), Settings::default())
    }

    fn request(prompt_tokens: u32, output_tokens: u32) -> EngineRequest {
        EngineRequest { prompt_tokens, output_tokens, ..EngineRequest::default() }
    }

    fn choice(engines: &[Engine], request: EngineRequest) -> Decision {
        let request = Arc::new(LabRequest { engine: request, ..LabRequest::default() });
        let endpoints = vec![Seen { ready: true, ..Seen::default() }; engines.len()];
        let sight = Sight { now: Time::ZERO, endpoints: &endpoints, truth: engines };
        let asked = Asked { number: 0, request: &request, tried: &[] };
        Clairvoyant.decide(asked, &sight, &mut Rng::with_seed(1))
    }

    #[test]
    fn slow_engine_is_used_as_soon_as_the_fast_one_has_more_to_wait_for() {
        let mut engines = [engine(Gpu::A10G), engine(Gpu::H100)];
        assert_eq!(choice(&engines, request(100, 10)), Decision::Send(1));
        engines[1].submit(Time::ZERO, request(8000, 10)).unwrap();
        assert_eq!(choice(&engines, request(100, 10)), Decision::Send(0));
    }

    #[test]
    fn endpoint_whose_page_is_gone_gets_nothing_while_there_are_others() {
        let engines = [engine(Gpu::H100), engine(Gpu::A10G)];
        let request = Arc::new(LabRequest { engine: request(100, 10), ..LabRequest::default() });
        let asked = Asked { number: 0, request: &request, tried: &[] };
        let choice = |read: [u64; 2]| {
            let seen = |seconds| Seen {
                ready: true,
                read: Time::from_origin(Duration::from_secs(seconds)),
                ..Seen::default()
            };
            let now = Time::from_origin(Duration::from_secs(10));
            let sight = Sight { now, endpoints: &read.map(seen), truth: &engines };
            Clairvoyant.decide(asked, &sight, &mut Rng::with_seed(1))
        };
        assert_eq!(choice([9, 9]), Decision::Send(0));
        assert_eq!(choice([7, 9]), Decision::Send(1));
        assert_eq!(choice([7, 7]), Decision::Send(0));
    }

    #[test]
    fn length_of_answers_under_way_is_known() {
        let full = Settings { max_num_seqs: 1, ..Settings::default() };
        let profile = Profile::of(Gpu::H100, Model::B8).unwrap();
        let mut engines = [(); 2].map(|()| Engine::new(profile.clone(), full.clone()));
        engines[0].submit(Time::ZERO, request(10, 900)).unwrap();
        engines[1].submit(Time::ZERO, request(10, 20)).unwrap();
        assert_eq!(choice(&engines, request(100, 10)), Decision::Send(1));
    }

    #[test]
    fn request_that_fits_nowhere_is_still_sent() {
        assert_eq!(choice(&[engine(Gpu::H100)], request(10_000_000, 1)), Decision::Send(0));
    }
}
