//! What the events of a streamed answer say.

use memchr::memmem::Finder;

use super::usage::UsageVisitor;
use super::{Completion, Field, Lines, MAX_DEPTH, Progress};
use crate::json::{Walker, compact};

/// Watches an event stream.
#[derive(Clone, Debug)]
pub(super) struct EventWatch {
    lines: Lines,
    /// The current event: its name, and what its data turned out to be.
    name: Vec<u8>,
    sort: Option<Sort>,
    has_fields: bool,
    /// A line of data that was cut by the end of a piece.
    held: Vec<u8>,
    /// That line outgrew `held`: it is walked as it comes.
    is_walking: bool,
    walker: Walker,
    usage_key: Finder<'static>,
    content_keys: [Finder<'static>; CONTENT_KEYS.len()],
    /// Index of the key that carried content last.
    content_key: usize,
    events: u64,
    content_events: u64,
    completion: Completion,
}

/// What an event is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sort {
    Content,
    End,
    Failed,
    Plain,
}

/// Bytes of a cut line that are kept; longer lines are walked as they come.
const MAX_HELD: usize = 4 << 10;
const MAX_NAME: usize = 64;

/// Keys whose non-empty string is generated content, in chat, completions,
/// reasoning, tool calls and llama.cpp's own routes.
const CONTENT_KEYS: [&[u8]; 6] = [
    b"\"content\"",
    b"\"text\"",
    b"\"reasoning_content\"",
    b"\"reasoning\"",
    b"\"arguments\"",
    b"\"refusal\"",
];

impl EventWatch {
    pub(super) fn new() -> Self {
        Self {
            lines: Lines::new(),
            name: Vec::new(),
            sort: None,
            has_fields: false,
            held: Vec::new(),
            is_walking: false,
            walker: Walker::new(MAX_DEPTH),
            usage_key: Finder::new(b"\"usage\""),
            content_keys: CONTENT_KEYS.map(Finder::new),
            content_key: 0,
            events: 0,
            content_events: 0,
            completion: Completion::Open,
        }
    }

    pub(super) const fn events(&self) -> u64 {
        self.events
    }

    pub(super) const fn content_events(&self) -> u64 {
        self.content_events
    }

    pub(super) const fn completion(&self) -> Completion {
        self.completion
    }

    pub(super) fn at_boundary(&self) -> bool {
        self.lines.at_line_start() && !self.has_fields
    }

    pub(super) fn push(&mut self, piece: &[u8], usage: &mut UsageVisitor) -> Progress {
        let mut progress = Progress::Nothing;
        let mut at = 0;
        while let Some(part) = self.lines.next(piece, &mut at) {
            let value = &piece[part.range];
            self.has_fields |= !matches!(part.field, Field::Blank | Field::Comment);
            match part.field {
                Field::Blank => progress = progress.max(self.dispatch()),
                Field::Data => self.data(value, part.ends, usage),
                Field::Event => {
                    let room = MAX_NAME.saturating_sub(self.name.len());
                    self.name.extend_from_slice(&value[..value.len().min(room)]);
                }
                Field::Comment | Field::Other => {}
            }
        }
        progress
    }

    /// An empty line: the event is complete.
    fn dispatch(&mut self) -> Progress {
        self.has_fields = false;
        self.name.clear();
        let Some(sort) = self.sort.take() else { return Progress::Nothing };
        self.events += 1;
        match sort {
            Sort::Content => {
                self.content_events += 1;
                return Progress::Content;
            }
            Sort::End if self.completion == Completion::Open => {
                self.completion = Completion::Complete;
            }
            Sort::Failed => self.completion = Completion::Failed,
            Sort::End | Sort::Plain => {}
        }
        Progress::Event
    }

