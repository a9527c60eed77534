//! What becomes of a request after its pick: first token, end, and what they teach.

use super::endpoint::Computed;
use super::lease::{End, Failure, Lease};
use super::ledger::{Entry, Lesson, Stage};
use super::row::Own;
use super::{Pool, Room};
use crate::health::Symptom;
use crate::time::Time;

/// Whole answers settled per visit, so that no call does unbounded work.
const SETTLED_AT_ONCE: usize = 64;

impl Pool {
    /// Notes that the first token of an answer was seen: the prompt is computed and
    /// leaves the queue, and the time it took teaches the endpoint's speed.
    /// Saying so again changes nothing.
    pub fn first_token(&mut self, lease: &Lease, now: Time) {
        let Some(entry) = self.ledger.open(lease.place, lease.serial) else {
            return;
        };
        if entry.stage == Stage::Decode {
            return;
        }
        entry.stage = Stage::Decode;
        let entry = entry.clone();
        self.prompt_computed(&entry);
        if entry.lesson == Lesson::Learn {
            self.learn(&entry, now);
        }
    }

    /// Ends a request and gives back what it reserved.
    pub fn finish(&mut self, lease: Lease, end: End, now: Time) {
        let Some(entry) = self.ledger.close(&lease) else {
            return;
        };
        let slot = entry.slot as usize;
        if entry.stage == Stage::Prefill {
            self.prompt_computed(&entry);
            let waited = now.since(entry.picked).as_secs_f64();
            let gave_up = matches!(end, End::Cancelled | End::Failed(Failure::Timeout));
            if gave_up && entry.lesson == Lesson::Learn && waited > entry.predicted {
                // It would have taken longer still: a lower bound teaches, too.
                self.learn(&entry, now);
            }
        }
        let fresh = entry.reading == self.endpoints[slot].reading;
        let own = &mut self.rows[slot].own;
        own.in_flight = own.in_flight.saturating_sub(1);
        if fresh {
            own.fresh_running = own.fresh_running.saturating_sub(1);
        } else if end != End::NotSent {
            own.departed += 1;
        }
        if end != End::NotSent {
            self.finished.count(now);
        }
        self.judge(slot, end, now);
        self.refresh(slot);
        self.vacate_if_idle(slot);
    }

    /// Requests that end per second, whatever their end; for Retry-After.
    #[must_use]
    pub fn drain_rate(&self, now: Time) -> f64 {
        self.finished.per_second(now)
    }

    /// Moves a request from the waiting to the running ones.
    fn prompt_computed(&mut self, entry: &Entry) {
        let slot = entry.slot as usize;
        let fresh = entry.reading == self.endpoints[slot].reading;
        let own = &mut self.rows[slot].own;
        own.prefilling = own.prefilling.saturating_sub(1);
        own.prefill_tokens = own.prefill_tokens.saturating_sub(u64::from(entry.tokens));
        if fresh {
            own.fresh_waiting = own.fresh_waiting.saturating_sub(1);
            own.fresh_running += 1;
        }
        self.refresh(slot);
    }

    fn learn(&mut self, entry: &Entry, now: Time) {
        let slot = entry.slot as usize;
        let seconds = now.since(entry.picked).as_secs_f64();
        let weight = self.rows[slot].weight;
        let typical = self.typical_for(weight);
        let speed = &mut self.endpoints[slot].speed;
        speed.compare(entry.predicted, seconds);
        speed.learn(&entry.features, seconds, &typical, now);
        let prior = self.typical.coefficients();
        self.typical.learn(&entry.features, seconds * weight, &prior, now);
        self.refresh_speed(slot, now);
    }

    fn judge(&mut self, slot: usize, end: End, now: Time) {
        let ejection = &self.settings.ejection;
        let health = &mut self.endpoints[slot].health;
        match Symptom::of(end) {
            Symptom::None => {}
            Symptom::Good => health.succeed(now),
            Symptom::Bad => {
                if !health.fail(ejection, now) {
                    return;
                }
                let present = self.rows.iter().filter(|row| !row.absent);
                let out = present.clone().filter(|row| now < row.ejected_until).count();
                if out < ejection.most_ejected(present.count()) {
                    health.eject(ejection, now);
                    self.rows[slot].ejected_until = health.until();
                }
            }
        }
    }

    /// Takes prompts off the queue whose first token will not be seen and which
    /// have probably been computed by now.
    pub(super) fn settle_whole(&mut self, slot: usize, now: Time) {
        for _ in 0..SETTLED_AT_ONCE {
            let Some(&Computed { place, serial, at }) = self.endpoints[slot].whole.front() else {
                return;
            };
            let open = self.ledger.open(place, serial);
            if open.is_some() && at > now {
                return;
            }
            self.endpoints[slot].whole.pop_front();
            if let Some(entry) = open.filter(|entry| entry.stage == Stage::Prefill) {
                entry.stage = Stage::Decode;
                let entry = entry.clone();
                self.prompt_computed(&entry);
            }
        }
    }

    /// Looks after one endpoint's whole answers, a different one each time.
    pub(super) fn settle_next(&mut self, now: Time) {
        self.hand = (self.hand + 1) % self.rows.len().max(1);
        if self.hand < self.rows.len() {
            self.settle_whole(self.hand, now);
        }
    }

    /// Whether the pool can take one more request.
    ///
    /// The load of an endpoint is that of the extension's utilization detector,
    /// `max(waiting / queue_depth, usage / kv_usage)`, and the share of its bound of requests
    /// in flight. The pool's saturation is the mean; one that may not serve counts
    /// as full, one that drains does not count.
    #[must_use]
    pub fn room(&self, now: Time) -> Room {
        let if_stale = self.if_stale(now);
        let (mut sum, mut counted, mut ready, mut open) = (0.0, 0_u32, 0_u32, 0_u32);
        for row in self.rows.iter().filter(|row| !row.absent && !row.draining) {
            counted += 1;
            let stale = if_stale == super::pick::IfStale::Drop && self.is_stale(row, now);
            if row.obstacle(now).is_some() || stale {
                sum += 1.0;
                continue;
            }
            ready += 1;
            let load = self.load(row);
            sum += load;
            open += u32::from(load < 1.0);
        }
        let saturation = sum / f64::from(counted.max(1));
        match (ready, open) {
            (0, _) => Room::None,
            (_, 0) => Room::Full { saturation },
            _ => Room::Open { saturation },
        }
    }

    /// How full an endpoint is; 1 and above is full. A missing signal adds nothing.
    fn load(&self, row: &super::row::Row) -> f64 {
        let limits = &self.settings.saturation;
        let queue = row.scraped_waiting.zip(row.waiting).map_or(0.0, |(scraped, merged)| {
            let waiting =
                if scraped < 1.0 { (merged - f64::from(limits.burst)).max(0.0) } else { merged };
            waiting / f64::from(limits.queue_depth.max(1))
        });
        let kv = row.kv_usage.map_or(0.0, |usage| usage / limits.kv_usage.max(0.01));
        let own = self
            .settings
            .max_in_flight
            .map_or(0.0, |most| f64::from(row.own.in_flight) / f64::from(most.max(1)));
        queue.max(kv).max(own)
    }
}

impl Own {
    /// Whether nothing of this gateway's is left at the endpoint.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        (self.in_flight, self.prefilling, self.prefill_tokens) == (0, 0, 0)
    }
}
