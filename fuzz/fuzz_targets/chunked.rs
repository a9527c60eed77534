//! Boundaries of a chunked body do not depend on the split; data is what a naive
//! decoder finds; the kernel's limits refuse no more than user space's.
#![no_main]

use gateway_common::chunked::{ChunkTracker, Kind, Limits};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Default, PartialEq)]
struct Seen {
    data: Vec<u8>,
    boundaries: Vec<usize>,
    end: Option<usize>,
    lost: bool,
}

fn watch<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: Limits) -> Seen {
    let mut tracker = ChunkTracker::with_limits(limits);
    let (mut seen, mut at) = (Seen::default(), 0);
    for mut piece in pieces {
        while !piece.is_empty() {
            let step = tracker.next(piece);
            at += step.consumed;
            match step.kind {
                Kind::ChunkEnd => seen.boundaries.push(at),
                Kind::Data => seen.data.extend_from_slice(&piece[..step.consumed]),
                Kind::End => {
                    seen.end = Some(at);
                    return seen;
                }
                Kind::Lost => {
                    seen.lost = true;
                    return seen;
                }
                Kind::Framing | Kind::Trailer => assert!(step.consumed > 0),
            }
            assert_eq!(tracker.at_boundary(), step.kind == Kind::ChunkEnd);
            piece = &piece[step.consumed..];
        }
    }
    seen
}

/// Data of a whole valid body.
fn decode(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        let line = body.windows(2).position(|pair| pair == b"\r\n")?;
        let digits = body[..line].split(|&b| b == b';').next()?;
        let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        if size == 0 {
            return Some(data);
        }
        body = &body[line + 2..];
        data.extend_from_slice(body.get(..size)?);
        body = body.get(size + 2..)?;
    }
}

fuzz_target!(|input: &[u8]| {
    let (whole, pieces) = gateway_fuzz::cut(input);
    let seen = watch([whole], Limits::USER);
    assert_eq!(watch(pieces, Limits::USER), seen);
    if seen.end.is_some() {
        assert_eq!(decode(whole).as_deref(), Some(&seen.data[..]));
    }
    let kernel = watch([whole], Limits::KERNEL);
    assert!(kernel.lost || kernel == seen);
});
