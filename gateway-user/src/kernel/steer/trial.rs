//! The self-test of steering: one connection on the loopback interface.
//!
//! To an address where nobody listens, which the programs must send to one where we
//! do, and which the socket must call its peer.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

use gateway_common::steer::{CANDIDATES, Candidate, Pool, Vip};

use super::{Steering, address};
use crate::kernel::Off;

/// Nobody listens here: nobody has this address but by asking for it.
const NOBODY: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 253);
/// On loopback a connection takes microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tries it, and leaves nothing of the trial in the maps but counts.
pub(super) fn run(steering: &mut Steering) -> Result<(), Off> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Off::Trial)?;
    let SocketAddr::V4(here) = listener.local_addr().map_err(Off::Trial)? else {
        return Err(Off::Trial(io::ErrorKind::AddrNotAvailable.into()));
    };
    let asked = SocketAddrV4::new(NOBODY, here.port());
    let mut candidates = [Candidate::default(); CANDIDATES];
    candidates[0].address = address(here);
    let pool = Pool {
        id: u32::MAX,
        mode: Pool::CONNECTION,
        generation: 0,
        count: 1,
        gateway: Vip::default(),
        candidates,
    };
    steering.publish(asked, &pool)?;
    steering.beat()?;
    let tried = connect(asked);
    steering.rest();
    steering.withdraw(asked);
    tried.map_err(Off::Trial)
}

fn connect(asked: SocketAddrV4) -> io::Result<()> {
    let stream = TcpStream::connect_timeout(&asked.into(), PATIENCE)?;
    let peer = stream.peer_addr()?;
    if peer == SocketAddr::V4(asked) {
        Ok(())
    } else {
        Err(io::Error::other(format!("the peer of a connection to {asked} is called {peer}")))
    }
}
