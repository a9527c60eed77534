//! The streamed event: 256 bytes that say when they were written.
//!
//! Server and client are threads of one process and read one clock, so the time
//! a chunk took in one direction is a subtraction.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use gateway_common::chunked::{ChunkTracker, Kind};

use super::message::EVENT_BYTES;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

const HEAD: &str =
    r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"bench","n":""#;
const NUMBER_DIGITS: usize = 10;
const TIME_KEY: &str = r#"","t":""#;
const TIME_DIGITS: usize = 19;
const CONTENT: &str = r#"","choices":[{"index":0,"delta":{"content":""#;
const TAIL: &str = "\"},\"finish_reason\":null}]}\n\n";

/// Time since the first call, on the clock that server and client share.
pub(crate) fn now() -> Duration {
    START.elapsed()
}

/// One event in HTTP chunked framing, ready to be stamped and sent.
#[derive(Debug)]
pub(crate) struct Frame {
    bytes: Vec<u8>,
    number_at: usize,
}

impl Frame {
    pub(crate) fn new() -> Self {
        let framing = format!("{EVENT_BYTES:x}\r\n");
        let fixed =
            HEAD.len() + NUMBER_DIGITS + TIME_KEY.len() + TIME_DIGITS + CONTENT.len() + TAIL.len();
        let number_at = framing.len() + HEAD.len();
        let bytes = format!(
            "{framing}{HEAD}{:0NUMBER_DIGITS$}{TIME_KEY}{:0TIME_DIGITS$}{CONTENT}{}{TAIL}\r\n",
            0,
            0,
            "x".repeat(EVENT_BYTES - fixed)
        );
        Self { bytes: bytes.into_bytes(), number_at }
    }

    /// The frame's bytes, numbered and carrying the time `sent`.
    pub(crate) fn stamp(&mut self, number: u64, sent: Duration) -> &[u8] {
        let number_end = self.number_at + NUMBER_DIGITS;
        write_digits(&mut self.bytes[self.number_at..number_end], number);
        let time_at = number_end + TIME_KEY.len();
        write_digits(&mut self.bytes[time_at..time_at + TIME_DIGITS], nanos(sent));
        &self.bytes
    }
}

/// Finds the events in a stream, however a proxy cut or framed it.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// A proxy may cut an event into several chunks.
    tracker: ChunkTracker,
    pending: Vec<u8>,
    next: u64,
}

impl Events {
    /// Takes in received bytes of a chunked body and calls `seen` with each event's
    /// time of sending; an error of `seen` is passed on.
    ///
    /// # Errors
    ///
    /// When an event is missing, repeated or out of order, or the framing is broken.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        mut seen: impl FnMut(Duration) -> Result<()>,
    ) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let step = self.tracker.next(rest);
            let (piece, after) = rest.split_at(step.consumed);
            match step.kind {
                Kind::Data => self.pending.extend_from_slice(piece),
                Kind::End => bail!("the stream ended"),
                Kind::Lost => bail!("damaged chunk: {}", String::from_utf8_lossy(rest)),
                Kind::ChunkEnd | Kind::Framing | Kind::Trailer => {}
            }
            rest = after;
        }
        let length = HEAD.len() + NUMBER_DIGITS + TIME_KEY.len() + TIME_DIGITS;
        let mut done = 0;
        while let Some(at) = memchr::memmem::find(&self.pending[done..], b"data: ") {
            let Some(event) = self.pending[done + at..].get(..length) else { break };
            let number = read_digits(&event[HEAD.len()..HEAD.len() + NUMBER_DIGITS]);
            let sent = read_digits(&event[length - TIME_DIGITS..]);
            let (Some(number), Some(sent)) = (number, sent) else {
                bail!("damaged event: {}", String::from_utf8_lossy(event));
            };
            if number != self.next {
                bail!("event {number} came where {} was due", self.next);
            }
            self.next += 1;
            done += at + length;
            seen(Duration::from_nanos(sent))?;
        }
        self.pending.drain(..done);
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn write_digits(place: &mut [u8], mut value: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

fn read_digits(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_json_of_256_bytes_in_one_chunk() {
        let mut frame = Frame::new();
        let bytes = frame.stamp(7, Duration::from_nanos(123)).to_vec();
        let text = String::from_utf8(bytes).unwrap();
        let event = text.strip_prefix("100\r\n").unwrap().strip_suffix("\r\n").unwrap();
        assert_eq!(event.len(), EVENT_BYTES);
        let json = event.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!((&json["n"], &json["t"]), (&"0000000007".into(), &"0000000000000000123".into()));
    }

    #[test]
    fn events_are_found_however_the_stream_is_cut() {
        let mut frame = Frame::new();
        let mut stream = Vec::new();
        for number in 0..5 {
            stream.extend_from_slice(frame.stamp(number, Duration::from_nanos(number * 1000)));
        }
        for size in [1, 3, 100, 1000, stream.len()] {
            let (mut events, mut times) = (Events::default(), Vec::new());
            for piece in stream.chunks(size) {
                let seen = |sent: Duration| {
                    times.push(sent.as_nanos());
                    Ok(())
                };
                events.feed(piece, seen).unwrap();
            }
            assert_eq!(times, [0, 1000, 2000, 3000, 4000], "pieces of {size}");
        }
    }

    #[test]
    fn a_lost_event_is_an_error() {
        let mut frame = Frame::new();
        let mut events = Events::default();
        events.feed(frame.stamp(0, Duration::ZERO), |_| Ok(())).unwrap();
        let error = events.feed(frame.stamp(2, Duration::ZERO), |_| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "event 2 came where 1 was due");
    }
}
