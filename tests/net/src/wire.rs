//! A wire that loses, doubles and reorders packets.
//!
//! It is a thread in a namespace of its own, with a socket on each of two interfaces: what
//! comes in by one goes out by the other, in time or not. In user space because the fault
//! must not share a hook, or anything else, with the programs it is to try: a frame that
//! was lost here was on no interface of client, gateway or pod. The kernel's own way, the
//! netem queue, is often not built in, and a program in TC can hold nothing back.
//!
//! Faults are drawn from a seeded generator; with one connection at a time they are the
//! same in every run, but for the kernel's timing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::tap::Tap;
use crate::{Namespace, Offloads, Plug};

/// Longest wait of the thread for anything: how soon it notices that it shall end.
const TICK: Duration = Duration::from_millis(20);

/// Frames on their way at most; what comes on top is lost, as in any queue.
const QUEUE: usize = 4096;

/// What happens to frames. All chances lie between 0 (never) and 1 (always).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Chance to be lost.
    pub loss: f64,
    /// Chance to be delivered twice.
    pub duplicate: f64,
    /// Chance to be held back by [`Faults::held`], so that others overtake it.
    pub reorder: f64,
    /// For how long.
    pub held: Duration,
    /// How long every frame takes.
    pub delay: Duration,
}

/// A running wire; it is cut when dropped.
#[derive(Debug)]
pub struct Wire {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    faults: Mutex<Faults>,
    lost: AtomicU64,
    doubled: AtomicU64,
    held: AtomicU64,
}

impl Default for Faults {
    /// A perfect wire; frames would be held for two milliseconds if they were.
    fn default() -> Self {
        let held = Duration::from_millis(2);
        Self { loss: 0.0, duplicate: 0.0, reorder: 0.0, held, delay: Duration::ZERO }
    }
}

