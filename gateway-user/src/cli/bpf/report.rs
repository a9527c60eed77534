//! What the pinned maps say.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray};
use gateway_common::address::SocketAddress;
use gateway_common::path::PathState;
use gateway_common::splice::{Conn, Counters as SpliceCounters, STOPS, Stop, Tuple};
use gateway_common::steer::{BEAT_LASTS_NS, Beat, Counters, ENDPOINTS, Endpoint, Pool};
use serde::Serialize;

use super::flows::{self, Flows};
use super::sk_msg::{self, Streams};
use crate::kernel::{self, pins, steer};

/// Everything `bpf status` tells; its JSON has these names.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) needs: Vec<Need>,
    /// Where this version's maps would be.
    pub(super) maps: PathBuf,
    /// `None` when there are none.
    pub(super) kernel: Option<InKernel>,
}

/// What a daemon needs here.
#[derive(Debug, Serialize)]
pub(super) struct Need {
    pub(super) name: &'static str,
    /// What is wrong with it, if something is.
    pub(super) problem: Option<String>,
}

/// What a daemon has, or had.
#[derive(Debug, Serialize)]
pub(super) struct InKernel {
    pub(super) paths: Vec<KernelPath>,
    pub(super) hooks: Vec<Hook>,
    pub(super) heartbeat: Heartbeat,
    pub(super) pools: Vec<SteeredPool>,
    pub(super) endpoints: Vec<SteeredEndpoint>,
    pub(super) flows: Flows,
    pub(super) counts: Vec<Count>,
    /// Packets of armed answers that went through the daemon, by reason.
    pub(super) stops: Vec<Count>,
    pub(super) sk_msg: Streams,
}

/// A path, and what has become of it.
#[derive(Debug, Serialize)]
pub(super) struct KernelPath {
    pub(super) path: &'static str,
    pub(super) state: &'static str,
    pub(super) why: String,
}

/// A pinned hook.
#[derive(Debug, Serialize)]
pub(super) struct Hook {
    pub(super) program: String,
    pub(super) place: String,
}

/// The daemon's last sign of life.
#[derive(Debug, Serialize)]
pub(super) struct Heartbeat {
    /// `None` when steering rests.
    pub(super) age_seconds: Option<f64>,
    pub(super) pid: u32,
    /// Whether the steering programs act.
    pub(super) acts: bool,
}

/// A pool with a virtual address.
#[derive(Debug, Serialize)]
pub(super) struct SteeredPool {
    pub(super) pool: u32,
    pub(super) address: String,
    pub(super) mode: &'static str,
    pub(super) generation: u32,
    pub(super) candidates: u32,
}

/// An endpoint of such a pool.
#[derive(Debug, Serialize)]
pub(super) struct SteeredEndpoint {
    pub(super) address: String,
    pub(super) pool: u32,
    pub(super) state: &'static str,
    pub(super) score: f64,
    pub(super) weight: f64,
    pub(super) picks: u64,
}

/// A number with its name.
#[derive(Debug, Serialize)]
pub(super) struct Count {
    pub(super) name: &'static str,
    pub(super) count: u64,
}

/// Reads the maps below `root`, and at most `most` flows.
pub(super) fn read(root: &Path, most: usize) -> Result<Report> {
    let needs = kernel::checks(root)
        .into_iter()
        .map(|(name, result)| Need { name, problem: result.err().map(|error| error.to_string()) });
    let needs = needs.collect();
    let maps = pins::maps(root);
    let kernel = if maps.is_dir() { Some(in_kernel(root, &maps, most)?) } else { None };
    Ok(Report { needs, maps, kernel })
}

fn in_kernel(root: &Path, maps: &Path, most: usize) -> Result<InKernel> {
    let beat = Array::<_, Beat>::try_from(map(maps, "heartbeat")?)?.get(&0, 0)?;
    let endpoints = endpoints(maps)?;
    let flows = flows::read(maps, &endpoints, most)?;
    let (counts, stops) = counts(maps)?;
    Ok(InKernel {
        paths: paths(maps)?,
        hooks: hooks(&pins::links(root))?,
        heartbeat: heartbeat(beat),
        pools: pools(maps)?,
        endpoints,
        flows,
        counts,
        stops,
        sk_msg: sk_msg::read(maps, most)?,
    })
}

pub(super) fn map(maps: &Path, name: &str) -> Result<Map> {
    let path = maps.join(name);
    let open = || Map::from_map_data(MapData::from_pin(&path)?);
    open().with_context(|| format!("cannot read {}", path.display()))
}

fn paths(maps: &Path) -> Result<Vec<KernelPath>> {
    let states = Array::<_, PathState>::try_from(map(maps, "paths")?)?;
    let places = [
        (PathState::SPLICE, "splice"),
        (PathState::STEERING, "steering"),
        (PathState::SK_MSG, "sk_msg"),
    ];
    let rows = places.map(|(place, path)| {
        let state = states.get(&place, 0)?;
        let word = match state.state {
            PathState::UNASKED => "not asked for",
            PathState::ON => "on",
            _ => "off",
        };
        Ok(KernelPath { path, state: word, why: state.why().to_owned() })
    });
    rows.into_iter().collect()
}

