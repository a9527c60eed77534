//! Clients of streamed answers: how late does each chunk come?
//!
//! Open loop by nature: the server's clock sets the pace, so a slow proxy shows
//! as latency or as missing chunks, never as a slower test.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Poll, Token};

use super::event::{self, Events};
use super::message::{self, Pacing};

/// What to open, where, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streams<'a> {
    /// Streams are dealt to these in turn.
    pub(crate) targets: &'a [SocketAddr],
    pub(crate) count: usize,
    pub(crate) pacing: Pacing,
    /// Discarded beginning, counted from when all streams are open.
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// What was measured after the warm-up.
#[derive(Debug)]
pub(crate) struct Outcome<T> {
    /// Nanoseconds from the server's write to the client's read.
    pub(crate) latency: Histogram<u64>,
    pub(crate) elapsed: Duration,
    /// What `sample` read at the beginning and at the end of the measured time.
    pub(crate) before: T,
    pub(crate) after: T,
}

/// Opens the streams and reads them; `sample` looks at the process under test.
///
/// # Errors
///
/// On any answer but 200, any lost, repeated or disordered event, and any stream
/// that ends.
pub(crate) fn run<T>(streams: &Streams<'_>, sample: impl Fn() -> Result<T>) -> Result<Outcome<T>> {
    let mut reader = Reader::open(streams)?;
    reader.read_for(streams.warm_up)?;
    reader.check_all_open()?;
    reader.latency.reset();
    let (started, before) = (Instant::now(), sample()?);
    reader.read_for(streams.measured)?;
    let (elapsed, after) = (started.elapsed(), sample()?);
    Ok(Outcome { latency: reader.latency, elapsed, before, after })
}

struct Client {
    socket: TcpStream,
    /// The response head so far; `None` once it was read and was a 200.
    head: Option<Vec<u8>>,
    events: Events,
}

struct Reader {
    poll: Poll,
    clients: Vec<Client>,
    latency: Histogram<u64>,
    scratch: Vec<u8>,
}

impl Reader {
    fn open(streams: &Streams<'_>) -> Result<Self> {
        let poll = Poll::new()?;
        let mut reader = Self {
            poll,
            clients: Vec::new(),
            latency: Histogram::new(3)?,
            scratch: vec![0; 64 * 1024],
        };
        for index in 0..streams.count {
            let target = streams.targets[index % streams.targets.len()];
            let mut socket = std::net::TcpStream::connect(target)
                .with_context(|| format!("cannot connect to {target}"))?;
            socket.write_all(&message::stream_request(target, streams.pacing))?;
            socket.set_nonblocking(true)?;
            let mut socket = TcpStream::from_std(socket);
            reader.poll.registry().register(&mut socket, Token(index), Interest::READABLE)?;
            reader.clients.push(Client {
                socket,
                head: Some(Vec::new()),
                events: Events::default(),
            });
            // Streams already open are read on, or their chunks would pile up.
            reader.read_for(Duration::from_micros(200))?;
        }
        Ok(reader)
    }

    fn read_for(&mut self, time: Duration) -> Result<()> {
        let mut ready = mio::Events::with_capacity(256);
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            match self.poll.poll(&mut ready, Some(left)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &ready {
                self.read(event)?;
            }
        }
    }

    fn read(&mut self, event: &Event) -> Result<()> {
        let client = &mut self.clients[event.token().0];
        loop {
            let count = match client.socket.read(&mut self.scratch) {
                Ok(0) => bail!("a stream ended early"),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("a stream broke"),
            };
            let now = event::now();
            let mut bytes = &self.scratch[..count];
            if let Some(head) = &mut client.head {
                head.extend_from_slice(bytes);
                let Some(parsed) = message::response_head(head)? else { continue };
                if parsed.status != 200 {
                    bail!("a stream was refused: {}", String::from_utf8_lossy(head));
                }
                bytes = &bytes[count + parsed.bytes - head.len()..];
                client.head = None;
            }
            let latency = &mut self.latency;
            client.events.feed(bytes, |sent| {
                let late = now.saturating_sub(sent);
                Ok(latency.record(u64::try_from(late.as_nanos())?)?)
            })?;
            // A short read has emptied the socket; only an end may still follow.
            if count < self.scratch.len() && !event.is_read_closed() {
                return Ok(());
            }
        }
    }

    fn check_all_open(&self) -> Result<()> {
        let waiting = self.clients.iter().filter(|client| client.head.is_some()).count();
        if waiting > 0 {
            bail!("{waiting} of {} streams did not start in time", self.clients.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::upstream::{Settings, Upstream};

    #[test]
    fn every_chunk_of_every_stream_arrives() {
        let interval = Duration::from_millis(5);
        let upstream = Upstream::start(Settings { endpoints: 2, interval }).unwrap();
        let streams = Streams {
            targets: upstream.addresses(),
            count: 4,
            pacing: Pacing::Even,
            warm_up: Duration::from_millis(50),
            measured: Duration::from_millis(500),
        };
        let outcome = run(&streams, || Ok(())).unwrap();
        // 4 streams for 100 intervals; a busy machine may delay the edges.
        assert!((200..=440).contains(&outcome.latency.len()), "{}", outcome.latency.len());
        // Between a system call and the life of the whole test, in nanoseconds.
        assert!((500..1_000_000_000).contains(&outcome.latency.max()), "{}", outcome.latency.max());
    }

    #[test]
    fn a_refused_stream_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = [listener.local_addr().unwrap()];
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").unwrap();
            // Held until the client has gone, so that the answer is not cut off.
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let patience = Duration::from_secs(5);
        let streams = Streams {
            targets: &target,
            count: 1,
            pacing: Pacing::Even,
            warm_up: patience,
            measured: patience,
        };
        let error = run(&streams, || Ok(())).unwrap_err();
        assert!(error.to_string().contains("503"), "{error}");
        server.join().unwrap();
    }
}
