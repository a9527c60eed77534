//! Closed-loop load: each connection sends its next request when it has its
//! answer. One thread, raw sockets; every answer is checked.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::message;

/// What to send, where, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load<'a> {
    /// Connections are dealt to these in turn.
    pub(crate) targets: &'a [SocketAddr],
    /// Whole requests, sent in turn.
    pub(crate) requests: &'a [Vec<u8>],
    pub(crate) connections: usize,
    /// Discarded beginning.
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// What was measured after the warm-up.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Nanoseconds from the first byte sent to the last received.
    pub(crate) latency: Histogram<u64>,
    pub(crate) elapsed: Duration,
    /// CPU time of the measured process.
    pub(crate) cpu: Duration,
}

/// Runs `load`; `cpu` reads the CPU clock of the process under test.
///
/// # Errors
///
/// On any answer other than the expected one, and on any lost connection.
pub(crate) fn run(load: &Load<'_>, cpu: impl Fn() -> Result<Duration>) -> Result<Outcome> {
    let mut poll = Poll::new()?;
    let mut clients = connect(load, &poll)?;
    let mut driver = Driver {
        requests: load.requests,
        next: 0,
        latency: Histogram::new(3)?,
        scratch: vec![0; 64 * 1024],
    };
    for client in &mut clients {
        driver.begin(client)?;
    }
    driver.drive(&mut poll, &mut clients, load.warm_up)?;
    driver.latency.reset();
    let (started, cpu_before) = (Instant::now(), cpu()?);
    driver.drive(&mut poll, &mut clients, load.measured)?;
    let (elapsed, cpu_after) = (started.elapsed(), cpu()?);
    Ok(Outcome { latency: driver.latency, elapsed, cpu: cpu_after.saturating_sub(cpu_before) })
}

struct Client {
    socket: TcpStream,
    /// Which request is on its way, and how much of it is sent.
    request: usize,
    sent: usize,
    started: Instant,
    received: Vec<u8>,
}

struct Driver<'a> {
    requests: &'a [Vec<u8>],
    next: usize,
    latency: Histogram<u64>,
    scratch: Vec<u8>,
}

impl Driver<'_> {
    fn drive(&mut self, poll: &mut Poll, clients: &mut [Client], time: Duration) -> Result<()> {
        let mut events = Events::with_capacity(256);
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            match poll.poll(&mut events, Some(left)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                self.advance(&mut clients[event.token().0], event)?;
            }
        }
    }

    fn begin(&mut self, client: &mut Client) -> Result<()> {
        client.request = self.next;
        self.next = (self.next + 1) % self.requests.len();
        client.sent = 0;
        client.started = Instant::now();
        self.write(client)
    }

    fn write(&self, client: &mut Client) -> Result<()> {
        let request = &self.requests[client.request];
        while client.sent < request.len() {
            match client.socket.write(&request[client.sent..]) {
                Ok(count) => client.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    return Err(error).context("the connection broke while a request was sent");
                }
            }
        }
        Ok(())
    }

    fn advance(&mut self, client: &mut Client, event: &Event) -> Result<()> {
        if event.is_writable() {
            self.write(client)?;
        }
        loop {
            let count = match client.socket.read(&mut self.scratch) {
                Ok(0) => bail!("the connection was closed under a request"),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("the connection broke under a request"),
            };
            client.received.extend_from_slice(&self.scratch[..count]);
            if message::is_answer(&client.received)? {
                self.latency.record(u64::try_from(client.started.elapsed().as_nanos())?)?;
                client.received.clear();
                self.begin(client)?;
            }
            // A short read has emptied the socket; only an end may still follow.
            if count < self.scratch.len() && !event.is_read_closed() {
                return Ok(());
            }
        }
    }
}

fn connect(load: &Load<'_>, poll: &Poll) -> Result<Vec<Client>> {
    let mut clients = Vec::new();
    for index in 0..load.connections {
        let target = load.targets[index % load.targets.len()];
        let socket = std::net::TcpStream::connect(target)
            .with_context(|| format!("cannot connect to {target}"))?;
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let mut socket = TcpStream::from_std(socket);
        poll.registry().register(
            &mut socket,
            Token(index),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        clients.push(Client {
            socket,
            request: 0,
            sent: 0,
            started: Instant::now(),
            received: Vec::new(),
        });
    }
    Ok(clients)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::upstream::{Settings, Upstream};

    #[test]
    fn every_request_is_answered_and_counted() {
        let upstream =
            Upstream::start(Settings { endpoints: 2, interval: Duration::from_millis(10) })
                .unwrap();
        let requests = message::chat_requests(upstream.addresses()[0], 128 * 1024);
        let load = Load {
            targets: upstream.addresses(),
            requests: &requests,
            connections: 3,
            warm_up: Duration::from_millis(10),
            measured: Duration::from_millis(50),
        };
        let outcome = run(&load, || Ok(Duration::from_secs(1))).unwrap();
        assert!(!outcome.latency.is_empty());
        assert!(outcome.elapsed >= load.measured);
        assert_eq!(outcome.cpu, Duration::ZERO);
    }
}
