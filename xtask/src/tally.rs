//! Counts tests from the output of test runners, so that a check's summary covers only reported tests.

/// Test runner, which determines the format of reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runner {
    /// `cargo nextest`: one `Summary` line.
    Nextest,
    /// `cargo test`: a `test result:` line for every binary.
    Harness,
}

/// Numbers of tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    reports: u64,
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Tally {
    /// Parses one line of a runner's output: `test result: ok. 3 passed; 1 failed; …` of the standard harness, or the
    /// `Summary` line of nextest. Ignores other lines, including the other runner's reports in the output of a failed
    /// test. A test without its data prints `SKIPPED` and passes.
    pub(crate) fn read(&mut self, runner: Runner, line: &str) {
        let line = without_colours(line);
        self.skipped += u64::from(line.starts_with("SKIPPED"));
        let counts = match runner {
            Runner::Nextest => line.strip_prefix("     Summary ["),
            Runner::Harness => line.strip_prefix("test result:"),
        };
        let Some(counts) = counts else { return };
        self.reports += 1;
        // Both write a number directly before the word.
        let words: Vec<&str> =
            counts.trim_end().split([' ', ';', ',', ':', '(', ')']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let Ok(count) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                // nextest counts timed-out tests separately from failed ones.
                "timed" => self.failed += count,
                _ => {}
            }
        }
    }

    /// Adds the counts of another tally.
    pub(crate) fn add(&mut self, other: Self) {
        self.reports += other.reports;
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Returns true if there were tests, and all passed without skipping.
    pub(crate) const fn is_of_all(self) -> bool {
        self.passed > 0 && self.failed == 0 && self.skipped == 0
    }

    /// Returns the number of tests that skipped because their data was missing.
    pub(crate) const fn skipped(self) -> u64 {
        self.skipped
    }

    /// Formats `N passed, M failed`; `None` if no runner reported.
    pub(crate) fn summary(self) -> Option<String> {
        (self.reports > 0).then(|| format!("{} passed, {} failed", self.passed, self.failed))
    }
}

/// Removes the escape sequences for colours from a line.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(next) = rest.next() {
        if next == '\u{1b}' {
            rest.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(next);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{Runner, Tally};

    fn tally(lines: &[(Runner, &str)]) -> Option<String> {
        let mut tally = Tally::default();
        for (runner, line) in lines {
            tally.read(*runner, line);
        }
        tally.summary()
    }

    #[test]
    fn the_standard_harness_and_nextest_are_added_up() {
        let ok = "test result: ok. 4 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        let failed =
            "test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        let summary = "     Summary [   0.120s] 12 tests run: 10 passed (1 slow), 1 failed, 1 timed out, 3 skipped\n";
        let lines = [
            (Runner::Harness, "running 5 tests"),
            (Runner::Harness, ok),
            (Runner::Nextest, summary),
            (Runner::Harness, failed),
        ];
        assert_eq!(tally(&lines).as_deref(), Some("16 passed, 5 failed"));
    }

    #[test]
    fn colours_do_not_hide_a_number() {
        let line = "\u{1b}[32;1m     Summary\u{1b}[0m [ 0.1s] \u{1b}[1m7\u{1b}[0m tests run: \u{1b}[1m7\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, 0 skipped";
        assert_eq!(tally(&[(Runner::Nextest, line)]).as_deref(), Some("7 passed, 0 failed"));
    }

    #[test]
    fn without_a_report_nothing_is_claimed() {
        let silent = ["error: could not compile", "3 passed in silence"].map(|line| (Runner::Harness, line));
        assert_eq!(tally(&silent), None);
    }

    #[test]
    fn a_test_that_is_skipped_or_not_there_shows_nothing() {
        let (ok, none) =
            ("test result: ok. 1 passed; 0 failed", "test result: ok. 0 passed; 0 failed; 25 filtered out");
        for (lines, is_of_all) in [(&[ok][..], true), (&[none], false), (&["SKIPPED: no vectors", ok], false)] {
            let mut tally = Tally::default();
            lines.iter().for_each(|line| tally.read(Runner::Harness, line));
            assert_eq!(tally.is_of_all(), is_of_all, "{lines:?}");
        }
    }

    #[test]
    fn the_output_of_a_failed_test_is_counted_once() {
        let printed = "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 48 filtered out";
        let summary = "     Summary [ 186.275s] 383 tests run: 382 passed, 1 failed, 0 skipped";
        let shown = [(Runner::Nextest, printed), (Runner::Nextest, printed.trim()), (Runner::Nextest, summary)];
        assert_eq!(tally(&shown).as_deref(), Some("382 passed, 1 failed"));
    }
}
