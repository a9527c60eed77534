//! Durations and sizes as people write them.
//!
//! A duration always has a unit: `timeout: 30` means seconds to one reader and
//! milliseconds to the next. A size without a unit is bytes, as everywhere.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration: `50ms`, `2s`, `1m30s`, `0s`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Span(pub(crate) Duration);

impl Span {
    pub(crate) const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    pub(crate) const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }
}

/// A size in bytes: `65536`, `64KiB`, `1MB`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Size(pub(crate) u64);

/// The text is not what it should be. Says how to write it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{text}` is not a {what}; write for example {example}")]
pub(crate) struct ScalarError {
    text: String,
    what: &'static str,
    example: &'static str,
}

const DURATION_UNITS: [(&str, Duration); 5] = [
    ("us", Duration::from_micros(1)),
    ("ms", Duration::from_millis(1)),
    ("s", Duration::from_secs(1)),
    ("m", Duration::from_mins(1)),
    ("h", Duration::from_hours(1)),
];

/// Largest first, so that writing finds the largest that divides.
const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("B", 1),
];

impl FromStr for Span {
    type Err = ScalarError;

    fn from_str(text: &str) -> Result<Self, ScalarError> {
        parse_span(text).map(Self).ok_or_else(|| ScalarError {
            text: text.to_owned(),
            what: "duration",
            example: "50ms, 2s or 1m30s",
        })
    }
}

fn parse_span(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (count, after) = split_number(rest)?;
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, unit) = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?;
        let part = unit.checked_mul(u32::try_from(count).ok()?)?;
        total = total.checked_add(part)?;
        rest = after;
    }
    Some(total)
}

impl FromStr for Size {
    type Err = ScalarError;

    fn from_str(text: &str) -> Result<Self, ScalarError> {
        parse_size(text).map(Self).ok_or_else(|| ScalarError {
            text: text.to_owned(),
            what: "size",
            example: "65536, 64KiB or 256MiB",
        })
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let (count, unit) = split_number(text.trim())?;
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Some(count);
    }
    let (_, factor) = SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    count.checked_mul(*factor)
}

/// Leading digits, and what follows.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0.as_micros();
        if left == 0 {
            return f.write_str("0s");
        }
        for (name, unit) in DURATION_UNITS.iter().rev() {
            let unit = unit.as_micros();
            if left >= unit {
                write!(f, "{}{name}", left / unit)?;
                left %= unit;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, unit): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(*unit);
        match SIZE_UNITS.iter().filter(|(name, _)| name.ends_with("iB")).find(fits) {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 65536, 64KiB or 256MiB")
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Text)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(text: &str) -> Option<Duration> {
        text.parse::<Span>().ok().map(|span| span.0)
    }

    fn size(text: &str) -> Option<u64> {
        text.parse::<Size>().ok().map(|size| size.0)
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(span("50ms"), Some(Duration::from_millis(50)));
        assert_eq!(span("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(span("0s"), Some(Duration::ZERO));
        for text in ["30", "", "s", "-1s", "1.5s", "1 parsec", "1s2", "99999999999999h"] {
            assert_eq!(span(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_may_have_units() {
        assert_eq!(size("65536"), Some(65_536));
        assert_eq!(size("64KiB"), Some(65_536));
        assert_eq!(size("1 mb"), Some(1_000_000));
        for text in ["", "KiB", "-1", "1.5MiB", "1 parsec", "99999999999GiB"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn an_error_says_how_to_write_it() {
        let error = "30".parse::<Span>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`30` is not a duration; write for example 50ms, 2s or 1m30s"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(micros in any::<u32>(), bytes in any::<u64>()) {
            let duration = Duration::from_micros(u64::from(micros));
            prop_assert_eq!(span(&Span(duration).to_string()), Some(duration));
            prop_assert_eq!(size(&Size(bytes).to_string()), Some(bytes));
        }

        #[test]
        fn no_text_panics(text in ".{0,20}") {
            let _ = (span(&text), size(&text));
        }
    }
}
