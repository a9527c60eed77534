//! First tokens that come together.
//!
//! An engine computes several prompts in one step, and their first tokens appear at the same
//! moment. What took so long was the work of all of them: a short prompt that shared
//! its step with a long one says nothing about short prompts. So a lesson is what happened
//! between two moments at which first tokens came, with all the work that ended then.

use std::time::Duration;

use super::Pool;
use super::batch_limit::StepSeen;
use super::ledger::{Entry, Found};
use crate::policy::speed::Features;
use crate::time::Time;

/// First tokens this close are of one step: shorter than any step, longer than the
/// network's jitter.
const TOGETHER: Duration = Duration::from_millis(4);

/// How much a step that left prompts behind counts against what was known of the limit.
const LIMIT_SHARE: f64 = 0.3;

/// How much the limit grows with a step that reached it and left nothing behind.
const LIMIT_GROWTH: f64 = 1.5;

/// A limit beyond this is none.
const MOST_LIMITED: f64 = 256.0;

/// Prompts whose first tokens came together.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// When the engine began with them, as far as this gateway sees.
    since: Time,
    /// When their first tokens came.
    at: Time,
    /// Work of all of them.
    features: Features,
    /// Seconds that they should have taken one by one, others' share included.
    work: f64,
    /// Prompts of which it has told.
    count: u32,
    /// Prompts that were there when the engine began.
    eligible: u32,
    /// What is told of a full batch.
    step: StepSeen,
    /// What the first of them found.
    found: Found,
}

impl Batch {
    /// Learns how many prompts one step computes: fewer than were there, or at least so many.
    fn teach_limit(&self, limit: &mut f64) {
        let count = f64::from(self.count);
        if self.count < self.eligible {
            let known = if limit.is_finite() { *limit } else { count };
            *limit = known + LIMIT_SHARE * (count - known);
        } else if count >= *limit {
            *limit *= LIMIT_GROWTH;
            if *limit > MOST_LIMITED {
                *limit = f64::INFINITY;
            }
        }
    }
}

impl Pool {
    /// Adds a first token that came at `at` to the batch of that moment, or begins one with it.
    pub(super) fn gather(&mut self, entry: &Entry, at: Time, now: Time) {
        let slot = entry.slot as usize;
        let mut recent = self.endpoints[slot].batches.iter_mut().rev();
        let together = |batch: &&mut Batch| at.since(batch.at).max(batch.at.since(at)) < TOGETHER;
        if let Some(batch) = recent.find(together) {
            batch.features[1] += entry.features[1];
            batch.work += entry.work;
            batch.count += 1;
            batch.step.add(entry.tokens, self.rows[slot].at_work());
            return;
        }
        self.close_batches(slot, now);
        let row = &mut self.rows[slot];
        let mut step = StepSeen {
            left: row.own.overdue,
            left_tokens: row.own.overdue_tokens as f64,
            ..StepSeen::default()
        };
        step.add_first(entry.tokens, row.at_work());
        let batches = &mut self.endpoints[slot].batches;
        let place = batches.partition_point(|batch| batch.at < at);
        let (since, eligible) = match batches.get_mut(place) {
            // It has been taken out already.
            None if at >= row.busy_since => (row.busy_since, row.own.stepping + 1),
            // Told so late that the steps since have taught already.
            None => return,
            // The later batch took only what was left of its time.
            Some(later) => {
                let since = later.since.min(at);
                later.since = later.since.max(at);
                (since, 0)
            }
        };
        let batch = Batch {
            since: since.max(entry.picked),
            at,
            features: entry.features,
            work: entry.work + entry.start,
            count: 1,
            eligible,
            step,
            found: entry.found,
        };
        batches.insert(place, batch);
        row.begin_step(at);
        self.refresh(slot);
    }

    /// Learns from batches once they are complete: a moment later, and with peers when
    /// they have told of theirs.
    pub(super) fn close_batches(&mut self, slot: usize, now: Time) {
        let patience = TOGETHER + self.lag;
        while let Some(batch) =
            self.endpoints[slot].batches.pop_front_if(|batch| now.since(batch.at) >= patience)
        {
            self.close_batch(slot, &batch, now);
        }
    }

    fn close_batch(&mut self, slot: usize, batch: &Batch, now: Time) {
        let seconds = batch.at.since(batch.since).as_secs_f64();
        let typical = self.assumed(slot);
        let endpoint = &mut self.endpoints[slot];
        endpoint.pace.learn(seconds, batch.work);
        self.rows[slot].pace = endpoint.pace.factor();
        batch.teach_limit(&mut self.rows[slot].step_limit);
        // Of whole answers no first token is seen, so who is left behind is not known; where the
        // KV cache is short, prompts wait for that.
        let row = &self.rows[slot];
        let is_clear = endpoint.whole.is_empty() && row.has_cache_for(batch.step.left_tokens);
        if is_clear && row.is_ours() {
            endpoint.batch_limit.learn(&batch.step, batch.at);
        }
        if batch.found == Found::Idle {
            endpoint.speed.learn(&batch.features, seconds, &typical, now);
            let weight = self.rows[slot].weight;
            let prior = self.typical.coefficients();
            self.typical.learn(&batch.features, seconds * weight, &prior, now);
        }
        self.refresh_speed(slot, now);
    }
}
