//! Runs a scenario: one policy, one seed, on a clock that does not tick.
//!
//! The loop jumps from event to event: the end of an engine's step, an arrival, a reading
//! that reaches a gateway, a fault. At equal times engines go first, then events in the
//! order in which they were scheduled, so a run repeats to the byte.
//!
//! A gateway costs no time here. What differs between policies is what they see and what
//! they decide, and the time of a decision is measured elsewhere.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use gateway_core::Time;

mod agenda;
mod fault;
mod gateway;
mod reading;
mod talk;

use agenda::{Agenda, Happening};
use gateway::Gateway;
use reading::Reading;
use talk::Talk;

use super::floor::Floor;
use super::outcome::{Fate, Outcome, Run};
use super::policy::{Asked, Contender, Decision, Ending, Sight};
use super::request::LabRequest;
use super::scenario::{EngineSpec, Scenario, Turn};
use crate::engine::{Ended, Engine, Event, EventKind, RequestId};

/// Endpoints that a request may fail at before it is given up.
const ATTEMPTS: usize = 3;

/// Time between two samples for plots.
const SAMPLING: Duration = Duration::from_secs(1);

/// A run whose requests are not answered so long after the last session began is cut.
const PATIENCE: Duration = Duration::from_hours(1);

/// Runs `scenario` with `contender` in the gateways' place.
#[must_use]
pub fn run(scenario: &Scenario, contender: &Contender, seed: u64) -> Run {
    let mut world = World::new(scenario, contender, seed);
    world.play();
    world.finish()
}

struct World<'a> {
    scenario: &'a Scenario,
    now: Time,
    engines: Vec<Engine>,
    standing: Vec<Standing>,
    /// When each engine has to be looked at again; entries may be out of date.
    due: BinaryHeap<Reverse<(Time, usize)>>,
    gateways: Vec<Gateway>,
    agenda: Agenda,
    requests: Vec<Tracked<'a>>,
    run: Run,
    /// Requests that have not ended, those that have not arrived included.
    open: usize,
    events: Vec<Event>,
    floor: Floor<'a>,
    has_adapters: bool,
}

/// What is true of an endpoint besides its engine.
#[derive(Debug)]
struct Standing {
    up: bool,
    page: bool,
    /// Starts of its engine, so that a gateway can tell a new one.
    incarnation: u32,
    /// Requests there, by the engine's own numbers.
    requests: BTreeMap<RequestId, usize>,
}

