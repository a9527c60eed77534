//! How many requests per second a fleet can take: measured, not guessed.
//!
//! Each kind of engine gets a scenario's requests as a backlog, all at once, and never has
//! nothing to do. What it finishes per second from a fifth to four fifths of the way is its
//! capacity for this mixture; the fleet's is the sum. Nobody gets more out of it, by any
//! routing, than what better use of prefix caches and adapters brings.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use gateway_core::Time;

use super::catalogue::Entry;
use super::outcome::Run;
use super::policy::{Asked, Contender, Decision, Policy, Sight};
use super::runner;
use super::scenario::{EngineSpec, Scenario, Scraping, Session, Turn};

/// Requests of the backlog.
const REQUESTS: usize = 3_000;

/// Sends everything to the one engine there is.
struct Only;

impl Policy for Only {
    fn decide(&mut self, _: Asked<'_>, _: &Sight<'_>, _: &mut Rng) -> Decision {
        Decision::Send(0)
    }
}

const ONLY: Contender =
    Contender { name: "only", scrape_interval: Duration::from_hours(1), start: |_| Box::new(Only) };

/// Requests per second that the entry's fleet can finish.
#[must_use]
pub fn capacity(entry: &Entry) -> f64 {
    let backlog = backlog(entry);
    let mut known: Vec<(EngineSpec, f64)> = Vec::new();
    let mut total = 0.0;
    for spec in (entry.fleet)() {
        let found = known.iter().find(|(other, _)| other.profile == spec.profile);
        let rate = found.map_or_else(|| alone(&spec, &backlog), |(_, rate)| *rate);
        if found.is_none() {
            known.push((spec, rate));
        }
        total += rate;
    }
    total
}

/// The entry's requests, all there at once and without pauses.
fn backlog(entry: &Entry) -> Vec<Session> {
    let mut rng = Rng::with_seed(0);
    let sessions = (entry.sessions)(10.0, Duration::from_secs(REQUESTS as u64 / 10), &mut rng);
    let hurried = |session: Session| Session {
        start: Time::ZERO,
        turns: session
            .turns
            .into_iter()
            .map(|turn| Turn { pause: Duration::ZERO, request: Arc::clone(&turn.request) })
            .collect(),
    };
    sessions.into_iter().map(hurried).collect()
}

fn alone(spec: &EngineSpec, backlog: &[Session]) -> f64 {
    let scenario = Scenario {
        name: "calibration".to_owned(),
        fleet: vec![spec.clone()],
        sessions: backlog.to_vec(),
        scraping: Scraping::default(),
        faults: Vec::new(),
        replicas: 1,
        exchange: None,
        target: Duration::MAX,
        warm_up: Duration::ZERO,
        length: Duration::MAX,
    };
    finished_per_second(&runner::run(&scenario, &ONLY, 0))
}

fn finished_per_second(run: &Run) -> f64 {
    let mut ends: Vec<Time> = run.outcomes.iter().filter_map(|outcome| outcome.finished).collect();
    ends.sort_unstable();
    let (from, to) = (ends.len() / 5, ends.len() * 4 / 5);
    if from == to {
        return 0.0;
    }
    (to - from) as f64 / ends[to].since(ends[from]).as_secs_f64()
}
