//! `cargo xtask bench memory`: what a connection costs each proxy in memory.
//!
//! Resident memory before and with a thousand connections, divided. An idle
//! connection has carried one request and is kept alive; a streaming one has an
//! answer on its way, and with it a connection to the model server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;

use super::message::Pacing;
use super::path::{Path, Program, Running};
use super::streams::{self, Streams};
use super::upstream::{Settings, Upstream};
use super::{figures, message};

/// Slow enough that a thousand streams do not fill a core.
const INTERVAL: Duration = Duration::from_millis(200);
const ENDPOINTS: usize = 4;
/// Requests before the first look, so that what is allocated once is not counted.
const FIRST_REQUESTS: usize = 64;
/// How long a proxy may settle before its memory is read.
const SETTLE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

/// Compares the memory of idle and of streaming connections.
#[derive(Args, Debug)]
pub(crate) struct Memory {
    /// Writes the figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Connections opened at once.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4000))]
    connections: u32,
    /// Which proxies to compare.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Path::Envoy, Path::Nginx, Path::Ours])]
    paths: Vec<Path>,
}

#[derive(Debug, Serialize)]
struct Figures {
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    path: &'static str,
    /// Resident memory after a few requests, MiB.
    base_mib: f64,
    /// Added by each idle kept-alive client connection, KiB.
    idle_kib: f64,
    /// Added by each connection with a streamed answer on its way, KiB.
    streaming_kib: f64,
}

/// Runs the bench.
///
/// # Errors
///
/// When a proxy cannot be started or refuses a connection.
pub(crate) fn run(options: &Memory) -> Result<()> {
    let upstream = Upstream::start(Settings { endpoints: ENDPOINTS, interval: INTERVAL })?;
    let mut rows = Vec::new();
    println!("Resident memory of each proxy with {} connections:\n", options.connections);
    println!("| path | base MiB | KiB per idle connection | KiB per streaming connection |");
    println!("|---|---|---|---|");
    for &path in options.paths.iter().filter(|path| **path != Path::Direct) {
        let program = path.install()?;
        let row = measure(options.connections as usize, path, program.as_ref(), &upstream)?;
        println!(
            "| {} | {:.1} | {:.1} | {:.1} |",
            row.path, row.base_mib, row.idle_kib, row.streaming_kib
        );
        rows.push(row);
    }
    figures::write_json(options.json.as_deref(), &Figures { rows })
}

/// A fresh process for each figure: memory once taken is seldom given back.
fn measure(
    count: usize,
    path: Path,
    program: Option<&Program>,
    upstream: &Upstream,
) -> Result<Row> {
    let start = || -> Result<(Running, u64)> {
        let running = Running::start(path, program, upstream.addresses())?;
        for _ in 0..FIRST_REQUESTS {
            running.explain(ask(&running))?;
        }
        std::thread::sleep(SETTLE);
        let base = running.resident_kib()?;
        Ok((running, base))
    };
    let per_connection =
        |base: u64, with: u64| figures::tenth(with.saturating_sub(base) as f64 / count as f64);

    let (running, base) = start()?;
    let idle: Vec<TcpStream> = running.explain((0..count).map(|_| ask(&running)).collect())?;
    std::thread::sleep(SETTLE);
    let idle_kib = per_connection(base, running.resident_kib()?);
    drop((idle, running));

    let (running, base) = start()?;
    let streams = Streams {
        targets: &running.targets,
        count,
        pacing: Pacing::Even,
        warm_up: SETTLE,
        measured: SETTLE,
    };
    let outcome = running.explain(streams::run(&streams, || running.resident_kib()))?;
    let streaming_kib = per_connection(base, outcome.after.max(outcome.before));
    Ok(Row {
        path: path.name(),
        base_mib: figures::tenth(base as f64 / 1024.0),
        idle_kib,
        streaming_kib,
    })
}

/// Opens a connection, has one short request answered on it, and keeps it.
fn ask(running: &Running) -> Result<TcpStream> {
    let target = running.targets[0];
    let mut socket =
        TcpStream::connect(target).with_context(|| format!("cannot connect to {target}"))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let requests = message::chat_requests(target, 100);
    socket.write_all(&requests[0])?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = socket.read(&mut buffer).context("no answer")?;
        if count == 0 {
            bail!("the connection was closed under a request");
        }
        answer.extend_from_slice(&buffer[..count]);
        if message::is_answer(&answer)? {
            return Ok(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direct_connection_costs_a_proxy_nothing() {
        let upstream = Upstream::start(Settings { endpoints: 1, interval: INTERVAL }).unwrap();
        let row = measure(2, Path::Direct, None, &upstream).unwrap();
        assert_eq!((row.base_mib, row.idle_kib, row.streaming_kib), (0.0, 0.0, 0.0));
    }
}