/// Pinned hooks: `splice_in-2` is on the interface of index 2.
fn hooks(links: &Path) -> Result<Vec<Hook>> {
    let entries =
        fs::read_dir(links).with_context(|| format!("cannot read {}", links.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    let hooks = names.iter().map(|name| match name.split_once('-') {
        Some((program, ifindex)) => {
            Hook { program: program.to_owned(), place: format!("interface {ifindex}") }
        }
        None => Hook { program: name.clone(), place: "cgroup".to_owned() },
    });
    Ok(hooks.collect())
}

pub(super) fn heartbeat(beat: Beat) -> Heartbeat {
    if beat.at_ns == 0 {
        return Heartbeat { age_seconds: None, pid: beat.pid, acts: false };
    }
    let age = steer::monotonic().saturating_sub(Duration::from_nanos(beat.at_ns));
    let acts = age <= Duration::from_nanos(BEAT_LASTS_NS);
    Heartbeat { age_seconds: Some(age.as_secs_f64()), pid: beat.pid, acts }
}

fn pools(maps: &Path) -> Result<Vec<SteeredPool>> {
    let pools = HashMap::<_, SocketAddress, Pool>::try_from(map(maps, "pools")?)?;
    let rows = pools.iter().map(|entry| {
        let (vip, pool) = entry?;
        Ok(SteeredPool {
            pool: pool.id,
            address: vip.socket_addr().to_string(),
            mode: if pool.mode == Pool::REQUEST { "request" } else { "connection" },
            generation: pool.generation,
            candidates: pool.count,
        })
    });
    rows.collect()
}

fn endpoints(maps: &Path) -> Result<Vec<SteeredEndpoint>> {
    let endpoints = Array::<_, Endpoint>::try_from(map(maps, "endpoints")?)?;
    let picks = Array::<_, u64>::try_from(map(maps, "picks")?)?;
    let mut rows = Vec::new();
    for place in 0..ENDPOINTS {
        let endpoint = endpoints.get(&place, 0)?;
        if endpoint.state == Endpoint::FREE {
            continue;
        }
        rows.push(SteeredEndpoint {
            address: endpoint.address.socket_addr().to_string(),
            pool: endpoint.pool,
            state: match endpoint.state {
                Endpoint::SERVING => "serving",
                Endpoint::DRAINING => "draining",
                _ => "out",
            },
            score: f64::from(endpoint.score) / 1000.0,
            weight: f64::from(endpoint.weight) / 1000.0,
            picks: picks.get(&place, 0)?,
        });
    }
    Ok(rows)
}

fn counts(maps: &Path) -> Result<(Vec<Count>, Vec<Count>)> {
    let steered = PerCpuArray::<_, Counters>::try_from(map(maps, "steer_counts")?)?.get(&0, 0)?;
    let spliced = PerCpuArray::<_, SpliceCounters>::try_from(map(maps, "splice_counts")?)?;
    let spliced = spliced.get(&0, 0)?;
    let conns = HashMap::<_, Tuple, Conn>::try_from(map(maps, "conns")?)?;
    let steered = |of: fn(&Counters) -> u64| steered.iter().map(of).sum::<u64>();
    let sum = |of: fn(&SpliceCounters) -> u64| spliced.iter().map(of).sum::<u64>();
    let counts = [
        ("connections to the gateway", steered(|counters| counters.to_gateway)),
        ("connections to an endpoint", steered(|counters| counters.to_endpoint)),
        ("left alone: daemon silent", steered(|counters| counters.stale)),
        ("left alone: no endpoint", steered(|counters| counters.empty)),
        ("connections looked after", conns.keys().flatten().count() as u64),
        ("packets moved", sum(|counters| counters.moved)),
        ("bytes moved", sum(|counters| counters.moved_bytes)),
        ("chunks moved", sum(|counters| counters.moved_chunks)),
        ("packets that could not be sent on", sum(|counters| counters.failed)),
    ];
    let stops = (1..STOPS).map(|code| Count {
        name: Stop::name(code as u32),
        count: spliced.iter().map(|counters| counters.stops[code]).sum(),
    });
    Ok((counts.map(|(name, count)| Count { name, count }).into(), stops.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_is_silent_for_long_is_said_not_to_act() {
        let beat = |at_ns| Beat { at_ns, pid: 7, reserved: 0 };
        assert!(!heartbeat(beat(0)).acts && heartbeat(beat(0)).age_seconds.is_none());
        let now = steer::monotonic().as_nanos() as u64;
        assert!(heartbeat(beat(now)).acts);
        assert!(!heartbeat(beat(1)).acts && heartbeat(beat(1)).age_seconds.is_some());
    }
}
