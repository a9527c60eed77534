//! What the pool keeps of an endpoint besides its [`Row`](super::row::Row).

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::Batch;
use super::batch_limit::BatchLimit;
use super::defer::Deferred;
use super::hold::Valve;
use super::lease::LeaseId;
use crate::health::Health;
use crate::policy::pace::Pace;
use crate::policy::slowness::Slowness;
use crate::policy::speed::Speed;
use crate::signals::{GpuSignals, Signals};
use crate::time::Time;

/// The part of an endpoint that a scan does not touch.
#[derive(Clone, Debug, Default)]
pub(super) struct Endpoint {
    pub(super) name: Arc<str>,
    pub(super) signals: Signals,
    /// When `signals` arrived; `None` before the first reading.
    pub(super) read: Option<Time>,
    pub(super) gpu: GpuSignals,
    pub(super) health: Health,
    pub(super) speed: Speed,
    pub(super) pace: Pace,
    /// Prompts whose first tokens came last, until they have taught what they can; by time.
    pub(super) batches: VecDeque<Batch>,
    pub(super) batch_limit: BatchLimit,
    pub(super) valve: Valve,
    /// Requests that wait to be sent, first come first; those that ended meanwhile included.
    pub(super) held: VecDeque<LeaseId>,
    /// Long prompts that give way, in the order of their picks; those that ended included.
    pub(super) deferred: Vec<Deferred>,
    pub(super) slowness: Slowness,
    pub(super) picks: u64,
    /// Number of the current reading; a lease remembers the one it was picked on.
    pub(super) reading: u64,
    /// Whole answers in flight, oldest first, with the moment at which their
    /// prompt has probably been computed.
    pub(super) whole: VecDeque<Computed>,
}

/// A request whose first token will not be seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Computed {
    pub(super) place: u32,
    pub(super) serial: u64,
    pub(super) at: Time,
}
