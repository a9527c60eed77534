//! The gateway in process, for scenarios.

use std::net::SocketAddr;

use anyhow::Result;
use inference_gateway::app::{App, KernelPath};
use inference_gateway::config::{Config, Datapath};
use inference_gateway::drain::Phase;
use inference_gateway::reload::Source;

use crate::client::{RawAnswer, get, once};
use crate::place::Place;
use crate::server::Simulated;
use crate::wait::eventually;

/// A running gateway; dropping it stops it.
#[derive(Debug)]
pub struct Gateway {
    app: App,
    addr: SocketAddr,
}

impl Gateway {
    /// Starts a gateway with this configuration, which must listen on port 0.
    ///
    /// # Errors
    ///
    /// The configuration is wrong, or a port cannot be bound.
    pub fn start(yaml: &str) -> Result<Self> {
        Self::with_source(yaml, Source::Flags)
    }

    /// Starts a gateway that reads its configuration again when `path` changes.
    ///
    /// # Errors
    ///
    /// As [`Gateway::start`], or the file cannot be read.
    pub fn from_file(path: &std::path::Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)?;
        Self::with_source(&text, Source::File(path.to_owned(), text.clone()))
    }

    fn with_source(yaml: &str, source: Source) -> Result<Self> {
        let mut config = Config::parse(yaml)?;
        for address in &mut config.listen {
            *address = Place::Gateway.seen(*address);
        }
        if asks_for_sockets() {
            for pool in &mut config.pools {
                if pool.datapath == Datapath::Auto {
                    // Simulated engines do not ask how much there is to read.
                    pool.accept_broken_fionread = true;
                    pool.datapath = Datapath::SkMsg;
                }
            }
        }
        let kernel = if Place::is_network() { KernelPath::Wanted } else { KernelPath::Asked };
        let app = Place::Gateway.run(|| App::start_with(config, source, kernel))?;
        let addr = app.addresses[0];
        Ok(Self { app, addr })
    }

    /// Starts a gateway over one pool of these engines and waits until each of them
    /// may be picked. `extra` is YAML of the pool, two spaces deep.
    ///
    /// # Errors
    ///
    /// As [`Gateway::start`].
    pub async fn over(engines: &[&Simulated], extra: &str) -> Result<Self> {
        let gateway = Self::start(&pool_config(engines, extra))?;
        gateway.serving(engines.len()).await;
        Ok(gateway)
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where operators connect.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.app.admin
    }

    /// Waits until `count` endpoints may be picked.
    pub async fn serving(&self, count: usize) {
        let site = self.app.gateway().site.load_full();
        eventually(|| {
            let states = site.pools.iter().flat_map(|pool| pool.endpoints());
            states.filter(|endpoint| endpoint.state.name() == "serving").count() == count
        })
        .await;
    }

    /// Requests and tokens this gateway has in flight, over all endpoints.
    #[must_use]
    pub fn in_flight(&self) -> (u64, u64) {
        let site = self.app.gateway().site.load_full();
        let endpoints = site.pools.iter().flat_map(|pool| pool.endpoints());
        endpoints.fold((0, 0), |(requests, tokens), endpoint| {
            (requests + u64::from(endpoint.in_flight_requests), tokens + endpoint.in_flight_tokens)
        })
    }

    /// Waits until nothing is reserved any more: whatever ended, ended wholly.
    pub async fn idle(&self) {
        eventually(|| self.in_flight() == (0, 0)).await;
    }

    /// Moves a shutdown along.
    pub fn enter(&self, phase: Phase) {
        self.app.enter(phase);
    }

    /// GETs a path of the operators' port.
    ///
    /// # Errors
    ///
    /// The connection failed.
    pub async fn ask(&self, path: &str) -> Result<RawAnswer> {
        Ok(once(self.admin(), &get(path)).await?)
    }

    /// The value of one series on the metrics page; 0 when it is not there. `labels`
    /// in the page's own order, for example `{pool="p",reason="connect"}`.
    ///
    /// # Errors
    ///
    /// The page cannot be had.
    pub async fn metric(&self, series: &str) -> Result<f64> {
        let page = self.ask("/metrics").await?.text();
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(value.map_or(Ok(0.0), str::parse)?)
    }
}

/// Whether scenarios that do not care how answers go are to see them go from socket to
/// socket: `GATEWAY_TEST_DATAPATH=sk_msg`.
fn asks_for_sockets() -> bool {
    std::env::var("GATEWAY_TEST_DATAPATH").is_ok_and(|path| path == "sk_msg")
}

/// The YAML of a gateway with one pool, `p`, that takes whatever its engines serve.
#[must_use]
pub fn pool_config(engines: &[&Simulated], extra: &str) -> String {
    let endpoints: String = engines
        .iter()
        .flat_map(|engine| ["  - ".to_owned(), engine.url(), "\n".to_owned()])
        .collect();
    format!(
        "listen: [\"127.0.0.1:0\"]\nadmin: {{ listen: \"127.0.0.1:0\" }}\nauth: none\n\
         log: {{ access: off }}\ndebugHeaders: true\ndrain: {{ settle: 0s }}\ndefaultPool: p\n\
         pools:\n- name: p\n{extra}  endpoints:\n{endpoints}"
    )
}
