//! One peer's reports, read again and again.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use gateway_core::Time;
use gateway_core::peer::{PeerId, Report, Scope};
use gateway_core::pool::EndpointId;

use super::board::Standing;
use super::spaced;
use super::wire::{self, Told, WireError};
use crate::config::PeersConfig;
use crate::endpoint::Endpoint;
use crate::fetch::{FetchError, Fetcher};
use crate::gateway::{Gateway, Site};
use crate::pool::Pool;
use crate::scrape::{Rhythm, borrow_buffer, chain, give_back};

/// Time within which a report has to come.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How often an address is asked at which this gateway itself answers, or one that is asked
/// elsewhere: that may change.
const NOBODY_NEW: Duration = Duration::from_secs(30);

/// News that are taken at once: some ten microseconds of a pool's lock.
const PART: usize = 64;

/// Why a peer's report was not taken.
#[derive(Debug, thiserror::Error)]
enum PeerError {
    #[error("cannot be had")]
    Fetch(#[from] FetchError),
    #[error("cannot be understood")]
    Wire(#[from] WireError),
}

/// Follows the gateway at one address.
pub(super) struct Link {
    gateway: Arc<Gateway>,
    site: Arc<Site>,
    config: PeersConfig,
    address: SocketAddr,
    endpoint: Endpoint,
    fetcher: Fetcher,
    cursor: String,
    heard: Option<Heard>,
    /// All links, this one included.
    links: Arc<AtomicUsize>,
    rhythm: Rhythm,
}

impl Link {
    pub(super) fn new(
        gateway: &Arc<Gateway>,
        site: &Arc<Site>,
        config: &PeersConfig,
        address: SocketAddr,
        links: Arc<AtomicUsize>,
    ) -> Self {
        // No pool's endpoint; only the address counts.
        let endpoint =
            Endpoint::new(EndpointId::default(), &address.ip().to_string(), address.port());
        gateway.peers.down(address);
        Self {
            gateway: Arc::clone(gateway),
            site: Arc::clone(site),
            config: config.clone(),
            address,
            fetcher: Fetcher::new(&endpoint, wire::PATH, None),
            endpoint,
            cursor: String::new(),
            heard: None,
            links,
            rhythm: Rhythm::default(),
        }
    }

    /// Until it is aborted.
    pub(super) async fn follow(mut self) {
        let count = |result| self.gateway.metrics.peer_reports.with_label_values(&[result]);
        let (ok, failed) = (count("ok"), count("error"));
        loop {
            let standing = match self.ask().await {
                Ok(standing) => {
                    ok.inc();
                    if self.rhythm.failures() > 0 {
                        tracing::info!(peer = %self.address, "peer answers again");
                    }
                    self.rhythm.succeeded();
                    standing
                }
                Err(error) => {
                    failed.inc();
                    if self.rhythm.failures() == 0 {
                        let error = chain(&error);
                        tracing::warn!(peer = %self.address, error, "a peer's report is ignored");
                    }
                    self.rhythm.failed();
                    self.forget_if_stale();
                    Standing::Down
                }
            };
            self.pause(standing).await;
        }
    }

    /// Asks for news and takes them.
    async fn ask(&mut self) -> Result<Standing, PeerError> {
        let path = match self.cursor.as_str() {
            "" => wire::PATH.to_owned(),
            cursor => format!("{}?since={cursor}", wire::PATH),
        };
        self.fetcher.aim(&self.endpoint, &path, None);
        let clock = self.gateway.clock;
        let asked = clock.now();
        let limit = TIMEOUT.min(self.config.stale_after);
        let page = self.fetcher.fetch(&self.endpoint, limit, borrow_buffer()).await?;
        if page.status != 200 {
            return Err(FetchError::Status(page.status).into());
        }
        let now = clock.now();
        let told = wire::read(&page.body)?;
        self.gateway.metrics.peer_report_bytes.inc_by(page.body.len() as u64);
        give_back(page.body);
        Ok(self.take(told, now - now.since(asked) / 2, now))
    }

    /// Takes a report that was written at `written`.
    fn take(&mut self, told: Told, written: Time, now: Time) -> Standing {
        let standing = self.gateway.peers.answered(self.address, told.instance, now);
        if !matches!(standing, Standing::Up(_)) {
            self.heard = None;
            self.cursor.clear();
            return standing;
        }
        // Another process at the same address: what the one before has sent is gone with it.
        self.heard = self.heard.take().filter(|heard| heard.peer == told.instance);
        let (gateway, site) = (&self.gateway, &self.site);
        let heard = self.heard.get_or_insert_with(|| Heard {
            pools: site.pools.clone(),
            peer: told.instance,
            at: now,
        });
        heard.at = now;
        for (name, report) in told.pools {
            heard.take(&name, report, written);
        }
        debug_assert_ne!(told.instance, gateway.peers.instance());
        self.cursor = told.cursor;
        standing
    }

    /// A peer that has not answered for too long counts no longer.
    fn forget_if_stale(&mut self) {
        let now = self.gateway.clock.now();
        let stale = self.config.stale_after;
        if self.heard.as_ref().is_none_or(|heard| now.since(heard.at) >= stale) {
            if self.heard.take().is_some() {
                tracing::warn!(peer = %self.address, "peer is gone; its requests count no longer");
            }
            self.cursor.clear();
            self.gateway.peers.down(self.address);
        }
    }

    async fn pause(&mut self, standing: Standing) {
        if matches!(standing, Standing::Itself | Standing::Twice) {
            return tokio::time::sleep(NOBODY_NEW).await;
        }
        let is_busy = self.site.pools.iter().any(|pool| pool.shared.is_active());
        let interval = if is_busy { self.config.interval } else { self.config.idle_interval };
        let mut pause = self.rhythm.pause(spaced(interval, self.links.load(Ordering::Relaxed)));
        if let Some(heard) = &self.heard {
            // It has to be forgotten in time, too.
            let age = self.gateway.clock.now().since(heard.at);
            pause = pause.min(self.config.stale_after.saturating_sub(age));
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = any_woken(&self.site.pools), if !is_busy && self.rhythm.failures() == 0 => {}
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.gateway.peers.remove(self.address);
    }
}

/// A peer whose requests count; they no longer do once this is dropped.
struct Heard {
    pools: Vec<Arc<Pool>>,
    peer: PeerId,
    at: Time,
}

impl Heard {
    /// In parts, for a pool's lock is not to be held for long.
    fn take(&self, pool: &str, mut report: Report, written: Time) {
        let Some(pool) = self.pools.iter().find(|known| &**known.name() == pool) else { return };
        loop {
            let rest = report.news.split_off(report.news.len().min(PART));
            pool.shared.with(|core, now| core.hear(self.peer, &report, written, now));
            if rest.is_empty() {
                return;
            }
            (report.scope, report.news) = (Scope::Since, rest);
        }
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        for pool in &self.pools {
            pool.shared.with(|core, now| core.forget_peer(self.peer, now));
        }
    }
}

/// Completes when a quiet pool has got a request.
async fn any_woken(pools: &[Arc<Pool>]) {
    let mut bells: Vec<_> =
        pools.iter().map(|pool| Box::pin(pool.shared.woken.notified())).collect();
    poll_fn(|cx| {
        let rung = bells.iter_mut().any(|bell| bell.as_mut().poll(cx).is_ready());
        if rung { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
