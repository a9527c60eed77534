//! Finds the end of a JSON string or container, far faster than byte by byte.
//!
//! Inside a string only a quote matters, so a string is crossed with `memchr`; a
//! backslash is looked at only when a quote follows it. Elsewhere 64 bytes are
//! turned into bit masks at once: which are quotes, which are brackets, which lie
//! inside a string. As long as a block closes fewer brackets than are open, it is
//! done after two population counts.

use memchr::memchr;
use wide::u8x16;

use super::Fault;

/// Where the walk through a skipped value stands. All of it survives the end of
/// a piece.
#[derive(Clone, Debug, Default)]
pub(super) struct Skip {
    /// Brackets that are open.
    depth: u32,
    in_string: bool,
    /// A backslash just before the next byte takes its meaning away.
    escaped: bool,
}

const BLOCK: usize = 64;

impl Skip {
    /// Starts after the opening quote of a string.
    pub(super) fn begin_string(&mut self) {
        *self = Self { depth: 0, in_string: true, escaped: false };
    }

    /// Starts after the opening bracket of a container.
    pub(super) fn begin_container(&mut self) {
        *self = Self { depth: 1, in_string: false, escaped: false };
    }

    /// Offset of the closing quote in `input`, if it is there.
    pub(super) fn string_end(&mut self, input: &[u8]) -> Option<usize> {
        let start = usize::from(self.escaped && !input.is_empty());
        let mut from = start;
        while let Some(found) = memchr(b'"', &input[from..]) {
            let quote = from + found;
            if trailing_backslashes(&input[start..quote]).is_multiple_of(2) {
                self.escaped = false;
                return Some(quote);
            }
            from = quote + 1;
        }
        if start < input.len() {
            self.escaped = trailing_backslashes(&input[start..]) % 2 == 1;
        } else if start == 1 {
            self.escaped = false;
        }
        None
    }

    /// Offset of the closing bracket in `input`, if it is there.
    pub(super) fn container_end(
        &mut self,
        input: &[u8],
        max_depth: u32,
    ) -> Result<Option<usize>, Fault> {
        let mut at = 0;
        while at < input.len() {
            let rest = &input[at..];
            let padded;
            let block = if let Some(block) = rest.first_chunk::<BLOCK>() {
                block
            } else {
                padded = pad(rest);
                &padded
            };
            let len = rest.len().min(BLOCK);
            let marks = Marks::of(block);
            if self.in_string && marks.quotes == 0 {
                // A long string: cross it in one go, up to a quote of any kind.
                let crossed = memchr(b'"', rest).unwrap_or(rest.len());
                self.cross(&rest[..crossed]);
                at += crossed;
                continue;
            }
            if let Some(end) = self.block(block, &marks, len, max_depth)? {
                return Ok(Some(at + end));
            }
            at += len;
        }
        Ok(None)
    }

    /// Passes over a part of a string without quotes.
    fn cross(&mut self, part: &[u8]) {
        let start = usize::from(self.escaped && !part.is_empty());
        if !part.is_empty() {
            self.escaped = !trailing_backslashes(&part[start..]).is_multiple_of(2);
        }
    }

    /// Takes one block of which `len` bytes are real.
    fn block(
        &mut self,
        block: &[u8; BLOCK],
        marks: &Marks,
        len: usize,
        max_depth: u32,
    ) -> Result<Option<usize>, Fault> {
        let quotes = marks.quotes & !self.escapes(marks.backslashes, len);
        let mut inside = if self.in_string { !0 } else { 0 };
        if quotes != 0 {
            inside ^= prefix_xor(quotes);
            self.in_string = inside >> (BLOCK - 1) == 1;
        }
        if inside == !0 {
            return Ok(None);
        }
        let brackets = Brackets::of(block);
        let (opens, closes) = (brackets.opens & !inside, brackets.closes & !inside);
        if opens | closes == 0 {
            return Ok(None);
        }
        let (deeper, higher) = (opens.count_ones(), closes.count_ones());
        if higher < self.depth && self.depth + deeper <= max_depth {
            self.depth = self.depth + deeper - higher;
            return Ok(None);
        }
        self.brackets(opens, closes, max_depth)
    }

    /// Takes a block's brackets one by one.
    fn brackets(
        &mut self,
        opens: u64,
        closes: u64,
        max_depth: u32,
    ) -> Result<Option<usize>, Fault> {
        let mut bits = opens | closes;
        while bits != 0 {
            let at = bits.trailing_zeros();
            if (opens >> at) & 1 == 1 {
                self.depth += 1;
                if self.depth > max_depth {
                    return Err(Fault::TooDeep);
                }
            } else {
                self.depth -= 1;
                if self.depth == 0 {
                    return Ok(Some(at as usize));
                }
            }
            bits &= bits - 1;
        }
        Ok(None)
    }

