//! Steering, as the daemon sees it: pools go in, picks come out.
//!
//! The programs act only while the daemon gives signs of life ([`Steering::beat`]), so
//! a daemon that dies, or hangs, leaves connections to whoever else serves their
//! address.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aya::maps::{Array, HashMap, Map, MapData, MapError};
use gateway_common::address::SocketAddress;
use gateway_common::steer::{Beat, Endpoint, Pool};

use super::cgroup::{self, Hooks};
use super::{AtExit, Kernel, Off, pins};

mod picks;
mod trial;

pub use picks::{Picked, Picks};

/// The maps of steering, while its programs are attached.
pub struct Steering {
    pools: HashMap<MapData, SocketAddress, Pool>,
    endpoints: Array<MapData, Endpoint>,
    picks: Arc<Picks>,
    heartbeat: Array<MapData, Beat>,
    hooks: Option<Hooks>,
    at_exit: AtExit,
}

impl Kernel {
    /// Attaches the steering programs to the node's root cgroup, or to `cgroup`, and
    /// tries them with a connection of our own.
    ///
    /// # Errors
    ///
    /// When there is no root cgroup here, the kernel refuses the programs, or they do
    /// not do what they should.
    pub fn steer(&mut self, cgroup: Option<&Path>) -> Result<Steering, Off> {
        let root = cgroup.map_or_else(cgroup::root, |path| Ok(path.to_owned()))?;
        let mut steering = Steering {
            pools: HashMap::try_from(self.map("pools")?).map_err(unusable)?,
            endpoints: Array::try_from(self.map("endpoints")?).map_err(unusable)?,
            picks: Arc::new(Picks::new(Array::try_from(self.map("picks")?).map_err(unusable)?)),
            heartbeat: Array::try_from(self.map("heartbeat")?).map_err(unusable)?,
            hooks: None,
            at_exit: self.at_exit,
        };
        steering.hooks = Some(Hooks::attach(&mut self.bpf, &root, &pins::links(&self.root))?);
        trial::run(&mut steering)?;
        tracing::info!(cgroup = %root.display(), "steering attached");
        Ok(steering)
    }

    fn map(&mut self, name: &'static str) -> Result<Map, Off> {
        self.bpf.take_map(name).ok_or(Off::Map { name })
    }
}

impl Steering {
    /// Where connections to `vip` go from now on; all at once.
    ///
    /// # Errors
    ///
    /// When there are too many virtual addresses.
    pub fn publish(&mut self, vip: SocketAddr, pool: &Pool) -> Result<(), Off> {
        self.pools.insert(SocketAddress::of(vip), pool, 0).map_err(unusable)
    }

    /// Connections to `vip` are no longer touched.
    pub fn withdraw(&mut self, vip: SocketAddr) {
        // Never published, perhaps.
        let _ = self.pools.remove(&SocketAddress::of(vip));
    }

    /// Describes an endpoint, at its place.
    ///
    /// # Errors
    ///
    /// When the place is not below [`gateway_common::steer::ENDPOINTS`].
    pub fn describe(&mut self, place: u32, endpoint: Endpoint) -> Result<(), Off> {
        self.endpoints.set(place, endpoint, 0).map_err(unusable)
    }

    /// Connections that the kernel has sent to endpoints.
    #[must_use]
    pub fn picks(&self) -> &Arc<Picks> {
        &self.picks
    }

    /// The programs act for a few seconds more; see [`gateway_common::steer::BEAT_LASTS_NS`].
    ///
    /// # Errors
    ///
    /// When the kernel does not take it, which only a changed map explains.
    pub fn beat(&mut self) -> Result<(), Off> {
        let at_ns = u64::try_from(monotonic().as_nanos()).unwrap_or(u64::MAX);
        let beat = Beat { at_ns, pid: std::process::id(), reserved: 0 };
        self.heartbeat.set(0, beat, 0).map_err(unusable)
    }

    /// The programs act no longer, from now on.
    pub fn rest(&mut self) {
        if let Err(error) = self.heartbeat.set(0, Beat::default(), 0) {
            tracing::warn!(%error, "cannot stop steering; it stops by itself");
        }
    }
}

impl fmt::Debug for Steering {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Steering");
        shown.field("hooks", &self.hooks).field("at_exit", &self.at_exit).finish_non_exhaustive()
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        if self.at_exit == AtExit::Keep {
            return;
        }
        self.rest();
        if let Some(hooks) = self.hooks.take() {
            hooks.detach();
        }
    }
}

fn unusable(error: MapError) -> Off {
    Off::UseMap(Box::new(error))
}

/// The clock that the programs read.
pub(crate) fn monotonic() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
