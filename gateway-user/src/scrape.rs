//! Keeps the pools' picture of their endpoints fresh.
//!
//! One task per endpoint and source: the engine's metrics page, its health path,
//! the node's GPU exporter. They run on a thread of their own, so that a thousand
//! pages a second never delay a token. While nothing is in flight and nothing was
//! picked for a moment, a pool is asked less often; the first pick brings the full
//! rate back at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use gateway_core::dcgm;
use gateway_core::pool::Probe;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::Scheme;
use crate::endpoint::Endpoint;
use crate::fetch::{FetchError, Fetcher, Page};
use crate::gateway::{Gateway, Site};
use crate::pool::Pool;
use crate::tls::{Roots, Tls};

/// A GPU exporter is asked seldom and may take its time.
const GPU_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest pause after failures.
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Scrapes for as long as the daemon runs; starts anew when the configuration
/// changes.
pub(crate) async fn run(gateway: Arc<Gateway>, mut sites: tokio::sync::watch::Receiver<Arc<Site>>) {
    loop {
        let site = Arc::clone(&sites.borrow_and_update());
        let mut tasks = JoinSet::new();
        for pool in &site.pools {
            start(&mut tasks, &gateway, pool);
        }
        if sites.changed().await.is_err() {
            return;
        }
        // The old tasks end with their set.
    }
}

fn start(tasks: &mut JoinSet<()>, gateway: &Arc<Gateway>, pool: &Arc<Pool>) {
    let addresses = pool.addresses();
    for (endpoint, config) in addresses.iter().zip(&pool.config.endpoints) {
        if pool.config.metrics.is_some() {
            tasks.spawn(metrics(Arc::clone(gateway), Arc::clone(pool), Arc::clone(endpoint)));
        }
        if pool.config.health.is_some() {
            tasks.spawn(health(Arc::clone(pool), Arc::clone(endpoint)));
        }
        if let Some(exporter) = &config.dcgm {
            let plain = Endpoint::new(endpoint.id, &exporter.host, exporter.port);
            let at = match exporter.scheme {
                Scheme::Http => plain,
                Scheme::Https => plain.over(Tls::new(&exporter.host, &Roots::system())),
            };
            tasks.spawn(gpu(Arc::clone(pool), at, exporter.path.clone()));
        }
    }
}

/// The engine's own metrics.
async fn metrics(gateway: Arc<Gateway>, pool: Arc<Pool>, endpoint: Arc<Endpoint>) {
    let Some(settings) = &pool.config.metrics else { return };
    let counter = |result| gateway.metrics.scrapes.with_label_values(&[&**pool.name(), result]);
    let (ok, failed) = (counter("ok"), counter("error"));
    let model = pool.config.names.model.as_deref();
    let mut fetcher = Fetcher::new(&endpoint, &settings.path, pool.engine_key());
    let mut rhythm = Rhythm::default();
    let mut was_refused = false;
    let origin = gateway.clock.origin();
    loop {
        match scrape(&mut fetcher, &endpoint, settings.timeout).await {
            Ok(page) => {
                let signals = settings.mapping.read(&page.body, model);
                give_back(page.body);
                if std::mem::take(&mut was_refused) {
                    pool.shared.with(|core, now| core.restarted(endpoint.id, now));
                }
                pool.shared.with(|core, now| core.observe(endpoint.id, &signals, now));
                ok.inc();
                rhythm.succeeded();
            }
            Err(error) => {
                was_refused |= error.is_refused();
                if rhythm.failures == 0 {
                    tracing::warn!(endpoint = %endpoint.authority, error = %chain(&error), "scrape failed");
                }
                failed.inc();
                rhythm.failed();
            }
        }
        let (interval, quiet) = if pool.shared.is_active() {
            (settings.interval, false)
        } else {
            (settings.idle_interval, true)
        };
        let due = on_the_grid(origin, rhythm.pause(interval));
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            () = pool.shared.woken.notified(), if quiet => {}
        }
    }
}

async fn scrape(
    fetcher: &mut Fetcher,
    endpoint: &Endpoint,
    timeout: Duration,
) -> Result<Page, FetchError> {
    let page = fetcher.fetch(endpoint, timeout, borrow_buffer()).await?;
    if page.status == 200 { Ok(page) } else { Err(FetchError::Status(page.status)) }
}

