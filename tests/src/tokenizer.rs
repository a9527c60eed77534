//! A tokenizer without a vocabulary.
//!
//! A token is a piece of text of at most six bytes: a new one begins at a space,
//! at and after a line break, and where the piece would grow too long; characters are never cut. English
//! comes to about 4.3 bytes per token, as with a real vocabulary. A token's number
//! is its bytes, so that any text can be told from its numbers, and numbers stay
//! exact in JSON readers that only know doubles.
//!
//! Pieces depend on nothing but the text around their start. An answer that
//! comes back in the next turn's prompt therefore falls into the same tokens and
//! finds its blocks in the prefix cache.

use xxhash_rust::xxh64::xxh64;

const LONGEST: usize = 6;

/// Splits `text` into tokens; joined they are the text again.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = piece_end(rest)?;
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

/// The number of a piece: its bytes, the first one lowest.
#[must_use]
pub fn token(piece: &str) -> u64 {
    let bytes = piece.bytes().take(8);
    bytes.enumerate().fold(0, |id, (place, byte)| id | u64::from(byte) << (8 * place))
}

/// The bytes of a token; not always whole characters when the token was made up.
#[must_use]
pub fn token_bytes(token: u64) -> Vec<u8> {
    let length = (64 - token.leading_zeros() as usize).div_ceil(8);
    token.to_le_bytes()[..length].to_vec()
}

/// Chained hashes of the full blocks of `tokens`.
///
/// `salt` separates what must not be shared, such as adapters.
#[must_use]
pub fn block_hashes(tokens: &[u64], block_size: u32, salt: &str) -> Vec<u64> {
    let mut parent = xxh64(salt.as_bytes(), 0);
    let mut bytes = Vec::with_capacity(block_size as usize * 8);
    let blocks = tokens.chunks_exact(block_size.max(1) as usize);
    let chain = blocks.map(|block| {
        bytes.clear();
        bytes.extend(block.iter().flat_map(|token| token.to_le_bytes()));
        parent = xxh64(&bytes, parent);
        parent
    });
    chain.collect()
}

fn piece_end(text: &str) -> Option<usize> {
    let mut characters = text.char_indices();
    let (_, first) = characters.next()?;
    if first == '\n' {
        return Some(1);
    }
    let end = characters.find(|(start, character)| {
        start + character.len_utf8() > LONGEST || matches!(character, ' ' | '\n')
    });
    Some(end.map_or(text.len(), |(start, _)| start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(text: &str) -> Vec<&str> {
        pieces(text).collect()
    }

    #[test]
    fn words_keep_the_space_before_them() {
        assert_eq!(split("a quick\nbrown"), ["a", " quick", "\n", "brown"]);
        assert_eq!(split("internationally"), ["intern", "ationa", "lly"]);
    }

    #[test]
    fn characters_are_never_cut() {
        assert_eq!(split("日本語"), ["日本", "語"]);
        assert_eq!(split("🙂🙂"), ["🙂", "🙂"]);
    }

    #[test]
    fn answer_in_the_next_prompt_shares_its_blocks() {
        let tokens = |text: &str| pieces(text).map(token).collect::<Vec<_>>();
        let mut known = tokens("user\nhi there\nassistant\n");
        known.extend(tokens("alpha beta gamma"));
        let next = tokens("user\nhi there\nassistant\nalpha beta gamma\nuser\nmore");
        let known = block_hashes(&known, 4, "");
        assert_eq!(known, block_hashes(&next, 4, "")[..known.len()]);
        assert_ne!(known, block_hashes(&next, 4, "adapter")[..known.len()]);
    }

    proptest! {
        #[test]
        fn tokens_tell_the_text(text in ".*") {
            let bytes: Vec<u8> =
                pieces(&text).filter(|piece| !piece.ends_with('\0')).map(token).flat_map(token_bytes).collect();
            let expected: String = pieces(&text).filter(|piece| !piece.ends_with('\0')).collect();
            prop_assert_eq!(bytes, expected.as_bytes());
            prop_assert_eq!(pieces(&text).collect::<String>(), text);
        }
    }
}
