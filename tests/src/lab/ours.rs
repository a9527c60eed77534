//! Our gateway under test: the daemon's own code, driven as the daemon drives it.
//!
//! Everything that decides is in `gateway_core`: this file hands it what happens, in the
//! order in which the daemon's shell does. Each call that may have made room lets queued
//! requests go, as there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use gateway_core::admission::{
    Admission, AdmissionSettings, Band, Capacity, Offer, Queueing, Ticket, TicketId,
};
use gateway_core::peer::{PeerId, Peers, Report};
use gateway_core::policy::{Lots, PolicySettings, PredictedSettings, Weights};
use gateway_core::pool::{
    End, EndpointId, EndpointSpec, Failure, Lease, LeaseId, NoEndpoint, Pick, Pool, PoolSettings,
    Room,
};
use gateway_core::request::{Answer, RequestView};
use gateway_core::{Signals, Time};

use super::policy::{Asked, Contender, Decision, Ending, Policy, Setup, Sight};
use super::request::LabRequest;

/// How often the daemon reads the engines' pages by default.
pub(super) const SCRAPE_INTERVAL: Duration = Duration::from_millis(50);

/// Answer length that the daemon charges a flow for before it is known.
const USUAL_OUTPUT_TOKENS: u32 = 256;

/// Our policies. The plain balancers, which the daemon has as well, run as peers.
pub const CONTENDERS: [Contender; 4] = [
    contender("weighted", |setup| {
        start(setup, PolicySettings::Weighted(Weights::default()), Queueing::Off)
    }),
    contender("predicted", |setup| start(setup, predicted(), Queueing::Off)),
    contender("predicted+at_once", |setup| {
        let settings = PredictedSettings {
            lots: Lots::Off,
            max_deferral: Duration::ZERO,
            ..PredictedSettings::default()
        };
        start(setup, PolicySettings::Predicted(settings), Queueing::Off)
    }),
    contender("predicted+late_binding", |setup| start(setup, predicted(), Queueing::On)),
];

const fn contender(name: &'static str, start: fn(&Setup<'_>) -> Box<dyn Policy>) -> Contender {
    Contender { name, scrape_interval: SCRAPE_INTERVAL, start }
}

fn predicted() -> PolicySettings {
    PolicySettings::Predicted(PredictedSettings::default())
}

fn start(setup: &Setup<'_>, policy: PolicySettings, queueing: Queueing) -> Box<dyn Policy> {
    let peers = if setup.exchange.is_some() { Peers::Known } else { Peers::Unknown };
    let settings = PoolSettings { policy, peers, ..PoolSettings::default() };
    Box::new(Ours::new(setup, settings, queueing))
}

/// One replica of our gateway.
struct Ours {
    pool: Pool,
    admission: Admission,
    queueing: Queueing,
    names: Vec<Arc<str>>,
    listed: Vec<bool>,
    /// By endpoint number; `None` while it is not listed.
    ids: Vec<Option<EndpointId>>,
    /// Endpoint numbers by identity.
    numbers: HashMap<EndpointId, usize>,
    waiting: HashMap<TicketId, Held>,
    /// Held requests whose time is up and that are not refused yet.
    expired: Vec<usize>,
    /// Picked requests that wait for their lots.
    held: HashMap<LeaseId, Held>,
    /// By request number, while in flight.
    flights: HashMap<usize, Flight>,
}

/// A request that waits in the gateway.
struct Held {
    number: usize,
    request: Arc<LabRequest>,
    tried: Vec<usize>,
}

impl Held {
    fn of(asked: Asked<'_>) -> Self {
        let (request, tried) = (Arc::clone(asked.request), asked.tried.to_vec());
        Self { number: asked.number, request, tried }
    }

    fn asked(&self) -> Asked<'_> {
        Asked { number: self.number, request: &self.request, tried: &self.tried }
    }
}

/// A request at an endpoint.
struct Flight {
    lease: Lease,
    request: Arc<LabRequest>,
}

