//! What a simulated model says.
//!
//! An answer is a pure function of the settings, the prompt and the choice's
//! number, so that a test can tell every byte that must arrive. Words are chosen
//! so that each is exactly one token.

use std::ops::RangeInclusive;

use serde_json::Value;
use xxhash_rust::xxh64::xxh64;

use crate::tokenizer;

mod json;

/// How a model answers.
#[derive(Clone, Debug)]
pub struct Style {
    /// Changes every answer.
    pub seed: u64,
    /// Length in tokens of an answer that nothing cuts short.
    pub tokens: RangeInclusive<u32>,
    /// Which words are used.
    pub vocabulary: Vocabulary,
}

/// A set of words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Vocabulary {
    /// English words.
    Ascii,
    /// Words with characters of two, three and four bytes.
    Multibyte,
}

impl Default for Style {
    fn default() -> Self {
        Self { seed: 0, tokens: 20..=200, vocabulary: Vocabulary::Ascii }
    }
}

/// What kind of text is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Form<'a> {
    /// A JSON text that follows a schema; `null` for any object.
    Json(&'a Value),
    /// Words.
    Prose,
}

/// The limits that a request sets.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Most tokens.
    pub max_tokens: u32,
    /// Fewest tokens.
    pub min_tokens: u32,
    /// Whether the model goes on to `max_tokens`.
    pub ignore_eos: bool,
    /// Texts that end the answer and are not part of it.
    pub stop: Vec<String>,
}

/// An answer, token by token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// The text of each token.
    pub tokens: Vec<String>,
    /// Why it ends.
    pub end: End,
}

/// Why an answer ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum End {
    /// The model had said everything.
    Complete,
    /// The token limit.
    Length,
    /// This stop text came up.
    StopText(String),
}

impl Answer {
    /// The whole text.
    #[must_use]
    pub fn text(&self) -> String {
        self.tokens.concat()
    }
}

/// Answers choice number `choice` of a request with this prompt.
#[must_use]
pub fn answer(style: &Style, prompt: &str, choice: u32, form: Form<'_>, limits: &Limits) -> Answer {
    let seed = xxh64(prompt.as_bytes(), style.seed.wrapping_add(u64::from(choice)));
    let mut rng = fastrand::Rng::with_seed(seed);
    let length = natural_length(&mut rng, style, limits);
    let mut tokens = match form {
        Form::Json(schema) => split(&json::instance(schema, &mut rng).to_string()),
        Form::Prose => prose(&mut rng, style.vocabulary, length),
    };
    if let Some(stop) = cut_at_stop(&mut tokens, limits) {
        return Answer { tokens, end: End::StopText(stop) };
    }
    let most = limits.max_tokens.max(1) as usize;
    let is_cut = tokens.len() > most || limits.ignore_eos;
    let end = if is_cut { End::Length } else { End::Complete };
    tokens.truncate(most);
    Answer { tokens, end }
}

/// Arguments for a tool with this parameter schema.
#[must_use]
pub fn arguments(style: &Style, prompt: &str, schema: &Value) -> Vec<String> {
    let mut rng = fastrand::Rng::with_seed(xxh64(prompt.as_bytes(), style.seed));
    split(&json::instance(schema, &mut rng).to_string())
}

fn natural_length(rng: &mut fastrand::Rng, style: &Style, limits: &Limits) -> u32 {
    let natural = rng.u32(style.tokens.clone());
    if limits.ignore_eos { limits.max_tokens } else { natural.max(limits.min_tokens).max(1) }
}

fn prose(rng: &mut fastrand::Rng, vocabulary: Vocabulary, tokens: u32) -> Vec<String> {
    let words = vocabulary.words();
    let word = |rng: &mut fastrand::Rng| words[rng.usize(..words.len())];
    let first = word(rng).to_owned();
    let others = (1..tokens).map(|_| format!(" {}", word(rng)));
    std::iter::once(first).chain(others).collect()
}

fn split(text: &str) -> Vec<String> {
    tokenizer::pieces(text).map(str::to_owned).collect()
}

/// Cuts the answer before the first stop text; tells which it was.
fn cut_at_stop(tokens: &mut Vec<String>, limits: &Limits) -> Option<String> {
    let text = tokens.concat();
    let found = limits.stop.iter().filter(|stop| !stop.is_empty());
    let (at, stop) = found.filter_map(|stop| Some((text.find(stop)?, stop))).min()?;
    let kept = split_prefix(tokens, at);
    if kept.len() > limits.max_tokens as usize {
        return None;
    }
    *tokens = kept;
    Some(stop.clone())
}

/// The tokens of the first `bytes` bytes; at least one token, which may be empty.
fn split_prefix(tokens: &[String], bytes: usize) -> Vec<String> {
    let mut kept = Vec::new();
    let mut left = bytes;
    for token in tokens {
        let take = token.len().min(left);
        if take == 0 {
            break;
        }
        kept.push(token[..take].to_owned());
        left -= take;
    }
    if kept.is_empty() {
        kept.push(String::new());
    }
    kept
}

impl Vocabulary {
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Ascii => &[
                "all", "anvil", "ask", "barn", "bell", "cedar", "cloud", "dawn", "east", "fern",
                "field", "gate", "glass", "hill", "iron", "kite", "lake", "lamp", "maple", "mill",
                "north", "oak", "path", "quay", "rain", "river", "sand", "stone", "tide", "vale",
                "well", "wind",
            ],
            Self::Multibyte => {
                &["é", "ñu", "über", "ß", "日", "本", "語", "한", "글", "🙂", "🦀", "œuf", "Ω", "ж"]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max_tokens: u32) -> Limits {
        Limits { max_tokens, ..Limits::default() }
    }

    fn prose_of(choice: u32, limits: &Limits) -> Answer {
        answer(&Style::default(), "prompt", choice, Form::Prose, limits)
    }

    #[test]
    fn same_request_gets_the_same_answer_and_each_choice_its_own() {
        assert_eq!(prose_of(0, &limits(50)), prose_of(0, &limits(50)));
        assert_ne!(prose_of(0, &limits(50)), prose_of(1, &limits(50)));
    }

    #[test]
    fn every_word_is_one_token() {
        for vocabulary in [Vocabulary::Ascii, Vocabulary::Multibyte] {
            let style = Style { vocabulary, ..Style::default() };
            let answer = answer(&style, "p", 0, Form::Prose, &limits(1000));
            assert_eq!(split(&answer.text()), answer.tokens);
        }
    }

    #[test]
    fn limit_cuts_and_says_so() {
        let answer = prose_of(0, &limits(3));
        assert_eq!((answer.tokens.len(), answer.end), (3, End::Length));
        let forced = prose_of(0, &Limits { ignore_eos: true, ..limits(500) });
        assert_eq!((forced.tokens.len(), forced.end), (500, End::Length));
    }

    #[test]
    fn stop_text_ends_the_answer_before_it() {
        let whole = prose_of(0, &limits(1000)).text();
        let stop = whole[10..14].to_owned();
        let limits = Limits { stop: vec![stop.clone()], ..limits(1000) };
        let answer = prose_of(0, &limits);
        assert_eq!(answer.text(), whole[..whole.find(&stop).unwrap()]);
        assert_eq!(answer.end, End::StopText(stop));
    }
}
