//! Requests of other gateways, as their reports tell.
//!
//! A guest is entered into the accounts of its endpoint like an own request, at the moment
//! at which it was sent there, so whatever looks at the queue of an endpoint sees it. What
//! an engine's page already shows is not counted twice: a guest that was sent before the
//! last reading is not fresh, as an own one would not be.

use std::collections::HashMap;
use std::time::Duration;

use super::endpoint::Computed;
use super::ledger::{Entry, Found, Lesson, Origin, Stage};
use super::{Lease, Pool};
use crate::peer::{Event, PeerId, Report, Scope, Sent};
use crate::policy::speed::dot;
use crate::request::Answer;
use crate::time::Time;

/// Requests of a peer that are kept at most; what it sends beyond that is not known here.
const MOST_GUESTS: usize = 65_536;

/// Longest time for which lessons wait for what peers may still tell.
const MOST_LAG: Duration = Duration::from_millis(250);

/// Time beyond that between two reports within which news usually come.
const ON_THE_WAY: Duration = Duration::from_millis(10);

/// Requests of one peer that are open here.
#[derive(Debug)]
pub(super) struct Guests {
    by_request: HashMap<u64, Lease>,
    /// When its last report was.
    written: Time,
    /// Time between its last two reports.
    gap: Duration,
}

impl Guests {
    fn new(written: Time) -> Self {
        Self { by_request: HashMap::new(), written, gap: Duration::ZERO }
    }

    /// Notes that a report, or a part of one, was written at `written`.
    fn note_report(&mut self, written: Time) {
        if written > self.written {
            self.gap = written.since(self.written);
            self.written = written;
        }
    }
}

impl Pool {
    /// Takes a report of another gateway, which was written at `written` as far as this one
    /// can tell and arrived at `now`.
    ///
    /// News of endpoints that are not in this pool are ignored. A long report may be given in
    /// parts, of which only the first one may be whole.
    pub fn hear(&mut self, peer: PeerId, report: &Report, written: Time, now: Time) {
        let known = self.guests.remove(&peer);
        let mut guests = known.unwrap_or_else(|| Guests::new(written));
        guests.note_report(written);
        if report.scope == Scope::Whole {
            self.release(&mut guests, now);
        }
        let same_grid = report.block_tokens == self.settings.prefix.block_tokens;
        for news in &report.news {
            let at = written - news.age;
            match &news.what {
                Event::Sent(sent) if guests.by_request.len() < MOST_GUESTS => {
                    if let Some(lease) = self.welcome(sent, same_grid, at, now)
                        && let Some(before) = guests.by_request.insert(news.request, lease)
                    {
                        self.depart(before, at);
                    }
                }
                Event::Sent(_) => {}
                Event::FirstToken => {
                    if let Some(lease) = guests.by_request.get(&news.request) {
                        self.first_token_at(lease.place, lease.serial, at, now);
                    }
                }
                Event::Ended => {
                    if let Some(lease) = guests.by_request.remove(&news.request) {
                        self.depart(lease, at);
                    }
                }
            }
        }
        self.guests.insert(peer, guests);
        self.note_lag();
    }

    /// Forgets a peer that does not answer any more: its requests count no longer. What
    /// was learnt from it stays.
    pub fn forget_peer(&mut self, peer: PeerId, now: Time) {
        if let Some(mut guests) = self.guests.remove(&peer) {
            self.release(&mut guests, now);
            self.note_lag();
        }
    }

    fn note_lag(&mut self) {
        let gaps = self.guests.values().map(|guests| guests.gap);
        self.lag = gaps.max().map_or(Duration::ZERO, |gap| (gap + ON_THE_WAY).min(MOST_LAG));
    }

    fn release(&mut self, guests: &mut Guests, now: Time) {
        let mut leases: Vec<Lease> = guests.by_request.drain().map(|(_, lease)| lease).collect();
        // In an order that does not depend on the table's.
        leases.sort_unstable_by_key(|lease| lease.serial);
        for lease in leases {
            self.depart(lease, now);
        }
    }

    /// Enters a request that a peer sent at `at`.
    fn welcome(&mut self, sent: &Sent, same_grid: bool, at: Time, now: Time) -> Option<Lease> {
        let slot = *self.by_name.get(&sent.endpoint)?;
        let place = slot as usize;
        if self.rows[place].absent {
            return None;
        }
        self.close_batches(place, now);
        let row = &mut self.rows[place];
        let features = row.features(sent.uncached_tokens);
        let entry = Entry {
            serial: 0,
            origin: Origin::Peer,
            slot,
            endpoint: row.id,
            stage: Stage::Prefill,
            tokens: sent.uncached_tokens,
            reading: self.endpoints[place].reading.saturating_sub(u64::from(at <= row.seen)),
            picked: at,
            sent: at,
            features,
            work: row.speed[1] * features[1],
            start: dot(&row.speed, &row.features(0)),
            found: if row.has_queue() { Found::Queue } else { Found::Idle },
            predicted: self.digests[place].time_to_first_token(sent.uncached_tokens, at.seconds()),
            lesson: match sent.answer {
                Answer::Streamed => Lesson::FirstToken,
                Answer::Whole => Lesson::WholeTime,
            },
        };
        row.enqueue(entry.tokens, at);
        row.own.guests += 1;
        row.own.guest_tokens += u64::from(entry.tokens);
        if entry.reading != self.endpoints[place].reading {
            row.own.fresh_waiting -= 1;
        }
        self.note_size(sent.uncached_tokens, sent.prompt_tokens);
        if same_grid {
            self.prefixes.insert(slot, &sent.blocks);
        }
        self.refresh(place);
        let computed = at + Duration::try_from_secs_f64(entry.predicted).unwrap_or_default();
        let lease = self.ledger.enter(entry);
        if sent.answer == Answer::Whole {
            let (place, serial) = (lease.place, lease.serial);
            self.endpoints[slot as usize].whole.push_back(Computed { place, serial, at: computed });
        }
        Some(lease)
    }

    /// Ends a request of a peer. It teaches nothing: how an answer ended, its own gateway judges.
    #[expect(clippy::needless_pass_by_value, reason = "a lease that is gone cannot end twice")]
    fn depart(&mut self, lease: Lease, at: Time) {
        let Some(entry) = self.ledger.close(&lease) else { return };
        if entry.stage == Stage::Prefill {
            self.prompt_computed(&entry);
        }
        let slot = entry.slot as usize;
        let fresh = entry.reading == self.endpoints[slot].reading;
        let row = &mut self.rows[slot];
        row.own.in_flight = row.own.in_flight.saturating_sub(1);
        row.own.guests = row.own.guests.saturating_sub(1);
        if fresh {
            row.own.fresh_running = row.own.fresh_running.saturating_sub(1);
        } else if at > row.seen {
            row.own.departed += 1;
        }
        self.refresh(slot);
        self.vacate_if_idle(slot);
    }
}
