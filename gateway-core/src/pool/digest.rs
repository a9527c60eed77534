//! What a scan reads, boiled down.
//!
//! A decision looks at every endpoint, so what it looks at is kept dense and worked
//! out when it changes (a few times per request) and not when it is read (once per
//! endpoint and request): [`Gate`] for the filters, a quarter of a cache line, and [`Digest`]
//! and [`Signs`] for the ratings, a line each. All follow from a [`Row`](super::row::Row) and the
//! settings; [`Pool::refresh`](super::Pool) is called whenever a row has changed.

use super::row::Row;
use crate::policy::speed::dot;
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

/// Least share of queued work that is taken as still to do.
const STILL_AHEAD: f64 = 0.2;

/// What predictions are made from; seconds (moments, too: since the origin) and requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(align(64))]
pub(crate) struct Digest {
    /// Predicted time to first token of an empty prompt once the queue is worked off.
    pub(crate) base: f64,
    /// Further seconds per uncached prompt token.
    pub(crate) per_token: f64,
    /// Seconds for working off the queue, from `busy_since` on; 0 and infinity
    /// when there is none.
    pub(crate) queued: f64,
    pub(crate) busy_since: f64,
    /// Until when prompts of others are being computed.
    pub(crate) foreign_until: f64,
    /// Of `base`, what starting any prompt adds to a step.
    pub(crate) overhead: f32,
    /// Requests in the running batch, own ones where the engine does not tell.
    pub(crate) batch: f32,
    /// Share of the KV cache that is used or promised; 0 when the engine does not tell.
    pub(crate) kv_promised: f32,
    /// Share of the KV cache that one token takes; 0 when unknown.
    pub(crate) kv_per_token: f32,
    /// How little is known of the endpoint's speed, 1 to 0.
    pub(crate) doubt: f32,
    /// How full the endpoint is for admission; 1 and above is full.
    pub(crate) load: f32,
}

impl Digest {
    pub(crate) fn of(row: &Row, typical_tokens: f64, load: f64) -> Self {
        let features = row.features(0);
        let kv_per_token = row.kv_tokens.map_or(0.0, f64::recip);
        let promised = row.own.prefill_tokens as f64 * kv_per_token;
        let (pace, queued, busy_since) = if row.has_queue() {
            (row.pace.max(1.0), row.queued_work(typical_tokens), row.busy_since.seconds())
        } else {
            (1.0, 0.0, f64::INFINITY)
        };
        Self {
            base: pace * dot(&row.speed, &features),
            per_token: pace * row.speed[1] / 1e3,
            queued,
            busy_since,
            foreign_until: row.foreign_until.seconds(),
            overhead: row.speed[0] as f32,
            batch: features[2] as f32,
            kv_promised: row.kv_usage.map_or(0.0, |usage| (usage + promised) as f32),
            kv_per_token: if row.kv_usage.is_some() { kv_per_token as f32 } else { 0.0 },
            doubt: row.doubt as f32,
            load: load as f32,
        }
    }

    /// Predicted time to first token at `now`, with `uncached` tokens to compute.
    ///
    /// Work that should have been done by now and is not will take about as long again as
    /// it is late: an endpoint that is stuck looks worse by the second. Work that should be
    /// done any moment still counts a little, or an endpoint about to be free would
    /// be preferred to a free one.
    #[inline]
    pub(crate) fn time_to_first_token(&self, uncached: u32, now: f64) -> f64 {
        let late = (now - self.busy_since).max(0.0) - self.queued;
        let ahead = late.abs().max(STILL_AHEAD * self.queued);
        ahead.max(self.foreign_until - now) + self.base + self.per_token * f64::from(uncached)
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
