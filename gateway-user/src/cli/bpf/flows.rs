//! The answers that the kernel carries, one by one.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use aya::maps::{Array, HashMap};
use gateway_common::splice::{Conn, Flow, Slot, Stop, Tuple};
use serde::Serialize;

use super::report::{SteeredEndpoint, map};
use crate::kernel::steer::monotonic;

/// Some of the flows, and how many more there are.
#[derive(Debug, Serialize)]
pub(super) struct Flows {
    pub(super) shown: Vec<FlowRow>,
    pub(super) more: usize,
}

/// An answer.
#[derive(Debug, Eq, PartialEq, Serialize)]
pub(super) struct FlowRow {
    pub(super) client: String,
    pub(super) endpoint: String,
    /// Place of its pool in the configuration, where the kernel knows it: of pools with a
    /// virtual address.
    pub(super) pool: Option<u32>,
    pub(super) state: State,
    pub(super) chunks: u64,
    pub(super) bytes: u64,
    /// Since the first chunk was moved.
    pub(super) age_ms: Option<u64>,
    /// Since the last chunk was moved.
    pub(super) idle_ms: Option<u64>,
    /// Why the last packet that the kernel did not move was not.
    pub(super) stop: &'static str,
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// The kernel moves its packets.
    Open,
    /// It was taken back, and the client has not acknowledged all that was moved.
    Settling,
    /// It is over; its connections' numbers stay shifted by it.
    Settled,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Settling => "settling",
            Self::Settled => "settled",
        }
    }
}

/// Reads the flows that a connection names: open ones first, of these the largest.
pub(super) fn read(maps: &Path, endpoints: &[SteeredEndpoint], most: usize) -> Result<Flows> {
    let conns = HashMap::<_, Tuple, Conn>::try_from(map(maps, "conns")?)?;
    let slots = Array::<_, Slot>::try_from(map(maps, "slots")?)?;
    let flows = Array::<_, Flow>::try_from(map(maps, "flows")?)?;
    let mut numbers = BTreeSet::new();
    for entry in &conns {
        // One that goes while we look is none.
        let Ok((_, conn)) = entry else { continue };
        numbers.insert(slots.get(&conn.slot, 0)?.flow);
    }
    numbers.remove(&0);
    let now = monotonic();
    let rows = numbers.iter().map(|number| Ok(row(&flows.get(number, 0)?, endpoints, now)));
    let mut shown = rows.collect::<Result<Vec<_>>>()?;
    shown.sort_by_key(|row| (row.state, Reverse(row.bytes)));
    let more = shown.len().saturating_sub(most);
    shown.truncate(most);
    Ok(Flows { shown, more })
}

fn row(flow: &Flow, endpoints: &[SteeredEndpoint], now: Duration) -> FlowRow {
    let since = |at_ns: u64| {
        let age = now.saturating_sub(Duration::from_nanos(at_ns));
        (at_ns != 0).then(|| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
    };
    let endpoint = peer(&flow.up);
    let state = match flow {
        Flow { settled: 1.., .. } => State::Settled,
        Flow { open: 0, .. } => State::Settling,
        Flow { .. } => State::Open,
    };
    FlowRow {
        client: peer(&flow.down),
        pool: endpoints.iter().find(|known| known.address == endpoint).map(|known| known.pool),
        endpoint,
        state,
        chunks: flow.chunks,
        bytes: flow.bytes,
        age_ms: since(flow.first_ns),
        idle_ms: since(flow.last_ns),
        stop: Stop::name(flow.stop),
    }
}

/// The other side of a connection.
fn peer(connection: &Tuple) -> String {
    let port = u16::from_be(connection.remote_port_be);
    SocketAddr::new(connection.remote.ip(), port).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_common::address::IpAddress;

    fn tuple(remote: &str) -> Tuple {
        let remote: SocketAddr = remote.parse().unwrap();
        let (ip, port) = (IpAddress::of(remote.ip()), remote.port());
        Tuple { remote: ip, remote_port_be: port.to_be(), ..Tuple::default() }
    }

    #[test]
    fn a_flow_is_told_by_its_two_ends_and_what_became_of_it() {
        let flow = Flow {
            up: tuple("10.0.3.7:8000"),
            down: tuple("[fd00::9:1]:40000"),
            bytes: 300,
            chunks: 2,
            first_ns: 1_000_000,
            last_ns: 5_000_000,
            open: 1,
            stop: Stop::Cut as u32,
            ..Flow::default()
        };
        let known = SteeredEndpoint {
            address: "10.0.3.7:8000".to_owned(),
            pool: 3,
            state: "serving",
            score: 0.0,
            weight: 1.0,
            picks: 0,
        };
        let now = Duration::from_millis(9);
        let open = row(&flow, &[known], now);
        let expected = FlowRow {
            client: "[fd00::9:1]:40000".to_owned(),
            endpoint: "10.0.3.7:8000".to_owned(),
            pool: Some(3),
            state: State::Open,
            chunks: 2,
            bytes: 300,
            age_ms: Some(8),
            idle_ms: Some(4),
            stop: "cut chunk",
        };
        assert_eq!(open, expected);
        let state = |flow: Flow| row(&flow, &[], now).state;
        assert_eq!(state(Flow { open: 0, ..flow }), State::Settling);
        assert_eq!(state(Flow { open: 0, settled: 1, ..flow }), State::Settled);
        assert_eq!(row(&Flow::default(), &[], now).age_ms, None);
    }
}
