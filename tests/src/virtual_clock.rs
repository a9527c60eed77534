//! Many engines and their arrivals on a clock that does not tick.
//!
//! [`run`] jumps from event to event: an arrival, or the end of an engine's step.
//! The caller decides where each arrival goes, at the moment it arrives and
//! knowing the engines as they are then, which is what a gateway does. Nothing
//! depends on anything outside, so a run repeats to the byte.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use gateway_core::Time;

use crate::engine::{Engine, EngineRequest, Event, EventKind, RequestId};

/// A request that arrives at a time of its own, whether or not others are done.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When.
    pub at: Time,
    /// What.
    pub request: EngineRequest,
}

/// What became of an arrival.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// The engine that got it.
    pub engine: usize,
    /// When it arrived.
    pub arrived: Time,
    /// When its first token existed; `None` when it was refused.
    pub first_token: Option<Time>,
    /// When its last token existed.
    pub finished: Option<Time>,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u32,
    /// How often it was preempted.
    pub preemptions: u32,
}

impl Outcome {
    /// Time to first token.
    #[must_use]
    pub fn time_to_first_token(&self) -> Option<Duration> {
        Some(self.first_token?.since(self.arrived))
    }
}

/// Sends every arrival to the engine that `pick` names and runs until all are answered.
///
/// `arrivals` must be in order of time. `pick` gets the moment, the engines and the
/// request; `observe` hears of every event in order of time, with the engine's and the
/// arrival's number.
pub fn run(
    engines: &mut [Engine],
    arrivals: &[Arrival],
    mut pick: impl FnMut(Time, &[Engine], &EngineRequest) -> usize,
    mut observe: impl FnMut(usize, usize, &Event),
) -> Vec<Outcome> {
    let mut fleet = Fleet::new(engines.len(), arrivals);
    for (number, arrival) in arrivals.iter().enumerate() {
        fleet.advance(engines, Some(arrival.at), &mut observe);
        let engine = pick(arrival.at, engines, &arrival.request);
        fleet.outcomes[number].engine = engine;
        if let Ok(id) = engines[engine].submit(arrival.at, arrival.request.clone()) {
            fleet.place(engine, id, number);
            fleet.schedule(engine, &engines[engine]);
        }
    }
    fleet.advance(engines, None, &mut observe);
    fleet.outcomes
}

struct Fleet {
    outcomes: Vec<Outcome>,
    /// Arrivals' numbers by engine and request; ids of an engine count from zero.
    numbers: Vec<Vec<(RequestId, usize)>>,
    /// When each engine has to be looked at again; entries may be out of date.
    due: BinaryHeap<Reverse<(Time, usize)>>,
    events: Vec<Event>,
}

impl Fleet {
    fn new(engines: usize, arrivals: &[Arrival]) -> Self {
        let outcome = |arrival: &Arrival| Outcome {
            engine: 0,
            arrived: arrival.at,
            first_token: None,
            finished: None,
            cached_tokens: 0,
            preemptions: 0,
        };
        Self {
            outcomes: arrivals.iter().map(outcome).collect(),
            numbers: vec![Vec::new(); engines],
            due: BinaryHeap::new(),
            events: Vec::new(),
        }
    }

    fn place(&mut self, engine: usize, id: RequestId, number: usize) {
        self.numbers[engine].push((id, number));
    }

    fn schedule(&mut self, index: usize, engine: &Engine) {
        if let Some(at) = engine.next_event() {
            self.due.push(Reverse((at, index)));
        }
    }

    /// Runs every engine up to `until`, or to its end.
    fn advance(
        &mut self,
        engines: &mut [Engine],
        until: Option<Time>,
        observe: &mut impl FnMut(usize, usize, &Event),
    ) {
        while let Some(Reverse((at, index))) = self.due.peek().copied() {
            if until.is_some_and(|until| at > until) {
                return;
            }
            self.due.pop();
            if engines[index].next_event() != Some(at) {
                continue; // rescheduled since
            }
            let mut events = std::mem::take(&mut self.events);
            engines[index].advance(at, &mut events);
            for event in events.drain(..) {
                self.note(index, &event, observe);
            }
            self.events = events;
            self.schedule(index, &engines[index]);
        }
    }

