//! Builds every part of the daemon and connects them, top to bottom.
//!
//! Two kinds of threads: workers, one per core, that carry requests, and one
//! control thread that scrapes, reloads and serves the admin port. They share a
//! [`Gateway`] and nothing else.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};

use crate::access_log::AccessLog;
use crate::clock::Clock;
use crate::config::{Config, Datapath, PoolConfig, Switch};
use crate::drain::{self, Phase, Trigger};
use crate::gateway::{Gateway, Site};
use crate::kernel::events::LinkEvents;
use crate::kernel::steer::Steering;
use crate::metrics::Metrics;
use crate::proxy::worker::{self, Worker};
use crate::reload::{self, Source};
use crate::splice::Node;
use crate::{admin, datapath, models, peers, scrape, signals, steer};

/// How often interfaces are looked through for new ones that the kernel did not tell of.
const INTERFACES: Duration = Duration::from_secs(2);

/// Whether the kernel is to carry answers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KernelPath {
    /// Where a pool asks for it.
    #[default]
    Asked,
    /// Wherever it can, unless every pool says otherwise. What a node's daemon does.
    Wanted,
}

/// A daemon whose ports are bound and whose threads run.
#[derive(Debug)]
pub struct App {
    gateway: Arc<Gateway>,
    trigger: Trigger,
    threads: Vec<JoinHandle<()>>,
    /// Gone only while the app is being dropped.
    control: Option<Runtime>,
    /// Where clients are listened to.
    pub addresses: Vec<SocketAddr>,
    /// Where operators are listened to.
    pub admin: SocketAddr,
}

impl App {
    /// Binds the ports and starts the threads.
    ///
    /// # Errors
    ///
    /// A port cannot be bound, or a thread cannot be started.
    pub fn start(config: Config, source: Source) -> Result<Self> {
        Self::start_with(config, source, KernelPath::Asked)
    }

    /// As [`App::start`], and says whether the kernel is to carry answers.
    ///
    /// # Errors
    ///
    /// As [`App::start`]; without the kernel the daemon works all the same.
    pub fn start_with(config: Config, source: Source, path: KernelPath) -> Result<Self> {
        let config = Arc::new(config);
        let listeners = bind_all(&config)?;
        let addresses: Vec<SocketAddr> =
            listeners.iter().map(std::net::TcpListener::local_addr).collect::<io::Result<_>>()?;
        let admin_listener = bind(config.admin)?;
        listen(&admin_listener)?;
        let admin_address = admin_listener.local_addr()?;

        let (trigger, drain) = drain::channel();
        let clock = Clock::start();
        let log = if config.log.access == Switch::On {
            AccessLog::to_stdout()?
        } else {
            AccessLog::off()
        };
        let metrics = Metrics::register().context("cannot register the metrics")?;
        let site = Arc::new(Site::build(Arc::clone(&config), None, clock));
        let (publish, sites) = watch::channel(Arc::clone(&site));
        let (node, no_node) = match node(&config, path, &addresses) {
            Ok(node) => (Some(node), String::new()),
            Err(why) => (None, why),
        };
        note_kernel(&metrics, node.as_deref());
        datapath::start_sk_msg(&config, node.as_deref(), &metrics);
        // Only now: a connection that opens unseen by the kernel programs is never spliced.
        listeners.iter().try_for_each(listen)?;
        let gateway = Arc::new(Gateway {
            clock,
            metrics,
            log,
            site: ArcSwap::new(site),
            drain,
            peers: peers::Board::default(),
            buffers: Arc::new(Semaphore::new(buffers_kib(&config))),
            node,
            no_node,
        });
        let control = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("control")
            .enable_all()
            .build()
            .context("cannot start the control thread")?;
        {
            let _inside = control.enter();
            let listener = TcpListener::from_std(admin_listener)?;
            control.spawn(admin::serve(listener, Arc::clone(&gateway), trigger.watch()));
            control.spawn(models::keep_fresh(Arc::clone(&gateway), sites.clone()));
            control.spawn(scrape::run(Arc::clone(&gateway), sites.clone()));
            control.spawn(peers::run(Arc::clone(&gateway), sites));
            control.spawn(reload::watch(source, Arc::clone(&gateway), publish));
            if let Some(node) = &gateway.node {
                control.spawn(attach_to_new_interfaces(Arc::clone(node)));
            }
            let attached = steering(&config, gateway.node.as_deref(), &gateway.metrics);
            if let Some(steering) = attached {
                control.spawn(steer::run(Arc::clone(&gateway), steering, addresses.clone()));
            }
        }
        let threads = start_workers(&config, &listeners, &gateway, &trigger)?;
        Ok(Self {
            gateway,
            trigger,
            threads,
            control: Some(control),
            addresses,
            admin: admin_address,
        })
    }