/// The active probe.
async fn health(pool: Arc<Pool>, endpoint: Arc<Endpoint>) {
    let Some(settings) = &pool.config.health else { return };
    let mut fetcher = Fetcher::new(&endpoint, &settings.path, pool.engine_key());
    let mut rhythm = Rhythm::default();
    let (mut failures, mut successes) = (0_u32, 0_u32);
    loop {
        let probed = fetcher.fetch(&endpoint, settings.timeout, BytesMut::new()).await;
        let probe = match probed {
            Ok(page) if (200..300).contains(&page.status) => {
                (failures, successes) = (0, successes.saturating_add(1));
                (successes >= settings.successes).then_some(Probe::Passing)
            }
            _ => {
                (failures, successes) = (failures.saturating_add(1), 0);
                (failures >= settings.failures).then_some(Probe::Failing)
            }
        };
        if let Some(probe) = probe {
            pool.shared.with(|core, now| core.set_probe(endpoint.id, probe, now));
        }
        tokio::time::sleep(rhythm.pause(settings.interval)).await;
    }
}

/// The GPU exporter of the endpoint's node.
async fn gpu(pool: Arc<Pool>, exporter: Endpoint, path: String) {
    let settings = pool.config.gpu;
    let mut fetcher = Fetcher::new(&exporter, &path, None);
    let mut rhythm = Rhythm::default();
    loop {
        match scrape(&mut fetcher, &exporter, settings.interval.max(GPU_TIMEOUT)).await {
            Ok(page) => {
                let gpu = dcgm::read(&page.body, &dcgm::Filter::default());
                pool.shared.with(|core, now| core.observe_gpu(exporter.id, &gpu, now));
                give_back(page.body);
                rhythm.succeeded();
            }
            Err(error) => {
                if rhythm.failures == 0 {
                    tracing::warn!(exporter = %exporter.authority, error = %chain(&error), "GPU scrape failed");
                }
                rhythm.failed();
            }
        }
        tokio::time::sleep(rhythm.pause(settings.interval)).await;
    }
}

/// Scrapes are due at multiples of this, so that a few share one wake-up of their
/// thread: going to sleep and waking up cost as much as reading a page.
const GRID: Duration = Duration::from_millis(5);

/// The point of the grid nearest to the end of `pause`. Pauses that the grid is too
/// coarse for are kept as they are.
fn on_the_grid(origin: Instant, pause: Duration) -> Instant {
    let now = Instant::now();
    if pause < 2 * GRID {
        return now + pause;
    }
    let grid = GRID.as_nanos() as u64;
    let points = ((now + pause - origin).as_nanos() as u64 + grid / 2) / grid;
    origin + Duration::from_nanos(points * grid)
}

/// When to ask again: with jitter, so that the pages of a fleet do not come all at
/// once, and less and less often while an endpoint fails.
#[derive(Debug, Default)]
pub(crate) struct Rhythm {
    failures: u32,
    random: fastrand::Rng,
}

impl Rhythm {
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    pub(crate) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Failures in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn pause(&mut self, interval: Duration) -> Duration {
        let base = match self.failures {
            0 => interval,
            failures => interval
                .saturating_mul(1 << failures.min(10))
                .clamp(interval, BACKOFF_MAX.max(interval)),
        };
        base.mul_f64(0.9 + 0.2 * self.random.f64())
    }
}

thread_local! {
    /// Pages in progress need room; finished ones give it back. Few are in
    /// progress at a time, however many endpoints there are.
    static BUFFERS: std::cell::RefCell<Vec<BytesMut>> = const { std::cell::RefCell::new(Vec::new()) };
}

pub(crate) fn borrow_buffer() -> BytesMut {
    BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_default()
}

pub(crate) fn give_back(mut buffer: BytesMut) {
    buffer.clear();
    BUFFERS.with_borrow_mut(|buffers| {
        if buffers.len() < 64 {
            buffers.push(buffer);
        }
    });
}

/// An error with its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_slow_the_pace_and_a_success_restores_it() {
        let mut pace = Rhythm::default();
        let interval = Duration::from_millis(50);
        assert!(pace.pause(interval) < Duration::from_millis(56));
        for _ in 0..20 {
            pace.failed();
        }
        let slow = pace.pause(interval);
        assert!(
            slow > Duration::from_millis(1700) && slow < Duration::from_millis(2300),
            "{slow:?}"
        );
        pace.succeeded();
        assert!(pace.pause(interval) < Duration::from_millis(56));
    }
}
