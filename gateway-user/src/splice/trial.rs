//! The self-test of the splice: two answers in each family of addresses on the loopback
//! interface of a network namespace of its own.
//!
//! With the very programs and maps that clients' answers will use, before there are
//! any clients. The middle of each answer must be moved by the kernel, begin and end must
//! come through our sockets, and the client must get every byte once and in its place.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_common::splice::MARK_UPSTREAM;
use socket2::{Domain, SockRef, Socket, Type};

use super::armed::{Armed, Moved};
use super::{Bound, Splicer};

/// Addresses of client, gateway and endpoint.
struct Parties([IpAddr; 3]);

impl Parties {
    /// Listens where the gateway is.
    fn listen(&self) -> io::Result<TcpListener> {
        let Self([_, gateway, _]) = *self;
        TcpListener::bind((gateway, 0))
    }
}

/// Nobody has these but by asking for them.
const V4: Parties = Parties([
    IpAddr::V4(Ipv4Addr::new(127, 255, 255, 249)),
    IpAddr::V4(Ipv4Addr::new(127, 255, 255, 250)),
    IpAddr::V4(Ipv4Addr::new(127, 255, 255, 251)),
]);
/// There is only one.
const V6: Parties = Parties([IpAddr::V6(Ipv6Addr::LOCALHOST); 3]);
/// For one step; on loopback each takes microseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between looks at what other CPUs have to do first.
const PAUSE: Duration = Duration::from_micros(100);

const REQUEST: &[u8] = b"POST / HTTP/1.1\r\n\r\n";
const BEGINNING: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
/// Packets of whole chunks, in this order.
const MIDDLE: [&[u8]; 3] = [b"3\r\none\r\n7\r\ntwo two\r\n", b"A\r\n0123456789\r\n", b"1\r\n!\r\n"];
const MIDDLE_CHUNKS: u64 = 4;
/// A chunk in two packets, neither of which the kernel may move.
const CUT: [&[u8]; 2] = [b"8\r\nhalf", b"half\r\n"];
const END: &[u8] = b"0\r\n\r\n";

/// Tries it with the programs that are attached to the loopback interface of the calling
/// thread's namespace. Leaves nothing of the trial in the maps but counts.
///
/// # Errors
///
/// What went wrong at which step.
pub(super) fn run(splicer: &Arc<Splicer>) -> io::Result<()> {
    among(&V4, splicer, &V4.listen()?)?;
    match V6.listen() {
        Ok(listener) => among(&V6, splicer, &listener)
            .map_err(|error| io::Error::new(error.kind(), format!("over IPv6: {error}"))),
        // This node has no IPv6.
        Err(_) => Ok(()),
    }
}

fn among(parties: &Parties, splicer: &Arc<Splicer>, listener: &TcpListener) -> io::Result<()> {
    let address = listener.local_addr()?;
    splicer.listen(&[address]).map_err(io::Error::other)?;
    let tried = Line::open(parties, splicer, listener).and_then(|mut line| {
        line.answer(true)?;
        // On connections whose numbers are shifted by now.
        line.answer(false)?;
        line.assert_nothing_left()
    });
    splicer.forget_all(address);
    tried
}

/// A client's connection and an endpoint's, all four ends.
struct Line {
    client: TcpStream,
    down: TcpStream,
    up: TcpStream,
    endpoint: TcpStream,
    bound_down: Bound,
    bound_up: Bound,
    /// Counted since the connections were opened.
    received: u64,
    written: u64,
    splicer: Arc<Splicer>,
}

impl Line {
    fn open(parties: &Parties, splicer: &Arc<Splicer>, listener: &TcpListener) -> io::Result<Self> {
        let Parties([client, gateway, endpoint]) = *parties;
        let engine = TcpListener::bind((endpoint, 0))?;
        let client = connect(client, listener.local_addr()?, 0)?;
        let (down, _) = listener.accept()?;
        let up = connect(gateway, engine.local_addr()?, MARK_UPSTREAM)?;
        let (endpoint, _) = engine.accept()?;
        for stream in [&client, &down, &up, &endpoint] {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
        }
        let unseen = || io::Error::other("the programs did not see a connection's opening");
        let bound_down = splicer.bind_client(down.local_addr()?, down.peer_addr()?);
        let bound_up = splicer.bind_endpoint(up.local_addr()?, up.peer_addr()?);
        Ok(Self {
            bound_down: bound_down.ok_or_else(unseen)?,
            bound_up: bound_up.ok_or_else(unseen)?,
            client,
            down,
            up,
            endpoint,
            received: 0,
            written: 0,
            splicer: Arc::clone(splicer),
        })
    }

    /// A request and its answer, with a chunk in two packets in the middle or without.
    fn answer(&mut self, with_cut: bool) -> io::Result<()> {
        pass(&mut self.client, &mut self.down, REQUEST, "request")?;
        pass(&mut self.up, &mut self.endpoint, REQUEST, "request")?;
        self.by_hand(BEGINNING, "beginning")?;
        let mut armed = self.arm()?;
        for piece in MIDDLE {
            self.moved(piece, &armed)?;
        }
        if with_cut {
            self.hear(CUT[0], "cut chunk")?;
            check(&armed.take_back())?;
            self.say(CUT[0], "cut chunk")?;
            self.by_hand(CUT[1], "rest of a cut chunk")?;
            armed = self.arm()?;
            for piece in MIDDLE {
                self.moved(piece, &armed)?;
            }
        }
        self.hear(END, "end")?;
        check(&armed.take_back())?;
        self.say(END, "end")?;
        self.settle()
    }

