//! The other gateways in front of the same engines: what they do is read like an engine's page.
//!
//! Each gateway serves its news on the admin port (`GET /peer/v1`), and reads those of its
//! peers. Nobody is connected to for ever, nobody has to be told: a report that does not
//! arrive is asked for again, and a peer that does not answer for `staleAfter` is forgotten
//! with all its requests. `docs/decisions/0013-gateways-tell-each-other.md` says why.

mod board;
mod link;
mod wire;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};

use crate::config::{HttpAddress, PeersConfig};
use crate::gateway::{Gateway, Site};

pub(crate) use board::{Board, Standing};
use link::Link;
pub(crate) use wire::Page;

/// How often names are looked up again: pods come and go.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);

/// Reports that a gateway asks for in a second at most, whatever the number of its peers.
const MOST_QUESTIONS: u32 = 400;

/// Reads peers' reports for as long as the daemon runs; starts anew when the
/// configuration changes.
pub(crate) async fn run(gateway: Arc<Gateway>, mut sites: tokio::sync::watch::Receiver<Arc<Site>>) {
    loop {
        let site = Arc::clone(&sites.borrow_and_update());
        let mut links = Links::new(&gateway, &site);
        loop {
            if let Some(config) = &site.config.peers {
                links.keep_to(config).await;
            }
            let changed = tokio::select! {
                () = tokio::time::sleep(RESOLVE_INTERVAL) => continue,
                changed = sites.changed() => changed,
            };
            // What the old ones have heard is forgotten before the new ones begin.
            links.tasks.shutdown().await;
            match changed {
                Ok(()) => break,
                Err(_) => return,
            }
        }
    }
}

/// What this gateway has to tell: `cursor` is what the last report gave the reader. `None`
/// when it has no peers.
pub(crate) fn page(gateway: &Gateway, cursor: &str) -> Option<Page> {
    let site = gateway.site.load();
    site.config.peers.as_ref()?;
    Some(wire::page(gateway.peers.instance(), &site.pools, cursor))
}

/// One task per address of a peer.
struct Links {
    gateway: Arc<Gateway>,
    site: Arc<Site>,
    tasks: JoinSet<()>,
    open: HashMap<SocketAddr, AbortHandle>,
    /// What each configured name stood for when it could be looked up last.
    known: HashMap<HttpAddress, Vec<SocketAddr>>,
    count: Arc<AtomicUsize>,
}

impl Links {
    fn new(gateway: &Arc<Gateway>, site: &Arc<Site>) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            site: Arc::clone(site),
            tasks: JoinSet::new(),
            open: HashMap::new(),
            known: HashMap::new(),
            count: Arc::default(),
        }
    }

    /// Opens and ends links so that there is one for each address that names stand for now.
    async fn keep_to(&mut self, config: &PeersConfig) {
        let wanted = self.look_up(config).await;
        // Those that were ended last time.
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|address, task| {
            let stays = wanted.contains(address);
            if !stays {
                task.abort();
            }
            stays
        });
        self.count.store(wanted.len(), Ordering::Relaxed);
        for address in wanted {
            if let std::collections::hash_map::Entry::Vacant(place) = self.open.entry(address) {
                let count = Arc::clone(&self.count);
                let link = Link::new(&self.gateway, &self.site, config, address, count);
                place.insert(self.tasks.spawn(link.follow()));
            }
        }
    }

    async fn look_up(&mut self, config: &PeersConfig) -> HashSet<SocketAddr> {
        for name in &config.addresses {
            match resolve(name).await {
                Ok(found) => {
                    self.known.insert(name.clone(), found);
                }
                // Those it stood for are asked further: a name server may fail, too.
                Err(error) => {
                    tracing::warn!(peers = %name.authority(), %error, "cannot look up peers");
                }
            }
        }
        self.known.values().flatten().copied().collect()
    }
}

async fn resolve(name: &HttpAddress) -> std::io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = name.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, name.port)]);
    }
    Ok(tokio::net::lookup_host((name.host.as_str(), name.port)).await?.collect())
}

/// Time between two questions to one of `links` peers.
fn spaced(interval: Duration, links: usize) -> Duration {
    let links = u32::try_from(links).unwrap_or(u32::MAX);
    interval.max(Duration::from_secs(1).saturating_mul(links) / MOST_QUESTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_in_a_second_are_bounded_whatever_the_number_of_peers() {
        let interval = Duration::from_millis(50);
        assert_eq!(spaced(interval, 7), interval);
        assert_eq!(spaced(interval, 20), interval);
        assert_eq!(spaced(interval, 200), Duration::from_millis(500));
    }
}
