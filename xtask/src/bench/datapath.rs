//! `cargo xtask bench datapath`: what a chunk costs on each way through the gateway's node.
//!
//! Client, gateway and pod have a network stack each (network namespaces), joined by
//! veth pairs; what the client sends to the pod itself is only routed, which is the limit
//! for everything else. All ways carry the same chunks at the same rate. The rates are
//! those at which our user-space path, the one every other is an alternative to, keeps
//! the machine 30 and 90 percent busy.
//!
//! Each way is started alone and stopped again: two daemons would share the hooks of the
//! same interfaces, and an idle proxy is not free either.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use gateway_testnet::Network;

use super::figures;
use super::message::Pacing;
use super::streams::{self, Streams};
use super::upstream::{Settings, Upstream};
use cpu::Sample;
use rows::{Figures, Row};
use way::{Entrant, Running, Way};

mod cgroup;
mod cpu;
mod report;
mod rows;
mod way;

/// Streams at once.
const STREAMS: usize = 100;
/// Model servers in the pod.
const ENDPOINTS: usize = 4;
const WARM_UP: Duration = Duration::from_secs(1);
/// Where calibration begins, in chunks a second of all streams together.
const FIRST_RATE: f64 = 8_000.0;
/// How near to the wanted load calibration gets, in percent of the machine.
const NEAR: f64 = 2.0;
const TRIALS: usize = 8;

/// Compares the ways of a streamed chunk in network namespaces.
#[derive(Args, Debug)]
pub(crate) struct Datapath {
    /// Writes the figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Measured seconds per way, load and round.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How often everything is measured; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Which ways to compare.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Way::ALL)]
    paths: Vec<Way>,
    /// Loads, in percent of the machine that the user-space path takes.
    #[arg(long, value_delimiter = ',', default_values_t = [30, 90], value_parser = clap::value_parser!(u8).range(1..=100))]
    loads: Vec<u8>,
    /// Whether an endpoint's streams send together, as engines do, or spread evenly.
    #[arg(long, value_enum, default_value_t = Pacing::Steps)]
    pacing: Pacing,
    /// Chunks a second of all streams, one rate per load, instead of calibrating.
    #[arg(long, value_delimiter = ',')]
    rates: Vec<f64>,
}

/// A load, and the rate that makes it.
#[derive(Clone, Copy, Debug)]
struct Load {
    percent: u8,
    /// Chunks a second, all streams together.
    rate: f64,
}

/// The namespaces and the model servers in the pod.
struct Site {
    network: Network,
    upstream: Upstream,
}

/// Runs the bench.
///
/// # Errors
///
/// Without the right to make network namespaces, when a program cannot be installed or
/// started, or when any chunk is lost, repeated or changed.
pub(crate) fn run(options: &Datapath) -> Result<()> {
    let site = Site::new()?;
    let entrants = entrants(&options.paths)?;
    let loads = loads(options, &site)?;
    let mut rows = Vec::new();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        // Noise of the machine shall not hit the same way in each round.
        let first = round as usize % entrants.len();
        for entrant in entrants[first..].iter().chain(&entrants[..first]) {
            let running = site.start(entrant)?;
            for load in &loads {
                let row = running.explain(site.measure(
                    &running,
                    *load,
                    options.pacing,
                    options.seconds,
                ))?;
                eprintln!("  {}", report::line(&row));
                rows.push(row);
            }
            running.explain(running.check_taken(&site.network))?;
        }
    }
    let ways: Vec<Way> = entrants.iter().map(|entrant| entrant.way).collect();
    let figures = Figures::medians(&ways, &rows);
    report::print(&figures, options);
    figures::write_json(options.json.as_deref(), &figures)
}

/// The ways asked for that this build and this machine have.
fn entrants(ways: &[Way]) -> Result<Vec<Entrant>> {
    let mut entrants = Vec::new();
    for way in ways {
        match way.enter() {
            Ok(entrant) => {
                eprintln!("{}: {}", way.name(), entrant.version());
                entrants.push(entrant);
            }
            Err(error) => eprintln!("left out: {}: {error:#}", way.name()),
        }
    }
    if entrants.is_empty() {
        bail!("none of these paths can be taken here");
    }
    Ok(entrants)
}

