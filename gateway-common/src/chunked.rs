//! Tracks the boundaries of an HTTP/1.1 chunked body (RFC 9112, section 7.1).
//!
//! The tracker reads framing and never copies or changes a byte: whoever relays
//! a chunked answer verbatim needs to know only where data lies, where a chunk
//! ends and where the message ends. It is strict, because two parsers that
//! disagree about a lenient case are how requests get smuggled: no bare LF, no
//! space around sizes, no size above 64 bits.
//!
//! Bytes may arrive in any split; the sequence of boundaries is the same.

/// Where in a chunked body the next byte lies.
///
/// Feed it with [`ChunkTracker::next`] until the input is used up.
///
/// ```
/// use gateway_common::chunked::{ChunkTracker, Kind};
///
/// let mut tracker = ChunkTracker::new();
/// let mut input: &[u8] = b"3\r\nabc\r\n0\r\n\r\n";
/// let mut data = Vec::new();
/// while !input.is_empty() {
///     let step = tracker.next(input);
///     let (piece, rest) = input.split_at(step.consumed);
///     match step.kind {
///         Kind::Data => data.extend_from_slice(piece),
///         Kind::End => break,
///         Kind::Lost => panic!("not a chunked body"),
///         Kind::ChunkEnd | Kind::Framing | Kind::Trailer => {}
///     }
///     input = rest;
/// }
/// assert_eq!(data, b"abc");
/// ```
#[derive(Clone, Debug)]
pub struct ChunkTracker {
    state: State,
    /// Data bytes of the current chunk still to come, or its size so far.
    remaining: u64,
    /// Bytes of the current size line, or of all trailers.
    used: u32,
    limits: Limits,
}

/// How long the parts of the framing may be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes of a size line, extensions included, without its CRLF.
    pub size_line: u32,
    /// Bytes of all trailer lines together, each with its CRLF.
    pub trailers: u32,
}

impl Limits {
    /// What the kernel programs take: any size, hardly an extension.
    pub const KERNEL: Self = Self { size_line: 16, trailers: 8 << 10 };
    /// What user space takes.
    pub const USER: Self = Self { size_line: 4 << 10, trailers: 8 << 10 };
}

/// What the first bytes of an input are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step {
    /// How many bytes of the input this is about; 0 only for an empty input,
    /// after [`Kind::End`] and at [`Kind::Lost`].
    pub consumed: usize,
    /// What they are.
    pub kind: Kind,
}

/// The meaning of a run of bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The CRLF after a chunk's data is complete: a safe place to stop.
    ChunkEnd,
    /// Data of the current chunk.
    Data,
    /// The message is complete; what follows belongs to the next message.
    End,
    /// Size lines and line ends.
    Framing,
    /// The body breaks the rules, and its boundaries are unknown from here on.
    Lost,
    /// Trailer lines after the last chunk.
    Trailer,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Before the first digit of a size.
    SizeStart,
    /// Within the digits.
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// Before a trailer line, or the empty line that ends the message.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    End,
    Lost,
}

impl Default for ChunkTracker {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkTracker {
    /// A tracker at the start of a body, with [`Limits::USER`].
    #[must_use]
    pub const fn new() -> Self {
        Self::with_limits(Limits::USER)
    }

    /// A tracker at the start of a body.
    #[must_use]
    pub const fn with_limits(limits: Limits) -> Self {
        Self { state: State::SizeStart, remaining: 0, used: 0, limits }
    }

    /// Says what the first bytes of `input` are, and moves past them.
    pub fn next(&mut self, input: &[u8]) -> Step {
        match self.state {
            State::Data => self.data(input),
            State::End => Step { consumed: 0, kind: Kind::End },
            State::Lost => Step { consumed: 0, kind: Kind::Lost },
            _ => self.framing(input),
        }
    }

    /// Whether the last byte seen ended a chunk (or nothing was seen yet): the
    /// places where a whole chunk may be inserted.
    #[must_use]
    pub const fn at_boundary(&self) -> bool {
        matches!(self.state, State::SizeStart)
    }

    /// Whether the message is complete.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        matches!(self.state, State::End)
    }

