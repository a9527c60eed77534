//! What every part of the daemon shares.
//!
//! [`Gateway`] lives as long as the process. [`Site`] is what the configuration
//! makes of it: an immutable value, replaced whole by a reload. A request takes
//! the site once, at its start, and keeps to it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use gateway_core::route::RouteTable;
use tokio::sync::Semaphore;

use crate::access_log::AccessLog;
use crate::auth::Keys;
use crate::clock::Clock;
use crate::config::{Auth, Config};
use crate::datapath;
use crate::drain::Watcher;
use crate::metrics::Metrics;
use crate::models::Catalogue;
use crate::peers::Board;
use crate::pool::Pool;
use crate::splice::Node;

/// See the module.
#[derive(Debug)]
pub struct Gateway {
    /// The only clock.
    pub clock: Clock,
    /// Everything that is counted.
    pub metrics: Metrics,
    /// Where finished requests are written.
    pub log: AccessLog,
    /// What the configuration says now.
    pub site: ArcSwap<Site>,
    /// The other gateways in front of the same engines.
    pub(crate) peers: Board,
    /// The kernel's part, where there is one.
    pub(crate) node: Option<Arc<Node>>,
    /// Why there is no kernel's part, where there is none.
    pub(crate) no_node: String,
    /// How far a shutdown has come.
    pub drain: Watcher,
    /// Memory for bodies that must be held beyond their allowance, in KiB.
    pub(crate) buffers: Arc<Semaphore>,
}

/// The configuration, put to work.
#[derive(Debug)]
pub struct Site {
    /// Where it comes from.
    pub config: Arc<Config>,
    /// Model names to pools.
    pub routes: RouteTable,
    /// Pools in the order of the configuration, which is how routes name them.
    pub pools: Vec<Arc<Pool>>,
    /// Who may call.
    pub keys: Keys,
    /// What the engines say they serve.
    pub(crate) catalogue: Catalogue,
}

impl Gateway {
    /// What the kernel does for answers, for people.
    pub(crate) fn kernel_path(&self) -> String {
        match &self.node {
            None => self.no_node.clone(),
            Some(node) => match node.no_splice() {
                None => format!("splice, {}", node.trial()),
                Some(why) => format!("off: {why}"),
            },
        }
    }

    /// What the kernel does from socket to socket, for people.
    pub(crate) fn sk_msg(&self) -> String {
        match &self.node {
            None => self.no_node.clone(),
            Some(node) => datapath::describe(&self.site.load().config, node),
        }
    }

    /// What the kernel does for connections to virtual addresses, for people.
    pub(crate) fn steering(&self) -> String {
        match &self.node {
            None => self.no_node.clone(),
            Some(node) => match node.steering() {
                None => "off: no pool has a virtualIp".to_owned(),
                Some(Ok(())) => "on".to_owned(),
                Some(Err(why)) => format!("off: {why}"),
            },
        }
    }
}

impl Site {
    /// Puts a configuration to work. Pools that were there before keep what they
    /// have learnt.
    #[must_use]
    pub fn build(config: Arc<Config>, before: Option<&Self>, clock: Clock) -> Self {
        let pools = config.pools.iter().map(|pool| {
            let known = before
                .and_then(|site| site.pools.iter().find(|known| **known.name() == *pool.name));
            Arc::new(match known {
                Some(known) => known.reconfigured(pool.clone()),
                None => Pool::new(pool.clone(), clock),
            })
        });
        let pools: Vec<_> = pools.collect();
        let routes = config.routes.clone();
        let catalogue = before.map(|site| Catalogue::carried_over(site, &pools, &routes));
        Self {
            pools,
            routes,
            keys: keys(&config.auth),
            catalogue: catalogue.unwrap_or_default(),
            config,
        }
    }

    /// Largest body that any pool takes; nothing larger is ever read.
    #[must_use]
    pub fn largest_body(&self) -> u64 {
        self.pools.iter().map(|pool| pool.config.max_request_body_bytes).max().unwrap_or(0)
    }
}

fn keys(auth: &Auth) -> Keys {
    match auth {
        Auth::None => Keys::none(),
        Auth::ApiKeys(keys) => {
            Keys::new(keys.iter().map(|key| (&*key.name, &*key.key, &*key.models)))
        }
    }
}
