//! Renaming gives the same bytes in any split, changes only the name, and can be
//! undone.
#![no_main]

use gateway_core::rename::{Rename, Shape};
use libfuzzer_sys::fuzz_target;

const TARGET: &str = "tt";
const ALIAS: &str = "alias-of-the-model";

fn rename<'a>(shape: Shape, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut rename = Rename::new(shape, TARGET, ALIAS);
    let mut out = Vec::new();
    for piece in pieces {
        rename.push(piece, &mut out);
    }
    rename.finish(&mut out);
    out
}

/// Whether `out` is `input` with some names, each a string of the target, replaced.
fn differs_only_in_names(mut input: &[u8], mut out: &[u8]) -> bool {
    let alias = format!("\"{ALIAS}\"");
    while input != out {
        let same = input.iter().zip(out).take_while(|(a, b)| a == b).count();
        // The opening quote is common to both names.
        let Some(start) = same.checked_sub(1) else { return false };
        let Some(rest) = out[start..].strip_prefix(alias.as_bytes()) else { return false };
        let Some(end) = input[start + 1..].iter().position(|&b| b == b'"') else { return false };
        let written = &input[start..=start + 1 + end];
        if serde_json::from_slice::<String>(written).ok().as_deref() != Some(TARGET) {
            return false;
        }
        (input, out) = (&input[start + 2 + end..], rest);
    }
    true
}

fuzz_target!(|input: &[u8]| {
    let (whole, pieces) = gateway_fuzz::cut(input);
    if whole.windows(ALIAS.len()).any(|window| window == ALIAS.as_bytes()) {
        return;
    }
    for shape in [Shape::Events, Shape::Json] {
        let out = rename(shape, [whole]);
        assert_eq!(rename(shape, pieces.iter().copied()), out);
        assert!(differs_only_in_names(whole, &out));
    }
});
