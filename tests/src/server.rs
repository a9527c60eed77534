//! Simulated model servers: an [`engine`](crate::engine) behind a real socket.
//!
//! To a client and to a scraper such a server is vLLM 0.32: the same APIs, headers,
//! chunks, error texts and metrics, at the speed of a chosen GPU. To a test it is
//! also a recorder of requests and a saboteur ([`Failures`]).
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use gateway_tests::server::{Options, Simulated};
//!
//! let server = Simulated::start(Options::fast("a")).await.unwrap();
//! println!("http://{}/v1/models", server.addr());
//! # });
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

mod adapter;
mod admin;
mod asked;
mod audio;
mod connection;
mod driver;
mod error;
mod failure;
mod generation;
mod http;
mod latency;
mod log;
mod metrics;
mod options;
mod outlet;
mod pooling;
mod prompt;
mod route;
mod shared;
#[cfg(test)]
mod tests;
mod wire;

pub use failure::{AnswerFault, Chunks, Connection, Failures, MetricsFault};
pub use http::Head;
pub use log::{Counters, LoggedRequest};
pub use options::{Adapter, Flavour, LogDetail, Options};

use crate::answer::{Answer, Style};
use crate::engine::{Load, Stats};
use crate::place::Place;
use shared::Shared;

/// A running server; dropping it closes its listener and every connection.
#[derive(Debug)]
pub struct Simulated {
    addr: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Simulated {
    /// Starts a server; it listens when this returns.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound.
    #[expect(clippy::unused_async, reason = "it needs a runtime, which awaiting it says")]
    pub async fn start(options: Options) -> io::Result<Self> {
        let listener = listen(Place::Pod.seen(options.bind))?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared::new(options));
        let task = tokio::spawn(serve(listener, addr, Arc::clone(&shared)));
        Ok(Self { addr, shared, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its address as a URL without a path.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What it was told at the start.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Misbehaves as ordered from now on; the default ends all misbehaviour.
    pub fn set_failures(&self, failures: Failures) {
        self.shared.set_failures(failures);
    }

    /// The requests so far, in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.shared.requests()
    }

    /// The requests for inference so far.
    #[must_use]
    pub fn inference_requests(&self) -> Vec<LoggedRequest> {
        let mut requests = self.requests();
        requests.retain(|request| route::is_inference(request.head.path()));
        requests
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.shared.clear_requests();
    }

    /// Totals of connections and requests.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.totals.read()
    }

    /// The load of each data-parallel engine at this moment.
    #[must_use]
    pub fn load(&self) -> Vec<Load> {
        self.shared.driver.read(|load, _, _| load.clone())
    }

    /// What each data-parallel engine has done.
    #[must_use]
    pub fn stats(&self) -> Vec<Stats> {
        self.shared.driver.read(|_, stats, _| stats.clone())
    }

    /// Empties the prefix caches, as a restart would.
    pub fn clear_prefix_caches(&self) {
        self.shared.driver.clear_prefix_caches();
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The texts with which a server of this style answers a request, one per choice.
///
/// `None` when the path or the body is not one that generates text, or when the
/// body asks for more than `context_length` tokens.
#[must_use]
pub fn expected_texts(
    style: &Style,
    context_length: u32,
    path: &str,
    body: &Value,
) -> Option<Vec<String>> {
    let mut asked = asked::Asked::parse(wire::Api::of(path)?, body).ok()?;
    asked.fit(context_length).ok()?;
    Some(asked.answers(style).iter().map(Answer::text).collect())
}

/// Accepts connections until dropped; everything it started ends with it.
async fn serve(listener: TcpListener, addr: SocketAddr, shared: Arc<Shared>) {
    let mut tasks = JoinSet::new();
    let driver = Arc::clone(&shared.driver);
    tasks.spawn(async move { driver.run().await });
    let mut listener = Some(listener);
    let watched = Arc::clone(&shared);
    tasks.spawn(async move { watched.lift_failures_in_time().await });
    let mut failures = shared.failures();
    loop {
        let refuse = failures.borrow_and_update().refuse_connections;
        if refuse {
            drop(listener.take());
        }
        tokio::select! {
            accepted = accept(&mut listener, addr), if !refuse => match accepted {
                Ok(stream) => {
                    let shared = Arc::clone(&shared);
                    tasks.spawn(async move { connection::serve(stream, &shared).await });
                }
                // Out of file descriptors, or the port not free yet: leave others time to end.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            _ = failures.changed() => {} // the sender lives as long as this task
        }
        while tasks.try_join_next().is_some() {}
    }
}

/// The next connection; binds again first when the listener was closed.
async fn accept(listener: &mut Option<TcpListener>, addr: SocketAddr) -> io::Result<TcpStream> {
    let listener = match listener {
        Some(listener) => listener,
        None => listener.insert(listen(addr)?),
    };
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Listens, with uvicorn's backlog.
fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Place::Pod.socket(addr)?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(2048)
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