    /// Data bytes of the current chunk still to come; 0 outside of data.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        match self.state {
            State::Data => self.remaining,
            _ => 0,
        }
    }

    fn data(&mut self, input: &[u8]) -> Step {
        let len = input.len() as u64;
        let consumed = if len < self.remaining { len } else { self.remaining };
        self.remaining -= consumed;
        if self.remaining == 0 {
            self.state = State::DataCr;
        }
        Step { consumed: consumed as usize, kind: Kind::Data }
    }

    fn framing(&mut self, input: &[u8]) -> Step {
        let kind = if self.in_trailers() { Kind::Trailer } else { Kind::Framing };
        let mut consumed = 0;
        for &byte in input {
            let before = self.state;
            self.state = self.after(byte);
            if self.state == State::Lost {
                // What came before the bad byte is reported first, so that the
                // split of the input makes no difference.
                let kind = if consumed == 0 { Kind::Lost } else { kind };
                return Step { consumed, kind };
            }
            consumed += 1;
            match (before, self.state) {
                (State::DataLf, _) => return Step { consumed, kind: Kind::ChunkEnd },
                (_, State::End) => return Step { consumed, kind: Kind::End },
                // Data and trailers are pieces of their own.
                (_, State::Data) | (State::SizeLf, State::TrailerStart) => break,
                _ => {}
            }
        }
        Step { consumed, kind }
    }

    const fn in_trailers(&self) -> bool {
        matches!(
            self.state,
            State::TrailerStart
                | State::TrailerName
                | State::TrailerValue
                | State::TrailerLf
                | State::EndLf
        )
    }

    /// The state after one byte of framing.
    fn after(&mut self, byte: u8) -> State {
        match self.state {
            State::SizeStart => {
                (self.remaining, self.used) = (0, 0);
                self.digit(byte).unwrap_or(State::Lost)
            }
            State::Size | State::Extension => self.after_size(byte),
            State::SizeLf if byte == b'\n' => {
                self.used = 0;
                if self.remaining == 0 { State::TrailerStart } else { State::Data }
            }
            State::DataCr if byte == b'\r' => State::DataLf,
            State::DataLf if byte == b'\n' => State::SizeStart,
            State::EndLf if byte == b'\n' => State::End,
            State::TrailerStart | State::TrailerName | State::TrailerValue | State::TrailerLf => {
                self.after_trailer(byte)
            }
            _ => State::Lost,
        }
    }

    fn after_size(&mut self, byte: u8) -> State {
        match byte {
            b'\r' => State::SizeLf,
            _ if self.used >= self.limits.size_line => State::Lost,
            b';' if self.state == State::Size => {
                self.used += 1;
                State::Extension
            }
            _ if self.state == State::Size => self.digit(byte).unwrap_or(State::Lost),
            byte if is_field_text(byte) => {
                self.used += 1;
                State::Extension
            }
            _ => State::Lost,
        }
    }

    /// Takes a digit of the size, unless it is none or the size overflows.
    fn digit(&mut self, byte: u8) -> Option<State> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        };
        // Sixteen digits are 64 bits; leading zeros count as digits.
        if self.used >= 16 {
            return None;
        }
        self.used += 1;
        self.remaining = (self.remaining << 4) | u64::from(digit);
        Some(State::Size)
    }

    fn after_trailer(&mut self, byte: u8) -> State {
        if self.state == State::TrailerStart && byte == b'\r' {
            return State::EndLf;
        }
        self.used += 1;
        if self.used > self.limits.trailers {
            return State::Lost;
        }
        match (self.state, byte) {
            (State::TrailerStart | State::TrailerName, byte) if is_token(byte) => {
                State::TrailerName
            }
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, byte) if is_field_text(byte) => State::TrailerValue,
            (State::TrailerLf, b'\n') => State::TrailerStart,
            _ => State::Lost,
        }
    }
}

/// Bytes of a field value (RFC 9110, section 5.5): no control bytes but tab.
const fn is_field_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Bytes of a token (RFC 9110, section 5.6.2).
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// A size line as the kernel programs take it: digits and CRLF, nothing else.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SizeLine {
    /// Bytes of the line, CRLF included; 3 to [`SIZE_LINE`].
    pub line: u32,
    /// Bytes of data that follow; 0 for the last chunk.
    pub size: u32,
}

/// Longest line that [`size_line`] reads, CRLF included, in bytes.
pub const SIZE_LINE: usize = 8;

/// Reads the size line at the start of `window`, which is filled up with zeros where
/// there are fewer bytes. `None` when it is longer, broken, cut short, or has an
/// extension; [`ChunkTracker`] decides which, in user space.
///
/// All eight bytes at once and hardly a branch, for the sake of the kernel's verifier,
/// which follows every path; a property test holds it against [`ChunkTracker`].
#[must_use]
#[inline(always)]
pub fn size_line(window: [u8; SIZE_LINE]) -> Option<SizeLine> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    let word = u64::from_le_bytes(window);
    // The lowest byte that is CR: only there does the subtraction reach the high bit.
    let other = word ^ (ONES * u64::from(b'\r'));
    let found = other.wrapping_sub(ONES) & !other & HIGH;
    if found == 0 {
        return None;
    }
    let bits = found.trailing_zeros() & 0x38;
    // The digits, right-aligned in reading order (the last is the highest byte).
    let digits = if bits == 0 { return None } else { word << (64 - bits) };
    let digits = digits | ((ONES * u64::from(b'0')) >> bits);
    if digits & HIGH != 0 {
        return None;
    }
    let at_least = |bytes: u64, least: u8| bytes + ONES * (0x80 - u64::from(least));
    let decimal = at_least(digits, b'0') & !at_least(digits, b'9' + 1);
    let lower = digits | (ONES * 0x20);
    let letter = at_least(lower, b'a') & !at_least(lower, b'f' + 1) & (digits << 1);
    if (decimal | letter) & HIGH != HIGH {
        return None;
    }
    if bits > 48 || (word >> ((bits + 8) & 0x38)) & 0xff != u64::from(b'\n') {
        return None;
    }
    let nibbles = (digits & (ONES * 0x0f)) + 9 * ((digits >> 6) & ONES);
    let pairs = ((nibbles << 4) | (nibbles >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = ((pairs << 8) | (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    let size = ((fours << 16) | (fours >> 32)) as u32;
    Some(SizeLine { line: (bits >> 3) + 2, size })
}

#[cfg(test)]
mod tests;
