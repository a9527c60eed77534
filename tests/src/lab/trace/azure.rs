//! Azure's CSV: `TIMESTAMP,ContextTokens,GeneratedTokens`.
//!
//! Published as `AzureLLMInferenceTrace` in Azure/AzurePublicDataset (CC-BY). Times are
//! UTC with up to seven decimals; the files of 2024 add `+00:00`. Only differences of time
//! matter, so they are counted from 1970 without a calendar crate.

use std::time::Duration;

use super::Entry;
use super::error::{LineError, Problem};

const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// Reads the file's lines, in their order; times count from 1970.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, LineError> {
    let mut lines = text.lines().zip(1..);
    let header = lines.next().map_or("", |(line, _)| line.trim_start_matches('\u{feff}').trim());
    if header != HEADER {
        let problem = Problem::Header { found: shortened(header), wanted: HEADER };
        return Err(LineError { line: 1, problem });
    }
    let rows = lines.filter(|(line, _)| !line.trim().is_empty());
    rows.map(|(line, number)| row(line).map_err(|problem| LineError { line: number, problem }))
        .collect()
}

fn row(line: &str) -> Result<Entry, Problem> {
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, prompt, output] = columns[..] else {
        return Err(Problem::Columns { found: columns.len() });
    };
    let at = moment(time).ok_or_else(|| Problem::Time { found: shortened(time) })?;
    let prompt_tokens = tokens("ContextTokens", prompt)?;
    if prompt_tokens == 0 {
        return Err(Problem::Tokens { column: "ContextTokens", found: prompt.to_owned() });
    }
    // An engine takes an answer of zero tokens for an embedding.
    let output_tokens = tokens("GeneratedTokens", output)?.max(1);
    Ok(Entry { at, prompt_tokens, output_tokens, blocks: Vec::new() })
}

fn tokens(column: &'static str, text: &str) -> Result<u32, Problem> {
    text.parse().map_err(|_| Problem::Tokens { column, found: shortened(text) })
}

/// Time since 1970 of `2023-11-16 18:17:03.9799600`, with or without `+00:00`.
fn moment(text: &str) -> Option<Duration> {
    let text = text.strip_suffix("+00:00").unwrap_or(text);
    let (date, clock) = text.split_once(' ')?;
    let [year, month, day] = numbers(date, '-')?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let [hour, minute, second] = numbers(clock, ':')?;
    let is_date = (1970..10_000).contains(&year) && (1..=12).contains(&month);
    if !is_date || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Duration::from_secs(seconds) + nanoseconds(fraction)?)
}

/// Days since 1970 in the Gregorian calendar, by counting years from March so that a leap
/// day is a year's last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let years = if month > 2 { year } else { year - 1 };
    let month_from_march = (month + 9) % 12;
    let leap_days = years / 4 - years / 100 + years / 400;
    // 719,468 such days lie before 1970.
    years * 365 + leap_days + (153 * month_from_march + 2) / 5 + day - 1 - 719_468
}

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator).map(|part| digits(part)?.parse().ok());
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

fn nanoseconds(fraction: &str) -> Option<Duration> {
    if fraction.is_empty() {
        return Some(Duration::ZERO);
    }
    let value: u64 = digits(fraction).filter(|digits| digits.len() <= 9)?.parse().ok()?;
    Some(Duration::from_nanos(value * 10_u64.pow(9 - fraction.len() as u32)))
}

/// The text, when it is one to nine digits: signs and spaces are no part of a time.
fn digits(text: &str) -> Option<&str> {
    let fits = (1..=9).contains(&text.len());
    (fits && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

/// What an error shows of a text that may be long.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(rows: &str) -> Result<Vec<Entry>, LineError> {
        parse(&format!("{HEADER}\n{rows}"))
    }

    #[test]
    fn rows_become_requests() {
        let entries = file("2023-11-16 18:17:03.9799600,4808,10\r\n").unwrap();
        assert_eq!((entries[0].prompt_tokens, entries[0].output_tokens), (4808, 10));
        // `date -u -d '2023-11-16 18:17:03' +%s`
        assert_eq!(entries[0].at, Duration::new(1_700_158_623, 979_960_000));
    }

    #[test]
    fn time_zone_of_the_later_files_is_understood() {
        assert_eq!(moment("2024-05-10 00:00:00.009930+00:00").unwrap().subsec_micros(), 9930);
    }

    #[test]
    fn leap_days_are_days() {
        let day = |text: &str| moment(&format!("{text} 00:00:00")).unwrap().as_secs() / 86_400;
        assert_eq!(day("1970-01-01"), 0);
        assert_eq!(day("2024-03-01") - day("2024-02-28"), 2);
        assert_eq!(day("2023-03-01") - day("2023-02-28"), 1);
    }

    #[test]
    fn errors_name_the_line() {
        let error = file("2023-11-16 18:17:03.9,1,1\n2023-11-16 18:17,1,1\n").unwrap_err();
        assert_eq!(error.line, 3);
        assert_eq!(
            file("2023-11-16 18:17:03,1\n").unwrap_err().problem,
            Problem::Columns { found: 2 }
        );
        let error = file("2023-11-16 18:17:03,-4,1\n").unwrap_err().to_string();
        assert_eq!(error, "line 2: `-4` is no number of tokens for ContextTokens");
        assert_eq!(parse("a,b\n").unwrap_err().line, 1);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            second in 0_u64..4_000_000_000, micros in 0_u32..1_000_000,
            prompt in 1_u32.., output in 1_u32..,
        ) {
            let (day, rest) = (second / 86_400, second % 86_400);
            // A date from its day by trying: independent of the formula under test.
            let (mut year, mut month, mut left) = (1970, 1, day);
            loop {
                let length = length_of(year, month);
                if left < length { break; }
                left -= length;
                (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            }
            let (hour, minute) = (rest / 3600, rest / 60 % 60);
            let row = format!(
                "{year:04}-{month:02}-{:02} {hour:02}:{minute:02}:{:02}.{micros:06},{prompt},{output}",
                left + 1, rest % 60,
            );
            let entry = &file(&row).unwrap()[0];
            prop_assert_eq!(entry.at, Duration::new(second, micros * 1000));
            prop_assert_eq!((entry.prompt_tokens, entry.output_tokens), (prompt, output));
        }
    }

    fn length_of(year: u64, month: u64) -> u64 {
        let is_leap =
            year.is_multiple_of(400) || year.is_multiple_of(4) && !year.is_multiple_of(100);
        match month {
            2 => 28 + u64::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }
}
