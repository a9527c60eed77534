//! Requests that are picked and wait for their lots, or give way.
//!
//! The core says who waits and who is due; this file keeps those who wait. They are told
//! by whoever changes the pool: an answer that ends, a reading of an engine's page.

use std::collections::HashMap;
use std::time::Duration;

use gateway_core::Time;
use gateway_core::pool::{self, LeaseId, Pick};
use tokio::sync::oneshot;

use super::Shared;

/// Where nothing happens to the pool for so long, who waits looks itself: readings may have
/// ceased, and with them the reason to wait.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A pick, and what tells when it may be sent, unless it may be at once.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) pick: Pick,
    pub(super) due: Option<oneshot::Receiver<()>>,
}

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Held(HashMap<LeaseId, oneshot::Sender<()>>);

impl Held {
    /// Takes a pick; it waits if it is held.
    pub(super) fn place(&mut self, pick: Pick) -> Place {
        let due = pick.held.then(|| {
            let (due, receiver) = oneshot::channel();
            self.0.insert(pick.lease.id(), due);
            receiver
        });
        Place { pick, due }
    }

    /// Tells those who are due.
    pub(super) fn release(&mut self, pool: &mut pool::Pool, now: Time) {
        while let Some(lease) = pool.next_due(now) {
            // Who has just gone away hears nothing; its reservation ends by itself.
            if let Some(due) = self.0.remove(&lease) {
                let _ = due.send(());
            }
        }
    }

    /// Notes that a request waits no longer.
    pub(super) fn forget(&mut self, lease: LeaseId) {
        self.0.remove(&lease);
    }
}

/// Waits until a held request is due.
pub(super) async fn wait(shared: &Shared, mut due: oneshot::Receiver<()>) {
    while tokio::time::timeout(LOOK_AGAIN, &mut due).await.is_err() {
        shared.with(|_, _| ());
    }
}
