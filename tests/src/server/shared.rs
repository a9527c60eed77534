//! What all connections of one server share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use xxhash_rust::xxh64::xxh64;

use super::adapter::Adapters;
use super::driver::Driver;
use super::failure::{AnswerFault, Failures};
use super::http::Head;
use super::log::{LoggedRequest, Totals, count};
use super::metrics::{HttpStats, LoraSeries};
use super::options::{LogDetail, Options};
use super::unix_time;

/// State of one server.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) driver: Arc<Driver>,
    pub(super) totals: Totals,
    pub(super) adapters: Mutex<Adapters>,
    pub(super) http: Mutex<HttpStats>,
    pub(super) lora_series: Mutex<LoraSeries>,
    /// The page that is shown while metrics are frozen.
    pub(super) frozen_page: Mutex<Option<String>>,
    failures: watch::Sender<Failures>,
    log: Mutex<Vec<LoggedRequest>>,
    random: Mutex<fastrand::Rng>,
    ids: AtomicU64,
    started: Instant,
    /// Unix time of the start.
    pub(super) created: Duration,
}

impl Shared {
    pub(super) fn new(options: Options) -> Self {
        Self {
            driver: Arc::new(Driver::new(&options)),
            totals: Totals::default(),
            adapters: Mutex::new(Adapters::new(&options.adapters)),
            http: Mutex::default(),
            lora_series: Mutex::default(),
            frozen_page: Mutex::default(),
            failures: watch::Sender::new(Failures::default()),
            log: Mutex::default(),
            random: Mutex::new(fastrand::Rng::with_seed(options.style.seed)),
            ids: AtomicU64::new(0),
            started: Instant::now(),
            created: unix_time(),
            options,
        }
    }

    pub(super) fn failures(&self) -> watch::Receiver<Failures> {
        self.failures.subscribe()
    }

    pub(super) fn current_failures(&self) -> Failures {
        self.failures.borrow().clone()
    }

    pub(super) fn set_failures(&self, failures: Failures) {
        if !failures.metrics.frozen {
            lock(&self.frozen_page).take();
        }
        self.failures.send_replace(failures);
    }

    /// Ends failures that were ordered for a time only. Runs until dropped.
    pub(super) async fn lift_failures_in_time(&self) {
        let mut failures = self.failures();
        loop {
            let ordered = failures.borrow_and_update().lift_after_seconds;
            let lifted = async {
                match ordered.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
                    Some(time) => tokio::time::sleep(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = lifted => self.set_failures(Failures::default()),
                _ = failures.changed() => {}
            }
        }
    }

    /// Whether `/health` is to say 503.
    pub(super) fn is_loading(&self) -> bool {
        self.failures.borrow().loading || self.started.elapsed() < self.options.startup
    }

    /// The fault that strikes the next request for inference, if any.
    pub(super) fn strike(&self) -> Option<AnswerFault> {
        let mut struck = None;
        self.failures.send_if_modified(|failures| {
            let Some(fault) = &failures.answers else { return false };
            let share = failures.share.unwrap_or(1.0);
            if failures.count == Some(0) || lock(&self.random).f64() >= share {
                return false;
            }
            struck = Some(fault.clone());
            if let Some(left) = &mut failures.count {
                *left -= 1;
            }
            false // nobody needs to wake up for a count
        });
        if struck.is_some() {
            count(&self.totals.struck);
        }
        struck
    }

    pub(super) fn record(&self, head: &Head, body: &[u8]) {
        count(&self.totals.requests);
        if self.options.log == LogDetail::Bodies {
            let request = LoggedRequest { head: head.clone(), body: body.to_vec() };
            lock(&self.log).push(request);
        }
    }

    pub(super) fn requests(&self) -> Vec<LoggedRequest> {
        lock(&self.log).clone()
    }

    pub(super) fn clear_requests(&self) {
        lock(&self.log).clear();
    }

    /// Sixteen hexadecimal digits that no other answer of this server has.
    pub(super) fn hex_id(&self) -> String {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        let seed = self.created.as_nanos() as u64 ^ self.options.style.seed;
        format!("{:016x}", xxh64(&number.to_le_bytes(), seed))
    }
}

/// Locks; a panic elsewhere does not make a counter useless.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
