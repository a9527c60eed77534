//! `bpf status`: what is in the kernel, read from the pinned maps.
//!
//! Works without a daemon, because that is when people ask.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray};
use gateway_common::splice::{Conn, Counters as SpliceCounters, Tuple};
use gateway_common::steer::{BEAT_LASTS_NS, Beat, Counters, ENDPOINTS, Endpoint, Pool, Vip};

use super::table::table;
use crate::args::BpfStatusFlags;
use crate::kernel::{self, pins, steer};

/// Describes the kernel's part on this node.
///
/// # Errors
///
/// The pinned maps cannot be read, for want of a right or because they are another
/// version's.
pub fn bpf_status(flags: &BpfStatusFlags) -> Result<String> {
    let mut rows = vec![row(["NEEDED", "RESULT"])];
    for (name, result) in kernel::checks(&flags.root) {
        rows.push(row([name, &result.map_or_else(|error| error.to_string(), |()| "ok".into())]));
    }
    let mut text = table(&rows);
    let maps = pins::maps(&flags.root);
    if !maps.is_dir() {
        let _ = writeln!(text, "\nno maps of this version at {}", maps.display());
        return Ok(text);
    }
    text.push('\n');
    text.push_str(&table(&hooks(&pins::links(&flags.root))?));
    text.push_str(&steering(&maps)?);
    text.push_str(&counters(&maps)?);
    Ok(text)
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn map(maps: &Path, name: &str) -> Result<Map> {
    let path = maps.join(name);
    let open = || Map::from_map_data(MapData::from_pin(&path)?);
    open().with_context(|| format!("cannot read {}", path.display()))
}

/// Pinned hooks: `splice_in-2` is on the interface of index 2.
fn hooks(links: &Path) -> Result<Vec<Vec<String>>> {
    let entries =
        fs::read_dir(links).with_context(|| format!("cannot read {}", links.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    let mut rows = vec![row(["PROGRAM", "ATTACHED TO"])];
    for name in &names {
        let (program, place) = match name.split_once('-') {
            Some((program, ifindex)) => (program, format!("interface {ifindex}")),
            None => (&**name, "cgroup".to_owned()),
        };
        rows.push(row([program, &place]));
    }
    Ok(rows)
}

fn steering(maps: &Path) -> Result<String> {
    let beat = Array::<_, Beat>::try_from(map(maps, "heartbeat")?)?.get(&0, 0)?;
    let pools = HashMap::<_, Vip, Pool>::try_from(map(maps, "pools")?)?;
    let endpoints = Array::<_, Endpoint>::try_from(map(maps, "endpoints")?)?;
    let picks = Array::<_, u64>::try_from(map(maps, "picks")?)?;
    let mut rows = vec![row(["POOL", "ADDRESS", "MODE", "GENERATION", "CANDIDATES"])];
    for entry in &pools {
        let (vip, pool) = entry?;
        let mode = if pool.mode == Pool::REQUEST { "request" } else { "connection" };
        let (generation, count) = (pool.generation.to_string(), pool.count.to_string());
        rows.push(row([&pool.id.to_string(), &address(vip), mode, &generation, &count]));
    }
    let mut text = format!("\nsteering {}\n{}", life(beat), table(&rows));
    let mut rows = vec![row(["ENDPOINT", "POOL", "STATE", "SCORE", "WEIGHT", "PICKS"])];
    for place in 0..ENDPOINTS {
        let endpoint = endpoints.get(&place, 0)?;
        if endpoint.state == Endpoint::FREE {
            continue;
        }
        rows.push(vec![
            address(endpoint.address),
            endpoint.pool.to_string(),
            state(endpoint.state).to_owned(),
            format!("{:.3}", f64::from(endpoint.score) / 1000.0),
            format!("{:.3}", f64::from(endpoint.weight) / 1000.0),
            picks.get(&place, 0)?.to_string(),
        ]);
    }
    if rows.len() > 1 {
        text.push('\n');
        text.push_str(&table(&rows));
    }
    Ok(text)
}

/// Whether the programs act.
fn life(beat: Beat) -> String {
    if beat.at_ns == 0 {
        return "rests".to_owned();
    }
    let age = steer::monotonic().saturating_sub(Duration::from_nanos(beat.at_ns));
    let acts = age <= Duration::from_nanos(BEAT_LASTS_NS);
    let acts = if acts { "acts" } else { "does not act" };
    format!("{acts}: last sign of life of process {} {:.1} s ago", beat.pid, age.as_secs_f64())
}

fn state(state: u32) -> &'static str {
    match state {
        Endpoint::SERVING => "serving",
        Endpoint::DRAINING => "draining",
        _ => "out",
    }
}

fn address(vip: Vip) -> String {
    format!("{}:{}", Ipv4Addr::from(vip.ip_be.to_ne_bytes()), u16::from_be(vip.port_be))
}

fn counters(maps: &Path) -> Result<String> {
    let steered = PerCpuArray::<_, Counters>::try_from(map(maps, "steer_counts")?)?.get(&0, 0)?;
    let spliced = PerCpuArray::<_, SpliceCounters>::try_from(map(maps, "splice_counts")?)?;
    let spliced = spliced.get(&0, 0)?;
    let conns = HashMap::<_, Tuple, Conn>::try_from(map(maps, "conns")?)?;
    let steered = |of: fn(&Counters) -> u64| steered.iter().map(of).sum::<u64>();
    let spliced = |of: fn(&SpliceCounters) -> u64| spliced.iter().map(of).sum::<u64>();
    let counts = [
        ("connections to the gateway", steered(|counters| counters.to_gateway)),
        ("connections to an endpoint", steered(|counters| counters.to_endpoint)),
        ("left alone: daemon silent", steered(|counters| counters.stale)),
        ("left alone: no endpoint", steered(|counters| counters.empty)),
        ("connections looked after", conns.keys().flatten().count() as u64),
        ("packets moved", spliced(|counters| counters.moved)),
        ("bytes moved", spliced(|counters| counters.moved_bytes)),
        ("chunks moved", spliced(|counters| counters.moved_chunks)),
        ("packets that could not be sent on", spliced(|counters| counters.failed)),
    ];
    let mut rows = vec![row(["COUNTED", "NUMBER"])];
    rows.extend(counts.map(|(name, count)| row([name, &count.to_string()])));
    Ok(format!("\n{}", table(&rows)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_is_silent_for_long_is_said_not_to_act() {
        let beat = |at_ns| Beat { at_ns, pid: 7, reserved: 0 };
        assert_eq!(life(beat(0)), "rests");
        let now = steer::monotonic().as_nanos() as u64;
        assert!(life(beat(now)).starts_with("acts: last sign of life of process 7"));
        assert!(life(beat(1)).starts_with("does not act"));
    }

    #[test]
    fn addresses_are_written_as_people_write_them() {
        let vip = steer::address("127.1.0.1:8000".parse().unwrap());
        assert_eq!(address(vip), "127.1.0.1:8000");
    }

    #[test]
    fn without_maps_the_needs_are_shown_all_the_same() {
        let text = bpf_status(&BpfStatusFlags { root: "/nowhere".into() }).unwrap();
        assert!(text.starts_with("NEEDED"), "{text}");
        assert!(text.contains("no maps of this version at /nowhere/v"), "{text}");
    }
}
