//! Keeps the kernel's picture of pools with a virtual address as the daemon's own.
//!
//! States are compared every few milliseconds and published when they differ, so that
//! no connection goes to an endpoint that the daemon knows to be out. Scores change
//! with every request; they are published at the pace that engines are scraped at.
//! The kernel adds its own picks meanwhile.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_common::steer::{Endpoint, Pool as KernelPool, Vip};

use crate::config::SteeringMode;
use crate::drain::Phase;
use crate::gateway::{Gateway, Site};
use crate::kernel::Off;
use crate::kernel::steer::{Steering, address};
use crate::pool::Pool;

mod board;

use board::Board;

/// How soon the kernel knows what the daemon knows.
const TICK: Duration = Duration::from_millis(5);
/// The same where only the gateway can be the destination.
const SLOW_TICK: Duration = Duration::from_millis(500);
/// How often scores are published.
const SCORES: Duration = Duration::from_millis(50);
/// How often the kernel is told that we live; well below what it waits for.
const BEAT: Duration = Duration::from_millis(500);

/// Publishes until a shutdown begins; then connections are left alone.
pub(crate) async fn run(gateway: Arc<Gateway>, steering: Steering, listeners: Vec<SocketAddr>) {
    let mut publisher = Publisher {
        steering,
        gateway: reachable(&listeners).map(address),
        board: Board::default(),
        published: HashMap::new(),
        scored: Instant::now(),
        beaten: None,
    };
    loop {
        if gateway.drain.phase() != Phase::Serving {
            return;
        }
        let site = gateway.site.load_full();
        if let Err(error) = publisher.update(&site) {
            tracing::warn!(%error, "cannot tell the kernel about a pool");
        }
        tokio::time::sleep(pace(&site)).await;
    }
}

/// Where clients of this node reach us.
fn reachable(listeners: &[SocketAddr]) -> Option<SocketAddrV4> {
    listeners.iter().find_map(|listener| match listener {
        SocketAddr::V4(listener) if listener.ip().is_unspecified() => {
            Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.port()))
        }
        SocketAddr::V4(listener) => Some(*listener),
        SocketAddr::V6(listener) if listener.ip().is_unspecified() => {
            Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.port()))
        }
        SocketAddr::V6(_) => None,
    })
}

fn pace(site: &Site) -> Duration {
    let mut modes = site.pools.iter().filter_map(|pool| pool.config.steering);
    let any = modes.any(|steering| steering.mode == SteeringMode::Connection);
    if any { TICK } else { SLOW_TICK }
}

struct Publisher {
    steering: Steering,
    /// `None` when we listen on nothing that IPv4 clients reach.
    gateway: Option<Vip>,
    board: Board,
    published: HashMap<SocketAddrV4, KernelPool>,
    scored: Instant,
    beaten: Option<Instant>,
}

impl Publisher {
    fn update(&mut self, site: &Site) -> Result<(), Off> {
        let due = self.scored.elapsed() >= SCORES;
        let mut vips = HashSet::new();
        for (id, pool) in site.pools.iter().enumerate() {
            let Some(steering) = pool.config.steering else { continue };
            vips.insert(steering.address);
            let (mut new, rows) = match steering.mode {
                SteeringMode::Request => (board::to_gateway(id as u32, self.gateway), Vec::new()),
                SteeringMode::Connection => self.candidates(id as u32, pool),
            };
            let old = self.published.get(&steering.address);
            new.generation = old.map_or(0, |old| old.generation);
            let is_new = old.is_none_or(|old| !board::same_members(old, &new));
            if is_new || due && old != Some(&new) {
                new.generation = new.generation.wrapping_add(1);
                self.steering.publish(steering.address, &new)?;
                self.published.insert(steering.address, new);
                for (place, row) in rows {
                    self.steering.describe(place, row)?;
                }
            }
        }
        let steering = &mut self.steering;
        self.published.retain(|vip, _| {
            let stays = vips.contains(vip);
            if !stays {
                steering.withdraw(*vip);
            }
            stays
        });
        if due {
            for place in self.board.forget_absent() {
                self.steering.picks().disown(place);
                self.steering.describe(place, Endpoint::default())?;
            }
            self.scored = Instant::now();
        }
        // Last, so that the first sign of life comes when all is in place.
        if self.beaten.is_none_or(|beaten| beaten.elapsed() >= BEAT) {
            self.steering.beat()?;
            self.beaten = Some(Instant::now());
        }
        Ok(())
    }

    /// A pool as the kernel is to see it, and its endpoints for people.
    fn candidates(&mut self, id: u32, pool: &Pool) -> (KernelPool, Vec<(u32, Endpoint)>) {
        let addresses = pool.addresses();
        let mut entries = Vec::new();
        for view in pool.endpoints() {
            let known = addresses.iter().find(|endpoint| endpoint.id == view.id);
            // What is behind a name, IPv6 or TLS, is reached through the gateway only.
            let known = known.filter(|endpoint| endpoint.tls().is_none());
            let Some(SocketAddr::V4(to)) = known.and_then(|known| known.socket_address()) else {
                continue;
            };
            let picks = self.steering.picks();
            let entered =
                self.board.enter(pool.name(), &view, address(to), |place| picks.at(place) as u32);
            let Some(entry) = entered else { continue };
            picks.own(entry.place(), pool.name(), &view.name);
            entries.push(entry);
        }
        board::pool(id, entries)
    }
}