impl Ours {
    fn new(setup: &Setup<'_>, settings: PoolSettings, queueing: Queueing) -> Self {
        let admission = AdmissionSettings { queueing, ..AdmissionSettings::default() };
        let count = setup.fleet.len();
        let mut ours = Self {
            pool: Pool::new(settings),
            admission: Admission::new(admission),
            queueing,
            names: (0..count).map(|number| format!("engine-{number}").into()).collect(),
            listed: vec![true; count],
            ids: vec![None; count],
            numbers: HashMap::new(),
            waiting: HashMap::new(),
            expired: Vec::new(),
            held: HashMap::new(),
            flights: HashMap::new(),
        };
        ours.apply_listing(Time::ZERO);
        ours
    }

    fn apply_listing(&mut self, now: Time) {
        let listed: Vec<usize> = (0..self.listed.len()).filter(|&at| self.listed[at]).collect();
        let specs: Vec<EndpointSpec> = listed
            .iter()
            .map(|&number| EndpointSpec { name: Arc::clone(&self.names[number]), weight: 1.0 })
            .collect();
        let ids = self.pool.set_endpoints(&specs, now);
        self.ids.fill(None);
        for (number, id) in listed.into_iter().zip(ids) {
            self.ids[number] = Some(id);
            self.numbers.insert(id, number);
        }
    }

    fn pick(&mut self, asked: Asked<'_>, now: Time, rng: &mut Rng) -> Result<Decision, NoEndpoint> {
        let request = asked.request;
        let tried: Vec<EndpointId> =
            asked.tried.iter().filter_map(|&tried| self.ids[tried]).collect();
        let view = RequestView {
            adapter: request.adapter.as_deref(),
            prompt_tokens: request.prompt_tokens(),
            max_output_tokens: request.max_output_tokens,
            blocks: request.prompt_blocks(),
            // The daemon knows a session only where it is configured to: by default it is not.
            session: None,
            tried: &tried,
            answer: Answer::Streamed,
        };
        let Pick { endpoint, lease, held, .. } = self.pool.pick(&view, now, rng)?;
        let decision = if held {
            self.held.insert(lease.id(), Held::of(asked));
            Decision::Hold
        } else {
            Decision::Send(self.numbers[&endpoint])
        };
        self.flights.insert(asked.number, Flight { lease, request: Arc::clone(request) });
        Ok(decision)
    }

    fn wait(&mut self, id: TicketId, asked: Asked<'_>) -> Decision {
        self.waiting.insert(id, Held::of(asked));
        Decision::Hold
    }

    /// The next request whose lot is due, and where it goes.
    fn due(&mut self, sight: &Sight<'_>, rng: &mut Rng) -> Option<(usize, Decision)> {
        while let Some(id) = self.pool.next_due(sight.now) {
            let Some(held) = self.held.remove(&id) else { continue };
            let Some(flight) = self.flights.get(&held.number) else { continue };
            let endpoint = flight.lease.endpoint();
            if self.pool.is_serving(endpoint, sight.now) {
                return Some((held.number, Decision::Send(self.numbers[&endpoint])));
            }
            // It was not sent yet: pick again.
            if let Some(Flight { lease, .. }) = self.flights.remove(&held.number) {
                self.pool.finish(lease, End::NotSent, sight.now);
            }
            match self.decide(held.asked(), sight, rng) {
                Decision::Hold => {}
                decision => return Some((held.number, decision)),
            }
        }
        None
    }

    fn capacity(&self, now: Time) -> Capacity {
        match self.pool.room(now) {
            Room::Full { .. } => Capacity::Full,
            Room::None | Room::Open { .. } => Capacity::Free,
        }
    }
}

