//! One connection of the mock model server: request framing and unsent bytes.

use std::io::{self, Write};

use mio::net::TcpStream;

use crate::bench::message::Pacing;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The constant completion.
    Answer,
    Metrics,
    Stream(Pacing),
    /// Anything else, and requests this server cannot frame.
    Unknown,
}

/// A connection and where it stands in its current request.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: TcpStream,
    /// Which endpoint the client connected to.
    pub(super) endpoint: usize,
    /// Number of the stream's next chunk.
    pub(super) number: u64,
    reading: Reading,
    unsent: Vec<u8>,
}

/// Where the reader stands; split from the socket so that it can be tested.
#[derive(Debug, Default)]
struct Reading {
    head: Vec<u8>,
    /// Set once the head is complete: what was asked, body bytes still to come.
    body: Option<(Asked, usize)>,
}

impl Connection {
    pub(super) fn new(socket: TcpStream, endpoint: usize) -> Self {
        Self { socket, endpoint, number: 0, reading: Reading::default(), unsent: Vec::new() }
    }

    /// Consumes `bytes` up to the end of one request; says what it asked once it
    /// is complete.
    pub(super) fn feed(&mut self, bytes: &mut &[u8]) -> Option<Asked> {
        self.reading.feed(bytes)
    }

    /// Writes what the socket takes and keeps the rest.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        if self.unsent.is_empty() {
            sent = write_some(&mut self.socket, bytes)?;
        }
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Writes what was kept.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.unsent.is_empty() {
            let sent = write_some(&mut self.socket, &self.unsent)?;
            self.unsent.drain(..sent);
        }
        Ok(())
    }
}

impl Reading {
    fn feed(&mut self, bytes: &mut &[u8]) -> Option<Asked> {
        if self.body.is_none() {
            let searched = self.head.len().saturating_sub(3);
            let before = self.head.len();
            self.head.extend_from_slice(bytes);
            let end = memchr::memmem::find(&self.head[searched..], b"\r\n\r\n")
                .map(|at| searched + at + 4);
            *bytes = end.map_or(&[], |end| &bytes[end - before..]);
            self.head.truncate(end?);
            self.body = Some(read_head(&self.head));
            self.head.clear();
        }
        let (asked, missing) = self.body.as_mut()?;
        let taken = bytes.len().min(*missing);
        *bytes = &bytes[taken..];
        *missing -= taken;
        if *missing > 0 {
            return None;
        }
        let asked = *asked;
        self.body = None;
        Some(asked)
    }
}

/// What a request head asks for, and the length of its body.
fn read_head(head: &[u8]) -> (Asked, usize) {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    if request.parse(head).is_err() {
        return (Asked::Unknown, 0);
    }
    let mut asked = match (request.method, request.path) {
        (Some("POST"), _) | (_, Some("/health")) => Asked::Answer,
        (_, Some("/metrics")) => Asked::Metrics,
        _ => Asked::Unknown,
    };
    let mut length = 0;
    let (mut streamed, mut pacing) = (false, Pacing::Steps);
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            length = std::str::from_utf8(header.value)
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
        } else if header.name.eq_ignore_ascii_case("accept") && header.value == b"text/event-stream"
        {
            streamed = true;
        } else if header.name == "x-pacing" && header.value == Pacing::Even.name().as_bytes() {
            pacing = Pacing::Even;
        }
    }
    if streamed {
        asked = Asked::Stream(pacing);
    }
    (asked, length)
}

fn write_some(socket: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.write(&bytes[sent..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: &[u8] = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello";
    const STREAM: &[u8] =
        b"POST /v1/x HTTP/1.1\r\nx-pacing: even\r\naccept: text/event-stream\r\ncontent-length: 2\r\n\r\n{}";
    const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n";

    fn asked(stream: &[u8], piece: usize) -> Vec<Asked> {
        let (mut reading, mut all) = (Reading::default(), Vec::new());
        for mut bytes in stream.chunks(piece) {
            while let Some(asked) = reading.feed(&mut bytes) {
                all.push(asked);
            }
        }
        all
    }

    #[test]
    fn requests_are_framed_however_they_are_cut() {
        let stream = [POST, STREAM, SCRAPE, POST, b"GET /none HTTP/1.1\r\n\r\n"].concat();
        let expected = [
            Asked::Answer,
            Asked::Stream(Pacing::Even),
            Asked::Metrics,
            Asked::Answer,
            Asked::Unknown,
        ];
        for piece in [1, 2, 7, 60, stream.len()] {
            assert_eq!(asked(&stream, piece), expected, "pieces of {piece}");
        }
    }

    #[test]
    fn an_answer_waits_for_the_whole_body() {
        assert_eq!(asked(&POST[..POST.len() - 1], 4096), []);
    }
}
