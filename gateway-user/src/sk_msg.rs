//! The daemon's side of answers that go from socket to socket: whose streams the kernel
//! looks after, and which it may move.
//!
//! Lifecycles are guards. An [`Upstream`] has an entry among the streams from before its
//! connection opens until it is dropped, a [`Downstream`] is a client's socket that the
//! kernel may write to, and an [`Armed`] answer may be moved until it is taken back.
//!
//! The protocol with the kernel is in `docs/decisions/0011-from-socket-to-socket.md`.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData, SockHash};
use gateway_common::frames::Tails;
use gateway_common::sk_msg::{STREAMS, Stream, Word};
use socket2::SockRef;

use crate::splice::shared::{ORDER, Shared};
use crate::splice::{Missing, hash, open, shared};

mod armed;
pub(crate) mod socket;
#[cfg(test)]
mod tests;
pub(crate) mod trial;

pub(crate) use armed::{Armed, Owed};
pub(crate) use trial::Fionread;

/// How long an entry rests before another connection gets it: far longer than a program
/// that has read it may still run.
const REST: Duration = Duration::from_secs(1);

/// Offsets of the fields of [`Stream`] that are used one by one.
mod field {
    use std::mem::offset_of;

    use gateway_common::sk_msg::Stream;

    pub(super) const WORD: usize = offset_of!(Stream, word);
    pub(super) const COOKIE: usize = offset_of!(Stream, cookie);
    pub(super) const CLIENT: usize = offset_of!(Stream, client);
    pub(super) const BYTES: usize = offset_of!(Stream, bytes);
    pub(super) const DATA: usize = offset_of!(Stream, data);
    pub(super) const CHUNKS: usize = offset_of!(Stream, chunks);
    pub(super) const FIRST_NS: usize = offset_of!(Stream, first_ns);
    pub(super) const LAST_NS: usize = offset_of!(Stream, last_ns);
    pub(super) const CREDIT: usize = offset_of!(Stream, credit);
    pub(super) const SPENT: usize = offset_of!(Stream, spent);
    pub(super) const STATE: usize = offset_of!(Stream, state);
    pub(super) const TAIL: usize = offset_of!(Stream, tail);
}

/// The shared maps, and who uses what of them.
#[derive(Debug)]
pub(crate) struct SkMsg {
    streams: Shared<Stream>,
    tails: Shared<Tails>,
    books: Mutex<Books>,
}

/// What needs a lock: taken when a connection opens and when it closes.
struct Books {
    wanted: HashMap<MapData, u64, u32>,
    clients: SockHash<MapData, u64>,
    free: Vec<u32>,
    /// Those that were in use until then, the longest unused first.
    resting: VecDeque<(Instant, u32)>,
}

impl SkMsg {
    /// Opens the maps that are pinned in `maps`.
    ///
    /// # Errors
    ///
    /// [`Missing`].
    pub(crate) fn new(maps: &Path) -> Result<Arc<Self>, Missing> {
        let clients = Map::SockHash(open(maps, "msg_clients")?);
        let clients = SockHash::try_from(clients);
        let books = Books {
            wanted: hash(maps, "msg_wanted")?,
            clients: clients.map_err(|error| Missing::Use("msg_clients", Box::new(error)))?,
            free: (1..STREAMS).rev().collect(),
            resting: VecDeque::new(),
        };
        Ok(Arc::new(Self {
            streams: shared(maps, "msg_streams", STREAMS)?,
            tails: shared(maps, "msg_tails", STREAMS)?,
            books: Mutex::new(books),
        }))
    }

    /// Has the kernel look for the other end of a connection that `socket` is about to
    /// open; the socket needs [`gateway_common::splice::MARK_UPSTREAM`] besides. `None`
    /// when there are too many.
    pub(crate) fn want(self: &Arc<Self>, socket: &impl AsFd) -> Option<Upstream> {
        let cookie = SockRef::from(socket).cookie().ok()?;
        let mut books = self.lock();
        books.sweep();
        let stream = books.free.pop()?;
        self.streams.write(stream, &Stream { cookie, ..Stream::default() });
        // From here on the entry goes back by itself.
        let upstream = Upstream { maps: Arc::clone(self), stream, cookie };
        let entered = books.wanted.insert(cookie, stream, 0);
        drop(books);
        entered.is_ok().then_some(upstream)
    }

    /// Lets the kernel write to a client's socket; when it does, is said for each answer.
    ///
    /// # Errors
    ///
    /// The socket is closed, another agent has it, or its send buffer cannot be set.
    pub(crate) fn enrol(&self, client: &impl AsFd) -> io::Result<Downstream> {
        socket::make_room(client)?;
        let cookie = SockRef::from(client).cookie()?;
        let mut books = self.lock();
        let fd = client.as_fd();
        books.clients.insert(cookie, fd, 0).map_err(io::Error::other)?;
        Ok(Downstream { cookie })
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        // Every method leaves the books whole.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Books {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Books");
        shown.field("free", &self.free.len()).field("resting", &self.resting.len());
        shown.finish_non_exhaustive()
    }
}

impl Books {
    /// Frees what has rested for long enough.
    fn sweep(&mut self) {
        while let Some((since, stream)) = self.resting.front().copied() {
            if since.elapsed() < REST {
                return;
            }
            self.resting.pop_front();
            self.free.push(stream);
        }
    }
}

/// A client's socket that the kernel may write to. It leaves the map when it is closed,
/// and not before: taking a live socket out of such a map loses what it holds.
#[derive(Debug)]
pub(crate) struct Downstream {
    cookie: u64,
}

/// The gateway's end of a connection whose other end the kernel looks for.
#[derive(Debug)]
pub(crate) struct Upstream {
    maps: Arc<SkMsg>,
    stream: u32,
    cookie: u64,
}

impl Upstream {
    /// Whether the other end is on this node, and the program on its socket. Known at the
    /// latest when the first byte comes from there.
    pub(crate) fn is_enrolled(&self) -> bool {
        self.state() == Stream::ENROLLED
    }

    fn state(&self) -> u32 {
        self.maps.streams.u32_at(self.stream, field::STATE).load(ORDER)
    }

    /// To be called before a request is sent, when all that the endpoint has ever sent has
    /// been `received`. A send call that did not fit into the endpoint's own buffer was
    /// counted in full, and its rest again; here the counts meet again.
    pub(crate) fn begin(&self, received: u64) {
        let word = self.maps.streams.u64_at(self.stream, field::WORD);
        let old = word.load(ORDER);
        let now = Word { armed: false, passed: received as u32, ..Word::unpack(old) };
        if now.pack() != old {
            // If it changes meanwhile the endpoint talks without being asked.
            let _ = word.compare_exchange(old, now.pack(), ORDER, ORDER);
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let streams = &self.maps.streams;
        // What the other end still sends is nobody's.
        streams.u64_at(self.stream, field::COOKIE).store(0, ORDER);
        streams.u64_at(self.stream, field::WORD).store(0, ORDER);
        let seen = self.state() != Stream::UNKNOWN;
        let mut books = self.maps.lock();
        if !seen {
            // Taken out by the kernel, unless the connection never came about.
            let _ = books.wanted.remove(&self.cookie);
        }
        books.resting.push_back((Instant::now(), self.stream));
    }
}
