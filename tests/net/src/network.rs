//! The standard arrangement: `client -- gateway -- pod`, and more pods on demand.
//!
//! ```text
//!   client                       gateway                        pod 1
//!   198.18.0.2  eth0 ------ client0  198.18.0.1
//!                           pod1     198.18.1.1 ------ eth0  198.18.1.2
//!                           pod2     198.18.2.1 ------ eth0  198.18.2.2   pod 2
//! ```
//!
//! Each has a stack of its own; client and pods route by the gateway, which forwards. So
//! a client reaches a pod through the gateway's daemon, or, for comparison, routed.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};

use crate::{Cable, Faults, Namespace, Offloads, Plug};

/// How many pods fit into the addresses.
const MOST_PODS: usize = 250;

/// Makes a cable of two plugs.
type Join<'a> = dyn FnMut(Plug, Plug) -> Result<Cable> + 'a;

/// The arrangement. Nothing of it is left when the last clone of its namespaces is
/// dropped.
#[derive(Debug)]
pub struct Network {
    /// Where clients are.
    pub client: Namespace,
    /// Between client and pods.
    pub gateway: Namespace,
    /// Where model servers are.
    pub pods: Vec<Pod>,
    /// From the client (near) to the gateway (far).
    pub cable: Cable,
}

/// A model server's place.
#[derive(Debug)]
pub struct Pod {
    /// Its stack.
    pub namespace: Namespace,
    /// From the gateway (near) to the pod (far).
    pub cable: Cable,
}

impl Network {
    /// The arrangement for a test; `None`, with a message, where namespaces cannot be
    /// made.
    ///
    /// # Panics
    ///
    /// When it cannot be made for another reason, or for whatever reason in CI (`CI=true`).
    #[must_use]
    pub fn for_test(pods: usize) -> Option<Self> {
        Namespace::can_be_made()
            .then(|| Self::new(pods).unwrap_or_else(|error| panic!("no network: {error:#}")))
    }

    /// Makes the arrangement with this many pods.
    ///
    /// # Errors
    ///
    /// Without the capabilities `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`, without `ip`, or
    /// with more than 250 pods.
    pub fn new(pods: usize) -> Result<Self> {
        Self::build(pods, &mut Cable::join)
    }

    /// The arrangement with a wire in every cable; each draws its faults from a seed of its
    /// own, made from `seed`.
    ///
    /// # Errors
    ///
    /// As [`Network::new`]; or without the capability `CAP_NET_RAW`.
    pub fn over_wires(pods: usize, faults: Faults, seed: u64) -> Result<Self> {
        let mut seeds = seed..;
        Self::build(pods, &mut |near, far| {
            Cable::join_by_wire(near, far, faults, seeds.next().unwrap_or(seed))
        })
    }

    fn build(pods: usize, join: &mut Join<'_>) -> Result<Self> {
        ensure!(pods <= MOST_PODS, "a network has at most {MOST_PODS} pods, not {pods}");
        let (client, gateway) = (Namespace::new("client")?, Namespace::new("gateway")?);
        let cable = join(
            Plug::new(&client, "eth0", address(0, 2)),
            Plug::new(&gateway, "client0", address(0, 1)),
        )?;
        client.ip(&format!("route add default via {}", cable.far.address))?;
        let pods =
            (1..=pods).map(|number| Pod::new(&gateway, number, join)).collect::<Result<_>>()?;
        gateway.set("net.ipv4.ip_forward", "1")?;
        Ok(Self { client, gateway, pods, cable })
    }

    /// The gateway's address for clients.
    #[must_use]
    pub fn front(&self) -> Ipv4Addr {
        self.cable.far.address
    }

    /// Every cable, the client's first.
    pub fn cables(&self) -> impl Iterator<Item = &Cable> {
        std::iter::once(&self.cable).chain(self.pods.iter().map(|pod| &pod.cable))
    }

    /// Every namespace, from client to pods.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        [&self.client, &self.gateway].into_iter().chain(self.pods.iter().map(|pod| &pod.namespace))
    }

    /// Switches the offloads of every interface.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_offloads(&self, offloads: Offloads) -> Result<()> {
        self.cables().try_for_each(|cable| cable.set_offloads(offloads))
    }
}

impl Pod {
    fn new(gateway: &Namespace, number: usize, join: &mut Join<'_>) -> Result<Self> {
        let namespace = Namespace::new(&format!("pod{number}"))?;
        // At most `MOST_PODS`.
        let network = number as u8;
        let cable = join(
            Plug::new(gateway, &format!("pod{number}"), address(network, 1)),
            Plug::new(&namespace, "eth0", address(network, 2)),
        )?;
        namespace.ip(&format!("route add default via {}", cable.near.address))?;
        Ok(Self { namespace, cable })
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.cable.far.address
    }
}

fn address(network: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, network, host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Room;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    #[test]
    fn a_client_reaches_every_pod_through_the_gateway_and_nothing_else() {
        let Some(net) = Network::for_test(2) else { return };
        let client = Room::new(&net.client, 1).unwrap();
        for pod in &net.pods {
            let room = Room::new(&pod.namespace, 1).unwrap();
            let listener = room.block_on(TcpListener::bind((pod.address(), 0))).unwrap();
            let target = listener.local_addr().unwrap();
            let forwarded = pod.cable.near.sent_packets().unwrap();
            let server = room.spawn(async move {
                let (mut stream, from) = listener.accept().await.unwrap();
                stream.write_all(from.ip().to_string().as_bytes()).await.unwrap();
            });
            let seen = client.block_on(async {
                let mut stream = TcpStream::connect(target).await.unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).await.unwrap();
                server.await.unwrap();
                text
            });
            assert_eq!(seen, "198.18.0.2");
            assert!(pod.cable.near.sent_packets().unwrap() > forwarded, "not by the gateway");
        }
        // What is not in it is nowhere: the gateway has no route on.
        let outside = client.block_on(TcpStream::connect("192.0.2.1:80")).unwrap_err();
        assert_eq!(outside.kind(), std::io::ErrorKind::NetworkUnreachable);
    }

    #[test]
    fn a_network_has_only_so_many_addresses() {
        assert!(Network::new(251).unwrap_err().to_string().contains("250"));
    }

    #[test]
    fn two_networks_do_not_meet() {
        let (Some(one), Some(two)) = (Network::for_test(1), Network::for_test(1)) else { return };
        let bind = |net: &Network| {
            let address = (net.front(), 8080);
            net.gateway.run(|| std::net::TcpListener::bind(address))
        };
        let (_one, _two) = (bind(&one).unwrap(), bind(&two).unwrap());
        assert!(bind(&one).is_err(), "the port was free");
    }
}