/// A request on its way.
struct Tracked<'a> {
    turn: &'a Turn,
    /// What comes after its end, if anything: the next number, too, is the next turn.
    is_last: bool,
    gateway: usize,
    tried: Vec<usize>,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, contender: &Contender, seed: u64) -> Self {
        let interval = scenario.scraping.interval.unwrap_or(contender.scrape_interval);
        let gateways = (0..scenario.replicas.max(1))
            .map(|number| Gateway::start(scenario, contender, interval, seed, number))
            .collect();
        let standing = (0..scenario.fleet.len()).map(|endpoint| Standing {
            up: !scenario.joins_later(endpoint),
            page: true,
            incarnation: 1,
            requests: BTreeMap::new(),
        });
        let mut world = Self {
            now: Time::ZERO,
            engines: scenario.fleet.iter().map(EngineSpec::start).collect(),
            standing: standing.collect(),
            due: BinaryHeap::new(),
            gateways,
            agenda: Agenda::default(),
            requests: Vec::new(),
            run: Run {
                counted_from: Time::from_origin(scenario.warm_up),
                counted_until: Some(Time::from_origin(scenario.warm_up + scenario.length)),
                endpoints: scenario.fleet.len(),
                ..Run::default()
            },
            open: 0,
            events: Vec::new(),
            floor: Floor::of(&scenario.fleet),
            has_adapters: false,
            scenario,
        };
        world.expect_requests(seed);
        world.expect_readings(interval, seed);
        world.expect_talks(seed);
        for (number, fault) in scenario.faults.iter().enumerate() {
            world.agenda.add(fault.at, Happening::Fault(number));
        }
        world.agenda.add(Time::ZERO, Happening::Sample);
        world
    }

    /// Numbers all requests, session by session, and lets the first of each arrive.
    fn expect_requests(&mut self, seed: u64) {
        for session in &self.scenario.sessions {
            for (place, turn) in session.turns.iter().enumerate() {
                let number = self.requests.len();
                if place == 0 {
                    self.agenda.add(session.start, Happening::Arrival(number));
                }
                self.has_adapters |= turn.request.engine.adapter.is_some();
                self.run.outcomes.push(self.expected(&turn.request));
                self.requests.push(Tracked {
                    turn,
                    is_last: place + 1 == session.turns.len(),
                    gateway: gateway::of_request(seed, number, self.gateways.len()),
                    tried: Vec::new(),
                });
            }
        }
        self.open = self.requests.len();
    }

    fn expected(&self, request: &LabRequest) -> Outcome {
        Outcome {
            arrived: Time::MAX,
            endpoint: None,
            sent: None,
            first_token: None,
            finished: None,
            prompt_tokens: request.prompt_tokens(),
            cached_tokens: 0,
            output_tokens: 0,
            preemptions: 0,
            floor: Duration::ZERO,
            target: request.target.unwrap_or(self.scenario.target),
            fate: Fate::Unfinished,
        }
    }

    fn play(&mut self) {
        let last = self.scenario.sessions.iter().map(|session| session.start).max();
        let limit = last.unwrap_or_default() + PATIENCE;
        while self.open > 0 && self.now < limit {
            let engine = self.due.peek().map(|Reverse(due)| *due);
            let other = self.agenda.next_at();
            match (engine, other) {
                (Some((at, engine)), other) if other.is_none_or(|other| at <= other) => {
                    self.due.pop();
                    self.now = at;
                    self.run_engine(engine);
                }
                (_, Some(_)) => {
                    let Some((at, happening)) = self.agenda.pop() else { return };
                    self.now = at;
                    self.happen(happening);
                }
                (Some(_) | None, None) => return,
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrival(number) => {
                let outcome = &mut self.run.outcomes[number];
                outcome.arrived = self.now;
                outcome.floor = self.floor.least(&self.requests[number].turn.request);
                self.decide(number);
                self.release(self.requests[number].gateway);
            }
            Happening::Delivery(reading) => self.deliver(*reading),
            Happening::Fault(number) => self.strike(self.scenario.faults[number]),
            Happening::Reading(reading) => self.read(reading),
            Happening::Sample => self.sample(),
            Happening::Talk(talk) => self.talk(*talk),
            Happening::Unlisting(endpoint) => self.unlist(endpoint),
            Happening::Wake(gateway) => {
                self.gateways[gateway].woken = None;
                self.release(gateway);
            }
        }
    }

    /// Takes what an engine has done by now.
    fn run_engine(&mut self, endpoint: usize) {
        if self.engines[endpoint].next_event() != Some(self.now) {
            return; // rescheduled since
        }
        let mut events = std::mem::take(&mut self.events);
        self.engines[endpoint].advance(self.now, &mut events);
        for event in events.drain(..) {
            match event.kind {
                EventKind::FirstToken => self.first_token(endpoint, event.request),
                EventKind::Finished(ended) => self.completed(endpoint, event.request, &ended),
                EventKind::Preempted | EventKind::Scheduled { .. } | EventKind::Token => {}
            }
        }
        self.events = events;
        self.schedule(endpoint);
    }

    fn schedule(&mut self, endpoint: usize) {
        if let Some(at) = self.engines[endpoint].next_event() {
            self.due.push(Reverse((at, endpoint)));
        }
    }

    fn first_token(&mut self, endpoint: usize, id: RequestId) {
        let Some(&number) = self.standing[endpoint].requests.get(&id) else { return };
        self.run.outcomes[number].first_token = Some(self.now);
        let tracked = &self.requests[number];
        let tokens = tracked.turn.request.prompt_tokens();
        let gateway = &mut self.gateways[tracked.gateway];
        gateway.seen[endpoint].answered(tokens);
        gateway.policy.first_token(number, endpoint, self.now);
        self.release(self.requests[number].gateway);
    }

    fn completed(&mut self, endpoint: usize, id: RequestId, ended: &Ended) {
        let Some(number) = self.standing[endpoint].requests.remove(&id) else { return };
        let outcome = &mut self.run.outcomes[number];
        outcome.first_token = Some(ended.first_token);
        outcome.finished = Some(self.now);
        outcome.cached_tokens = ended.cached_tokens;
        outcome.output_tokens = ended.output_tokens;
        outcome.preemptions = ended.preemptions;
        let ending = Ending::Completed {
            output_tokens: ended.output_tokens,
            cached_tokens: ended.cached_tokens,
        };
        self.leave(number, endpoint, ending);
        self.end(number, Fate::Answered);
        self.release(self.requests[number].gateway);
    }

    /// Takes a request out of its gateway's accounts.
    fn leave(&mut self, number: usize, endpoint: usize, ending: Ending) {
        let tracked = &self.requests[number];
        let gateway = &mut self.gateways[tracked.gateway];
        if matches!(ending, Ending::Failed) && self.run.outcomes[number].first_token.is_none() {
            gateway.seen[endpoint].answered(tracked.turn.request.prompt_tokens());
        }
        gateway.seen[endpoint].in_flight -= 1;
        gateway.policy.finished(number, endpoint, ending, self.now);
    }

    /// Ends a request for good; the next of its session follows after its pause.
    fn end(&mut self, number: usize, fate: Fate) {
        self.run.outcomes[number].fate = fate;
        self.run.end = self.now;
        self.open -= 1;
        if !self.requests[number].is_last {
            let next = number + 1;
            let at = self.now + self.requests[next].turn.pause;
            self.agenda.add(at, Happening::Arrival(next));
        }
    }

    fn decide(&mut self, number: usize) {
        let tracked = &self.requests[number];
        let gateway = &mut self.gateways[tracked.gateway];
        let sight = Sight { now: self.now, endpoints: &gateway.seen, truth: &self.engines };
        let asked = Asked { number, request: &tracked.turn.request, tried: &tracked.tried };
        let decision = gateway.policy.decide(asked, &sight, &mut gateway.rng);
        self.carry_out(number, decision);
    }

    /// Lets a gateway's held requests go, as far as it wants.
    fn release(&mut self, number: usize) {
        loop {
            let gateway = &mut self.gateways[number];
            let sight = Sight { now: self.now, endpoints: &gateway.seen, truth: &self.engines };
            match gateway.policy.release(&sight, &mut gateway.rng) {
                None | Some((_, Decision::Hold)) => break,
                Some((request, decision)) => self.carry_out(request, decision),
            }
        }
        let gateway = &mut self.gateways[number];
        if let Some(at) = gateway.policy.wake().map(|at| at.max(self.now))
            && gateway.woken.is_none_or(|woken| at < woken)
        {
            gateway.woken = Some(at);
            self.agenda.add(at, Happening::Wake(number));
        }
    }

    fn carry_out(&mut self, number: usize, decision: Decision) {
        match decision {
            Decision::Hold => {}
            Decision::Send(endpoint) => self.send(number, endpoint),
            Decision::Shed => self.end(number, Fate::Shed),
        }
    }

    fn send(&mut self, number: usize, endpoint: usize) {
        let tracked = &self.requests[number];
        let request: &Arc<LabRequest> = &tracked.turn.request;
        let gateway = &mut self.gateways[tracked.gateway];
        gateway.seen[endpoint].sent(request.prompt_tokens());
        let asked = Asked { number, request, tried: &tracked.tried };
        gateway.policy.picked(asked, endpoint, self.now);
        let outcome = &mut self.run.outcomes[number];
        outcome.endpoint = Some(endpoint);
        outcome.sent = Some(self.now);
        if !self.standing[endpoint].up {
            return self.fail(number, endpoint);
        }
        match self.engines[endpoint].submit(self.now, request.engine.clone()) {
            Ok(id) => {
                self.standing[endpoint].requests.insert(id, number);
                self.schedule(endpoint);
            }
            Err(_) => self.fail(number, endpoint),
        }
    }

    /// The endpoint fails a request: another one gets it, unless its answer has begun.
    fn fail(&mut self, number: usize, endpoint: usize) {
        self.leave(number, endpoint, Ending::Failed);
        let tracked = &mut self.requests[number];
        tracked.tried.push(endpoint);
        if self.run.outcomes[number].first_token.is_some() || tracked.tried.len() >= ATTEMPTS {
            self.end(number, Fate::Failed);
        } else {
            self.decide(number);
        }
    }

    fn finish(self) -> Run {
        self.run
    }
}

#[cfg(test)]
mod tests;
