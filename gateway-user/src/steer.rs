//! Keeps the kernel's picture of pools with a virtual address as the daemon's own.
//!
//! States are compared every few milliseconds and published when they differ, so that
//! no connection goes to an endpoint that the daemon knows to be out. Scores change
//! with every request; they are published at the pace that engines are scraped at.
//! The kernel adds its own picks meanwhile.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_common::address::SocketAddress;
use gateway_common::steer::{Endpoint, Pool as KernelPool};

use crate::config::SteeringMode;
use crate::drain::Phase;
use crate::gateway::{Gateway, Site};
use crate::kernel::Off;
use crate::kernel::steer::Steering;
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
        listeners,
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

/// Where clients of this node reach us by addresses of the same family as `vip`.
fn reachable(listeners: &[SocketAddr], vip: SocketAddr) -> Option<SocketAddr> {
    listeners.iter().find_map(|listener| {
        let ip = match (listener.ip(), vip) {
            // Any address of IPv6 is any of IPv4, too.
            (ip, SocketAddr::V4(_)) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            (IpAddr::V6(ip), SocketAddr::V6(_)) if ip.is_unspecified() => {
                Ipv6Addr::LOCALHOST.into()
            }
            (ip, vip) if !ip.is_unspecified() && ip.is_ipv4() == vip.is_ipv4() => ip,
            _ => return None,
        };
        Some(SocketAddr::new(ip, listener.port()))
    })
}

fn pace(site: &Site) -> Duration {
    let mut modes = site.pools.iter().filter_map(|pool| pool.config.steering);
    let any = modes.any(|steering| steering.mode == SteeringMode::Connection);
    if any { TICK } else { SLOW_TICK }
}

struct Publisher {
    steering: Steering,
    /// Where clients are listened to.
    listeners: Vec<SocketAddr>,
    board: Board,
    published: HashMap<SocketAddr, KernelPool>,
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
                SteeringMode::Request => {
                    let gateway = reachable(&self.listeners, steering.address);
                    (board::to_gateway(id as u32, gateway.map(SocketAddress::of)), Vec::new())
                }
                SteeringMode::Connection => self.candidates(id as u32, pool, steering.address),
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
    fn candidates(
        &mut self,
        id: u32,
        pool: &Pool,
        vip: SocketAddr,
    ) -> (KernelPool, Vec<(u32, Endpoint)>) {
        let addresses = pool.addresses();
        let mut entries = Vec::new();
        for view in pool.endpoints() {
            let known = addresses.iter().find(|endpoint| endpoint.id == view.id);
            // What is behind a name, TLS or the other family is reached through the gateway only.
            let known = known.filter(|endpoint| endpoint.tls().is_none());
            let to = known.and_then(|known| known.socket_address());
            let Some(to) = to.filter(|to| to.is_ipv4() == vip.is_ipv4()) else { continue };
            let to = SocketAddress::of(to);
            let picks = self.steering.picks();
            let entered = self.board.enter(pool.name(), &view, to, |place| picks.at(place) as u32);
            let Some(entry) = entered else { continue };
            picks.own(entry.place(), pool.name(), &view.name);
            entries.push(entry);
        }
        board::pool(id, entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_reach_a_listener_of_their_family() {
        let cases = [
            ("0.0.0.0:80", "127.1.0.1:8000", Some("127.0.0.1:80")),
            ("0.0.0.0:80", "[fd00::1]:8000", None),
            ("[::]:80", "127.1.0.1:8000", Some("127.0.0.1:80")),
            ("[::]:80", "[fd00::1]:8000", Some("[::1]:80")),
            ("10.0.0.1:80", "127.1.0.1:8000", Some("10.0.0.1:80")),
            ("10.0.0.1:80", "[fd00::1]:8000", None),
            ("[fd00::2]:80", "[fd00::1]:8000", Some("[fd00::2]:80")),
            ("[fd00::2]:80", "127.1.0.1:8000", None),
        ];
        for (listener, vip, expected) in cases {
            let found = reachable(&[listener.parse().unwrap()], vip.parse().unwrap());
            assert_eq!(found, expected.map(|to| to.parse().unwrap()), "{listener} for {vip}");
        }
    }
}
