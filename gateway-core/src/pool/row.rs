//! What a decision reads of each endpoint: one compact row.
//!
//! A pick scans the rows of all endpoints, so a row holds numbers only; names,
//! whole signals and what is learnt live in [`Endpoint`](super::endpoint::Endpoint).
//!
//! # Merging own requests with scraped figures
//!
//! A reading of an engine's page is a picture of the past. What this gateway has
//! done since is known exactly and counts on top: requests sent since the
//! reading are added, requests that the reading showed and that have ended are
//! taken off. Requests sent *before* the reading are in the picture already and are not
//! counted twice, except when the picture holds fewer requests than this gateway
//! alone has there: then some were still on their way when it was taken.

use super::{EndpointId, EndpointState};
use crate::policy::speed::{Coefficients, PRIOR};
use crate::time::Time;

/// One endpoint's numbers.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: EndpointId,
    /// Nobody lives here, or its endpoint has left and only leases remain.
    pub(crate) absent: bool,
    pub(crate) draining: bool,
    pub(crate) probe_failing: bool,
    /// Last reading, or joining.
    pub(crate) seen: Time,
    pub(crate) ejected_until: Time,
    pub(crate) fault_until: Time,
    pub(crate) joined: Time,
    /// Finite and positive.
    pub(crate) weight: f64,
    /// As scraped.
    pub(crate) waiting: Option<f64>,
    pub(crate) running: Option<f64>,
    pub(crate) kv_usage: Option<f64>,
    /// Tokens that the KV cache holds.
    pub(crate) kv_tokens: Option<f64>,
    pub(crate) adapters: Option<AdapterSlots>,
    pub(crate) own: Own,
    /// Learnt, blended with the pool's typical values.
    pub(crate) speed: Coefficients,
    /// How little is known of its speed: 1 nothing, towards 0 much.
    pub(crate) doubt: f64,
}

/// LoRA slots of an engine, as scraped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct AdapterSlots {
    pub(crate) max: u32,
    /// Running plus waiting adapters.
    pub(crate) active: u32,
}

/// This gateway's own requests at an endpoint.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Own {
    pub(crate) in_flight: u32,
    /// Of these, without a first token yet.
    pub(crate) prefilling: u32,
    /// Uncached prompt tokens of those.
    pub(crate) prefill_tokens: u64,
    /// Sent since the last reading, without a first token yet.
    pub(crate) fresh_waiting: u32,
    /// Sent since the last reading, with a first token.
    pub(crate) fresh_running: u32,
    /// Sent before the last reading and ended since.
    pub(crate) departed: u32,
}

impl Row {
    pub(crate) fn new(id: EndpointId, weight: f64, now: Time) -> Self {
        Self {
            id,
            absent: false,
            draining: false,
            probe_failing: false,
            seen: now,
            ejected_until: Time::ZERO,
            fault_until: Time::ZERO,
            joined: now,
            weight,
            waiting: None,
            running: None,
            kv_usage: None,
            kv_tokens: None,
            adapters: None,
            own: Own::default(),
            speed: PRIOR,
            doubt: 1.0,
        }
    }

    /// Requests in the engine's queue; `None` when the engine does not tell.
    pub(crate) fn waiting(&self) -> Option<f64> {
        let waiting = self.waiting?;
        let fresh = f64::from(self.own.fresh_waiting);
        let unseen =
            self.running().map_or(0.0, |running| f64::from(self.own.in_flight) - waiting - running);
        Some(waiting + fresh.max(unseen))
    }

    /// Requests in the running batch; `None` when the engine does not tell.
    pub(crate) fn running(&self) -> Option<f64> {
        let shown = (self.running? - f64::from(self.own.departed)).max(0.0);
        Some(shown + f64::from(self.own.fresh_running))
    }

    /// The first reason not to serve, staleness aside.
    pub(crate) fn obstacle(&self, now: Time) -> Option<EndpointState> {
        if self.draining {
            Some(EndpointState::Draining)
        } else if self.probe_failing {
            Some(EndpointState::ProbeFailing)
        } else if now < self.fault_until {
            Some(EndpointState::GpuFault)
        } else if now < self.ejected_until {
            Some(EndpointState::Ejected { until: self.ejected_until })
        } else {
            None
        }
    }

    /// Forgets what the last reading said.
    pub(crate) fn forget_reading(&mut self) {
        self.waiting = None;
        self.running = None;
        self.kv_usage = None;
        self.kv_tokens = None;
        self.adapters = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(waiting: f64, running: f64) -> Row {
        Row {
            waiting: Some(waiting),
            running: Some(running),
            ..Row::new(EndpointId(1), 1.0, Time::ZERO)
        }
    }

    #[test]
    fn requests_sent_since_the_reading_count_on_top() {
        let mut row = row(2.0, 10.0);
        row.own.in_flight = 3;
        row.own.fresh_waiting = 3;
        assert_eq!(row.waiting(), Some(5.0));
    }

    #[test]
    fn requests_that_the_reading_shows_are_not_counted_twice() {
        let mut row = row(2.0, 10.0);
        row.own.in_flight = 12;
        assert_eq!((row.waiting(), row.running()), (Some(2.0), Some(10.0)));
    }

    #[test]
    fn requests_on_their_way_while_the_page_was_written_count_as_waiting() {
        let mut row = row(0.0, 1.0);
        row.own.in_flight = 4;
        assert_eq!(row.waiting(), Some(3.0));
    }

    #[test]
    fn ended_requests_leave_the_running_batch_but_never_below_zero() {
        let mut row = row(0.0, 2.0);
        row.own.departed = 1;
        assert_eq!(row.running(), Some(1.0));
        row.own.departed = 5;
        assert_eq!(row.running(), Some(0.0));
    }

    #[test]
    fn a_missing_signal_stays_missing_whatever_we_have_there() {
        let mut row = Row::new(EndpointId(1), 1.0, Time::ZERO);
        row.own.in_flight = 7;
        row.own.fresh_waiting = 7;
        assert_eq!((row.waiting(), row.running()), (None, None));
    }
}
