//! A client, a gateway and a pod, each in its namespace.

use std::fmt::Write as _;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};

use gateway_tests::client::{RawClient, post};
use gateway_tests::gateway::Gateway;
use gateway_tests::net::{Network, Plug, Room};
use gateway_tests::wait::soon;
use inference_gateway::kernel;
use tokio::net::TcpSocket;

use super::CHAT;
use super::scripted::{Exchange, Scripted};
use super::story::Story;

/// Who moves the bytes of a streamed answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Datapath {
    SkMsg,
    Splice,
    /// The same where client, gateway and engine have IPv6.
    SpliceIpv6,
    User,
}

/// The arrangement of one test.
pub(crate) struct Site {
    pub(crate) net: Network,
    pub(crate) gateway: Gateway,
    /// Where clients connect.
    pub(crate) front: SocketAddr,
    pub(crate) client: Room,
    pub(crate) pod: Room,
}

impl Datapath {
    /// Its name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SkMsg => "sk_msg",
            Self::Splice | Self::SpliceIpv6 => "splice",
            Self::User => "user",
        }
    }

    /// What the pool is told, as YAML.
    fn pool(self) -> &'static str {
        match self {
            // The scripted engine does not ask how much there is to read.
            Self::SkMsg => "  datapath: sk_msg\n  acceptBrokenFionread: true\n",
            Self::Splice | Self::SpliceIpv6 => "  datapath: splice\n",
            Self::User => "  datapath: user\n",
        }
    }

    /// The gateway's address for clients.
    pub(crate) fn front(self, net: &Network) -> IpAddr {
        self.address_of(&net.cable.far)
    }

    /// The engine's address.
    pub(crate) fn engine(self, net: &Network) -> IpAddr {
        self.address_of(&net.pods[0].cable.far)
    }

    fn address_of(self, plug: &Plug) -> IpAddr {
        match self {
            Self::SpliceIpv6 => plug.address6().into(),
            Self::SkMsg | Self::Splice | Self::User => plug.address.into(),
        }
    }

    /// Whether this build has the path. Says so where it has not; in CI it must.
    pub(crate) fn is_here(self) -> bool {
        if self == Self::User || kernel::object().is_some() {
            return true;
        }
        let missing = "this build has no kernel programs; `cargo xtask build-ebpf` makes them";
        let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        assert!(!ci, "{missing}");
        eprintln!("skipped: {missing}");
        false
    }
}

impl Site {
    /// A site with direct cables; none, with a message, where it cannot be made.
    pub(crate) fn new(path: Datapath) -> Option<(Self, Scripted)> {
        Self::over(path, Network::for_test(1)?)
    }

    /// A site over this network, with one scripted engine in its pod.
    pub(crate) fn over(path: Datapath, net: Network) -> Option<(Self, Scripted)> {
        let (front, pod) = (path.front(&net), path.engine(&net));
        Self::at(path, net, front, pod)
    }

    /// As [`Site::over`], with the gateway and the engine at these of their addresses.
    pub(crate) fn at(
        path: Datapath,
        net: Network,
        front: impl Into<IpAddr>,
        engine: impl Into<IpAddr> + Send,
    ) -> Option<(Self, Scripted)> {
        let pod = Room::new(&net.pods[0].namespace, 1).unwrap();
        let engine = pod.block_on(Scripted::start_at(engine));
        Some((Self::before(path, net, front, pod, engine.addr)?, engine))
    }

    /// A site whose engine is there already; none where the build has not the path.
    pub(crate) fn before(
        path: Datapath,
        net: Network,
        front: impl Into<IpAddr>,
        pod: Room,
        engine: SocketAddr,
    ) -> Option<Self> {
        let yaml = config(path, (front.into(), 0).into(), &[engine]);
        if !path.is_here() {
            return None;
        }
        let client = Room::new(&net.client, 1).unwrap();
        let gateway = net.gateway.run(|| Gateway::start(&yaml)).unwrap();
        let front = gateway.addr();
        Some(Self { net, gateway, front, client, pod })
    }

    /// Runs a test's body as the client, and then waits until the gateway is done too.
    pub(crate) fn play(&self, body: impl Future<Output = ()> + Send) {
        self.client.block_on(async {
            body.await;
            self.gateway.idle().await;
        });
    }

