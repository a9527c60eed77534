//! The self-test of steering: a connection in each family on the loopback interface.
//!
//! To an address where nobody listens, which the programs must send to one where we
//! do, and which the socket must call its peer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use gateway_common::address::SocketAddress;
use gateway_common::steer::{CANDIDATES, Candidate, Pool};

use super::Steering;
use crate::kernel::Off;

/// Nobody listens here: nobody has these addresses but by asking for them. The second is of
/// the range that is for documentation (RFC 3849).
const NOBODY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(127, 255, 255, 253)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 253)),
];
/// On loopback a connection takes microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tries it, and leaves nothing of the trial in the maps but counts.
pub(super) fn run(steering: &mut Steering) -> Result<(), Off> {
    let [v4, v6] = NOBODY;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Off::Trial)?;
    among(steering, v4, &listener)?;
    match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(listener) => among(steering, v6, &listener),
        // This node has no IPv6.
        Err(_) => Ok(()),
    }
}

/// Connects to `nobody` and must come to the listener.
fn among(steering: &mut Steering, nobody: IpAddr, listener: &TcpListener) -> Result<(), Off> {
    let here = listener.local_addr().map_err(Off::Trial)?;
    let asked = SocketAddr::new(nobody, here.port());
    let mut candidates = [Candidate::default(); CANDIDATES];
    candidates[0].address = SocketAddress::of(here);
    let pool = Pool {
        id: u32::MAX,
        mode: Pool::CONNECTION,
        generation: 0,
        count: 1,
        gateway: SocketAddress::default(),
        candidates,
    };
    steering.publish(asked, &pool)?;
    steering.beat()?;
    let tried = connect(asked);
    steering.rest();
    steering.withdraw(asked);
    tried.map_err(Off::Trial)
}

fn connect(asked: SocketAddr) -> io::Result<()> {
    let stream = TcpStream::connect_timeout(&asked, PATIENCE)?;
    let peer = stream.peer_addr()?;
    if peer == asked {
        Ok(())
    } else {
        Err(io::Error::other(format!("the peer of a connection to {asked} is called {peer}")))
    }
}
