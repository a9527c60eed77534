//! Where scenarios happen: on loopback, or in a network of namespaces.
//!
//! By default everything is on one loopback interface. With `GATEWAY_TEST_PLACE=network`
//! clients, the gateway and engines have a stack each, as on a node with pods, and the
//! kernel's paths have something to do; the scenarios are the same. A socket belongs to the
//! namespace it is made in, so all it takes is to make each in the right place.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::net::Network;

/// A part of the network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// Where clients are.
    Client,
    /// Where the gateway is, and who operates it.
    Gateway,
    /// Where engines are.
    Pod,
}

/// One for all scenarios of a process: they have ports of their own, as on loopback.
static NETWORK: LazyLock<Option<Network>> = LazyLock::new(|| {
    let asked = std::env::var("GATEWAY_TEST_PLACE").is_ok_and(|place| place == "network");
    asked.then(|| Network::new(1).unwrap_or_else(|error| panic!("no network: {error:#}")))
});

impl Place {
    /// Whether there is a network, in which the gateway uses the kernel's paths as it
    /// does on a node.
    #[must_use]
    pub fn is_network() -> bool {
        NETWORK.is_some()
    }

    /// The place's address for the others.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        let Some(network) = &*NETWORK else { return Ipv4Addr::LOCALHOST };
        match self {
            Self::Client => network.cable.near.address,
            Self::Gateway => network.front(),
            Self::Pod => network.pods[0].address(),
        }
    }

    /// `address`, unless it is loopback: then the place's own for the others.
    #[must_use]
    pub fn seen(self, mut address: SocketAddr) -> SocketAddr {
        if address.ip() == Ipv4Addr::LOCALHOST {
            address.set_ip(IpAddr::V4(self.address()));
        }
        address
    }

    /// Runs `make` there: the sockets it makes, and the threads it starts, stay.
    pub fn run<T: Send>(self, make: impl FnOnce() -> T + Send) -> T {
        let Some(network) = &*NETWORK else { return make() };
        match self {
            Self::Client => network.client.run(make),
            Self::Gateway => network.gateway.run(make),
            Self::Pod => network.pods[0].namespace.run(make),
        }
    }

    /// A socket there for a peer or an address of this family.
    ///
    /// # Errors
    ///
    /// When there are too many.
    pub fn socket(self, family: SocketAddr) -> io::Result<TcpSocket> {
        self.run(|| if family.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() })
    }

    /// Listens on a free port there.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn listen(self) -> io::Result<TcpListener> {
        let address = SocketAddr::from((self.address(), 0));
        let socket = self.socket(address)?;
        socket.bind(address)?;
        socket.listen(1024)
    }
}

/// Connects as a client; to a loopback address, as an operator beside the gateway.
///
/// # Errors
///
/// When the connection is refused or fails.
pub async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let place = if to.ip().is_loopback() { Place::Gateway } else { Place::Client };
    place.socket(to)?.connect(to).await
}
