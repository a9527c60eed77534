//! The model server behind every path: answers at once, streams on time.
//!
//! One thread, raw sockets, no framework, so that as little as possible of the
//! machine's two cores goes to what is not measured. It reads a request body to
//! its end before it answers: an early answer (what nginx's `return` gives) is
//! another, rarer road through a proxy.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mio::event::Event;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};

use super::event::{self, Frame};
use super::message::{self, Pacing};
use connection::{Asked, Connection};
use pace::Pace;
use page::Page;
use timer::Timer;

mod connection;
mod pace;
mod page;
mod timer;

/// How the server behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Addresses to listen on, one per endpoint.
    pub(crate) endpoints: usize,
    /// Time between two chunks of one stream.
    pub(crate) interval: Duration,
}

/// A running server; stops when dropped.
#[derive(Debug)]
pub(crate) struct Upstream {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    scrapes: AtomicU64,
    /// Time between two chunks of one stream, in nanoseconds.
    interval: AtomicU64,
}

impl Upstream {
    /// Listens on free loopback ports and serves until dropped.
    pub(crate) fn start(settings: Settings) -> Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST, settings)
    }

    /// Listens on free ports of an address and serves until dropped.
    ///
    /// # Errors
    ///
    /// When the address is not one of the calling thread's network namespace.
    pub(crate) fn start_at(address: Ipv4Addr, settings: Settings) -> Result<Self> {
        let poll = Poll::new()?;
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for index in 0..settings.endpoints {
            let mut listener = TcpListener::bind(SocketAddr::from((address, 0)))?;
            addresses.push(listener.local_addr()?);
            poll.registry().register(&mut listener, Token(index), Interest::READABLE)?;
            listeners.push(listener);
        }
        let waker = Waker::new(poll.registry(), Token(settings.endpoints))?;
        let shared = Arc::new(Shared::default());
        shared.set_interval(settings.interval);
        let server = Server::new(poll, listeners, Arc::clone(&shared))?;
        let thread =
            std::thread::Builder::new().name("upstream".into()).spawn(move || server.run())?;
        Ok(Self { addresses, shared, waker, thread: Some(thread) })
    }

    /// One address per endpoint.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Sets the time between two chunks of each stream from now on.
    pub(crate) fn set_interval(&self, interval: Duration) {
        self.shared.set_interval(interval);
    }

    /// Metrics pages served so far, all endpoints together.
    pub(crate) fn scrapes(&self) -> u64 {
        self.shared.scrapes.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn set_interval(&self, interval: Duration) {
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        self.interval.store(nanos, Ordering::Relaxed);
    }

    fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval.load(Ordering::Relaxed))
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let woken = self.waker.wake().context("cannot wake the upstream");
        let ended = self.thread.take().map(JoinHandle::join);
        if !matches!((woken, ended), (Ok(()), Some(Ok(Ok(()))))) {
            eprintln!("warning: the upstream server ended with an error");
        }
    }
}

struct Server {
    poll: Poll,
    listeners: Vec<TcpListener>,
    connections: HashMap<usize, Connection>,
    next_token: usize,
    timer: Timer,
    /// When which stream's next chunk is due.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    pace: Pace,
    frame: Frame,
    answer: Vec<u8>,
    page: Page,
    shared: Arc<Shared>,
}

impl Server {
    fn new(poll: Poll, listeners: Vec<TcpListener>, shared: Arc<Shared>) -> io::Result<Self> {
        // The token between the listeners' and this one is the waker's.
        let timer_token = listeners.len() + 1;
        Ok(Self {
            timer: Timer::register(poll.registry(), Token(timer_token))?,
            next_token: timer_token + 1,
            answer: whole("application/json", message::ANSWER.as_bytes()),
            page: Page::new(),
            connections: HashMap::new(),
            due: BinaryHeap::new(),
            pace: Pace::new(listeners.len()),
            frame: Frame::new(),
            poll,
            listeners,
            shared,
        })
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        let mut scratch = vec![0; 64 * 1024];
        while !self.shared.stop.load(Ordering::Relaxed) {
            if let Some(&Reverse((due, _))) = self.due.peek() {
                self.timer.arm(due)?;
            }
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                let token = event.token().0;
                if token < self.listeners.len() {
                    self.accept(token)?;
                } else if !self.serve(token, event, &mut scratch) {
                    self.connections.remove(&token);
                }
            }
            self.send_due_chunks();
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        loop {
            let mut socket = match self.listeners[listener].accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            socket.set_nodelay(true)?;
            let token = self.next_token;
            self.next_token += 1;
            self.poll.registry().register(
                &mut socket,
                Token(token),
                Interest::READABLE | Interest::WRITABLE,
            )?;
            self.connections.insert(token, Connection::new(socket, listener));
        }
    }

    /// Handles readiness of one connection; false when it is over.
    fn serve(&mut self, token: usize, event: &Event, scratch: &mut [u8]) -> bool {
        let Some(connection) = self.connections.get_mut(&token) else { return true };
        if event.is_writable() && connection.flush().is_err() {
            return false;
        }
        loop {
            let count = match connection.socket.read(scratch) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            };
            let mut rest = &scratch[..count];
            while let Some(asked) = connection.feed(&mut rest) {
                let sent = match asked {
                    Asked::Answer => connection.send(&self.answer),
                    Asked::Metrics => {
                        self.shared.scrapes.fetch_add(1, Ordering::Relaxed);
                        connection.send(self.page.render(!self.due.is_empty()))
                    }
                    Asked::Stream(pacing) => {
                        connection.number = 0;
                        let interval = self.shared.interval();
                        let first = match pacing {
                            Pacing::Even => self.pace.spread(interval),
                            Pacing::Steps => self.pace.step(connection.endpoint, interval),
                        };
                        self.due.push(Reverse((first, token)));
                        connection.send(STREAM_HEAD)
                    }
                    Asked::Unknown => connection.send(NOT_FOUND),
                };
                if sent.is_err() {
                    return false;
                }
            }
            // A short read has emptied the socket; only an end may still follow.
            if count < scratch.len() && !event.is_read_closed() {
                return true;
            }
        }
    }

    fn send_due_chunks(&mut self) {
        let interval = self.shared.interval();
        // Once each: one that falls behind must still read requests.
        for _ in 0..self.due.len() {
            let Some(&Reverse((due, token))) = self.due.peek() else { return };
            if due > Instant::now() {
                return;
            }
            self.due.pop();
            let Some(connection) = self.connections.get_mut(&token) else { continue };
            let frame = self.frame.stamp(connection.number, event::now());
            connection.number += 1;
            match connection.send(frame) {
                Ok(()) => self.due.push(Reverse((due + interval, token))),
                Err(_) => drop(self.connections.remove(&token)),
            }
        }
    }
}

const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";

fn whole(content_type: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}
