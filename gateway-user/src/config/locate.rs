//! Finds the line of a path such as `pools[0].metrics.interval`.
//!
//! The YAML reader knows the place of what is no YAML and of values of the wrong
//! kind, but takes an unknown key to be a fault of the whole section, and forgets the
//! place of a value that our own types refuse. Serde knows the path. So on an error
//! the text is read once more, as a tree that keeps places, and the path is walked.

use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_path_to_error::{Path, Segment};

use super::at::{At, Place};

/// Which place of a path's last step is meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Aim {
    /// The key itself.
    Key,
    /// What it is set to.
    Value,
}

/// Where `path` leads in `text`, or as near to it as the text goes.
pub(super) fn locate(text: &str, path: &Path, aim: Aim) -> Option<Place> {
    let root: At<Node> = serde_saphyr::from_str_with_options(text, super::options()).ok()?;
    let mut here = &root;
    let mut place = root.place;
    for segment in path {
        let step = match (segment, &here.value) {
            (Segment::Map { key }, Node::Map(entries)) => {
                let entry = entries.iter().find(|(name, _)| name.value == *key);
                entry.map(|(name, value)| (name.place, value))
            }
            (Segment::Seq { index }, Node::List(items)) => {
                items.get(*index).map(|item| (item.place, item))
            }
            _ => None,
        };
        // Serde also counts steps that the text does not have: the wrapper that keeps
        // a value's place is a structure to it.
        if let Some((key, value)) = step {
            place = if aim == Aim::Key { key } else { value.place };
            here = value;
        }
    }
    place
}

/// YAML of any shape.
enum Node {
    List(Vec<At<Node>>),
    Map(Vec<(At<String>, At<Node>)>),
    Scalar,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_none<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Node::Scalar)
    }
}