impl Policy for Ours {
    fn decide(&mut self, asked: Asked<'_>, sight: &Sight<'_>, rng: &mut Rng) -> Decision {
        let now = sight.now;
        let request = asked.request;
        let looks = self.queueing == Queueing::On || Band::of(request.priority) == Band::Sheddable;
        let capacity = if looks { self.capacity(now) } else { Capacity::Free };
        match self.admission.offer(now, ticket(request), capacity) {
            Offer::Admit => match self.pick(asked, now, rng) {
                Ok(decision) => return decision,
                Err(NoEndpoint::Full) => {}
                Err(_) => return Decision::Shed,
            },
            Offer::Queued(id) => return self.wait(id, asked),
            Offer::Shed(_) => return Decision::Shed,
        }
        // Every endpoint is at its own bound, whatever the pool's mean load says.
        if self.queueing == Queueing::On
            && let Offer::Queued(id) = self.admission.offer(now, ticket(request), Capacity::Full)
        {
            return self.wait(id, asked);
        }
        Decision::Shed
    }

    fn release(&mut self, sight: &Sight<'_>, rng: &mut Rng) -> Option<(usize, Decision)> {
        if let Some(due) = self.due(sight, rng) {
            return Some(due);
        }
        if self.queueing == Queueing::Off {
            return None;
        }
        let expired = self.admission.expire(sight.now).into_iter();
        let numbers = expired.filter_map(|id| Some(self.waiting.remove(&id)?.number));
        self.expired.extend(numbers);
        if let Some(number) = self.expired.pop() {
            return Some((number, Decision::Shed));
        }
        while !self.admission.is_empty() && self.capacity(sight.now) == Capacity::Free {
            let id = self.admission.next(sight.now)?;
            let Some(held) = self.waiting.remove(&id) else { continue };
            let picked = self.pick(held.asked(), sight.now, rng);
            match picked.unwrap_or(Decision::Shed) {
                Decision::Hold => {}
                decision => return Some((held.number, decision)),
            }
        }
        None
    }

    fn wake(&self) -> Option<Time> {
        self.admission.next_deadline()
    }

    fn first_token(&mut self, number: usize, _endpoint: usize, now: Time) {
        if let Some(flight) = self.flights.get(&number) {
            self.pool.first_token(&flight.lease, now);
        }
    }

    fn finished(&mut self, number: usize, _endpoint: usize, ending: Ending, now: Time) {
        let Some(Flight { lease, request }) = self.flights.remove(&number) else { return };
        let (end, worth) = match ending {
            Ending::Completed { output_tokens, .. } => {
                let worth = u64::from(request.prompt_tokens()) + u64::from(output_tokens);
                (End::Completed { output_tokens }, worth)
            }
            Ending::Failed => (End::Failed(Failure::Reset), 0),
        };
        self.pool.finish(lease, end, now);
        let charged = ticket(&request);
        self.admission.served(charged.priority, &charged.flow, charged.tokens, worth);
    }

    fn listed(&mut self, endpoint: usize, now: Time) {
        self.listed[endpoint] = true;
        self.apply_listing(now);
    }

    fn unlisted(&mut self, endpoint: usize, now: Time) {
        self.listed[endpoint] = false;
        self.apply_listing(now);
    }

    fn restarted(&mut self, endpoint: usize, now: Time) {
        if let Some(id) = self.ids[endpoint] {
            self.pool.restarted(id, now);
        }
    }

    fn scraped(&mut self, endpoint: usize, signals: &Signals, now: Time) {
        if let Some(id) = self.ids[endpoint] {
            self.pool.observe(id, signals, now);
        }
    }

    fn report(&mut self, since: u64, now: Time) -> Option<Report> {
        Some(self.pool.report(since, now))
    }

    fn heard(&mut self, peer: usize, report: &Report, written: Time, now: Time) {
        self.pool.hear(PeerId(peer as u64), report, written, now);
    }
}

fn ticket(request: &LabRequest) -> Ticket {
    let output = request.max_output_tokens.unwrap_or(USUAL_OUTPUT_TOKENS);
    Ticket {
        priority: request.priority,
        flow: format!("tenant-{}", request.tenant).into(),
        tokens: u64::from(request.prompt_tokens()) + u64::from(output),
        bytes: u64::from(request.prompt_tokens()) * 4,
        deadline: None,
    }
}