    /// Checks that the kernel or the daemon moved answers, whichever was asked for.
    pub(crate) fn assert_taken(&self, path: Datapath) {
        let series =
            format!("inference_gateway_answers_total{{path=\"{}\",pool=\"p\"}}", path.name());
        // The operators' port is on the gateway's own loopback interface.
        let operator = Room::new(&self.net.gateway, 1).unwrap();
        let answers = operator.block_on(soon(self.gateway.metric(&series))).unwrap();
        assert!(answers > 0.0, "no answer took the path {}", path.name());
    }

    /// A client's connection.
    pub(crate) async fn connect(&self) -> RawClient {
        soon(RawClient::connect(self.front)).await.unwrap()
    }

    /// A connection of a client whose kernel keeps little of what it has not read.
    pub(crate) async fn connect_narrow(&self) -> RawClient {
        let socket = match self.front {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        };
        let socket = socket.unwrap();
        socket.set_recv_buffer_size(8 * 1024).unwrap();
        RawClient::over(soon(socket.connect(self.front)).await.unwrap()).unwrap()
    }

    /// Connects and asks for a streamed answer.
    pub(crate) async fn ask(&self) -> RawClient {
        let mut client = self.connect().await;
        client.send(&request()).await.unwrap();
        client
    }

    /// One answer on a connection of its own, told in step: no two chunks can travel together.
    pub(crate) async fn hear_in_step(&self, engine: &mut Scripted, story: Story) {
        let mut client = self.ask().await;
        let mut exchange = engine.exchange().await;
        story.tell_in_step(&mut exchange, &mut client).await;
    }

    /// One whole answer on a connection of its own.
    pub(crate) async fn hear(&self, engine: &mut Scripted, story: Story) {
        let mut client = self.ask().await;
        let mut exchange = engine.exchange().await;
        tokio::join!(story.tell(&mut exchange), story.hear(&mut client));
    }
}

/// A request for a streamed answer.
pub(crate) fn request() -> Vec<u8> {
    request_by(0)
}

/// A request that the engine can tell from others.
pub(crate) fn request_by(user: u64) -> Vec<u8> {
    let message = r#"{"role":"user","content":"hello"}"#;
    let body =
        format!(r#"{{"model":"tiny","stream":true,"user":"{user}","messages":[{message}]}}"#);
    post(CHAT, &body)
}

/// Answers every request on a connection with the story it asks for. Which connection the
/// gateway uses for what is its own business.
pub(crate) async fn answer_all(mut exchange: Exchange, story: fn(u64) -> Story) {
    loop {
        let body = exchange.body().await;
        story(asked_by(&body)).tell_answer(&mut exchange).await;
        if !exchange.read_head().await {
            return;
        }
    }
}

/// Whose request this body is.
pub(crate) fn asked_by(body: &[u8]) -> u64 {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    body["user"].as_str().unwrap().parse().unwrap()
}

/// Answers each request on this connection with the next story, until the last.
pub(crate) async fn tell_all(mut exchange: Exchange, stories: Vec<Story>) -> Exchange {
    let count = stories.len();
    for (number, story) in stories.into_iter().enumerate() {
        story.tell(&mut exchange).await;
        if number + 1 < count {
            assert!(exchange.read_head().await, "the gateway closed before request {number}");
        }
    }
    exchange
}

/// The daemon's configuration; it is neither to try again nor to look at engines by itself.
pub(crate) fn config(path: Datapath, listen: SocketAddr, engines: &[SocketAddr]) -> String {
    let mut endpoints = String::new();
    for engine in engines {
        writeln!(endpoints, "  - http://{engine}").unwrap();
    }
    format!(
        "listen: [\"{listen}\"]\nadmin: {{ listen: \"127.0.0.1:0\" }}\nauth: none\n\
         log: {{ access: off }}\ndrain: {{ settle: 0s }}\ndefaultPool: p\n\
         pools:\n- name: p\n  metrics: off\n  health: off\n  retry: off\n  ejection: off\n{}  endpoints:\n{endpoints}",
        path.pool()
    )
}
