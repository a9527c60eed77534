//! Answers that go from socket to socket.

use std::path::Path;

use anyhow::Result;
use aya::maps::{Array, PerCpuArray};
use gateway_common::sk_msg::{Counters, STOPS, STREAMS, Stop, Stream, Word};
use serde::Serialize;

use super::report::{Count, map};

/// Connections to endpoints, and what was counted on them.
#[derive(Debug, Serialize)]
pub(super) struct Streams {
    pub(super) shown: Vec<StreamRow>,
    pub(super) more: usize,
    pub(super) counts: Vec<Count>,
    /// Send calls on armed streams that went through the daemon, by reason.
    pub(super) stops: Vec<Count>,
}

/// A connection to an endpoint.
#[derive(Debug, Eq, PartialEq, Serialize)]
pub(super) struct StreamRow {
    pub(super) stream: u32,
    /// Whether the endpoint's socket is enrolled, or why not.
    pub(super) socket: String,
    pub(super) armed: bool,
    pub(super) chunks: u64,
    pub(super) bytes: u64,
    /// Why the last call that the kernel did not move was not.
    pub(super) stop: &'static str,
}

/// Reads the maps; at most `most` streams are shown.
///
/// # Errors
///
/// The maps cannot be read.
pub(super) fn read(maps: &Path, most: usize) -> Result<Streams> {
    let streams = Array::<_, Stream>::try_from(map(maps, "msg_streams")?)?;
    let counters = PerCpuArray::<_, Counters>::try_from(map(maps, "msg_counts")?)?.get(&0, 0)?;
    let mut shown = Vec::new();
    for number in 1..STREAMS {
        let stream = streams.get(&number, 0)?;
        if stream.cookie != 0 {
            shown.push(stream_row(number, &stream));
        }
    }
    let more = shown.len().saturating_sub(most);
    shown.truncate(most);
    let sum = |of: fn(&Counters) -> u64| counters.iter().map(of).sum::<u64>();
    let counts = [
        ("endpoints' sockets enrolled", sum(|counters| counters.enrolled)),
        ("endpoints' sockets refused", sum(|counters| counters.refused)),
        ("send calls moved", sum(|counters| counters.moved)),
        ("bytes moved", sum(|counters| counters.moved_bytes)),
        ("chunks moved", sum(|counters| counters.moved_chunks)),
        ("send calls of answers that were not armed", sum(|counters| counters.passed)),
    ];
    let stops = (1..STOPS).map(|code| Count {
        name: Stop::name(code as u32),
        count: counters.iter().map(|counters| counters.stops[code]).sum(),
    });
    let counts = counts.map(|(name, count)| Count { name, count }).into();
    Ok(Streams { shown, more, counts, stops: stops.collect() })
}

fn stream_row(number: u32, stream: &Stream) -> StreamRow {
    let socket = match stream.state {
        Stream::ENROLLED => "enrolled".to_owned(),
        Stream::REFUSED => {
            let error = std::io::Error::from_raw_os_error(stream.error.cast_signed());
            format!("refused: {error}")
        }
        _ => "not on this node".to_owned(),
    };
    StreamRow {
        stream: number,
        socket,
        armed: Word::unpack(stream.word).armed,
        chunks: stream.chunks,
        bytes: stream.bytes,
        stop: Stop::name(stream.stop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_socket_is_listed_with_the_kernels_reason() {
        let busy = Stream { cookie: 1, state: Stream::REFUSED, error: 16, ..Stream::default() };
        let row = stream_row(1, &busy);
        assert!(row.socket.starts_with("refused: ") && !row.armed, "{row:?}");
        let word = Word { armed: true, ..Word::default() }.pack();
        let on = Stream { word, state: Stream::ENROLLED, stop: 5, bytes: 9, ..Stream::default() };
        let row = stream_row(7, &on);
        assert_eq!((row.stream, &*row.socket, row.armed), (7, "enrolled", true));
        assert_eq!((row.chunks, row.bytes, row.stop), (0, 9, "no credit"));
    }
}
