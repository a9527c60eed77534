//! Word of interfaces that come and go, from the kernel (`rtnetlink(7)`).

use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::unix::AsyncFd;

/// `NETLINK_ROUTE`, and the group of messages about links.
const ROUTE: i32 = 0;
const LINKS: u32 = 1;
/// Only that something came counts, not what.
const ROOM: usize = 8 << 10;

/// Changes of the interfaces of the network namespace that it was opened in.
#[derive(Debug)]
pub(crate) struct LinkEvents(AsyncFd<Socket>);

impl LinkEvents {
    /// To be called within a runtime.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the socket.
    pub(crate) fn open() -> io::Result<Self> {
        let socket =
            Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(Protocol::from(ROUTE)))?;
        socket.set_nonblocking(true)?;
        // SAFETY: all zeros are an address whose number the kernel chooses.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = LINKS;
        // SAFETY: an address of this family, and its length.
        let done = unsafe {
            let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the socket keeps its descriptor open and the same as long as it lives.
        Ok(Self(unsafe { AsyncFd::register(socket) }?))
    }

    /// Waits until something has changed; many changes at once are one.
    ///
    /// # Errors
    ///
    /// When the socket is of no use any more.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            // Otherwise it was not readable after all.
            if let Ok(done) = ready.try_io(|socket| drain(socket.get_ref())) {
                return done;
            }
        }
    }
}

/// Reads all there is.
fn drain(mut socket: &Socket) -> io::Result<()> {
    let mut buffer = [0; ROOM];
    let mut any = false;
    loop {
        match socket.read(&mut buffer) {
            Ok(_) => any = true,
            // Some were lost for want of room; that is something, too.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => any = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && any => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
