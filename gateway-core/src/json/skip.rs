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
                // A long string: cross it in one go.
                let Some(quote) = self.string_end(rest) else { return Ok(None) };
                self.in_string = false;
                at += quote + 1;
                continue;
            }
            if let Some(end) = self.block(&marks, len, max_depth)? {
                return Ok(Some(at + end));
            }
            at += len;
        }
        Ok(None)
    }

    /// Takes one block of which `len` bytes are real.
    fn block(&mut self, marks: &Marks, len: usize, max_depth: u32) -> Result<Option<usize>, Fault> {
        let quotes = marks.quotes & !self.escapes(marks.backslashes, len);
        let inside = prefix_xor(quotes) ^ if self.in_string { !0 } else { 0 };
        self.in_string = inside >> (BLOCK - 1) == 1;
        let (opens, closes) = (marks.opens & !inside, marks.closes & !inside);
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
            if opens >> at & 1 == 1 {
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
        let mut escaped = u64::from(self.escaped);
        let mut next = false;
        let mut bits = backslashes & !escaped;
        while bits != 0 {
            let at = bits.trailing_zeros() as usize;
            if at + 1 == BLOCK {
                next = true;
                break;
            }
            escaped |= 2 << at;
            // An escaped backslash escapes nothing.
            bits &= !(3 << at);
        }
        self.escaped = if len < BLOCK { escaped >> len & 1 == 1 } else { next };
        escaped
    }
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
    bits ^ bits << 32
}

/// Which bytes of a block are which; bit 0 is the first byte.
struct Marks {
    quotes: u64,
    backslashes: u64,
    opens: u64,
    closes: u64,
}

impl Marks {
    fn of(block: &[u8; BLOCK]) -> Self {
        let mut marks = Self { quotes: 0, backslashes: 0, opens: 0, closes: 0 };
        let (lanes, _) = block.as_chunks::<16>();
        for (i, lane) in lanes.iter().enumerate() {
            let bytes = u8x16::new(*lane);
            // `[` and `{`, `]` and `}` differ by one bit.
            let folded = bytes | u8x16::splat(0x20);
            let mask = |hits: u8x16| u64::from(hits.to_bitmask()) << (16 * i);
            marks.quotes |= mask(bytes.simd_eq(u8x16::splat(b'"')));
            marks.backslashes |= mask(bytes.simd_eq(u8x16::splat(b'\\')));
            marks.opens |= mask(folded.simd_eq(u8x16::splat(b'{')));
            marks.closes |= mask(folded.simd_eq(u8x16::splat(b'}')));
        }
        marks
    }
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
