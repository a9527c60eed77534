//! Walks JSON as it streams past, building nothing.
//!
//! Request bodies, answers and the events of a stream are all read the same way:
//! a few fields of an object matter, the rest is skipped at memory speed, and
//! bytes arrive in any split. [`walk`] follows the structure of the objects that
//! someone cares for, [`skip`] runs over everything else.

mod skip;
mod text;
mod walk;

pub(crate) use text::{compact, escape, unescape};
pub(crate) use walk::{Kind, Visitor, Walker, Want};

/// Why a body cannot be routed: the client's fault, status 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{fault} at byte {offset} of the body")]
pub struct ScanError {
    /// Bytes of the body before the fault.
    pub offset: usize,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// A form without a usable boundary in its content type.
    #[error("multipart form without a valid boundary")]
    Boundary,
    /// The body ended within a value.
    #[error("unexpected end")]
    Incomplete,
    /// A name or id that is not UTF-8, or has an invalid escape.
    #[error("invalid string")]
    String,
    /// A byte that does not belong there.
    #[error("invalid syntax")]
    Syntax,
    /// Too many arrays and objects inside each other.
    #[error("nesting too deep")]
    TooDeep,
    /// A name beyond the limit.
    #[error("string too long")]
    TooLong,
    /// Something follows the object.
    #[error("unexpected bytes after the object")]
    Trailing,
    /// A known field whose value has the wrong type.
    #[error("field has the wrong type")]
    Type,
}
