//! The daemon's side of splicing: which connections the kernel looks after, and
//! which answers it carries.
//!
//! Lifecycles are guards. A [`Bound`] connection has a slot in the shared maps until
//! some time after it is closed; an [`Armed`] answer may be moved by the kernel until
//! it is dropped. All that happens per answer is a few stores to shared memory;
//! system calls are made only when a connection is bound or released.
//!
//! The protocol with the kernel is in `docs/decisions/0005-splice-in-tc.md`.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData};
use gateway_common::address::{IpAddress, SocketAddress};
use gateway_common::frames::Tails;
use gateway_common::splice::{Conn, FLOWS, Flow, Handshake, Mark, SLOTS, Slot, Tuple};

mod armed;
mod node;
pub(crate) mod shared;
mod trial;

pub(crate) use armed::{Armed, Moved};
pub(crate) use node::Node;
use shared::Shared;

/// How long a closed connection whose numbers were shifted is looked after: as long as
/// the stack answers for it (`TIME_WAIT`).
const LINGER: Duration = Duration::from_mins(1);

/// The shared maps, and who uses what of them.
#[derive(Debug)]
pub(crate) struct Splicer {
    slots: Shared<Slot>,
    flows: Shared<Flow>,
    tails: Shared<Tails>,
    books: Mutex<Books>,
}

/// What needs a lock: taken once per connection and once per armed answer.
#[derive(Debug)]
struct Books {
    listeners: HashMap<MapData, SocketAddress, u32>,
    conns: HashMap<MapData, Tuple, Conn>,
    handshakes: HashMap<MapData, Tuple, Handshake>,
    /// The longest unused come first, so that nobody in the kernel still looks at one.
    free_slots: VecDeque<u32>,
    free_flows: VecDeque<u32>,
    /// How many slots name each flow.
    users: Vec<u8>,
    closing: VecDeque<(Instant, Tuple, u32)>,
    /// Interfaces by which packets go straight into another network namespace.
    doors: BTreeSet<u32>,
}

