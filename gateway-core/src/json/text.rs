//! Small pieces of JSON text.

/// The value of a string given without its quotes; `None` when it is not UTF-8,
/// has a control character or an invalid escape.
pub(crate) fn unescape(raw: &[u8]) -> Option<String> {
    let mut rest = std::str::from_utf8(raw).ok()?;
    if rest.bytes().any(|b| b < b' ') {
        return None;
    }
    let mut text = String::with_capacity(raw.len());
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        let mut chars = escape.chars();
        match chars.next()? {
            c @ ('"' | '\\' | '/') => text.push(c),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'u' => {
                let (c, left) = code_point(chars.as_str())?;
                text.push(c);
                rest = left;
                continue;
            }
            _ => return None,
        }
        rest = chars.as_str();
    }
    text.push_str(rest);
    Some(text)
}

/// `text` as JSON, with its quotes.
pub(crate) fn escape(text: &str) -> Vec<u8> {
    let mut json = vec![b'"'];
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend([b'\\', c as u8]),
            c if c < ' ' => json.extend(format!("\\u{:04x}", u32::from(c)).bytes()),
            c => json.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    json.push(b'"');
    json
}

/// The character after `\u`, and what follows it.
fn code_point(digits: &str) -> Option<(char, &str)> {
    let (high, rest) = unit(digits)?;
    if !(0xd800..0xdc00).contains(&high) {
        // A lone low surrogate is no character.
        return Some((char::from_u32(high)?, rest));
    }
    let (low, rest) = unit(rest.strip_prefix("\\u")?)?;
    let low = low.checked_sub(0xdc00).filter(|&low| low < 0x400)?;
    Some((char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + low)?, rest))
}

/// One UTF-16 code unit of four hexadecimal digits.
fn unit(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    Some((u32::from_str_radix(digits, 16).ok()?, rest))
}

/// Whether `raw` is a number or literal, as the engines' parsers take them
/// (Python's also knows `NaN` and infinities).
pub(super) fn is_scalar(raw: &[u8]) -> bool {
    if matches!(raw, b"true" | b"false" | b"null" | b"NaN" | b"Infinity" | b"-Infinity") {
        return true;
    }
    let raw = raw.strip_prefix(b"-").unwrap_or(raw);
    let (whole, rest) = digits(raw);
    if whole.is_empty() || (whole.len() > 1 && whole[0] == b'0') {
        return false;
    }
    let rest = match rest.strip_prefix(b".") {
        Some(rest) => match digits(rest) {
            ([], _) => return false,
            (_, rest) => rest,
        },
        None => rest,
    };
    match rest {
        [] => true,
        [b'e' | b'E', b'+' | b'-', exponent @ ..] | [b'e' | b'E', exponent @ ..] => {
            matches!(digits(exponent), ([_, ..], []))
        }
        _ => false,
    }
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// `text` without the whitespace JSON allows at its start.
pub(crate) fn compact(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|b| !b" \t\r\n".contains(b)).unwrap_or(text.len());
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_are_decoded() {
        let raw = br#"a\/b\u00e9\ud83d\ude00\n\"\\"#;
        assert_eq!(unescape(raw).unwrap(), "a/bé😀\n\"\\");
    }

    #[test]
    fn broken_strings_are_refused() {
        for raw in [
            &b"\xff"[..],
            b"\\x",
            b"\\u12",
            b"\\ud800",
            b"\\ud800\\u0041",
            b"\\udc00",
            b"a\nb",
            b"\\",
        ] {
            assert_eq!(unescape(raw), None, "{}", raw.escape_ascii());
        }
    }

    #[test]
    fn scalars_follow_the_grammar() {
        for raw in ["0", "-1", "10.5", "1e9", "1.5E-3", "true", "null", "NaN", "-Infinity"] {
            assert!(is_scalar(raw.as_bytes()), "{raw}");
        }
        for raw in ["", "-", "01", "1.", ".5", "1e", "tru", "nul", "1a", "+1", "--1", "1e+"] {
            assert!(!is_scalar(raw.as_bytes()), "{raw}");
        }
    }

    proptest! {
        #[test]
        fn any_text_survives_encoding(text: String) {
            let encoded = serde_json::to_vec(&text).unwrap();
            prop_assert_eq!(unescape(&encoded[1..encoded.len() - 1]).unwrap(), text.as_str());
            prop_assert_eq!(serde_json::from_slice::<String>(&escape(&text)).unwrap(), text);
        }

        #[test]
        fn any_number_is_a_scalar(number: f64) {
            prop_assume!(number.is_finite());
            prop_assert!(is_scalar(serde_json::to_string(&number).unwrap().as_bytes()));
        }
    }
}
