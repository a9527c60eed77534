//! What the kernel says of a client's socket.

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd as _};

use gateway_common::sk_msg::{CALL_BYTES, cost};

/// Send buffer of a client's socket, in bytes. Of a fixed size, because one that the kernel
/// makes smaller when memory is short could cut what it was to take.
const SEND_BUFFER: libc::c_int = 1 << 20;
/// More unsent data than there can be.
const UNLIMITED: libc::c_int = libc::c_int::MAX;
/// Fields of `SO_MEMINFO` (`sock_diag(7)`): size of the send buffer, what is in it, and how
/// many fields there are.
const SNDBUF: usize = 3;
const WMEM_QUEUED: usize = 5;
const FIELDS: usize = 9;

/// Gives a client's socket a send buffer of a size that stays.
///
/// # Errors
///
/// Without the capability `CAP_NET_ADMIN`, or when the socket is closed.
pub(crate) fn make_room(client: &impl AsFd) -> io::Result<()> {
    // The kernel takes twice of what it is told, for its own use.
    set(client, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER / 2)?;
    // A node's limit of unsent data would end calls in the middle.
    set(client, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNLIMITED)
}

/// A socket's send buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Its size, in bytes.
    size: u32,
    /// What is in it, with what the kernel needs to keep it.
    used: u32,
}

impl Room {
    pub(crate) fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut fields = [0_u32; FIELDS];
        get(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut fields)?;
        Ok(Self { size: fields[SNDBUF], used: fields[WMEM_QUEUED] })
    }

    /// What the kernel may take of it without asking: most of what is free, if that is
    /// worth it.
    pub(crate) fn credit(self) -> Option<u32> {
        let free = self.size.saturating_sub(self.used);
        let credit = free / 4 * 3;
        (free >= self.size / 2 && credit >= cost(CALL_BYTES)).then_some(credit)
    }
}

/// How many bytes a TCP socket has been given to send since it was opened: those that were
/// acknowledged, and those that were not.
pub(crate) fn position(socket: &impl AsFd) -> io::Result<u64> {
    let mut acknowledged = acknowledged(socket)?;
    loop {
        let mut waiting: libc::c_int = 0;
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the call writes one integer.
        if unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut waiting) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // An acknowledgement between the two questions would count twice, or not at all.
        let now = self::acknowledged(socket)?;
        if now == acknowledged {
            return Ok(now + u64::from(waiting.unsigned_abs()));
        }
        acknowledged = now;
    }
}

/// `tcpi_bytes_acked` of `struct tcp_info` (Linux 4.1), which the C library's lacks.
fn acknowledged(socket: &impl AsFd) -> io::Result<u64> {
    const AT: usize = 120;
    let mut info = [0_u64; AT / 8 + 1];
    get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    Ok(info[AT / 8])
}

fn get<T, const N: usize>(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut [T; N],
) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let mut length = size_of_val(value) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of plain integers.
    let done =
        unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut length) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    if (length as usize) < size_of_val(value) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(())
}

fn set(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads one integer.
    let done = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    #[test]
    fn the_position_is_what_was_written_whoever_has_it() {
        let (mut ours, mut theirs) = pair();
        assert_eq!(position(&ours).unwrap(), 0);
        for round in 1..=50_u64 {
            ours.write_all(&[7; 1000]).unwrap();
            assert_eq!(position(&ours).unwrap(), 1000 * round);
        }
        theirs.read_exact(&mut vec![0; 50_000]).unwrap();
        assert_eq!(position(&ours).unwrap(), 50_000);
    }

    #[test]
    fn credit_ends_with_the_room_there_is() {
        let (ours, _theirs) = pair();
        if make_room(&ours).is_err() {
            eprintln!("skipped: this test needs CAP_NET_ADMIN");
            return;
        }
        let room = Room::of(&ours).unwrap();
        assert_eq!(room.size, SEND_BUFFER.unsigned_abs());
        let credit = room.credit().unwrap();
        assert!(credit < room.size && credit > room.size / 2, "{credit} of {room:?}");
        // One that nobody reads from.
        ours.set_nonblocking(true).unwrap();
        while (&ours).write(&[7; 4096]).is_ok() {}
        let room = Room::of(&ours).unwrap();
        assert!(room.credit().is_none(), "{room:?}");
    }
}
