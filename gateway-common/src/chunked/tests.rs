//! Boundaries in hand-made streams, and against a naive decoder.

extern crate std;

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

/// What a body turned out to be: its data, and the offsets of its boundaries.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    data: Vec<u8>,
    boundaries: Vec<usize>,
    trailers: Vec<u8>,
    end: Option<usize>,
    lost: bool,
}

fn watch<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: Limits) -> Seen {
    let mut tracker = ChunkTracker::with_limits(limits);
    let mut seen = Seen::default();
    let mut at = 0;
    for mut piece in pieces {
        while !piece.is_empty() {
            let step = tracker.next(piece);
            at += step.consumed;
            let (part, rest) = piece.split_at(step.consumed);
            match step.kind {
                Kind::ChunkEnd => seen.boundaries.push(at),
                Kind::Data => seen.data.extend_from_slice(part),
                Kind::End => {
                    seen.trailers.extend_from_slice(part);
                    seen.end = Some(at);
                    return seen;
                }
                Kind::Framing => {}
                Kind::Lost => {
                    seen.lost = true;
                    return seen;
                }
                Kind::Trailer => seen.trailers.extend_from_slice(part),
            }
            piece = rest;
        }
    }
    seen
}

fn whole(body: &[u8]) -> Seen {
    watch([body], Limits::USER)
}

#[test]
fn data_and_boundaries_are_found() {
    let seen = whole(b"5\r\nhello\r\n1;x=\"y z\"\r\n!\r\n0\r\n\r\nGET /");
    assert_eq!(seen.data, b"hello!");
    assert_eq!(seen.boundaries, [10, 24]);
    assert_eq!(seen.end, Some(29));
}

#[test]
fn trailers_belong_to_the_message() {
    let seen = whole(b"0\r\nx-checksum: 1\r\ny:\r\n\r\nrest");
    assert_eq!(seen.trailers, b"x-checksum: 1\r\ny:\r\n\r\n");
    assert_eq!(seen.end, Some(24));
}

#[test]
fn lenient_framing_is_refused() {
    for body in [
        &b"5\nhello\r\n"[..],
        b" 5\r\nhello\r\n",
        b"5 \r\nhello\r\n",
        b"\r\n",
        b"-1\r\n",
        b"0x5\r\nhello\r\n",
        b"5\r\nhelloX",
        b"5\r\nhello\n",
        b"5;a\nb\r\n",
        b"5;\x00\r\n",
        b"5\rX",
        b"12345678123456781\r\n",
        b"0\r\n folded: 1\r\n\r\n",
        b"0\r\nno-colon\r\n\r\n",
        b"0\r\nname : 1\r\n\r\n",
        b"0\r\na: b\n\r\n",
        b"0\r\n\rX",
    ] {
        assert!(whole(body).lost, "{}", body.escape_ascii());
    }
}

#[test]
fn the_largest_size_is_64_bits() {
    let mut tracker = ChunkTracker::new();
    tracker.next(b"FFFFFFFFFFFFFFFF\r\n");
    assert_eq!(tracker.remaining(), u64::MAX);
    assert_eq!(tracker.next(b"abc"), Step { consumed: 3, kind: Kind::Data });
}

#[test]
fn size_lines_and_trailers_are_bounded() {
    let line = b"1;abcdefghijklmnop\r\n";
    assert!(watch([&line[..]], Limits::KERNEL).lost);
    assert!(!watch([&line[..]], Limits::USER).lost);
    let mut trailers = b"0\r\n".to_vec();
    for _ in 0..2_000 {
        trailers.extend_from_slice(b"a: b\r\n");
    }
    assert!(whole(&trailers).lost);
}

#[test]
fn a_boundary_is_only_between_chunks() {
    let mut tracker = ChunkTracker::new();
    assert!(tracker.at_boundary());
    tracker.next(b"2\r");
    assert!(!tracker.at_boundary());
    tracker.next(b"\n");
    tracker.next(b"ab");
    assert!(!tracker.at_boundary());
    tracker.next(b"\r\n");
    assert!(tracker.at_boundary());
    tracker.next(b"0\r\n");
    assert!(!tracker.at_boundary());
    tracker.next(b"\r\n");
    assert!(tracker.is_complete());
}