    fn note(
        &mut self,
        engine: usize,
        event: &Event,
        observe: &mut impl FnMut(usize, usize, &Event),
    ) {
        let numbers = &self.numbers[engine];
        let Ok(place) = numbers.binary_search_by_key(&event.request, |(id, _)| *id) else { return };
        let number = numbers[place].1;
        let outcome = &mut self.outcomes[number];
        match event.kind {
            EventKind::FirstToken => outcome.first_token = Some(event.at),
            EventKind::Finished(ended) => {
                outcome.first_token = Some(ended.first_token);
                outcome.finished = Some(event.at);
                outcome.cached_tokens = ended.cached_tokens;
                outcome.preemptions = ended.preemptions;
            }
            EventKind::Preempted | EventKind::Scheduled { .. } | EventKind::Token => {}
        }
        observe(engine, number, event);
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::engine::{EventDetail, Settings};
    use crate::profile::{Gpu, Model, Profile};

    fn engine(gpu: Gpu) -> Engine {
        let settings = Settings { events: EventDetail::FirstAndLast, ..Settings::default() };
        Engine::new(Profile::of(gpu, Model::B8).unwrap(), settings)
    }

    /// One request of 512 tokens in and 64 out every 125 ms: more than an A10G can take.
    fn steady(count: u64) -> Vec<Arrival> {
        let request =
            EngineRequest { prompt_tokens: 512, output_tokens: 64, ..EngineRequest::default() };
        let arrival = |number: u64| Arrival {
            at: Time::from_origin(Duration::from_millis(125) * number as u32),
            request: request.clone(),
        };
        (0..count).map(arrival).collect()
    }

    fn alone(gpu: Gpu) -> Vec<Outcome> {
        run(&mut [engine(gpu)], &steady(100), |_, _, _| 0, |_, _, _| {})
    }

    fn last_wait(outcomes: &[Outcome]) -> Duration {
        outcomes.last().and_then(Outcome::time_to_first_token).unwrap()
    }

    #[test]
    fn slow_gpu_builds_a_queue_where_a_fast_one_does_not() {
        let (slow, fast) = (alone(Gpu::A10G), alone(Gpu::H200));
        assert!(last_wait(&fast) < Duration::from_secs(1), "{:?}", last_wait(&fast));
        assert!(last_wait(&slow) > Duration::from_secs(5), "{:?}", last_wait(&slow));
    }

    #[test]
    fn runs_repeat_to_the_byte() {
        let trace = || {
            let mut engines = [engine(Gpu::A10G), engine(Gpu::H100)];
            let mut rng = fastrand::Rng::with_seed(7);
            let mut text = String::new();
            let outcomes = run(
                &mut engines,
                &steady(200),
                |_, engines, _| rng.usize(..engines.len()),
                |engine, number, event| writeln!(text, "{engine} {number} {event:?}").unwrap(),
            );
            text + &format!("{outcomes:?}")
        };
        assert_eq!(trace(), trace());
    }

    #[test]
    fn policy_sees_the_queue_as_it_is_at_each_arrival() {
        let mut engines = [engine(Gpu::A10G), engine(Gpu::A10G)];
        let shortest = |_: Time, engines: &[Engine], _: &EngineRequest| {
            usize::from(engines[1].in_flight() < engines[0].in_flight())
        };
        let outcomes = run(&mut engines, &steady(100), shortest, |_, _, _| {});
        let first = outcomes.iter().filter(|outcome| outcome.engine == 0).count();
        assert!((40..=60).contains(&first), "{first}");
        assert!(outcomes.iter().all(|outcome| outcome.finished.is_some()));
    }
}
