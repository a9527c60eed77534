//! Counts tests by the closing lines of their runners.

use std::fmt;
use std::ops::AddAssign;

/// Tests that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Tests, or whole tiers, that were left out.
    pub(crate) skipped: u64,
}

impl Tally {
    /// Counts a line if it is the closing line of a test binary of cargo's, such as
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
    pub(crate) fn count_cargo(&mut self, line: &str) {
        let Some(counts) = line.trim_start().strip_prefix("test result: ") else { return };
        self.passed += number_before(counts, " passed");
        self.failed += number_before(counts, " failed");
        self.skipped += number_before(counts, " ignored");
    }

    /// Counts a line if it is the closing line of pytest, such as
    /// `== 1 failed, 3 passed, 2 skipped in 0.52s ==`.
    pub(crate) fn count_pytest(&mut self, line: &str) {
        let line = line.trim_matches(['=', ' ']);
        if !line.ends_with('s') || !line.contains(" in ") {
            return;
        }
        self.passed += number_before(line, " passed");
        self.failed += number_before(line, " failed") + number_before(line, " error");
        self.skipped += number_before(line, " skipped");
    }

    /// Counts a line if it is one of the closing lines of node's test runner, such as
    /// `# pass 3`; they start with another sign on a terminal.
    pub(crate) fn count_node(&mut self, line: &str) {
        let line = line.trim_start_matches(['#', '\u{2139}', ' ']);
        let Some((name, count)) = line.split_once(' ') else { return };
        let Ok(count) = count.trim().parse::<u64>() else { return };
        match name {
            "pass" => self.passed += count,
            "fail" | "cancelled" => self.failed += count,
            "skipped" | "todo" => self.skipped += count,
            _ => {}
        }
    }

    /// Takes in how the runner ended: one that fails without a failed test, because it
    /// could not build or was killed, counts as a failure.
    pub(crate) fn with_end(mut self, success: bool) -> Self {
        if !success && self.failed == 0 {
            self.failed = 1;
        }
        self
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The number that stands right before `word`; 0 when there is none.
fn number_before(line: &str, word: &str) -> u64 {
    let Some(at) = line.find(word) else { return 0 };
    let digits = line[..at].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str], count: fn(&mut Tally, &str)) -> Tally {
        let mut tally = Tally::default();
        for line in lines {
            count(&mut tally, line);
        }
        tally
    }

    #[test]
    fn test_binaries_of_cargo_add_up() {
        let lines = [
            "test a ... ok",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
        ];
        let expected = Tally { passed: 15, failed: 2, skipped: 1 };
        assert_eq!(tally(&lines, Tally::count_cargo), expected);
    }

    #[test]
    fn pytest_closes_with_one_line() {
        let lines = ["2 passed is not the end", "=== 1 failed, 10 passed, 2 skipped in 1.02s ==="];
        let expected = Tally { passed: 10, failed: 1, skipped: 2 };
        assert_eq!(tally(&lines, Tally::count_pytest), expected);
        assert_eq!(tally(&["1 error in 0.1s"], Tally::count_pytest).failed, 1);
    }

    #[test]
    fn node_closes_with_a_line_each() {
        let lines = ["# tests 4", "# pass 3", "\u{2139} fail 1", "# cancelled 0", "# skipped 2"];
        let expected = Tally { passed: 3, failed: 1, skipped: 2 };
        assert_eq!(tally(&lines, Tally::count_node), expected);
    }

    #[test]
    fn a_runner_that_dies_is_a_failure() {
        let tally = Tally { passed: 3, ..Tally::default() };
        assert_eq!(tally.with_end(false).failed, 1);
        assert_eq!(tally.with_end(true).failed, 0);
        assert_eq!(Tally { failed: 2, ..tally }.with_end(false).failed, 2);
    }

    #[test]
    fn the_summary_is_one_plain_line() {
        let tally = Tally { passed: 3, failed: 0, skipped: 1 };
        assert_eq!(tally.to_string(), "3 passed, 0 failed, 1 skipped");
    }
}
