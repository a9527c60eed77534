//! The ways a chunk can take from the pod to the client.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use gateway_testnet::Network;

use super::cgroup::Cgroup;
use crate::bench::path::{self, Path, Program, Setting};
use crate::child::Child;
use crate::fleet;

/// How long a proxy may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where proxies listen; the gateway's namespace is ours alone.
const PORT: u16 = 8080;
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// Where the client connects when `connect()` is steered. Of loopback, so that what is not
/// steered is refused at once.
const VIRTUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 1, 0, 1)), PORT);
/// The daemon's variable for the cgroup whose processes it steers.
const CGROUP: &str = "INFERENCE_GATEWAY_CGROUP";

/// A way.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum Way {
    /// No gateway at all: the client asks the pod, packets are forwarded.
    Routed,
    /// Our daemon reads and writes.
    User,
    /// The kernel moves packets between our daemon's connections.
    Splice,
    /// The kernel moves what the server sends into the client's connection.
    SkMsg,
    /// `connect()` is steered to the pod; nothing per chunk.
    Connect,
    Envoy,
    Nginx,
}

/// A way that can be taken here.
#[derive(Debug)]
pub(super) struct Entrant {
    pub(super) way: Way,
    program: Option<Program>,
}

/// A way ready to carry streams.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) way: Way,
    targets: Vec<SocketAddr>,
    child: Option<Child>,
    /// Left after the daemon has ended.
    _cgroup: Option<Cgroup>,
}

impl Way {
    /// Every way, the limit first.
    pub(super) const ALL: [Self; 7] = [
        Self::Routed,
        Self::User,
        Self::Splice,
        Self::SkMsg,
        Self::Connect,
        Self::Envoy,
        Self::Nginx,
    ];

    /// Name in tables, in JSON and on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Routed => "routed",
            Self::User => "user",
            Self::Splice => "splice",
            Self::SkMsg => "sk_msg",
            Self::Connect => "connect",
            Self::Envoy => "envoy",
            Self::Nginx => "nginx",
        }
    }

    /// Gets the program of this way ready, and asks it whether it knows the way.
    ///
    /// # Errors
    ///
    /// When the program cannot be installed, or does not know the way.
    pub(super) fn enter(self) -> Result<Entrant> {
        let program = self.path().install()?;
        let entrant = Entrant { way: self, program };
        if self.path() == Path::Ours {
            entrant.check_known()?;
        }
        Ok(entrant)
    }

    fn path(self) -> Path {
        match self {
            Self::Routed => Path::Direct,
            Self::Envoy => Path::Envoy,
            Self::Nginx => Path::Nginx,
            Self::User | Self::Splice | Self::SkMsg | Self::Connect => Path::Ours,
        }
    }

    /// What our pool is told, as YAML. An overloaded model server is late with its metrics,
    /// too; that shall not end the bench.
    fn pool(self) -> &'static str {
        match self {
            Self::Routed | Self::Envoy | Self::Nginx => "",
            Self::User => "  failureMode: FailOpen\n  datapath: user\n",
            Self::Splice => "  failureMode: FailOpen\n  datapath: splice\n",
            Self::SkMsg => {
                "  failureMode: FailOpen\n  datapath: sk_msg\n  acceptBrokenFionread: true\n"
            }
            Self::Connect => {
                "  failureMode: FailOpen\n  datapath: user\n  virtualIp: 127.1.0.1:8080\n  mode: connection\n"
            }
        }
    }
}

impl Entrant {
    /// The version of the program, for the record.
    pub(super) fn version(&self) -> &str {
        self.program.as_ref().map_or("no proxy", |program| &program.version)
    }

    fn check_known(&self) -> Result<()> {
        let Some(program) = &self.program else { return Ok(()) };
        let upstreams = [SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))];
        let setting =
            Setting { listen: ADMIN, admin: ADMIN, upstreams: &upstreams, pool: self.way.pool() };
        let file = self.way.path().config_file(&path::home(self.way.path())?, &setting)?;
        let checked =
            Command::new(&program.file).arg("validate").arg("--config").args(file).output()?;
        if !checked.status.success() {
            let words = String::from_utf8_lossy(&checked.stderr);
            let (what, _) = words.split_once(", expected").unwrap_or((words.trim(), ""));
            bail!("this build does not know it: {what}");
        }
        Ok(())
    }

    /// Starts the way in the gateway's namespace, in front of `upstreams`, and waits until
    /// it listens.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub(super) fn start(&self, network: &Network, upstreams: &[SocketAddr]) -> Result<Running> {
        let way = self.way;
        let Some(program) = &self.program else {
            return Ok(Running { way, targets: upstreams.to_vec(), child: None, _cgroup: None });
        };
        let listen = SocketAddr::from((network.front(), PORT));
        let setting = Setting { listen, admin: ADMIN, upstreams, pool: way.pool() };
        let home = path::home(way.path())?;
        let mut command = network.gateway.command(&program.file);
        way.path().configure(&mut command, &home, &setting)?;
        let mut cgroup = (way == Way::Connect).then(Cgroup::new).transpose()?;
        if let Some(cgroup) = &mut cgroup {
            command.env(CGROUP, cgroup.place());
            // Before the daemon is started, which tries its steering by itself first.
            cgroup.join()?;
        }
        let mut child = Child::spawn(way.name(), &mut command, &home.join("log"))?;
        network.gateway.run(|| child.wait_listening(listen, PATIENCE))?;
        let target = if cgroup.is_some() { VIRTUAL } else { listen };
        let running = Running { way, targets: vec![target], child: Some(child), _cgroup: cgroup };
        if target == VIRTUAL {
            running.explain(wait_steered(network))?;
        }
        Ok(running)
    }
}

/// Waits until the client's connections to the virtual address go somewhere.
fn wait_steered(network: &Network) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match network.client.run(|| TcpStream::connect(VIRTUAL)) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error).context("connections to the virtual address are not steered");
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

impl Running {
    /// Where clients connect, in turn.
    pub(super) fn targets(&self) -> &[SocketAddr] {
        &self.targets
    }

    /// The proxy's process, if there is one, and the CPU time it has used.
    ///
    /// # Errors
    ///
    /// When the proxy has ended.
    pub(super) fn daemon(&self) -> Result<Option<(u32, Duration)>> {
        self.child.as_ref().map(|child| Ok((child.pid(), child.cpu()?))).transpose()
    }

    /// Waits until our daemon says that answers took this way: a bench of the way it fell
    /// back to would be worse than none.
    ///
    /// # Errors
    ///
    /// When none has soon after the streams have ended.
    pub(super) fn check_taken(&self, network: &Network) -> Result<()> {
        if self.way.path() != Path::Ours {
            return Ok(());
        }
        let series = match self.way {
            Way::Connect => "inference_gateway_steered_total{".to_owned(),
            way => format!("inference_gateway_answers_total{{path=\"{}\"", way.name()),
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (_, page) = network.gateway.run(|| fleet::get(ADMIN, "/metrics"))?;
            let lines = || page.lines().filter(|line| line.starts_with(&series));
            if lines().any(|line| !line.ends_with(" 0")) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("nothing took this path: {:?}", lines().collect::<Vec<_>>());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Adds the proxy's own last words to an error.
    pub(super) fn explain<T>(&self, result: Result<T>) -> Result<T> {
        result.with_context(|| {
            let log = self.child.as_ref().map(Child::log_tail).unwrap_or_default();
            format!("on path {}; its log ends:\n{log}", self.way.name())
        })
    }
}
