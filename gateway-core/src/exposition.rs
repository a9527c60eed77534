//! A reader of the Prometheus text format that looks only for the families it was
//! asked for.
//!
//! An engine's page is some 50 kB of histograms, and a gateway reads a hundred of
//! them twenty times a second for six gauges each. So nothing is parsed that was
//! not asked for: a line is found, its first bytes are compared, and it is passed
//! over. A malformed line costs itself and no other.

use memchr::{memchr, memchr2};

/// Names of the families that are wanted, ready for a quick test.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Families {
    names: Vec<Box<[u8]>>,
    /// What all names start with.
    prefix: Box<[u8]>,
    /// Bytes that follow the prefix in some name.
    firsts: [bool; 256],
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// Place of its family in the list that [`Families::new`] was given.
    pub family: usize,
    /// Its labels.
    pub labels: Labels<'a>,
    /// Its value; may be infinite or not a number.
    pub value: f64,
}

/// Labels of a sample, still as text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Labels<'a> {
    /// What stands between the braces.
    text: &'a [u8],
}

impl Families {
    /// A reader of these families; names are compared as a whole.
    #[must_use]
    pub fn new<S: AsRef<str>>(names: &[S]) -> Self {
        let names: Vec<Box<[u8]>> = names.iter().map(|n| n.as_ref().as_bytes().into()).collect();
        let prefix = common_prefix(&names);
        let mut firsts = [false; 256];
        for name in &names {
            match name.get(prefix.len()) {
                Some(&byte) => firsts[usize::from(byte)] = true,
                // The prefix is a whole name, so anything may follow it.
                None => firsts = [true; 256],
            }
        }
        Self { names, prefix, firsts }
    }

    /// Calls `visit` for each sample of a wanted family, in page order.
    pub fn read<'a>(&self, page: &'a [u8], mut visit: impl FnMut(Row<'a>)) {
        let mut rest = page;
        while !rest.is_empty() {
            let end = memchr(b'\n', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            if self.may_want(line)
                && let Some(row) = self.row(line)
            {
                visit(row);
            }
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }

    fn may_want(&self, line: &[u8]) -> bool {
        let first = line.get(self.prefix.len());
        first.is_some_and(|&byte| self.firsts[usize::from(byte)]) && line.starts_with(&self.prefix)
    }

    fn row<'a>(&self, line: &'a [u8]) -> Option<Row<'a>> {
        let is_whole = |name: &[u8]| {
            line.starts_with(name) && matches!(line.get(name.len()), Some(b'{' | b' ' | b'\t'))
        };
        let family = self.names.iter().position(|name| is_whole(name))?;
        let rest = line[self.names[family].len()..].trim_ascii_start();
        let (labels, rest) = match rest.strip_prefix(b"{") {
            Some(rest) => rest.split_at_checked(labels_end(rest)?)?,
            None => (&rest[..0], rest),
        };
        // A timestamp or an exemplar may follow the value.
        let rest = rest.strip_prefix(b"}").unwrap_or(rest);
        let value = rest.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
        let value = std::str::from_utf8(value).ok()?.parse().ok()?;
        Some(Row { family, labels: Labels { text: labels }, value })
    }
}

impl<'a> Labels<'a> {
    /// The raw text of a label's value, escapes not decoded.
    fn raw(self, name: &str) -> Option<&'a [u8]> {
        let mut rest = self.text;
        loop {
            let equals = memchr(b'=', rest)?;
            let label = rest[..equals].trim_ascii();
            let value = rest[equals + 1..].trim_ascii_start().strip_prefix(b"\"")?;
            let end = quote_end(value)?;
            if label == name.as_bytes() {
                return Some(&value[..end]);
            }
            let after = value[end + 1..].trim_ascii_start();
            rest = after.strip_prefix(b",").unwrap_or(after);
        }
    }

    /// A label's value, escapes decoded. `None` when there is no such label, or its
    /// value is not UTF-8.
    #[must_use]
    pub fn value(self, name: &str) -> Option<String> {
        let mut rest = std::str::from_utf8(self.raw(name)?).ok()?;
        let mut text = String::with_capacity(rest.len());
        while let Some((plain, escape)) = rest.split_once('\\') {
            text.push_str(plain);
            let mut chars = escape.chars();
            match chars.next()? {
                'n' => text.push('\n'),
                c @ ('"' | '\\') => text.push(c),
                // An escape that the format does not know stands for itself.
                c => text.extend(['\\', c]),
            }
            rest = chars.as_str();
        }
        text.push_str(rest);
        Some(text)
    }

    /// Whether a label has this value.
    #[must_use]
    pub fn is(self, name: &str, value: &str) -> bool {
        self.raw(name).is_some_and(|raw| {
            raw == value.as_bytes()
                || (raw.contains(&b'\\') && self.value(name).is_some_and(|text| text == value))
        })
    }
}