/// The loads asked for, with their rates as given or as found.
fn loads(options: &Datapath, site: &Site) -> Result<Vec<Load>> {
    if !options.rates.is_empty() {
        if options.rates.len() != options.loads.len() {
            bail!("--rates needs one rate for each of --loads");
        }
        let pairs = options.loads.iter().zip(&options.rates);
        return Ok(pairs.map(|(&percent, &rate)| Load { percent, rate }).collect());
    }
    let running = site.start(&Way::User.enter()?)?;
    let mut rate = FIRST_RATE;
    let found = options.loads.iter().map(|&percent| {
        rate = running.explain(site.calibrate(&running, percent, rate, options.pacing))?;
        eprintln!("{percent} % load: {rate:.0} chunks a second");
        Ok(Load { percent, rate })
    });
    found.collect()
}

impl Site {
    fn new() -> Result<Self> {
        let network = Network::new(1).context("the bench needs root and iproute2")?;
        let pod = &network.pods[0];
        let settings = Settings { endpoints: ENDPOINTS, interval: Duration::from_millis(10) };
        let upstream = pod.namespace.run(|| Upstream::start_at(pod.address(), settings))?;
        Ok(Self { network, upstream })
    }

    fn start(&self, entrant: &Entrant) -> Result<Running> {
        entrant.start(&self.network, self.upstream.addresses())
    }

    /// The rate at which `running` keeps the machine this busy, starting from `rate`.
    fn calibrate(
        &self,
        running: &Running,
        percent: u8,
        mut rate: f64,
        pacing: Pacing,
    ) -> Result<f64> {
        let mut overload = None;
        for _ in 0..TRIALS {
            match self.measure(running, Load { percent, rate }, pacing, 1) {
                Ok(row) if (row.busy_percent - f64::from(percent)).abs() < NEAR => return Ok(rate),
                // One that falls behind says nothing about how far.
                Ok(row) if row.kept_percent < 98.0 => rate *= 0.8,
                // Chunks become cheaper with load, so that one step is not enough.
                Ok(row) => rate *= (f64::from(percent) / row.busy_percent.max(1.0)).clamp(0.5, 1.6),
                Err(error) => {
                    rate *= 0.7;
                    overload = Some(error);
                }
            }
        }
        overload.map_or(Ok(rate), |error| Err(error).context("no trial was near enough"))
    }

    fn measure(&self, running: &Running, load: Load, pacing: Pacing, seconds: u64) -> Result<Row> {
        self.upstream.set_interval(Duration::from_secs_f64(STREAMS as f64 / load.rate));
        let streams = Streams {
            targets: running.targets(),
            count: STREAMS,
            pacing,
            warm_up: WARM_UP,
            measured: Duration::from_secs(seconds),
        };
        let sample = || Sample::take(running.daemon()?);
        let outcome = self.network.client.run(|| streams::run(&streams, sample))?;
        let used = outcome.after.since(&outcome.before);
        let count = outcome.latency.len();
        Ok(Row {
            path: running.way.name(),
            load: load.percent,
            chunk_p50_us: figures::micros_at(&outcome.latency, 0.5),
            chunk_p99_us: figures::micros_at(&outcome.latency, 0.99),
            chunk_p999_us: figures::micros_at(&outcome.latency, 0.999),
            cpu_us_total: figures::micros_each(used.bench, count),
            cpu_us_daemon: figures::micros_each(used.daemon, count),
            busy_percent: used.busy_percent(),
            foreign_percent: used.foreign_percent(),
            kept_percent: 100.0 * count as f64 / (load.rate * outcome.elapsed.as_secs_f64()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routed_way_is_measured_end_to_end() {
        let Ok(site) = Site::new() else {
            assert!(!crate::machine::is_ci(), "CI has network namespaces");
            eprintln!("skipped: this test needs network namespaces (root, and iproute2)");
            return;
        };
        let running = site.start(&Way::Routed.enter().unwrap()).unwrap();
        let row =
            site.measure(&running, Load { percent: 30, rate: 2000.0 }, Pacing::Even, 1).unwrap();
        assert_eq!((row.path, row.load), ("routed", 30));
        assert!(row.chunk_p50_us > 1.0 && row.chunk_p999_us >= row.chunk_p99_us, "{row:?}");
        assert!(row.cpu_us_total > 0.0 && row.kept_percent > 50.0, "{row:?}");
        assert!(row.cpu_us_daemon == 0.0, "there is no daemon");
    }
}
