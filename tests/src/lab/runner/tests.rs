//! The runner keeps its promises to policies.

use std::sync::{Arc, Mutex};

use fastrand::Rng;
use gateway_core::Signals;
use gateway_core::peer::{Report, Scope};

use super::*;
use crate::engine::{EngineRequest, EventDetail, Settings};
use crate::lab::policy::{Policy, Setup};
use crate::lab::scenario::{EngineSpec, Exchange, Fault, FaultKind, Scraping, Session, Turn};
use crate::profile::{Gpu, Model, Profile};

fn at(seconds: u64) -> Time {
    Time::from_origin(Duration::from_secs(seconds))
}

fn request(prompt_tokens: u32, output_tokens: u32) -> LabRequest {
    let engine = EngineRequest { prompt_tokens, output_tokens, ..EngineRequest::default() };
    LabRequest { engine, ..LabRequest::default() }
}

fn scenario(engines: usize, sessions: Vec<Session>) -> Scenario {
    let settings = Settings { events: EventDetail::FirstAndLast, ..Settings::default() };
    let profile = Profile::of(Gpu::H100, Model::B8).unwrap();
    Scenario {
        name: "test".to_owned(),
        fleet: vec![EngineSpec { profile, settings }; engines],
        sessions,
        scraping: Scraping::default(),
        faults: Vec::new(),
        replicas: 1,
        exchange: None,
        target: Duration::from_secs(1),
        warm_up: Duration::ZERO,
        length: Duration::MAX,
    }
}

/// The first endpoint that is listed and has not failed the request.
struct First;

impl Policy for First {
    fn decide(&mut self, asked: Asked<'_>, sight: &Sight<'_>, _: &mut Rng) -> Decision {
        let may = |number: &usize| sight.endpoints[*number].ready && !asked.tried.contains(number);
        let first = (0..sight.endpoints.len()).find(may);
        first.map_or(Decision::Shed, Decision::Send)
    }
}