    /// What the endpoint sends arrives at our socket.
    fn hear(&mut self, bytes: &[u8], what: &str) -> io::Result<()> {
        pass(&mut self.endpoint, &mut self.up, bytes, what)?;
        self.received += bytes.len() as u64;
        Ok(())
    }

    /// What our socket sends arrives at the client.
    fn say(&mut self, bytes: &[u8], what: &str) -> io::Result<()> {
        pass(&mut self.down, &mut self.client, bytes, what)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn by_hand(&mut self, bytes: &[u8], what: &str) -> io::Result<()> {
        self.hear(bytes, what)?;
        self.say(bytes, what)
    }

    fn arm(&self) -> io::Result<Armed> {
        let arm =
            || self.splicer.arm(&self.bound_up, self.received, &self.bound_down, self.written);
        let start = Instant::now();
        loop {
            match arm() {
                Ok(armed) => return Ok(armed),
                Err(why) if start.elapsed() > PATIENCE => {
                    return Err(io::Error::other(format!("cannot arm an answer: {why:?}")));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// What the endpoint sends arrives at the client without us.
    fn moved(&mut self, bytes: &[u8], armed: &Armed) -> io::Result<()> {
        pass(&mut self.endpoint, &mut self.client, bytes, "middle").map_err(|error| {
            let stop = armed.stop();
            io::Error::new(error.kind(), format!("{error}; last packet not moved: {stop}"))
        })
    }

    /// Waits until the endpoint's connection may be used again.
    fn settle(&self) -> io::Result<()> {
        let start = Instant::now();
        while !self.bound_up.is_settled() {
            // Its stack may put the acknowledgement off for 40 ms otherwise.
            SockRef::from(&self.client).set_tcp_quickack(true)?;
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other("moved bytes were not acknowledged"));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// No byte came twice.
    fn assert_nothing_left(&mut self) -> io::Result<()> {
        for stream in [&mut self.client, &mut self.down, &mut self.up, &mut self.endpoint] {
            stream.set_nonblocking(true)?;
            match stream.read(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Err(io::Error::other(format!("more than was sent: {other:?}"))),
            }
        }
        Ok(())
    }
}

/// Sends `bytes` into one end and expects just them from another.
fn pass(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8], what: &str) -> io::Result<()> {
    let step = |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    from.write_all(bytes).map_err(step)?;
    let mut got = vec![0; bytes.len()];
    to.read_exact(&mut got).map_err(step)?;
    if got != bytes {
        let got = String::from_utf8_lossy(&got).into_owned();
        return Err(io::Error::other(format!("{what}: other bytes came: {got:?}")));
    }
    Ok(())
}

/// Whether the kernel says of a whole middle that it moved it.
fn check(moved: &Moved) -> io::Result<()> {
    let bytes = MIDDLE.iter().map(|piece| piece.len() as u64).sum::<u64>();
    if (moved.bytes, moved.chunks) == (bytes, MIDDLE_CHUNKS) {
        return Ok(());
    }
    let Moved { bytes, chunks, .. } = moved;
    Err(io::Error::other(format!("{chunks} chunks, {bytes} bytes are said to have been moved")))
}

fn connect(from: IpAddr, to: SocketAddr, mark: u32) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    if mark != 0 {
        socket.set_mark(mark)?;
    }
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::apart::apart;
    use crate::kernel::{AtExit, Kernel, object};

    /// Runs the trial in a namespace, with the programs on its loopback interface or not.
    /// `None`, with a message, where it cannot be run.
    fn tried(name: &str, attached: bool) -> Option<(io::Result<()>, Arc<Splicer>)> {
        let root = format!("/sys/fs/bpf/gateway-trial-{}-{name}", std::process::id());
        let is_here = object().is_some() && apart(|| ()).is_ok();
        let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        assert!(is_here || !is_ci, "CI has kernel programs and namespaces");
        if !is_here {
            eprintln!("skipped: this test needs kernel programs and root");
            return None;
        }
        let mut kernel = Kernel::load(root.as_ref(), AtExit::Detach).unwrap();
        let splicer = Splicer::new(&kernel.maps(), &[]).unwrap();
        let tried = apart(|| {
            if !attached {
                return run(&splicer);
            }
            kernel.tried_on_loopback(|| run(&splicer)).unwrap()
        });
        Some((tried.unwrap(), splicer))
    }

    #[test]
    fn answers_are_moved_and_nothing_is_left_in_the_maps() {
        let Some((tried, splicer)) = tried("works", true) else { return };
        tried.unwrap();
        let books = splicer.lock();
        assert_eq!(books.conns.keys().count() + books.listeners.keys().count(), 0);
        assert_eq!(books.handshakes.keys().count(), 0);
        assert_eq!(books.free_slots.len() as u32, gateway_common::splice::SLOTS - 1);
        assert_eq!(books.free_flows.len() as u32, gateway_common::splice::FLOWS - 1);
    }

    #[test]
    fn without_programs_it_fails_and_says_at_what() {
        let Some((tried, _)) = tried("bare", false) else { return };
        let error = tried.unwrap_err().to_string();
        assert!(error.contains("did not see a connection's opening"), "{error}");
    }
}
