//! A value that remembers where it stood.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_saphyr::Spanned;

/// A place in a configuration file; both count from 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    /// Line.
    pub(crate) line: u64,
    /// Column, in characters.
    pub(crate) column: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl Place {
    pub(super) fn of(location: &serde_saphyr::Location) -> Option<Self> {
        (location.line() > 0).then(|| Self { line: location.line(), column: location.column() })
    }
}

/// A value with its place; none when it came from a flag or is a default.
#[derive(Clone, Debug, Default)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) place: Option<Place>,
}

impl<T> At<T> {
    /// A value that stands in no file.
    pub(crate) const fn of(value: T) -> Self {
        Self { value, place: None }
    }
}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self { value, place: Place::of(&referenced) })
    }
}

impl<T: Serialize> Serialize for At<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}
