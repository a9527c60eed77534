//! The self-test: an answer that goes partly from socket to socket, in a network namespace
//! of its own.
//!
//! Besides that every byte arrives once and in its place, it asks what some kernels do not
//! tell a socket that is enrolled: how many bytes there are to read (`FIONREAD`).

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use gateway_common::splice::MARK_UPSTREAM;
use socket2::{Domain, Socket, Type};

use super::{Downstream, SkMsg, Upstream};
use crate::kernel::apart::apart;

/// On loopback everything takes microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// What `FIONREAD` says of an enrolled socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fionread {
    /// The truth.
    Right,
    /// Nothing, although there is something to read.
    Wrong,
}

/// Tries it with the programs that are attached.
///
/// # Errors
///
/// What did not work.
pub(crate) fn run(maps: &Arc<SkMsg>) -> io::Result<Fionread> {
    apart(|| converse(maps))?
}

/// Four ends of two connections: engine, gateway, gateway, client.
pub(super) struct Ends {
    pub(super) engine: TcpStream,
    pub(super) up: TcpStream,
    pub(super) upstream: Upstream,
    pub(super) down: TcpStream,
    pub(super) downstream: Downstream,
    pub(super) client: TcpStream,
    pub(super) received: u64,
}

fn converse(maps: &Arc<SkMsg>) -> io::Result<Fionread> {
    let mut ends = Ends::open(maps)?;
    ends.up.write_all(b"asked")?;
    let fionread = fionread(&ends.engine, 5)?;
    ends.engine.read_exact(&mut [0; 5])?;
    if !ends.upstream.is_enrolled() {
        return Err(fault("a connection within this kernel was not noticed"));
    }
    // Twice, because the second time needs a clean end of the first.
    for _ in 0..2 {
        ends.by_user(b"5\r\nfirst\r\n")?;
        ends.by_kernel(&[b"6\r\nsecond\r\n", b"5\r\nthird\r\nA\r\nand fourth\r\n"])?;
    }
    Ok(fionread)
}

impl Ends {
    pub(super) fn open(maps: &Arc<SkMsg>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_mark(MARK_UPSTREAM)?;
        let upstream = maps.want(&socket).ok_or_else(|| fault("no stream is free"))?;
        let address: SocketAddr = listener.local_addr()?;
        socket.connect_timeout(&address.into(), PATIENCE)?;
        let (engine, _) = listener.accept()?;
        let client = TcpStream::connect(address)?;
        let (down, _) = listener.accept()?;
        let downstream = maps.enrol(&down)?;
        let up: TcpStream = socket.into();
        for stream in [&engine, &up, &client, &down] {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
        }
        Ok(Self { engine, up, upstream, down, downstream, client, received: 0 })
    }

    /// What the engine sends reaches the client through us.
    pub(super) fn by_user(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.engine.write_all(bytes)?;
        self.pass(bytes)
    }

    /// Takes it from the one connection and puts it into the other.
    fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        expect(&mut self.up, bytes)?;
        self.received += bytes.len() as u64;
        self.down.write_all(bytes)?;
        expect(&mut self.client, bytes)
    }

    /// What the engine sends reaches the client without us, until half a chunk comes.
    fn by_kernel(&mut self, calls: &[&[u8]]) -> io::Result<()> {
        let armed = self.upstream.arm(self.received, &self.downstream, &self.down);
        let armed = armed.map_err(|why| fault(&format!("not armed: {why:?}")))?;
        for call in calls {
            self.engine.write_all(call)?;
        }
        let moved = calls.concat();
        expect(&mut self.client, &moved)?;
        self.engine.write_all(b"5\r\nhal")?;
        let mut cut = [0; 6];
        self.up.read_exact(&mut cut)?;
        let (account, owed) = armed.take_back();
        if account.bytes != moved.len() as u64 || owed.moved != account.bytes {
            return Err(fault(&format!("{} bytes were counted of {}", account.bytes, moved.len())));
        }
        if !owed.is_paid(&self.down) {
            return Err(fault("the client's socket was not given what was counted"));
        }
        self.received += cut.len() as u64;
        self.down.write_all(&cut)?;
        expect(&mut self.client, b"5\r\nhal")?;
        self.by_user(b"ve\r\n")
    }
}

/// Reads what must come now.
fn expect(from: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut got = vec![0; bytes.len()];
    from.read_exact(&mut got)?;
    if got == bytes { Ok(()) } else { Err(fault("bytes came in a wrong order")) }
}

/// Whether an enrolled socket with so many bytes to read says so.
fn fionread(socket: &TcpStream, bytes: libc::c_int) -> io::Result<Fionread> {
    let mut wait = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let patience = PATIENCE.as_millis() as libc::c_int;
    // SAFETY: one element, which outlives the call.
    if unsafe { libc::poll(&raw mut wait, 1, patience) } != 1 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut there: libc::c_int = 0;
    // SAFETY: the call writes one integer.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut there) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(if there == bytes { Fionread::Right } else { Fionread::Wrong })
}

fn fault(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}
