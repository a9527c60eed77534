//! What this gateway has done lately, for its peers to read.
//!
//! A ring: bounded by events and by the blocks that they name, oldest first to go. Events
//! are numbered from 1 on, and a reader who asks for a number that has gone gets the whole
//! picture instead, from the ledger.

use std::collections::{HashSet, VecDeque};

use super::ledger::{Entry, Origin, Stage};
use super::{LeaseId, Pool};
use crate::peer::{Event, News, Peers, Report, Scope, Sent, TOLD_BLOCKS};
use crate::request::{Answer, RequestView};
use crate::time::Time;

/// Events kept: half a minute of a gateway with 100 requests per second.
const MOST_EVENTS: usize = 8_192;

/// Block hashes kept, of all events together: half a megabyte.
const MOST_BLOCKS: usize = 65_536;

#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    events: VecDeque<Noted>,
    /// Events that have gone.
    gone: u64,
    blocks: usize,
}

#[derive(Clone, Debug)]
struct Noted {
    request: u64,
    at: Time,
    what: Event,
}

impl Journal {
    pub(super) fn note(&mut self, request: u64, what: Event, at: Time) {
        self.blocks += blocks(&what);
        self.events.push_back(Noted { request, at, what });
        while self.events.len() > MOST_EVENTS || self.blocks > MOST_BLOCKS {
            let Some(oldest) = self.events.pop_front() else { return };
            self.blocks -= blocks(&oldest.what);
            self.gone += 1;
        }
    }

    /// Forgets all; numbers go on.
    pub(super) fn clear(&mut self) {
        self.gone += self.events.len() as u64;
        self.events.clear();
        self.blocks = 0;
    }

    /// Number of the next event.
    fn next(&self) -> u64 {
        self.gone + self.events.len() as u64 + 1
    }

    /// Events from number `since` on; `None` when some of them have gone or none was that far.
    fn since(&self, since: u64) -> Option<impl Iterator<Item = &Noted>> {
        let skipped = since.checked_sub(self.gone + 1)?;
        (since <= self.next()).then(|| self.events.iter().skip(skipped as usize))
    }
}

fn blocks(event: &Event) -> usize {
    if let Event::Sent(sent) = event { sent.blocks.len() } else { 0 }
}

impl Noted {
    fn told(&self, now: Time) -> News {
        News { request: self.request, age: now.since(self.at), what: self.what.clone() }
    }
}

impl Pool {
    /// What has happened from sequence number `since` on; 0 asks for everything.
    ///
    /// News are kept only while [`peers`](super::PoolSettings::peers) are known.
    #[must_use]
    pub fn report(&self, since: u64, now: Time) -> Report {
        let (scope, news) = match self.journal.since(since) {
            Some(events) => (Scope::Since, events.map(|event| event.told(now)).collect()),
            None => (Scope::Whole, self.everything(now)),
        };
        let block_tokens = self.settings.prefix.block_tokens;
        Report { next: self.journal.next(), scope, block_tokens, news }
    }

    /// Requests whose sending is no longer in the journal, and then the journal.
    fn everything(&self, now: Time) -> Vec<News> {
        let events = &self.journal.events;
        let sent = events.iter().filter(|event| matches!(event.what, Event::Sent(_)));
        let known: HashSet<u64> = sent.map(|event| event.request).collect();
        let is_told = |entry: &&Entry| {
            entry.origin == Origin::Here && !matches!(entry.stage, Stage::Deferred { .. })
        };
        let own = self.ledger.entries().filter(is_told);
        let mut older: Vec<&Entry> = own.filter(|entry| !known.contains(&entry.serial)).collect();
        older.sort_unstable_by_key(|entry| entry.serial);
        let mut news = Vec::new();
        for entry in older {
            let tell = |what| News { request: entry.serial, age: now.since(entry.picked), what };
            let answer = if entry.is_whole() { Answer::Whole } else { Answer::Streamed };
            news.push(tell(Event::Sent(Sent {
                endpoint: self.endpoints[entry.slot as usize].name.clone(),
                prompt_tokens: entry.tokens,
                uncached_tokens: entry.tokens,
                answer,
                blocks: [].into(),
            })));
            if entry.stage == Stage::Decode {
                news.push(tell(Event::FirstToken));
            }
        }
        news.extend(events.iter().map(|event| event.told(now)));
        news
    }

    /// What the peers are told of a request for `slot`; `None` without peers.
    pub(super) fn news_of(
        &self,
        slot: u32,
        uncached_tokens: u32,
        request: &RequestView<'_>,
    ) -> Option<Sent> {
        if self.settings.peers == Peers::Unknown {
            return None;
        }
        let blocks = self.blocks(request);
        Some(Sent {
            endpoint: self.endpoints[slot as usize].name.clone(),
            prompt_tokens: request.prompt_tokens,
            uncached_tokens,
            answer: request.answer,
            blocks: blocks[..blocks.len().min(TOLD_BLOCKS)].into(),
        })
    }

    /// Notes for the peers that a request was sent.
    pub(super) fn tell_sent(&mut self, lease: LeaseId, news: Option<Sent>, now: Time) {
        if let Some(sent) = news {
            self.journal.note(lease.serial, Event::Sent(sent), now);
        }
    }

    /// Notes for the peers what became of a request.
    pub(super) fn tell(&mut self, entry: &Entry, what: Event, now: Time) {
        if self.settings.peers == Peers::Known && entry.origin == Origin::Here {
            self.journal.note(entry.serial, what, now);
        }
    }
}
