//! Whole frames of an interface, by a packet socket (`packet(7)`).

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::time::Duration;

/// Longest frame, jumbo frames included.
const LONGEST: usize = 16 * 1024;

/// Room for frames that come while the reader does not run.
const BUFFER: libc::c_int = 8 << 20;

/// A socket that receives what comes in by an interface, and sends by it.
#[derive(Debug)]
pub(crate) struct Tap {
    socket: File,
}

impl Tap {
    /// Opens an interface of the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// Without the capability `CAP_NET_RAW`, or when there is no such interface.
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        let every_protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: the call takes no pointer.
        let socket = checked(unsafe {
            libc::socket(libc::AF_PACKET, kind, libc::c_int::from(every_protocol))
        })?;
        // SAFETY: the descriptor is new and owned by nobody else.
        let socket = unsafe { File::from_raw_fd(socket) };
        let tap = Self { socket };
        // What we send by the interface is not to come back to us.
        tap.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        tap.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER)?;
        tap.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER)?;
        // SAFETY: all zeros is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = every_protocol;
        address.sll_ifindex = index(interface)?;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let fd = tap.socket.as_raw_fd();
        // SAFETY: the address outlives the call, and its length is right.
        checked(unsafe { libc::bind(fd, (&raw const address).cast(), length) })?;
        Ok(tap)
    }

    /// The next frame that has come, if any.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; LONGEST];
        let length = (&self.socket).read(&mut frame).ok()?;
        frame.truncate(length);
        Some(frame)
    }

    /// Sends a frame.
    ///
    /// # Errors
    ///
    /// When the queue is full or the interface is down.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.socket).write(frame).map(drop)
    }

    /// Waits until one of the taps has a frame, or for as long as `patience`, to the
    /// nanosecond; says which have one.
    ///
    /// # Errors
    ///
    /// When the call fails for another reason than a signal.
    pub(crate) fn wait(taps: &[Self; 2], patience: Duration) -> io::Result<[bool; 2]> {
        let mut polled = taps.each_ref().map(|tap| libc::pollfd {
            fd: tap.socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let patience = libc::timespec {
            tv_sec: libc::time_t::try_from(patience.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(patience.subsec_nanos()),
        };
        // SAFETY: both structures outlive the call, and there are two of the first.
        let ready =
            unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &raw const patience, std::ptr::null()) };
        match checked(ready) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(polled.map(|tap| tap.revents & libc::POLLIN != 0)),
        }
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        let fd = self.socket.as_raw_fd();
        // SAFETY: the value outlives the call, and its length is right.
        let done =
            unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) };
        checked(done).map(drop)
    }
}

fn index(interface: &str) -> io::Result<libc::c_int> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: the name ends with a zero and outlives the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    libc::c_int::try_from(index)
        .ok()
        .filter(|index| *index > 0)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no interface {interface}")))
}

/// What a system call returned, or why it failed.
fn checked(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