    fn data(&mut self, value: &[u8], ends: bool, usage: &mut UsageVisitor) {
        if self.is_walking {
            self.walk(value, usage);
            self.is_walking = !ends;
            return;
        }
        if self.held.is_empty() && ends {
            self.judge(value, usage);
            return;
        }
        let room = (MAX_HELD - self.held.len()).min(value.len());
        self.held.extend_from_slice(&value[..room]);
        let held = std::mem::take(&mut self.held);
        if ends && room == value.len() {
            self.judge(&held, usage);
        } else if held.len() == MAX_HELD {
            self.sort = Some(self.sort_of(&held));
            self.walker.reset();
            self.walk(&held, usage);
            self.walk(&value[room..], usage);
            self.is_walking = !ends;
        } else {
            self.held = held;
            return;
        }
        // Give the buffer back, so that it is allocated once.
        self.held = held;
        self.held.clear();
    }

    /// Judges a whole line of data.
    fn judge(&mut self, data: &[u8], usage: &mut UsageVisitor) {
        // All of a long line is not looked at twice: what it is stands at its start.
        self.sort = Some(self.sort_of(&data[..data.len().min(MAX_HELD)]));
        if let Some(key) = self.usage_key.find(data)
            && after_colon(&data[key + b"\"usage\"".len()..]).starts_with(b"{")
        {
            self.walker.reset();
            self.walk(data, usage);
        }
    }

    fn walk(&mut self, data: &[u8], usage: &mut UsageVisitor) {
        // A line that is no JSON object has no usage; that is not our business.
        let _ = self.walker.push(0, data, usage);
    }

    fn sort_of(&mut self, data: &[u8]) -> Sort {
        if data == b"[DONE]" {
            return Sort::End;
        }
        let first = first_field(data);
        let name = match first {
            _ if !self.name.is_empty() && self.name != b"message" => &self.name[..],
            Some((b"type", value)) => string_start(value),
            Some((b"error", value)) if !value.starts_with(b"null") => return Sort::Failed,
            Some((b"object", value)) if value.starts_with(b"\"error\"") => return Sort::Failed,
            _ => b"",
        };
        sort_named(name).unwrap_or_else(|| self.sort_by_content(data))
    }

    /// Content or not, for events without a type: OpenAI's chat and completions.
    fn sort_by_content(&mut self, data: &[u8]) -> Sort {
        // The key that was right last time is most likely right again.
        let start = self.content_key;
        for i in 0..CONTENT_KEYS.len() {
            let index = (start + i) % CONTENT_KEYS.len();
            if has_text(data, &self.content_keys[index]) {
                self.content_key = index;
                return Sort::Content;
            }
        }
        Sort::Plain
    }
}

/// What an event of this type is: Anthropic's messages and OpenAI's Responses and
/// transcriptions name theirs.
fn sort_named(name: &[u8]) -> Option<Sort> {
    Some(match name {
        b"" => return None,
        b"error" | b"response.failed" => Sort::Failed,
        b"message_stop"
        | b"response.completed"
        | b"response.incomplete"
        | b"transcript.text.done" => Sort::End,
        b"message_delta" => Sort::Plain,
        name if name.ends_with(b".delta") || name.ends_with(b"_delta") => Sort::Content,
        _ => Sort::Plain,
    })
}

/// Whether `key` is there with a string that is not empty.
fn has_text(data: &[u8], key: &Finder) -> bool {
    key.find_iter(data)
        .map(|at| after_colon(&data[at + key.needle().len()..]))
        .any(|value| matches!(value, [b'"', next, ..] if *next != b'"'))
}

/// The value after a key: what follows the colon, without whitespace.
fn after_colon(rest: &[u8]) -> &[u8] {
    compact(rest).strip_prefix(b":").map_or(b"", compact)
}

/// Key and value of an object's first field; the value is not cut off at its end.
fn first_field(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let key = compact(compact(data).strip_prefix(b"{")?).strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', key)?;
    Some((&key[..end], after_colon(&key[end + 1..])))
}

/// The text of a string value, escapes not decoded.
fn string_start(value: &[u8]) -> &[u8] {
    let Some(text) = value.strip_prefix(b"\"") else { return b"" };
    memchr::memchr(b'"', text).map_or(b"", |end| &text[..end])
}
