//! Token counts in an answer's JSON.

use crate::json::{Kind, Visitor, Want};

/// Tokens, as the engine counted them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt: Option<u64>,
    /// Tokens of the answer.
    pub output: Option<u64>,
    /// Tokens of the prompt that were in the engine's cache.
    pub cached: Option<u64>,
}

/// Finds `usage` at the top, in `response` (Responses API) and in `message`
/// (Anthropic).
#[derive(Clone, Debug, Default)]
pub(super) struct UsageVisitor {
    counts: [Option<u64>; COUNTS],
    /// What the object at each level is.
    places: [Place; 5],
    count: usize,
    number: u64,
    is_number: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Place {
    #[default]
    Top,
    Details,
    Usage,
    Wrapper,
}

const PROMPT: usize = 0;
const OUTPUT: usize = 1;
const CACHED: usize = 2;
const CACHE_READ: usize = 3;
const CACHE_CREATED: usize = 4;
const COUNTS: usize = 5;

impl UsageVisitor {
    /// Counts so far; of several records the last wins, field by field.
    pub(super) fn usage(&self) -> Option<Usage> {
        if self.counts.iter().all(Option::is_none) {
            return None;
        }
        let [prompt, output, cached, read, created] = self.counts;
        // Anthropic counts cached tokens beside the input, OpenAI within it.
        let beside = read.unwrap_or(0).saturating_add(created.unwrap_or(0));
        let prompt = prompt.map(|prompt| prompt.saturating_add(beside));
        Some(Usage { prompt, output, cached: read.or(cached) })
    }

    fn count_named(&self, level: usize, key: &[u8]) -> Option<usize> {
        match (self.places[level], key) {
            (Place::Usage, b"prompt_tokens" | b"input_tokens") => Some(PROMPT),
            (Place::Usage, b"completion_tokens" | b"output_tokens") => Some(OUTPUT),
            (Place::Usage, b"cache_read_input_tokens") => Some(CACHE_READ),
            (Place::Usage, b"cache_creation_input_tokens") => Some(CACHE_CREATED),
            (Place::Details, b"cached_tokens") => Some(CACHED),
            _ => None,
        }
    }
}

impl Visitor for UsageVisitor {
    fn field(&mut self, level: u8, key: &[u8], kind: Kind, _at: usize) -> Want {
        let level = usize::from(level);
        let inside = match (self.places[level], key) {
            (Place::Top, b"response" | b"message") => Some(Place::Wrapper),
            (Place::Top | Place::Wrapper, b"usage") => Some(Place::Usage),
            (Place::Usage, b"prompt_tokens_details" | b"input_tokens_details") => {
                Some(Place::Details)
            }
            _ => None,
        };
        if let (Some(place), Kind::Object) = (inside, kind) {
            // At most top, wrapper, usage, details.
            self.places[level + 1] = place;
            return Want::Enter;
        }
        match self.count_named(level, key) {
            Some(count) if kind == Kind::Scalar => {
                (self.count, self.number, self.is_number) = (count, 0, true);
                Want::Take
            }
            _ => Want::Skip,
        }
    }

    fn bytes(&mut self, piece: &[u8]) {
        for byte in piece {
            self.is_number &= byte.is_ascii_digit();
            let digit = u64::from(byte.wrapping_sub(b'0'));
            self.number = self.number.saturating_mul(10).saturating_add(digit);
        }
    }

    fn end(&mut self, _end: usize) {
        if self.is_number {
            self.counts[self.count] = Some(self.number);
        }
    }
}
