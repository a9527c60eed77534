//! The fields of a JSON body that routing needs.

use super::prompt::{Part, Prompt};
use super::{RequestFacts, ScanSettings};
use crate::json::{Fault, Kind, ScanError, Visitor, Walker, Want, unescape};

/// Reads a JSON body.
#[derive(Clone, Debug)]
pub(super) struct Object {
    walker: Walker,
    found: Found,
}

/// What was found so far.
#[derive(Clone, Debug)]
struct Found {
    facts: RequestFacts,
    prompt: Prompt,
    max_string: usize,
    /// The field whose value is being taken, and where the value began.
    current: (Field, usize),
    kind: Kind,
    /// That value, when it is a short one; up to a byte more than the limit.
    text: Vec<u8>,
    /// Upper bounds by field, so that a duplicate replaces its own only.
    bounds: [Option<u32>; 3],
    /// A salt that is too long to keep still must not match any other.
    salt_too_long: bool,
    error: Option<ScanError>,
}

/// Fields that matter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Field {
    CacheSalt,
    Choices,
    IncludeUsage,
    /// One of the upper bounds, by its number.
    MaxTokens(usize),
    Model,
    Other,
    /// A part of the prompt, by its number in [`Prompt`].
    Prompt(Part),
    SessionId,
    Stream,
    StreamOptions,
    User,
}

impl Field {
    fn at_top(key: &[u8]) -> Self {
        match key {
            b"cache_salt" => Self::CacheSalt,
            b"n" => Self::Choices,
            b"max_tokens" => Self::MaxTokens(0),
            b"max_completion_tokens" => Self::MaxTokens(1),
            b"max_output_tokens" => Self::MaxTokens(2),
            b"model" => Self::Model,
            b"session_id" => Self::SessionId,
            b"stream" => Self::Stream,
            b"stream_options" => Self::StreamOptions,
            b"user" => Self::User,
            key => Part::named(key).map_or(Self::Other, Self::Prompt),
        }
    }

    fn named(level: u8, key: &[u8]) -> Self {
        match level {
            0 => Self::at_top(key),
            // Only `stream_options` is entered.
            _ if key == b"include_usage" => Self::IncludeUsage,
            _ => Self::Other,
        }
    }
}

impl Object {
    pub(super) fn new(settings: ScanSettings) -> Self {
        Self {
            walker: Walker::new(settings.max_depth),
            found: Found {
                facts: RequestFacts::default(),
                prompt: Prompt::new(&settings),
                max_string: settings.max_string,
                current: (Field::Other, 0),
                kind: Kind::Scalar,
                text: Vec::new(),
                bounds: [None; 3],
                salt_too_long: false,
                error: None,
            },
        }
    }

    pub(super) fn push(&mut self, offset: usize, piece: &[u8]) -> Result<(), ScanError> {
        let result = self.walker.push(offset, piece, &mut self.found);
        // A value that cannot be used was seen before the walk could break.
        self.found.error.map_or(result, Err)
    }

    pub(super) fn model(&self) -> Option<&str> {
        self.found.facts.model.as_deref()
    }

    pub(super) fn so_far(&self) -> RequestFacts {
        self.found.clone().into_facts()
    }

    pub(super) fn finish(self) -> Option<RequestFacts> {
        self.walker.is_done().then(|| self.found.into_facts())
    }
}

impl Visitor for Found {
    fn field(&mut self, level: u8, key: &[u8], kind: Kind, at: usize) -> Want {
        let field = if key.contains(&b'\\') {
            unescape(key).map_or(Field::Other, |key| Field::named(level, key.as_bytes()))
        } else {
            Field::named(level, key)
        };
        self.current = (field, at);
        self.kind = kind;
        match field {
            Field::Other => return Want::Skip,
            Field::Prompt(part) => self.prompt.begin(part, kind),
            Field::StreamOptions => {
                self.facts.include_usage = false;
                return Want::Enter;
            }
            _ => self.text.clear(),
        }
        if field == Field::Model && matches!(kind, Kind::Array | Kind::Object) {
            self.refuse(Fault::Type, at);
        }
        Want::Take
    }

    fn bytes(&mut self, piece: &[u8]) {
        if let (Field::Prompt(part), _) = self.current {
            self.prompt.push(part, piece);
        } else {
            let room = (self.max_string + 1).saturating_sub(self.text.len());
            self.text.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    }

    fn end(&mut self, end: usize) {
        let (field, at) = self.current;
        match field {
            Field::CacheSalt => {
                self.salt_too_long = self.is_too_long();
                self.facts.cache_salt = self.string();
            }
            Field::Choices => self.facts.choices = self.number(),
            Field::IncludeUsage => self.facts.include_usage = self.flag(),
            Field::MaxTokens(bound) => self.bounds[bound] = self.number(),
            Field::Model => self.model(at, end),
            Field::SessionId => self.facts.session_id = self.string(),
            Field::Stream => self.facts.stream = self.flag(),
            Field::User => self.facts.user = self.string(),
            Field::Other | Field::Prompt(_) | Field::StreamOptions => {}
        }
    }
}

impl Found {
    fn model(&mut self, at: usize, end: usize) {
        (self.facts.model, self.facts.model_span) = (None, None);
        let fault = match self.kind {
            Kind::String if self.is_too_long() => Fault::TooLong,
            Kind::String => match unescape(&self.text) {
                Some(name) => {
                    self.facts.model = Some(name);
                    self.facts.model_span = Some(at..end);
                    return;
                }
                None => Fault::String,
            },
            _ if self.text == b"null" => return,
            _ => Fault::Type,
        };
        self.refuse(fault, at);
    }

    /// The first error stays.
    fn refuse(&mut self, fault: Fault, offset: usize) {
        self.error.get_or_insert(ScanError { offset, fault });
    }

    fn is_too_long(&self) -> bool {
        self.text.len() > self.max_string
    }

    /// The value, when it is a string that can be used.
    fn string(&self) -> Option<String> {
        if self.kind != Kind::String || self.is_too_long() {
            return None;
        }
        unescape(&self.text)
    }

    /// The value, when it is a number; fractions are cut off.
    fn number(&self) -> Option<u32> {
        if self.kind != Kind::Scalar {
            return None;
        }
        let number: f64 = std::str::from_utf8(&self.text).ok()?.parse().ok()?;
        (number >= 0.0).then_some(number as u32)
    }

    /// Whether the value is true. The engines also take 1.
    fn flag(&self) -> bool {
        self.kind == Kind::Scalar && matches!(&self.text[..], b"true" | b"1")
    }

    fn into_facts(self) -> RequestFacts {
        let mut facts = self.facts;
        facts.max_output_tokens = self.bounds.into_iter().flatten().min();
        facts.prompt_bytes = self.prompt.bytes();
        facts.prompt_tokens = self.prompt.tokens();
        if !self.salt_too_long {
            facts.blocks = self.prompt.blocks();
        }
        facts
    }
}
