//! Images and audio inside a prompt, which are far larger than they are long.
//!
//! A picture of a megabyte in base64 is about a thousand tokens, not 350,000.
//! Taken for text it would make its endpoint look busy for a minute.

use memchr::{memchr, memmem};

/// What stands before the data in a `data:` URL.
const MARK: &[u8] = b";base64,";

/// Finds base64 data in a prompt that arrives in pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct Media {
    is_inside: bool,
    /// The last bytes seen, where a mark may have begun.
    tail: Vec<u8>,
    bytes: u64,
    items: u64,
}

impl Media {
    /// Pieces of data seen.
    pub(super) fn items(&self) -> u64 {
        self.items
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the next bytes of the prompt.
    pub(super) fn push(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let used = if self.is_inside { self.data(piece) } else { self.text(piece) };
            piece = &piece[used..];
        }
    }

    fn data(&mut self, piece: &[u8]) -> usize {
        let end = memchr(b'"', piece);
        self.is_inside = end.is_none();
        let used = end.unwrap_or(piece.len());
        self.bytes += used as u64;
        used
    }

    /// Searches for a mark; returns the bytes up to its end.
    fn text(&mut self, piece: &[u8]) -> usize {
        if let Some(used) = self.mark_across(piece) {
            return self.found(used);
        }
        if let Some(at) = memmem::find(piece, MARK) {
            return self.found(at + MARK.len());
        }
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(MARK.len() - 1)..]);
        let excess = self.tail.len().saturating_sub(MARK.len() - 1);
        self.tail.drain(..excess);
        piece.len()
    }

    /// Bytes of `piece` that end a mark which began before it.
    fn mark_across(&self, piece: &[u8]) -> Option<usize> {
        let begun = (1..=self.tail.len()).rev().find(|&len| {
            let missing = &MARK[len..];
            self.tail.ends_with(&MARK[..len]) && piece.starts_with(missing)
        })?;
        Some(MARK.len() - begun)
    }

    fn found(&mut self, used: usize) -> usize {
        self.is_inside = true;
        self.items += 1;
        self.tail.clear();
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (u64, u64) {
        let mut media = Media::default();
        for piece in pieces {
            media.push(piece);
        }
        (media.items(), media.bytes())
    }

    #[test]
    fn data_lasts_until_its_quote() {
        let text = br#"["data:image/png;base64,AAAA","x;base64","data:;base64,BB"]"#;
        assert_eq!(seen([&text[..]]), (2, 6));
    }

    proptest! {
        #[test]
        fn any_split_shows_the_same(
            parts in prop::collection::vec(prop::sample::select(
                &[";base64,", ";base6", "\"", "AB", ";", "4,"][..]), 0..12),
            size in 1_usize..12,
        ) {
            let text = parts.concat();
            prop_assert_eq!(seen(text.as_bytes().chunks(size)), seen([text.as_bytes()]));
        }
    }
}
