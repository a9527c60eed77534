//! One worker: a thread, its event loop, its connections to endpoints.
//!
//! Workers share nothing on the request path but the pools' short locks. A
//! request never changes threads, so a wake-up costs no other core's attention,
//! and a connection to an endpoint is reused by the thread that warmed it.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::Sender;

use super::upstream::Idle;
use super::{connection, http2};
use crate::drain::{Phase, Watcher};
use crate::gateway::Gateway;

/// How long an idle connection to an endpoint is kept.
const KEEP_IDLE: Duration = Duration::from_mins(1);
/// How often idle connections are looked through.
const SWEEP: Duration = Duration::from_secs(1);
/// How long a new connection may take to show which protocol it speaks.
const HELLO: Duration = Duration::from_mins(10);
/// Pause after `accept` fails for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the connections of one thread share.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) idle: Arc<Idle>,
}

thread_local! {
    /// Random numbers without a lock: one generator per thread.
    static RANDOM: Cell<fastrand::Rng> = Cell::new(fastrand::Rng::new());
}

/// Lends this thread's random numbers to `work`.
pub(crate) fn with_random<T>(work: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
    RANDOM.with(|cell| {
        let mut random = cell.replace(fastrand::Rng::with_seed(0));
        let result = work(&mut random);
        cell.set(random);
        result
    })
}

impl Worker {
    pub(crate) fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway, idle: Arc::default() }
    }
}

/// A fresh request id: 128 random bits in hexadecimal, as engines make them.
pub(crate) fn new_request_id() -> Box<str> {
    with_random(|random| format!("{:032x}", random.u128(..))).into()
}

/// Accepts connections until the daemon drains. Every connection holds `open`, so
/// its receiver sees the end of the last one.
pub(crate) async fn accept(
    listener: TcpListener,
    worker: Arc<Worker>,
    mut drain: Watcher,
    open: Sender<Infallible>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = drain.reached(Phase::Draining) => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (worker, drain, open) = (Arc::clone(&worker), drain.clone(), open.clone());
                tokio::spawn(async move {
                    greet(stream, peer, worker, drain).await;
                    drop(open);
                });
            }
            Err(error) => {
                // Out of descriptors, most likely; the queue waits in the kernel.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Closes idle connections to endpoints that nobody needs any more.
pub(crate) async fn sweep(worker: Arc<Worker>, mut drain: Watcher) {
    let mut ticks = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = drain.reached(Phase::Draining) => return,
        }
        let site = worker.gateway.site.load();
        worker.idle.sweep(KEEP_IDLE, |authority| {
            site.pools.iter().any(|pool| pool.has_address(authority))
        });
    }
}

/// Finds out which protocol a new connection speaks, and serves it.
async fn greet(stream: TcpStream, peer: SocketAddr, worker: Arc<Worker>, drain: Watcher) {
    let connections = &worker.gateway.metrics.connections;
    let limit = worker.gateway.site.load().config.limits.connections;
    let http1 = connections.with_label_values(&["http1"]);
    let http2 = connections.with_label_values(&["http2"]);
    if http1.get() + http2.get() >= i64::try_from(limit).unwrap_or(i64::MAX) {
        tracing::debug!(%peer, "closed: at the limit of client connections");
        return;
    }
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut drain_ends = drain.clone();
    let hello = tokio::select! {
        hello = tokio::time::timeout(HELLO, hello(stream)) => hello,
        () = drain_ends.reached(Phase::Draining) => return,
    };
    let Ok(Ok((stream, received, protocol))) = hello else { return };
    let open = match protocol {
        Protocol::Http1 => http1,
        Protocol::Http2 => http2,
    };
    let _open = Counted::new(open);
    match protocol {
        Protocol::Http1 => connection::serve(stream, received, peer, worker).await,
        Protocol::Http2 => http2::serve(stream, received, peer, worker).await,
    }
}

/// Counts a connection while it lives, however its task ends.
struct Counted(prometheus::IntGauge);

impl Counted {
    fn new(gauge: prometheus::IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Protocol {
    Http1,
    Http2,
}

/// Start of the HTTP/2 preface (RFC 9113, 3.4): no HTTP/1.1 request begins so.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// Reads just enough to tell the protocols apart.
async fn hello(mut stream: TcpStream) -> io::Result<(TcpStream, BytesMut, Protocol)> {
    stream.readable().await?;
    let mut received = BytesMut::with_capacity(8 * 1024);
    loop {
        let seen = received.len().min(PREFACE.len());
        if seen > 0 && received[..seen] != PREFACE[..seen] {
            return Ok((stream, received, Protocol::Http1));
        }
        if seen == PREFACE.len() {
            return Ok((stream, received, Protocol::Http2));
        }
        if stream.read_buf(&mut received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
