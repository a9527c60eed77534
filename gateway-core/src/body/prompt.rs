//! The prompt's parts: their size and the hashes of their blocks.

use memchr::memchr_iter;

use super::ScanSettings;
use super::media::Media;
use crate::json::Kind;
use crate::prefix::hash::{BlockHasher, Tail};

/// A prompt as it is read. Engines put tools first, then instructions, then the
/// rest, whatever their order in the body, so each is collected by itself.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    sections: [Section; 3],
    max_blocks: usize,
    /// Parts seen, one bit each; seeing one again replaces it.
    seen: u32,
}

#[derive(Clone, Debug)]
struct Section {
    hasher: BlockHasher,
    bytes: u64,
    /// Token ids among them, and the bytes those took.
    ids: u64,
    id_bytes: u64,
    /// `id_bytes` when the current part began.
    id_bytes_before: u64,
    elements: Elements,
    media: Media,
}

/// Tokens of an image or sound, roughly: engines cut images to a few hundred to two
/// thousand.
const MEDIA_TOKENS: u64 = 1_000;

/// What an array holds, as far as its first byte tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Elements {
    /// Numbers: token ids.
    Ids,
    /// Anything else.
    Text,
    /// Only brackets so far.
    Unknown,
}

/// A part of the prompt: a field of the body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Part(u8);

/// Names of the parts with their section: OpenAI's and Anthropic's routes, vLLM's
/// scoring and generate routes, SGLang's own.
const PARTS: [(&[u8], u8); 14] = [
    (b"tools", 0),
    (b"instructions", 1),
    (b"system", 1),
    (b"messages", 2),
    (b"prompt", 2),
    (b"input", 2),
    (b"query", 2),
    (b"documents", 2),
    (b"text_1", 2),
    (b"text_2", 2),
    (b"queries", 2),
    (b"text", 2),
    (b"token_ids", 2),
    (b"input_ids", 2),
];

impl Part {
    pub(super) fn named(key: &[u8]) -> Option<Self> {
        let place = PARTS.iter().position(|(name, _)| *name == key)?;
        Some(Self(place as u8))
    }

    fn section(self) -> usize {
        usize::from(PARTS[usize::from(self.0)].1)
    }
}

impl Prompt {
    pub(super) fn new(settings: &ScanSettings) -> Self {
        let section = Section {
            hasher: BlockHasher::new(settings.block_bytes, settings.max_blocks),
            bytes: 0,
            ids: 0,
            id_bytes: 0,
            id_bytes_before: 0,
            elements: Elements::Text,
            media: Media::default(),
        };
        Self {
            sections: [section.clone(), section.clone(), section],
            max_blocks: settings.max_blocks,
            seen: 0,
        }
    }

    /// A part's value begins.
    pub(super) fn begin(&mut self, part: Part, kind: Kind) {
        let bit = 1 << part.0;
        let section = &mut self.sections[part.section()];
        if self.seen & bit != 0 {
            section.clear();
        }
        self.seen |= bit;
        section.id_bytes_before = section.id_bytes;
        section.elements = if kind == Kind::Array { Elements::Unknown } else { Elements::Text };
    }

    /// More of a part's value.
    pub(super) fn push(&mut self, part: Part, piece: &[u8]) {
        self.sections[part.section()].push(piece);
    }

    /// Bytes of all parts.
    pub(super) fn bytes(&self) -> u64 {
        self.sections.iter().map(|section| section.bytes).sum()
    }

    /// Estimated tokens of all parts: a quarter of the text's bytes, and each id.
    pub(super) fn tokens(&self) -> u32 {
        let tokens: u64 = self.sections.iter().map(Section::tokens).sum();
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// Hashes of the blocks in the order in which engines see them.
    pub(super) fn blocks(&self) -> Vec<u64> {
        let mut blocks = Vec::new();
        let [tools, instructions, rest] = &self.sections;
        tools.hasher.append_to(&mut blocks, Tail::Counts);
        instructions.hasher.append_to(&mut blocks, Tail::Counts);
        rest.hasher.append_to(&mut blocks, Tail::Ignored);
        blocks.truncate(self.max_blocks);
        blocks
    }
}

impl Section {
    fn clear(&mut self) {
        self.hasher.clear();
        (self.bytes, self.ids, self.id_bytes) = (0, 0, 0);
        self.media = Media::default();
    }

    fn push(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        if !self.hasher.is_full() {
            self.hasher.push(piece);
        }
        if self.elements == Elements::Unknown {
            match piece.iter().find(|b| !b" \t\r\n[".contains(b)) {
                Some(b'-' | b'0'..=b'9') => {
                    self.elements = Elements::Ids;
                    self.ids += 1;
                }
                Some(_) => {
                    self.elements = Elements::Text;
                    self.id_bytes = self.id_bytes_before;
                }
                None => {}
            }
        }
        if self.elements == Elements::Text {
            self.media.push(piece);
        } else {
            self.id_bytes += piece.len() as u64;
        }
        if self.elements == Elements::Ids {
            self.ids += memchr_iter(b',', piece).count() as u64;
        }
    }

    fn tokens(&self) -> u64 {
        let text = self.bytes.saturating_sub(self.id_bytes + self.media.bytes());
        self.ids + self.media.items() * MEDIA_TOKENS + text / 4
    }
}