    /// Runs until a signal says to stop, then drains: first not ready, then no new
    /// connections, then out of time.
    pub fn run(mut self) {
        let threads = std::mem::take(&mut self.threads);
        let Some(control) = &self.control else { return };
        control.block_on(async {
            signals::stop().await;
            let drain = self.gateway.site.load().config.drain;
            tracing::info!(settle = ?drain.settle, deadline = ?drain.deadline, "draining");
            self.trigger.enter(Phase::Settling);
            tokio::time::sleep(drain.settle).await;
            self.trigger.enter(Phase::Draining);
            tokio::select! {
                () = joined(threads) => tracing::info!("drained"),
                () = tokio::time::sleep(drain.deadline) => {
                    tracing::warn!("drain deadline passed; closing what is left");
                }
                () = signals::stop() => tracing::warn!("second signal; closing what is left"),
            }
        });
    }

    /// Says where the daemon listens, and what it cannot do here.
    pub fn announce(&self) {
        let clients: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        tracing::info!(listen = clients.join(","), admin = %self.admin, "serving");
    }

    /// Moves the shutdown along by hand; [`App::run`] does it at a signal.
    pub fn enter(&self, phase: Phase) {
        self.trigger.enter(phase);
    }

    /// What every part shares.
    #[must_use]
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.trigger.enter(Phase::Stopping);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some(node) = &self.gateway.node {
            node.leave();
        }
        // Waiting for it would not be allowed inside another runtime, as in tests.
        if let Some(control) = self.control.take() {
            control.shutdown_background();
        }
    }
}

/// The kernel's part, if it is wanted and can be had.
fn node(config: &Config, path: KernelPath, listeners: &[SocketAddr]) -> Result<Arc<Node>, String> {
    let wants = |pool: &PoolConfig| match pool.datapath {
        Datapath::Auto => path == KernelPath::Wanted,
        Datapath::Splice | Datapath::SkMsg => true,
        Datapath::User => false,
    };
    let steers = |pool: &PoolConfig| pool.steering.is_some();
    if !config.pools.iter().any(|pool| wants(pool) || steers(pool)) {
        return Err("off: no pool asks for it".to_owned());
    }
    match Node::open(listeners) {
        Ok(node) => {
            match node.no_splice() {
                None => tracing::info!("kernel data path: on; splice: {}", node.trial()),
                Some(why) => tracing::warn!("kernel data path: no splicing: {why}"),
            }
            Ok(node)
        }
        Err(why) => {
            tracing::warn!("kernel data path: off: {why}");
            Err(format!("off: {why}"))
        }
    }
}

/// Counts what is on.
fn note_kernel(metrics: &Metrics, node: Option<&Node>) {
    let splice = node.is_some_and(|node| node.no_splice().is_none());
    metrics.kernel.with_label_values(&["splice"]).set(i64::from(splice));
    metrics.kernel.with_label_values(&["steering"]).set(0);
}

