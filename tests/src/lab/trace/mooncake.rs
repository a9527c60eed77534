//! Mooncake's JSON lines.
//!
//! Published as the FAST '25 traces in kvcache-ai/Mooncake (Apache-2.0). Each line has
//! `timestamp` (milliseconds), `input_length`, `output_length` and `hash_ids`: one
//! identity per 512 prompt tokens, the last block possibly partial, equal exactly when the
//! prompts are equal up to the block's end.

use std::time::Duration;

use serde::Deserialize;

use super::Entry;
use super::error::{LineError, Problem};

/// One line; members that we do not need are ignored, for newer files have more.
#[derive(Deserialize)]
struct Line {
    timestamp: u64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// Reads the file's lines, in their order.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, LineError> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    lines
        .map(|(line, number)| entry(line).map_err(|problem| LineError { line: number, problem }))
        .collect()
}

fn entry(line: &str) -> Result<Entry, Problem> {
    let line: Line =
        serde_json::from_str(line).map_err(|error| Problem::Json { reason: error.to_string() })?;
    if line.input_length == 0 {
        return Err(Problem::Tokens { column: "input_length", found: "0".to_owned() });
    }
    let most = line.input_length.div_ceil(Entry::BLOCK_TOKENS) as usize;
    if line.hash_ids.len() > most {
        return Err(Problem::TooManyBlocks { found: line.hash_ids.len(), most });
    }
    Ok(Entry {
        at: Duration::from_millis(line.timestamp),
        prompt_tokens: line.input_length,
        // An engine takes an answer of zero tokens for an embedding.
        output_tokens: line.output_length.max(1),
        blocks: line.hash_ids,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn errors_name_the_line() {
        let good = r#"{"timestamp":0,"input_length":513,"output_length":1,"hash_ids":[1,2]}"#;
        let long = r#"{"timestamp":0,"input_length":512,"output_length":1,"hash_ids":[1,2]}"#;
        let error = parse(&format!("{good}\n\n{long}\n")).unwrap_err();
        assert_eq!(error.to_string(), "line 3: 2 hash_ids for 1 blocks of 512 tokens");
        assert_eq!(parse(&format!("{good}\n{{}}")).unwrap_err().line, 2);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            at in 0_u64..1 << 40, prompt in 1_u32..200_000, output in 1_u32.., first: u64,
        ) {
            let blocks: Vec<u64> = (0..u64::from(prompt.div_ceil(512)))
                .map(|index| first.wrapping_add(index)).collect();
            let line = serde_json::json!({
                "timestamp": at, "input_length": prompt, "output_length": output,
                "hash_ids": blocks, "new_member": true,
            });
            let wanted = Entry {
                at: Duration::from_millis(at), prompt_tokens: prompt, output_tokens: output, blocks,
            };
            prop_assert_eq!(parse(&line.to_string()).unwrap(), vec![wanted]);
        }
    }
}