/// Why there is no splicing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Missing {
    /// A map is not there, is not what it should be, or cannot be used.
    #[error("cannot use map `{0}`")]
    Use(&'static str, #[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Splicer {
    /// Opens the maps that are pinned in `maps` and tells the kernel where clients are listened to.
    ///
    /// # Errors
    ///
    /// [`Missing`].
    pub(crate) fn new(maps: &Path, listeners: &[SocketAddr]) -> Result<Arc<Self>, Missing> {
        let books = Books {
            listeners: hash(maps, "listeners")?,
            conns: hash(maps, "conns")?,
            handshakes: hash(maps, "handshakes")?,
            free_slots: (1..SLOTS).collect(),
            free_flows: (1..FLOWS).collect(),
            users: vec![0; FLOWS as usize],
            closing: VecDeque::new(),
            doors: BTreeSet::new(),
        };
        let splicer = Self {
            slots: shared(maps, "slots", SLOTS)?,
            flows: shared(maps, "flows", FLOWS)?,
            tails: shared(maps, "tails", FLOWS)?,
            books: Mutex::new(books),
        };
        splicer.listen(listeners)?;
        Ok(Arc::new(splicer))
    }

    /// Tells the kernel where else clients are listened to.
    ///
    /// # Errors
    ///
    /// [`Missing::Use`].
    pub(crate) fn listen(&self, listeners: &[SocketAddr]) -> Result<(), Missing> {
        let mut books = self.lock();
        for listener in listeners.iter().copied().flat_map(entries) {
            let entered = books.listeners.insert(listener, 1, 0);
            entered.map_err(|error| Missing::Use("listeners", Box::new(error)))?;
        }
        Ok(())
    }

    /// After the trial, whose clients were listened to at `address` and whose connections
    /// are closed; there have been no others yet.
    fn forget_all(&self, address: SocketAddr) {
        let mut books = self.lock();
        for listener in entries(address) {
            // Never entered, perhaps.
            let _ = books.listeners.remove(&listener);
        }
        while let Some((_, tuple, slot)) = books.closing.pop_front() {
            books.free(self, &tuple, slot);
            let _ = books.handshakes.remove(&tuple);
        }
    }

    /// Says which interfaces lead into other network namespaces past nobody; of
    /// consequence for answers that are armed from now on.
    pub(crate) fn set_doors(&self, doors: BTreeSet<u32>) {
        self.lock().doors = doors;
    }

    /// Has the kernel look after a connection to an endpoint. To be called before the
    /// first request is sent on it: the count of what went to user space begins here.
    pub(crate) fn bind_endpoint(
        self: &Arc<Self>,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<Bound> {
        self.bind(local, remote, Conn::ENDPOINT)
    }

    /// Has the kernel look after a client's connection.
    pub(crate) fn bind_client(
        self: &Arc<Self>,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<Bound> {
        self.bind(local, remote, Conn::CLIENT)
    }

    /// `None` when its opening was not seen, or was not one that can be spliced.
    fn bind(self: &Arc<Self>, local: SocketAddr, remote: SocketAddr, side: u32) -> Option<Bound> {
        let tuple = tuple(local, remote);
        let mut books = self.lock();
        let handshake = books.handshakes.get(&tuple, 0).ok().filter(Handshake::is_complete)?;
        books.sweep(self);
        let index = books.free_slots.pop_front()?;
        let end = handshake.peer_isn.wrapping_add(1);
        self.slots.write(
            index,
            &Slot {
                mark: Mark { moved: 0, end }.pack(),
                own_scale: handshake.own_scale,
                peer_scale: handshake.peer_scale,
                frame: handshake.frame,
                ..Slot::default()
            },
        );
        if books.conns.insert(tuple, Conn { slot: index, side }, 0).is_err() {
            books.free_slots.push_back(index);
            return None;
        }
        drop(books);
        Some(Bound { splicer: Arc::clone(self), tuple, slot: index, handshake })
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        // Every method leaves the books whole.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// Frees what has been closed for long enough.
    fn sweep(&mut self, splicer: &Splicer) {
        let now = Instant::now();
        while let Some((since, tuple, slot)) = self.closing.front().copied() {
            if now.duration_since(since) < LINGER {
                return;
            }
            self.closing.pop_front();
            self.free(splicer, &tuple, slot);
        }
    }

    fn free(&mut self, splicer: &Splicer, tuple: &Tuple, slot: u32) {
        // Another connection may have the addresses by now; that one stays.
        if self.conns.get(tuple, 0).is_ok_and(|conn| conn.slot == slot) {
            let _ = self.conns.remove(tuple);
        }
        let flow = splicer.slots.u32_at(slot, shared::slot::FLOW).load(shared::ORDER);
        splicer.slots.u32_at(slot, shared::slot::FLOW).store(0, shared::ORDER);
        self.leave(flow);
        self.free_slots.push_back(slot);
    }

    /// A slot no longer names `flow`.
    fn leave(&mut self, flow: u32) {
        if flow == 0 {
            return;
        }
        let Some(users) = self.users.get_mut(flow as usize) else { return };
        *users = users.saturating_sub(1);
        if *users == 0 {
            self.free_flows.push_back(flow);
        }
    }
}

/// A connection that the kernel looks after.
#[derive(Debug)]
pub(crate) struct Bound {
    splicer: Arc<Splicer>,
    tuple: Tuple,
    slot: u32,
    handshake: Handshake,
}

impl Bound {
    /// Whether the last splice is over and done: until then the endpoint must not be
    /// asked for anything by another client, for it may still have to send moved bytes again.
    pub(crate) fn is_settled(&self) -> bool {
        let flow = self.flow();
        flow == 0 || self.splicer.is_settled(flow)
    }

    /// The flow in force; 0 before the first.
    pub(crate) fn flow(&self) -> u32 {
        self.splicer.slots.u32_at(self.slot, shared::slot::FLOW).load(shared::ORDER)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let mut books = self.splicer.lock();
        if self.flow() == 0 {
            books.free(&self.splicer, &self.tuple, self.slot);
        } else {
            books.closing.push_back((Instant::now(), self.tuple, self.slot));
        }
    }
}

/// What the kernel is to look for, where clients are listened to at this address. A listener
/// at any address of IPv6 is one for both families.
fn entries(address: SocketAddr) -> impl Iterator<Item = SocketAddress> {
    let own = SocketAddress::of(address);
    let is_any = own.ip == IpAddress::ANY_V6;
    let other = is_any.then_some(SocketAddress { ip: IpAddress::ANY_V4, ..own });
    [Some(own), other].into_iter().flatten()
}

/// A connection's addresses. On a listener for both families a client of IPv4 has a mapped one.
fn tuple(local: SocketAddr, remote: SocketAddr) -> Tuple {
    Tuple {
        local: IpAddress::of(local.ip()),
        remote: IpAddress::of(remote.ip()),
        local_port_be: local.port().to_be(),
        remote_port_be: remote.port().to_be(),
    }
}

/// A map by a descriptor of its own: programs that are loaded later need theirs.
pub(crate) fn open(maps: &Path, name: &'static str) -> Result<MapData, Missing> {
    MapData::from_pin(maps.join(name)).map_err(|error| Missing::Use(name, Box::new(error)))
}

pub(crate) fn hash<K: aya::Pod, V: aya::Pod>(
    maps: &Path,
    name: &'static str,
) -> Result<HashMap<MapData, K, V>, Missing> {
    let map = open(maps, name)?;
    HashMap::try_from(Map::HashMap(map)).map_err(|error| Missing::Use(name, Box::new(error)))
}

pub(crate) fn shared<T: aya::Pod>(
    maps: &Path,
    name: &'static str,
    length: u32,
) -> Result<Shared<T>, Missing> {
    let map = open(maps, name)?;
    Shared::map(&map, length).map_err(|error| Missing::Use(name, Box::new(error)))
}
