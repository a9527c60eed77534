//! Values of two shapes: a section that can be turned off, one item or several.
//!
//! Visitors rather than serde's untagged enums: those buffer what they read and so
//! lose the line, and they answer every mistake with "no variant matched".

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Switch;

/// `on` and `off` are booleans to YAML.
impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bool::deserialize(deserializer).map(|on| if on { Self::On } else { Self::Off })
    }
}

impl Serialize for Switch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(*self == Self::On)
    }
}

/// A section, or `off`.
#[derive(Clone, Debug)]
pub(crate) enum Section<T> {
    Off,
    On(T),
}

impl<T: Default> Default for Section<T> {
    fn default() -> Self {
        Self::On(T::default())
    }
}

struct SectionVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for SectionVisitor<T> {
    type Value = Section<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a section of settings, or off")
    }

    fn visit_bool<E: Error>(self, on: bool) -> Result<Section<T>, E> {
        Ok(if on { Section::On(T::default()) } else { Section::Off })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Section<T>, E> {
        match text {
            "off" | "none" => Ok(Section::Off),
            "on" => Ok(Section::On(T::default())),
            // Not quoted: it may be a key that was written in the wrong place.
            _ => Err(E::custom("only a section fits here, or off")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Section<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Section::On)
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Section<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SectionVisitor(PhantomData))
    }
}

impl<T: Serialize> Serialize for Section<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::On(section) => section.serialize(serializer),
        }
    }
}

/// Several items, or one without brackets.
#[derive(Clone, Debug)]
pub(crate) struct Several<T>(pub(crate) Vec<T>);

struct SeveralVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + From<String>> Visitor<'de> for SeveralVisitor<T> {
    type Value = Several<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one item, or a list of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Several<T>, E> {
        Ok(Several(vec![text.to_owned().into()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Several<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Several)
    }
}

impl<'de, T: Deserialize<'de> + From<String>> Deserialize<'de> for Several<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SeveralVisitor(PhantomData))
    }
}

impl<T: Serialize> Serialize for Several<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
