//! A network namespace for a moment, in which the paths are tried before they are used.
//!
//! Nothing that is tried there is seen by anybody else, and nothing of it is left
//! behind: the namespace ends with the thread that made it.

use std::io;
use std::os::fd::AsRawFd as _;
use std::thread;

use socket2::{Domain, Socket, Type};

/// Runs `work` on a thread in a network namespace of its own, whose loopback interface
/// (index 1) is up, and waits for it.
///
/// # Errors
///
/// Without the capability `CAP_SYS_ADMIN`, or when the kernel has no namespaces, as
/// [`io::ErrorKind::PermissionDenied`] or [`io::ErrorKind::InvalidInput`]; when `work`
/// panics.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let inside = || {
        // SAFETY: the call takes no pointer and affects the calling thread alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        raise_loopback()?;
        Ok(work())
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("self-test".to_owned());
        let done = thread.spawn_scoped(scope, inside)?.join();
        done.map_err(|_| io::Error::other("the self-test panicked"))?
    })
}

/// Brings the loopback interface of the calling thread's namespace up.
fn raise_loopback() -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    // SAFETY: all zeros are a request without name and flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is as `netdevice(7)` has it, and outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_port_taken_here_is_free_there_and_loopback_carries() {
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = here.local_addr().unwrap();
        let there = apart(|| {
            let listener = TcpListener::bind(address)?;
            let client = TcpStream::connect(address)?;
            let (_, from) = listener.accept()?;
            Ok::<_, io::Error>(from == client.local_addr()?)
        });
        match there {
            Ok(met) => assert!(met.unwrap()),
            Err(error) => {
                let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
                assert!(!is_ci, "CI has network namespaces: {error}");
                eprintln!("skipped: this test needs network namespaces (root): {error}");
            }
        }
    }
}
