//! Offloads of an interface, by `SIOCETHTOOL`.
//!
//! With offloads on, a veth pair passes segments of up to 64 KiB whose checksum nobody
//! has computed; with them off, packets look as they do on a wire. A program that
//! rewrites packets has to get both right.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// What an interface does for its sockets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Offloads {
    /// Every packet is a frame of at most one MTU, with its checksum.
    Off,
    /// The kernel's default: large segments, checksums left to the (absent) hardware.
    On,
}

/// Features and how the kernel numbers setting and reading them (`linux/ethtool.h`), in an
/// order in which they can be switched off.
const FEATURES: [(&str, u32, u32); 6] = [
    ("generic receive offload", 0x2c, 0x2b),
    ("generic segmentation offload", 0x24, 0x23),
    ("TCP segmentation offload", 0x1f, 0x1e),
    ("scatter-gather", 0x19, 0x18),
    ("transmit checksums", 0x17, 0x16),
    ("receive checksums", 0x15, 0x14),
];

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Switches every feature of an interface of the calling thread's namespace.
///
/// # Errors
///
/// When there is no such interface, or a feature does not do as told.
pub(crate) fn switch(interface: &str, offloads: Offloads) -> io::Result<()> {
    // Any socket of the namespace will do.
    let socket = OwnedFd::from(UdpSocket::bind("127.0.0.1:0")?);
    let wanted = u32::from(offloads == Offloads::On);
    // What depends on another feature comes before it when off, and after it when on.
    let mut features = FEATURES;
    if offloads == Offloads::On {
        features.reverse();
    }
    for (_, set, _) in features {
        ethtool(&socket, interface, Value { command: set, data: wanted })?;
    }
    for (name, _, read) in features {
        let found = ethtool(&socket, interface, Value { command: read, data: 0 })?;
        // Receive checksums and generic receive offload cannot be had everywhere.
        if offloads == Offloads::Off && found != 0 {
            return Err(io::Error::other(format!("{name} of {interface} stays on")));
        }
    }
    Ok(())
}

fn ethtool(socket: &OwnedFd, interface: &str, mut value: Value) -> io::Result<u32> {
    // SAFETY: all zeros is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::Error::other(format!("`{interface}` is too long for an interface")));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: request and value outlive the call; the kernel reads the one and writes the
    // other within their sizes.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } {
        0 => Ok(value.data),
        _ => Err(io::Error::last_os_error()),
    }
}
