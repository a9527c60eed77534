//! What becomes of a request after its pick: first token, end, and what they teach.

use super::Pool;
use super::endpoint::Computed;
use super::lease::{End, Failure, Lease};
use super::ledger::{Entry, Lesson, Origin, Stage};
use crate::health::Symptom;
use crate::peer::Event;
use crate::policy::speed::dot;
use crate::time::Time;

/// Whole answers settled per visit, so that no call does unbounded work.
const SETTLED_AT_ONCE: usize = 64;

/// Whole answers after which the pool knows how long such answers usually take.
const KNOWN_SAMPLES: f64 = 8.0;

impl Pool {
    /// Notes that the first token of an answer was seen: the prompt is computed and
    /// leaves the queue, and the time it took teaches the endpoint's speed.
    /// Saying so again changes nothing.
    pub fn first_token(&mut self, lease: &Lease, now: Time) {
        self.dispatch(lease.id(), now);
        self.first_token_at(lease.place, lease.serial, now, now);
    }

    /// The same of any request, whose first token came at `at`.
    pub(super) fn first_token_at(&mut self, place: u32, serial: u64, at: Time, now: Time) {
        let Some(entry) = self.ledger.open(place, serial) else {
            return;
        };
        if entry.stage == Stage::Decode {
            return;
        }
        entry.stage = Stage::Decode;
        let entry = entry.clone();
        self.tell(&entry, Event::FirstToken, at);
        self.prompt_computed(&entry);
        if entry.lesson == Lesson::FirstToken {
            self.learn(&entry, at, now);
        } else {
            let slot = entry.slot as usize;
            self.close_batches(slot, now);
            self.rows[slot].begin_step(at);
            self.refresh(slot);
        }
    }

    /// Ends a request and gives back what it reserved.
    #[expect(clippy::needless_pass_by_value, reason = "a lease that is gone cannot end twice")]
    pub fn finish(&mut self, lease: Lease, end: End, now: Time) {
        let Some(entry) = self.ledger.close(&lease) else {
            return;
        };
        self.tell(&entry, Event::Ended, now);
        let slot = entry.slot as usize;
        if entry.stage.is_unsent() {
            self.withdraw(&entry);
            self.refresh(slot);
            return self.vacate_if_idle(slot);
        }
        if entry.stage == Stage::Prefill {
            self.prompt_computed(&entry);
            let waited = now.since(entry.picked).as_secs_f64();
            let gave_up = matches!(end, End::Cancelled | End::Failed(Failure::Timeout));
            if gave_up && entry.lesson == Lesson::FirstToken && waited > entry.predicted {
                // It would have taken longer still: a lower bound teaches, too.
                self.learn(&entry, now, now);
            }
        }
        if let (End::Completed { output_tokens }, Lesson::WholeTime) = (end, entry.lesson) {
            self.learn_whole(&entry, output_tokens, now);
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
    pub(super) fn prompt_computed(&mut self, entry: &Entry) {
        let slot = entry.slot as usize;
        let fresh = entry.reading == self.endpoints[slot].reading;
        let row = &mut self.rows[slot];
        row.dequeue(entry.tokens, entry.sent);
        let own = &mut row.own;
        if entry.origin == Origin::Peer {
            own.guest_tokens = own.guest_tokens.saturating_sub(u64::from(entry.tokens));
        }
        if fresh {
            own.fresh_waiting = own.fresh_waiting.saturating_sub(1);
            own.fresh_running += 1;
        }
        self.refresh(slot);
    }

    /// Learns from a first token that came at `at`, or would have come later than that.
    fn learn(&mut self, entry: &Entry, at: Time, now: Time) {
        if entry.origin == Origin::Here {
            let waited = at.since(entry.picked).as_secs_f64();
            self.endpoints[entry.slot as usize].speed.compare(entry.predicted, waited);
        }
        self.gather(entry, at, now);
    }

    /// Learns from an answer of which only the end was seen.
    ///
    /// An answer without output tokens (an embedding) is all prefill, so its end is as
    /// good as a first token. Of others the time is compared with what such answers take
    /// in this pool, which tells slow endpoints from fast ones.
    fn learn_whole(&mut self, entry: &Entry, output_tokens: u32, now: Time) {
        if output_tokens == 0 {
            self.learn(entry, now, now);
            return;
        }
        let slot = entry.slot as usize;
        let seconds = now.since(entry.picked).as_secs_f64() * self.rows[slot].weight;
        let [_, prompt, running, _] = entry.features;
        let features = [1.0, prompt, running, f64::from(output_tokens) / 1e3];
        let usual = dot(&self.whole.coefficients(), &features);
        if self.whole.samples() >= KNOWN_SAMPLES {
            self.endpoints[slot].slowness.learn(seconds / usual, now);
            self.slowness.learn(seconds / usual, now);
        }
        let prior = self.whole.coefficients();
        self.whole.learn(&features, seconds, &prior, now);
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
                self.rows[slot].begin_step(now);
                self.refresh(slot);
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
}