    /// Bytes that a backslash before them escapes; remembers whether that is also
    /// true of the byte after the block.
    fn escapes(&mut self, backslashes: u64, len: usize) -> u64 {
        let carried = u64::from(self.escaped);
        let live = backslashes & !carried;
        let (escaped, next) = if live & (live << 1) == 0 {
            // No two in a row: each escapes what follows it.
            ((live << 1) | carried, live >> (BLOCK - 1) == 1)
        } else {
            alternating(live, carried)
        };
        self.escaped = if len < BLOCK { (escaped >> len) & 1 == 1 } else { next };
        escaped
    }
}

/// [`Skip::escapes`] for runs of backslashes, of which every other one is escaped.
fn alternating(mut backslashes: u64, mut escaped: u64) -> (u64, bool) {
    while backslashes != 0 {
        let at = backslashes.trailing_zeros() as usize;
        if at + 1 == BLOCK {
            return (escaped, true);
        }
        escaped |= 2 << at;
        backslashes &= !(3 << at);
    }
    (escaped, false)
}

fn trailing_backslashes(bytes: &[u8]) -> usize {
    bytes.iter().rev().take_while(|&&b| b == b'\\').count()
}

/// A short last block, filled up with bytes that mean nothing.
fn pad(rest: &[u8]) -> [u8; BLOCK] {
    let mut block = [b' '; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// Bit i of the result is the parity of bits 0 to i.
const fn prefix_xor(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^ (bits << 32)
}

/// Which bytes of a block are which; bit 0 is the first byte.
struct Marks {
    quotes: u64,
    backslashes: u64,
}

/// The same for brackets, which matter only outside of strings.
struct Brackets {
    opens: u64,
    closes: u64,
}

impl Marks {
    #[inline]
    fn of(block: &[u8; BLOCK]) -> Self {
        let mut marks = Self { quotes: 0, backslashes: 0 };
        for (shift, bytes) in lanes(block) {
            marks.quotes |= bits(bytes, b'"') << shift;
            marks.backslashes |= bits(bytes, b'\\') << shift;
        }
        marks
    }
}

impl Brackets {
    #[inline]
    fn of(block: &[u8; BLOCK]) -> Self {
        let mut brackets = Self { opens: 0, closes: 0 };
        for (shift, bytes) in lanes(block) {
            // `[` and `{`, `]` and `}` differ by one bit.
            let folded = bytes | u8x16::splat(0x20);
            brackets.opens |= bits(folded, b'{') << shift;
            brackets.closes |= bits(folded, b'}') << shift;
        }
        brackets
    }
}

/// A block's lanes, and where the bits of each belong.
#[inline]
fn lanes(block: &[u8; BLOCK]) -> impl Iterator<Item = (usize, u8x16)> {
    let (lanes, _) = block.as_chunks::<16>();
    lanes.iter().enumerate().map(|(i, lane)| (16 * i, u8x16::new(*lane)))
}

#[inline]
fn bits(lane: u8x16, byte: u8) -> u64 {
    u64::from(lane.simd_eq(u8x16::splat(byte)).to_bitmask())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same, one byte at a time.
    fn naive_end(input: &[u8]) -> Option<usize> {
        let (mut depth, mut in_string, mut escaped) = (1, false, false);
        for (at, &byte) in input.iter().enumerate() {
            // Only a quote can be escaped: JSON has no backslash outside of strings.
            let is_plain = !escaped;
            escaped = is_plain && byte == b'\\';
            match byte {
                b'"' if is_plain => in_string = !in_string,
                b'{' | b'[' if !in_string => depth += 1,
                b'}' | b']' if !in_string => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }

    fn end(input: &[u8], cuts: &[usize]) -> Option<usize> {
        let mut skip = Skip::default();
        skip.begin_container();
        let mut from = 0;
        for cut in cuts.iter().copied().chain([input.len()]) {
            let cut = cut.clamp(from, input.len());
            if let Some(at) = skip.container_end(&input[from..cut], 1_000).unwrap() {
                return Some(from + at);
            }
            from = cut;
        }
        None
    }

    #[test]
    fn nesting_is_bounded() {
        let mut skip = Skip::default();
        skip.begin_container();
        assert_eq!(skip.container_end(&[b'['; 200], 100), Err(Fault::TooDeep));
    }

    #[test]
    fn brackets_in_strings_do_not_count() {
        assert_eq!(end(br#""]\"]",[{}]]tail"#, &[]), Some(11));
    }

    #[test]
    fn an_escape_may_straddle_pieces() {
        let input = br#""a\\\"b]"]"#;
        for cut in 0..input.len() {
            assert_eq!(end(input, &[cut]), Some(9), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn blocks_and_pieces_change_nothing(
            input in prop::collection::vec(
                prop::sample::select(&b"\"\"\\\\[]{} aaaaaaaaaaaaaaaa"[..]), 0..400),
            mut cuts in prop::collection::vec(0_usize..400, 0..5),
        ) {
            cuts.sort_unstable();
            prop_assert_eq!(end(&input, &cuts), naive_end(&input));
        }
    }
}
