//! What the engines say they serve: adapters for routing, and `GET /v1/models`.
//!
//! A listing is asked for in the background, and again when a client names a model
//! that nobody knows: an adapter may have been loaded a second ago. An endpoint
//! that does not answer keeps its last listing until it leaves, so that one
//! endpoint that is down never empties the list; nor is one asked that may not
//! serve, so that one that hangs holds up nobody.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use gateway_core::Time;
use gateway_core::route::models::PoolCards;
use gateway_core::route::{Discovered, ModelCard, RouteTable};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::auth::Identity;
use crate::drain::Phase;
use crate::fetch::Fetcher;
use crate::gateway::{Gateway, Site};
use crate::pool::Pool;
use crate::proxy::error::ProxyError;
use crate::proxy::reply::Reply;
use crate::proxy::worker::Worker;
use crate::readiness::is_serving;

/// How often engines are asked without a reason.
const INTERVAL: Duration = Duration::from_secs(10);
/// A listing this young is not asked for again.
const FRESH: Duration = Duration::from_secs(1);
/// How long an engine may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What engines answered, by the pool's place in the site and `host:port`.
type Listings = HashMap<(usize, Arc<str>), Vec<ModelCard>>;

/// The latest listings of one site's engines. Pools are called by their place in the
/// site, so a new site has a new catalogue.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    listings: Mutex<Listings>,
    discovered: ArcSwap<Discovered>,
    asked: Mutex<Option<Time>>,
    /// One refresh at a time; who waits for it gets its result.
    asking: tokio::sync::Mutex<()>,
}

impl Catalogue {
    /// What is known of the endpoints that stay when `before` becomes a site of these
    /// pools.
    pub(crate) fn carried_over(before: &Site, pools: &[Arc<Pool>], routes: &RouteTable) -> Self {
        let known = before.catalogue.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut listings = Listings::new();
        for ((index, authority), cards) in &*known {
            let name = before.pools[*index].name();
            let place = pools.iter().position(|pool| pool.name() == name);
            if let Some(place) = place.filter(|place| pools[*place].has_address(authority)) {
                listings.insert((place, Arc::clone(authority)), cards.clone());
            }
        }
        let discovered = routes.discover(&by_pool(pools, &listings));
        Self {
            listings: Mutex::new(listings),
            discovered: ArcSwap::new(Arc::new(discovered)),
            ..Self::default()
        }
    }

    /// Names that engines serve beyond the configured ones.
    pub(crate) fn discovered(&self) -> arc_swap::Guard<Arc<Discovered>> {
        self.discovered.load()
    }

    fn is_fresh(&self, now: Time) -> bool {
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_some_and(|asked| now.since(asked) < FRESH)
    }

    /// Asks every engine, unless that was done a moment ago.
    async fn refresh(&self, gateway: &Gateway, site: &Site) {
        let _one = self.asking.lock().await;
        if self.is_fresh(gateway.clock.now()) {
            return;
        }
        let mut asks = JoinSet::new();
        for (index, pool) in site.pools.iter().enumerate() {
            let serving: HashSet<_> = pool
                .endpoints()
                .iter()
                .filter(|view| is_serving(view))
                .map(|view| view.id)
                .collect();
            for endpoint in pool.addresses().iter().filter(|at| serving.contains(&at.id)) {
                let endpoint = Arc::clone(endpoint);
                let key = pool.config.api_key.clone();
                asks.spawn(async move {
                    let mut fetcher = Fetcher::new(&endpoint, "/v1/models", key.as_deref());
                    let page = fetcher.fetch(&endpoint, TIMEOUT, BytesMut::new()).await.ok()?;
                    if page.status != 200 {
                        return None;
                    }
                    let listing: Listing = serde_json::from_slice(&page.body).ok()?;
                    Some(((index, Arc::clone(&endpoint.authority)), listing.data))
                });
            }
        }
        let mut fresh = HashMap::new();
        while let Some(answer) = asks.join_next().await {
            if let Ok(Some((key, listing))) = answer {
                fresh.insert(key, listing);
            }
        }
        self.store(site, fresh);
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(gateway.clock.now());
    }

    fn store(&self, site: &Site, fresh: Listings) {
        for ((index, authority), cards) in &fresh {
            let adapters = cards.iter().filter(|card| card.parent.is_some());
            let names: Vec<_> = adapters.map(|card| Arc::clone(&card.id)).collect();
            site.pools[*index].set_adapters(authority, &names);
        }
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        listings.retain(|(index, authority), _| {
            site.pools.get(*index).is_some_and(|pool| pool.has_address(authority))
        });
        listings.extend(fresh);
        let discovered = site.routes.discover(&by_pool(&site.pools, &listings));
        self.discovered.store(Arc::new(discovered));
    }
}

/// The body of an engine's `/v1/models`.
#[derive(Debug, Deserialize)]
struct Listing {
    data: Vec<ModelCard>,
}

fn by_pool(pools: &[Arc<Pool>], listings: &Listings) -> Vec<PoolCards> {
    let mut cards = vec![Vec::new(); pools.len()];
    for ((index, _), listing) in listings {
        if let Some(pool) = cards.get_mut(*index) {
            pool.extend(listing.iter().cloned());
        }
    }
    cards
}

/// Asks in the background for as long as the daemon runs, and at once when the
/// configuration changes.
pub(crate) async fn keep_fresh(gateway: Arc<Gateway>, mut sites: watch::Receiver<Arc<Site>>) {
    let mut drain = gateway.drain.clone();
    loop {
        let site = Arc::clone(&sites.borrow_and_update());
        site.catalogue.refresh(&gateway, &site).await;
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            Ok(()) = sites.changed() => {}
            () = drain.reached(Phase::Draining) => return,
        }
    }
}

/// Asks again because a client named a model that nobody lists, unless that was done
/// a moment ago.
pub(crate) async fn refresh_for_unknown(worker: &Worker, site: &Site) {
    if !site.catalogue.is_fresh(worker.gateway.clock.now()) {
        site.catalogue.refresh(&worker.gateway, site).await;
    }
}

/// `GET /v1/models`
pub(crate) async fn list(worker: &Worker, site: &Site, identity: Option<&Identity>) -> Reply {
    site.catalogue.refresh(&worker.gateway, site).await;
    let models = visible(site, identity);
    let body = serde_json::json!({"object": "list", "data": models}).to_string();
    Reply::full(200, "application/json", Bytes::from(body))
}

/// `GET /v1/models/{id}`; `id` may be percent-encoded and may contain slashes.
pub(crate) async fn one(
    worker: &Worker,
    site: &Site,
    id: &str,
    identity: Option<&Identity>,
) -> Result<Reply, ProxyError> {
    site.catalogue.refresh(&worker.gateway, site).await;
    let id = percent_decoded(id);
    let model = visible(site, identity).into_iter().find(|model| *model.id == *id);
    let model = model.ok_or_else(|| ProxyError::UnknownModel(id.into_owned()))?;
    let body = serde_json::json!(model).to_string();
    Ok(Reply::full(200, "application/json", Bytes::from(body)))
}

fn visible(site: &Site, identity: Option<&Identity>) -> Vec<ModelCard> {
    let listings = site.catalogue.listings.lock().unwrap_or_else(PoisonError::into_inner);
    let allowed = |id: &str| identity.is_none_or(|identity| identity.may_use(id));
    site.routes.list(&by_pool(&site.pools, &listings), allowed)
}

/// Decodes `%2F` and friends; what is not valid stays as it is.
fn percent_decoded(text: &str) -> std::borrow::Cow<'_, str> {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy()
}