impl Wire {
    /// Joins two plugs by a wire: each gets a cable to the wire's own namespace. Frames on
    /// it look as on a real one, at most one MTU long and with their checksum, because the
    /// offloads of both plugs are switched off.
    pub(crate) fn join(near: &Plug, far: &Plug, faults: Faults, seed: u64) -> Result<Self> {
        let namespace = Namespace::new("wire")?;
        for (plug, end) in [(near, "near"), (far, "far")] {
            plug.namespace.ip(&format!(
                "link add {} type veth peer name {end} netns {}\n{}",
                plug.interface,
                namespace.path(),
                plug.bring_up()
            ))?;
            // The plugs decide how long frames may be.
            namespace.ip(&format!("link set {end} mtu 9000 addrgenmode none up"))?;
            plug.set_offloads(Offloads::Off)?;
        }
        let taps = namespace.run(|| io::Result::Ok([Tap::open("near")?, Tap::open("far")?]));
        let taps = taps.context("cannot tap the ends of the wire")?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            faults: Mutex::new(faults),
            lost: AtomicU64::new(0),
            doubled: AtomicU64::new(0),
            held: AtomicU64::new(0),
        });
        let carrier = Carrier {
            taps,
            shared: Arc::clone(&shared),
            random: fastrand::Rng::with_seed(seed),
            under_way: BinaryHeap::new(),
            count: 0,
            _namespace: namespace,
        };
        let thread = std::thread::Builder::new().name("wire".into());
        let thread = thread.spawn(move || carrier.run()).context("cannot start the wire")?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Changes what happens to frames from now on.
    pub fn set_faults(&self, faults: Faults) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// Frames lost, doubled and held back so far.
    #[must_use]
    pub fn done(&self) -> [u64; 3] {
        let Shared { lost, doubled, held, .. } = &*self.shared;
        [lost, doubled, held].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct Carrier {
    taps: [Tap; 2],
    shared: Arc<Shared>,
    random: fastrand::Rng,
    /// What is to be delivered when and where, the earliest first.
    under_way: BinaryHeap<Reverse<Frame>>,
    count: u64,
    /// The taps' interfaces live as long as it does.
    _namespace: Namespace,
}

/// Ordered by time, then by arrival.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
struct Frame {
    due: Instant,
    number: u64,
    to: usize,
    bytes: Vec<u8>,
}

impl Carrier {
    fn run(mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let next = self.under_way.peek().map(|Reverse(frame)| frame.due);
            let patience =
                next.map_or(TICK, |due| due.saturating_duration_since(Instant::now()).min(TICK));
            // A tap that fails has lost its interface, and the wire its use.
            let Ok(ready) = Tap::wait(&self.taps, patience) else { return };
            let faults = *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner);
            for from in (0..2).filter(|from| ready[*from]) {
                while let Some(bytes) = self.taps[from].receive() {
                    self.take(&bytes, 1 - from, &faults);
                }
            }
            self.deliver();
        }
    }

    fn take(&mut self, bytes: &[u8], to: usize, faults: &Faults) {
        let Shared { lost, doubled, held, .. } = &*self.shared;
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        if self.random.f64() < faults.loss || self.under_way.len() >= QUEUE {
            count(lost);
            return;
        }
        let now = Instant::now();
        let copies = if self.random.f64() < faults.duplicate {
            count(doubled);
            2
        } else {
            1
        };
        for _ in 0..copies {
            let mut due = now + faults.delay;
            if self.random.f64() < faults.reorder {
                count(held);
                due += faults.held;
            }
            self.count += 1;
            let frame = Frame { due, number: self.count, to, bytes: bytes.to_vec() };
            self.under_way.push(Reverse(frame));
        }
    }

    fn deliver(&mut self) {
        let now = Instant::now();
        while self.under_way.peek().is_some_and(|Reverse(frame)| frame.due <= now) {
            let Some(Reverse(frame)) = self.under_way.pop() else { return };
            // A full queue loses frames; TCP sends them again.
            let _ = self.taps[frame.to].send(&frame.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    /// Bytes that no shift of themselves equals.
    fn content(length: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(1);
        std::iter::repeat_with(|| random.u8(..)).take(length).collect()
    }

    /// Sends half a megabyte from the pod to the client.
    fn transfer(net: &Network) {
        let listen = || TcpListener::bind((net.pods[0].address(), 0)).unwrap();
        let listener = net.pods[0].namespace.run(listen);
        let target = listener.local_addr().unwrap();
        let mut receiver = net.client.run(|| TcpStream::connect(target)).unwrap();
        let sender = std::thread::spawn(move || {
            listener.accept().unwrap().0.write_all(&content(500_000)).unwrap();
        });
        let mut arrived = Vec::new();
        receiver.read_to_end(&mut arrived).unwrap();
        sender.join().unwrap();
        assert!(arrived == content(500_000), "{} bytes arrived", arrived.len());
    }

    #[test]
    fn a_perfect_wire_does_nothing_to_frames() {
        if !Namespace::can_be_made() {
            return;
        }
        let net = Network::over_wires(1, Faults::default(), 7).unwrap();
        transfer(&net);
        assert!(net.cables().all(|cable| cable.wire.as_ref().unwrap().done() == [0, 0, 0]));
    }

    #[test]
    fn tcp_carries_every_byte_over_a_bad_wire() {
        if !Namespace::can_be_made() {
            return;
        }
        let faults = Faults { loss: 0.01, duplicate: 0.05, reorder: 0.1, ..Faults::default() };
        let net = Network::over_wires(1, faults, 7).unwrap();
        transfer(&net);
        for cable in net.cables() {
            let done = cable.wire.as_ref().unwrap().done();
            assert!(done.iter().all(|count| *count > 0), "{done:?}");
        }
    }

    #[test]
    fn a_wire_can_be_cut_and_mended() {
        if !Namespace::can_be_made() {
            return;
        }
        let net = Network::over_wires(1, Faults::default(), 7).unwrap();
        let wire = net.cable.wire.as_ref().unwrap();
        wire.set_faults(Faults { loss: 1.0, ..Faults::default() });
        let closed = (net.pods[0].address(), 9).into();
        let connect = |patience| {
            net.client.run(|| TcpStream::connect_timeout(&closed, patience)).unwrap_err().kind()
        };
        assert_eq!(connect(Duration::from_millis(100)), io::ErrorKind::TimedOut);
        wire.set_faults(Faults::default());
        // Somebody is there, and refuses.
        assert_eq!(connect(Duration::from_secs(20)), io::ErrorKind::ConnectionRefused);
    }
}