/// A decoder that sees the whole body at once; for valid bodies only.
fn decode(mut body: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    loop {
        let line = body.windows(2).position(|w| w == b"\r\n").unwrap();
        let digits = body[..line].split(|&b| b == b';').next().unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        if size == 0 {
            return data;
        }
        data.extend_from_slice(&body[line + 2..line + 2 + size]);
        body = &body[line + 2 + size + 2..];
    }
}

fn encoded() -> impl Strategy<Value = Vec<u8>> {
    let chunk = (prop::collection::vec(any::<u8>(), 1..40), "(;[a-z =\"]{0,8})?");
    prop::collection::vec(chunk, 0..6).prop_map(|chunks| {
        let mut body = Vec::new();
        for (data, extension) in chunks {
            body.extend_from_slice(std::format!("{:x}{extension}\r\n", data.len()).as_bytes());
            body.extend_from_slice(&data);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\nt: 1\r\n\r\n");
        body
    })
}

/// Cuts `body` after lengths taken from `lengths`, over and over.
fn cut<'a>(mut body: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut lengths = lengths.iter().cycle();
    while !body.is_empty() {
        let len = (*lengths.next().unwrap()).clamp(1, body.len());
        let (piece, rest) = body.split_at(len);
        pieces.push(piece);
        body = rest;
    }
    pieces
}

proptest! {
    #[test]
    fn valid_bodies_decode_like_the_naive_decoder(body in encoded()) {
        let seen = whole(&body);
        prop_assert_eq!(&seen.data, &decode(&body));
        prop_assert_eq!(seen.end, Some(body.len()));
    }

    #[test]
    fn any_split_gives_the_same_boundaries(
        body in encoded(),
        lengths in prop::collection::vec(1_usize..9, 1..5),
        damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut body = body;
        if let Some((at, byte)) = damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        prop_assert_eq!(watch(cut(&body, &lengths), Limits::USER), whole(&body));
    }
}

/// What the tracker makes of a size line alone.
fn tracked(line: &[u8]) -> Option<SizeLine> {
    let mut tracker = ChunkTracker::with_limits(Limits::KERNEL);
    let step = tracker.next(line);
    let size = u32::try_from(tracker.remaining()).ok()?;
    let is_last = size == 0 && matches!(tracker.state, State::TrailerStart);
    let is_plain = !line[..step.consumed].contains(&b';');
    let is_line = step.kind == Kind::Framing && (size > 0 || is_last) && is_plain;
    (is_line && step.consumed <= SIZE_LINE).then_some(SizeLine { line: step.consumed as u32, size })
}

proptest! {
    #[test]
    fn kernel_reads_size_lines_as_the_tracker_does(
        digits in "[0-9a-fA-F]{0,8}",
        end in prop::sample::select(std::vec!["\r\n", "\r", "\n", ";x\r\n", " \r\n", "g\r\n", "\rx", ""]),
        after in any::<[u8; 8]>(),
    ) {
        let line = [digits.as_bytes(), end.as_bytes(), &after].concat();
        let window = std::array::from_fn(|at| line[at]);
        prop_assert_eq!(size_line(window), tracked(&line));
    }

    #[test]
    fn kernel_is_never_more_lenient_than_the_tracker(window in any::<[u8; SIZE_LINE]>()) {
        if let Some(line) = size_line(window) {
            prop_assert_eq!(Some(line), tracked(&window));
        }
    }
}

#[test]
fn kernel_reads_what_engines_send() {
    let read =
        |text: &[u8]| size_line(std::array::from_fn(|at| text.get(at).copied().unwrap_or(0)));
    assert_eq!(read(b"1a3\r\nd"), Some(SizeLine { line: 5, size: 0x1a3 }));
    assert_eq!(read(b"FfFfFf\r\n"), Some(SizeLine { line: 8, size: 0xff_ffff }));
    assert_eq!(read(b"0\r\n\r\n"), Some(SizeLine { line: 3, size: 0 }));
    for broken in [
        &b"\r\n"[..],
        b"12",
        b"12\r",
        b"12\n",
        b"1 \r\n",
        b"1;a\r\n",
        b"1234567\r\n",
        b"@1\r\n",
        b"\x80\r\n",
    ] {
        assert_eq!(read(broken), None, "{broken:?}");
    }
}