/// The programs that steer connections, where a pool has a virtual address.
fn steering(config: &Config, node: Option<&Node>, metrics: &Metrics) -> Option<Steering> {
    if config.pools.iter().all(|pool| pool.steering.is_none()) {
        return None;
    }
    match node?.steer() {
        Ok(steering) => {
            metrics.kernel.with_label_values(&["steering"]).set(1);
            Some(steering)
        }
        Err(why) => {
            tracing::warn!("no steering to virtual addresses: {why}");
            None
        }
    }
}

/// As soon as they appear: a connection that opens unseen by the programs is never spliced.
async fn attach_to_new_interfaces(node: Arc<Node>) {
    let mut ticks = tokio::time::interval(INTERFACES);
    let mut events = LinkEvents::open();
    loop {
        match &events {
            Ok(open) => tokio::select! {
                _ = ticks.tick() => {}
                changed = open.changed() => if let Err(error) = changed {
                    events = Err(error);
                },
            },
            Err(_) => drop(ticks.tick().await),
        }
        node.attach();
    }
}

/// Completes when every worker has nothing left to do.
async fn joined(threads: Vec<JoinHandle<()>>) {
    let joined = tokio::task::spawn_blocking(move || {
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    });
    let _ = joined.await;
}

/// Shared memory for large bodies, in KiB; see `proxy::intake`.
pub(crate) fn buffers_kib(config: &Config) -> usize {
    usize::try_from(config.limits.buffered_bytes / 1024)
        .unwrap_or(usize::MAX)
        .min(Semaphore::MAX_PERMITS)
}

fn start_workers(
    config: &Config,
    listeners: &[std::net::TcpListener],
    gateway: &Arc<Gateway>,
    trigger: &Trigger,
) -> Result<Vec<JoinHandle<()>>> {
    let count = config.workers.map_or_else(
        || std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        NonZeroUsize::get,
    );
    (0..count)
        .map(|index| {
            let listeners = listeners
                .iter()
                .map(std::net::TcpListener::try_clone)
                .collect::<io::Result<Vec<_>>>()?;
            let worker = Arc::new(Worker::new(Arc::clone(gateway)));
            let drain = trigger.watch();
            std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || run_worker(listeners, &worker, drain))
                .context("cannot start a worker thread")
        })
        .collect()
}

/// A worker's thread: one event loop, until its last connection has ended.
fn run_worker(listeners: Vec<std::net::TcpListener>, worker: &Arc<Worker>, drain: drain::Watcher) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start a worker's event loop");
            return;
        }
    };
    runtime.block_on(async {
        let (open, mut all_closed) = tokio::sync::mpsc::channel(1);
        let mut accepting = tokio::task::JoinSet::new();
        for listener in listeners {
            match TcpListener::from_std(listener) {
                Ok(listener) => {
                    accepting.spawn(worker::accept(
                        listener,
                        Arc::clone(worker),
                        drain.clone(),
                        open.clone(),
                    ));
                }
                Err(error) => tracing::error!(%error, "cannot listen"),
            }
        }
        accepting.spawn(worker::sweep(Arc::clone(worker), drain.clone()));
        drop(open);
        while accepting.join_next().await.is_some() {}
        // Out of time, the event loop ends, and what still runs on it ends with it.
        let mut drain = drain;
        tokio::select! {
            _ = all_closed.recv() => {}
            () = drain.reached(Phase::Stopping) => {}
        }
    });
}

fn bind_all(config: &Config) -> Result<Vec<std::net::TcpListener>> {
    config.listen.iter().map(|address| bind(*address)).collect()
}

/// A socket to listen on. All workers share it: a port that is taken is an error,
/// which `SO_REUSEPORT` would hide from a second daemon started by mistake.
fn bind(address: SocketAddr) -> Result<std::net::TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let open = || -> io::Result<std::net::TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    open().with_context(|| format!("cannot listen on {address}"))
}

/// Lets connections in.
fn listen(socket: &std::net::TcpListener) -> Result<()> {
    let address = socket.local_addr()?;
    let begin = socket2::SockRef::from(socket).listen(4096);
    begin.with_context(|| format!("cannot listen on {address}"))
}
