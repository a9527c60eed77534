//! How each peer is, for people and metrics.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gateway_core::Time;
use gateway_core::peer::PeerId;

/// The peers, by address.
#[derive(Debug)]
pub(crate) struct Board {
    /// Tells this process from every other one.
    instance: PeerId,
    entries: Mutex<BTreeMap<SocketAddr, Entry>>,
}

/// What is known of one address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) standing: Standing,
    /// When its last good report arrived.
    pub(crate) heard: Option<Time>,
}

/// What answers at an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    /// Nothing that is understood.
    Down,
    /// This gateway.
    Itself,
    /// A gateway that answers at another address already.
    Twice,
    /// Another gateway.
    Up(PeerId),
}

impl Standing {
    /// Stable name, for the status page.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Itself => "itself",
            Self::Twice => "twice",
            Self::Up(_) => "up",
        }
    }
}

impl Default for Board {
    fn default() -> Self {
        Self { instance: PeerId(fastrand::u64(..)), entries: Mutex::default() }
    }
}

impl Board {
    pub(crate) fn instance(&self) -> PeerId {
        self.instance
    }

    /// Notes that `instance` answered at `address`, and says what it is to this gateway.
    pub(super) fn answered(&self, address: SocketAddr, instance: PeerId, now: Time) -> Standing {
        let mut entries = self.lock();
        let elsewhere = entries
            .iter()
            .any(|(at, entry)| *at != address && entry.standing == Standing::Up(instance));
        let standing = match instance {
            itself if itself == self.instance => Standing::Itself,
            _ if elsewhere => Standing::Twice,
            _ => Standing::Up(instance),
        };
        entries.insert(address, Entry { standing, heard: Some(now) });
        standing
    }

    /// Notes that nothing that is understood answers there.
    pub(super) fn down(&self, address: SocketAddr) {
        let mut entries = self.lock();
        let heard = entries.get(&address).and_then(|entry| entry.heard);
        entries.insert(address, Entry { standing: Standing::Down, heard });
    }

    /// The address is no peer's any more.
    pub(super) fn remove(&self, address: SocketAddr) {
        self.lock().remove(&address);
    }

    /// All addresses with what is known of them.
    pub(crate) fn entries(&self) -> BTreeMap<SocketAddr, Entry> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn one_gateway_at_two_addresses_counts_once() {
        let board = Board::default();
        let other = PeerId(board.instance().0 ^ 1);
        assert_eq!(board.answered(at(1), other, Time::ZERO), Standing::Up(other));
        assert_eq!(board.answered(at(2), other, Time::ZERO), Standing::Twice);
        assert_eq!(board.answered(at(1), other, Time::ZERO), Standing::Up(other));
        board.down(at(1));
        assert_eq!(board.answered(at(2), other, Time::ZERO), Standing::Up(other));
    }

    #[test]
    fn a_gateway_knows_itself() {
        let board = Board::default();
        assert_eq!(board.answered(at(1), board.instance(), Time::ZERO), Standing::Itself);
    }
}
