//! What a scan reads, boiled down.
//!
//! A decision looks at every endpoint, so what it looks at is kept dense and worked
//! out when it changes (a few times per request) and not when it is read (once per
//! endpoint and request): [`Gate`] for the filters, a quarter of a cache line, and [`Digest`]
//! and [`Signs`] for the ratings, a line each. All follow from a [`Row`](super::row::Row) and the
//! settings; [`Pool::refresh`](super::Pool) is called whenever a row has changed.

use super::row::Row;
use crate::time::Time;

/// Whether an endpoint may serve, in two comparisons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gate {
    /// From when on nothing stands in the way; the end of time when that is unknown.
    pub(crate) open_from: Time,
    /// Last reading, or joining.
    pub(crate) seen: Time,
}

impl Gate {
    pub(crate) fn of(row: &Row) -> Self {
        let shut = row.absent || row.draining || row.probe_failing;
        Self {
            open_from: if shut { Time::MAX } else { row.fault_until.max(row.ejected_until) },
            seen: row.seen,
        }
    }
}

/// Least share of a step that is taken as still to do.
const STILL_AHEAD: f64 = 0.2;

/// Of the time by which a step is late, what each request that waits behind it adds.
const LATE_SHARE: f64 = 0.1;

/// What predictions are made from; seconds (moments, too: since the origin) and requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(align(64))]
pub(crate) struct Digest {
    /// Predicted time to first token of an empty prompt once the current step has ended.
    pub(crate) behind: f64,
    /// Further seconds per uncached prompt token.
    pub(crate) per_token: f64,
    /// Since when own prompts are being computed; infinity when none is.
    pub(crate) step_since: f64,
    /// Until when prompts of others are being computed.
    pub(crate) foreign_until: f64,
    /// Seconds of the step that computes own prompts, from its beginning; 0 when none is.
    pub(crate) step: f32,
    /// Requests that wait for a later step.
    pub(crate) waiting: f32,
    /// What a request would add to the time of steps by starting one, its tokens aside.
    pub(crate) overhead: f32,
    /// Requests in the running batch, own ones where the engine does not tell.
    pub(crate) batch: f32,
    /// Share of the KV cache that is used or promised; 0 when the engine does not tell.
    pub(crate) kv_promised: f32,
    /// Share of the KV cache that one token takes; 0 when unknown.
    pub(crate) kv_per_token: f32,
    /// How little is known of the endpoint's speed, 1 to 0.
    pub(crate) doubt: f32,
    /// This gateway's requests without a first token.
    pub(crate) own_waiting: f32,
}

impl Digest {
    pub(crate) fn of(row: &Row, typical_tokens: f64) -> Self {
        let features = row.features(0);
        let kv_per_token = row.kv_tokens.map_or(0.0, f64::recip);
        let promised = row.own.prefill_tokens as f64 * kv_per_token;
        let queue = row.queue(typical_tokens);
        let is_stepping = queue.step > 0.0;
        Self {
            behind: queue.waiting + queue.start,
            per_token: queue.per_token,
            step: queue.step as f32,
            waiting: queue.count as f32,
            step_since: if is_stepping { row.busy_since.seconds() } else { f64::INFINITY },
            foreign_until: row.foreign_until.seconds(),
            // One that waits already has it started for all.
            overhead: if row.own.queued() > row.own.stepping { 0.0 } else { row.speed[0] as f32 },
            batch: features[2] as f32,
            kv_promised: row.kv_usage.map_or(0.0, |usage| (usage + promised) as f32),
            kv_per_token: if row.kv_usage.is_some() { kv_per_token as f32 } else { 0.0 },
            doubt: row.doubt as f32,
            own_waiting: row.own.queued() as f32,
        }
    }

    /// Whether nobody is served there, as far as is known.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.step_since == f64::INFINITY && self.waiting < 0.5 && self.batch < 0.5
    }

    /// Predicted time to first token at `now`, with `uncached` tokens to compute.
    ///
    /// A step that should have ended by now and has not will take about as long again as
    /// it is late, and longer with every request that waits behind it: an endpoint that is
    /// stuck looks worse by the second, and worse with all it gets. A step that should
    /// end any moment still counts a little, or an endpoint about to be free would
    /// be preferred to a free one.
    #[inline]
    pub(crate) fn time_to_first_token(&self, uncached: u32, now: f64) -> f64 {
        self.wait(now) + self.per_token * f64::from(uncached)
    }

    /// The same of an empty prompt.
    #[inline]
    pub(crate) fn wait(&self, now: f64) -> f64 {
        let elapsed = (now - self.step_since).max(0.0);
        let step = f64::from(self.step);
        let late = elapsed - step;
        let again = late.max(0.0) * (1.0 + LATE_SHARE * f64::from(self.waiting));
        let ahead = again.max(-late).max(STILL_AHEAD * step);
        ahead.max(self.foreign_until - now) + self.behind
    }
}

/// What scorers look at: signals merged with own requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Signs {
    pub(crate) waiting: Option<f64>,
    pub(crate) running: Option<f64>,
    pub(crate) kv_usage: Option<f64>,
    /// This gateway's requests without a first token.
    pub(crate) own_waiting: f64,
    /// This gateway's requests with a first token.
    pub(crate) own_running: f64,
}

impl Signs {
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            waiting: row.waiting,
            running: row.running,
            kv_usage: row.kv_usage,
            own_waiting: f64::from(row.own.prefilling),
            own_running: f64::from(row.own.in_flight - row.own.prefilling),
        }
    }
}