fn common_prefix(names: &[Box<[u8]>]) -> Box<[u8]> {
    let Some(first) = names.first() else { return Box::default() };
    let common = |name: &[u8]| first.iter().zip(name).take_while(|(a, b)| a == b).count();
    let len = names.iter().map(|name| common(name)).min().unwrap_or(0);
    first[..len].into()
}

/// Offset of the brace that closes the labels.
fn labels_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'}', &text[at..])?;
        if text[at] == b'}' {
            return Some(at);
        }
        at += 1;
        at += quote_end(&text[at..])? + 1;
    }
}

/// Offset of the quote that ends a label's value.
fn quote_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(page: &str) -> Vec<(usize, f64)> {
        let mut rows = Vec::new();
        Families::new(&["app:depth", "app:load"])
            .read(page.as_bytes(), |row| rows.push((row.family, row.value)));
        rows
    }

    fn label(text: &str, name: &str) -> Option<String> {
        Labels { text: text.as_bytes() }.value(name)
    }

    #[test]
    fn only_whole_names_match() {
        let page = "app:depth 1\napp:depth_total 2\napp:dept 3\nxapp:depth 4\napp:load{a=\"b\"} 5\n# app:load 6";
        assert_eq!(rows(page), [(0, 1.0), (1, 5.0)]);
    }

    #[test]
    fn timestamps_exemplars_and_odd_spacing_are_tolerated() {
        let page = "app:depth 1 1700000000000\napp:load{a=\"x\", } 2 # {id=\"}\"} 0.5\r\napp:load\t3\napp:load {a=\"b\"}4";
        assert_eq!(rows(page), [(0, 1.0), (1, 2.0), (1, 3.0), (1, 4.0)]);
    }

    #[test]
    fn a_malformed_line_costs_itself_only() {
        let page =
            "app:depth{a=\"b} 1\napp:depth\napp:depth{\napp:depth x\napp:depth \napp:depth 7";
        assert_eq!(rows(page), [(0, 7.0)]);
    }

    #[test]
    fn braces_and_quotes_in_labels_are_text() {
        let page = r#"app:depth{a="}\"} 9",b="2"} 1"#;
        assert_eq!(rows(page), [(0, 1.0)]);
        assert_eq!(label(r#"a="}\"} 9",b="2""#, "b").unwrap(), "2");
    }

    #[test]
    fn escapes_in_labels_are_decoded() {
        assert_eq!(label(r#"a = "x\\y\n\"z\" \q" , "#, "a").unwrap(), "x\\y\n\"z\" \\q");
        assert!(Labels { text: br#"a="x\\y""# }.is("a", "x\\y"));
        assert_eq!(label(r#"ab="1",a="2""#, "a").unwrap(), "2");
        assert_eq!(label(r#"a="1""#, "b"), None);
    }

    #[test]
    fn special_values_are_read() {
        let values = rows("app:depth +Inf\napp:depth NaN\napp:depth 1e3");
        assert!(values[0].1.is_infinite() && values[1].1.is_nan());
        assert_eq!(values[2], (0, 1_000.0));
    }

    proptest! {
        #[test]
        fn any_label_value_survives(value: String, number in 0_u32..1_000) {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let page = format!("app:load{{z=\"1\",a=\"{escaped}\"}} {number}\n");
            let mut seen = Vec::new();
            Families::new(&["app:load"]).read(page.as_bytes(), |row| seen.push((row.labels.value("a"), row.value)));
            prop_assert_eq!(seen, [(Some(value), f64::from(number))]);
        }

        #[test]
        fn no_page_makes_it_panic(page in prop::collection::vec(prop::sample::select(&b"app:load{}\"\\=, 1\n"[..]), 0..200)) {
            Families::new(&["app:load", "a"]).read(&page, |row| { let _ = row.labels.value("a"); });
        }
    }
}