fn contender(start: fn(&Setup<'_>) -> Box<dyn Policy>) -> Contender {
    Contender { name: "test", scrape_interval: Duration::from_millis(50), start }
}

const DOWN: FaultKind = FaultKind::Down;

#[test]
fn a_turn_follows_the_answer_before_it_after_its_pause() {
    let turn =
        |pause| Turn { pause: Duration::from_secs(pause), request: Arc::new(request(500, 20)) };
    let session = Session { start: at(1), turns: vec![turn(0), turn(5), turn(7)] };
    let outcomes = run(&scenario(1, vec![session]), &contender(|_| Box::new(First)), 1).outcomes;
    assert_eq!(outcomes[0].arrived, at(1));
    assert_eq!(outcomes[1].arrived, outcomes[0].finished.unwrap() + Duration::from_secs(5));
    assert_eq!(outcomes[2].arrived, outcomes[1].finished.unwrap() + Duration::from_secs(7));
}

#[test]
fn a_request_whose_endpoint_dies_before_its_first_token_goes_to_another() {
    let sessions = vec![Session::single(at(1), request(8_000, 10))];
    let fault = Fault { at: at(1) + Duration::from_millis(100), endpoint: 0, kind: DOWN };
    let scenario = Scenario { faults: vec![fault], ..scenario(2, sessions) };
    let outcomes = run(&scenario, &contender(|_| Box::new(First)), 1).outcomes;
    assert_eq!((outcomes[0].fate, outcomes[0].endpoint), (Fate::Answered, Some(1)));
    // All of it is computed again.
    assert!(outcomes[0].time_to_first_token().unwrap() > Duration::from_millis(1_800));
}

#[test]
fn an_answer_that_has_begun_is_not_begun_again() {
    let sessions = vec![Session::single(at(1), request(100, 2_000))];
    let fault = Fault { at: at(3), endpoint: 0, kind: DOWN };
    let scenario = Scenario { faults: vec![fault], ..scenario(2, sessions) };
    let outcomes = run(&scenario, &contender(|_| Box::new(First)), 1).outcomes;
    assert_eq!((outcomes[0].fate, outcomes[0].endpoint), (Fate::Failed, Some(0)));
}

#[test]
fn a_dead_endpoint_refuses_until_it_is_unlisted_and_is_cold_when_it_returns() {
    let sessions = [2, 20, 40].map(|second| Session::single(at(second), request(100, 2)));
    let fault = |second, kind| Fault { at: at(second), endpoint: 0, kind };
    let faults = vec![fault(1, DOWN), fault(30, FaultKind::Up)];
    let scenario = Scenario { faults, ..scenario(2, sessions.to_vec()) };
    let outcomes = run(&scenario, &contender(|_| Box::new(First)), 1).outcomes;
    let endpoints: Vec<_> = outcomes.iter().map(|outcome| outcome.endpoint).collect();
    assert_eq!(endpoints, [Some(1), Some(1), Some(0)]);
    assert!(outcomes.iter().all(|outcome| outcome.fate == Fate::Answered));
}

/// Holds every request until a reading shows an idle engine.
#[derive(Default)]
struct Patient {
    held: Vec<usize>,
    idle: bool,
}

impl Policy for Patient {
    fn decide(&mut self, asked: Asked<'_>, _: &Sight<'_>, _: &mut Rng) -> Decision {
        self.held.push(asked.number);
        Decision::Hold
    }

    fn release(&mut self, _: &Sight<'_>, _: &mut Rng) -> Option<(usize, Decision)> {
        let number = self.idle.then(|| self.held.pop())??;
        self.idle = false;
        Some((number, Decision::Send(0)))
    }

    fn scraped(&mut self, _: usize, signals: &Signals, _: Time) {
        self.idle = signals.running == Some(0.0);
    }
}

#[test]
fn held_requests_go_one_by_one_as_readings_allow() {
    let sessions = vec![Session::single(at(1), request(100, 50)); 3];
    let outcomes =
        run(&scenario(1, sessions), &contender(|_| Box::<Patient>::default()), 1).outcomes;
    let mut sent: Vec<Time> = outcomes.iter().map(|outcome| outcome.sent.unwrap()).collect();
    sent.sort_unstable();
    // 50 tokens take more than half a second.
    assert!(sent.windows(2).all(|pair| pair[1].since(pair[0]) > Duration::from_millis(500)));
    assert!(outcomes.iter().all(|outcome| outcome.fate == Fate::Answered));
}

/// Readings by arrival, for the test that looks at them.
static READ: Mutex<Vec<Time>> = Mutex::new(Vec::new());

struct Reader;

impl Policy for Reader {
    fn decide(&mut self, _: Asked<'_>, _: &Sight<'_>, _: &mut Rng) -> Decision {
        Decision::Send(0)
    }

    fn scraped(&mut self, _: usize, _: &Signals, now: Time) {
        READ.lock().unwrap().push(now);
    }
}

#[test]
fn readings_come_at_the_interval_unless_the_page_is_gone() {
    let sessions = vec![Session::single(at(9), request(10, 1))];
    let fault = |second, kind| Fault { at: at(second), endpoint: 0, kind };
    let faults = vec![fault(2, FaultKind::MetricsOff), fault(8, FaultKind::MetricsOn)];
    let scenario = Scenario { faults, ..scenario(1, sessions) };
    let _ = run(&scenario, &contender(|_| Box::new(Reader)), 1);
    let read = READ.lock().unwrap();
    let gaps: Vec<Duration> = read.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    let long = gaps.iter().filter(|gap| **gap > Duration::from_millis(51)).count();
    assert_eq!(long, 1);
    assert!(gaps.iter().any(|gap| *gap > Duration::from_secs(5)));
}

/// What [`Talker`]s have heard: of whom, and its number.
static HEARD: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());

/// Tells nothing but how often it was asked.
#[derive(Default)]
struct Talker {
    asked: u64,
}

impl Policy for Talker {
    fn decide(&mut self, _: Asked<'_>, _: &Sight<'_>, _: &mut Rng) -> Decision {
        Decision::Send(0)
    }

    fn report(&mut self, since: u64, _: Time) -> Option<Report> {
        assert_eq!(since, self.asked);
        self.asked += 1;
        Some(Report { next: self.asked, scope: Scope::Since, block_tokens: 16, news: Vec::new() })
    }

    fn heard(&mut self, peer: usize, report: &Report, written: Time, now: Time) {
        assert_eq!(now.since(written), Duration::from_millis(2));
        HEARD.lock().unwrap().push((peer, report.next));
    }
}

#[test]
fn gateways_read_each_others_reports_in_order_and_at_their_interval() {
    let sessions = vec![Session::single(at(10), request(500, 20))];
    let exchange = Some(Exchange::default());
    let scenario = Scenario { replicas: 2, exchange, ..scenario(1, sessions) };
    let run = run(&scenario, &contender(|_| Box::new(Talker::default())), 1);
    assert_eq!(run.outcomes[0].fate, Fate::Answered);
    let heard = HEARD.lock().unwrap();
    for peer in 0..2 {
        let of_peer = heard.iter().filter(|(of, _)| *of == peer).map(|(_, number)| *number);
        let numbers: Vec<u64> = of_peer.collect();
        assert!((390..=430).contains(&numbers.len()), "{}", numbers.len());
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
    }
}
