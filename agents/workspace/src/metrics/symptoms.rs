//! Classifies failed tests by the output of a test program. A symptom is the kind of error raised, not its cause.

use std::collections::BTreeMap;

use patchboard_kernel::code_enum;

code_enum! {
    /// Kind of a test failure, by the error raised.
    Symptom {
        /// A value differs from the one that the test expects.
        Assertion = "assertion",
        /// A name does not exist: a module, a function, a member.
        MissingSymbol = "missing_symbol",
        /// A function was called, or a value given, contrary to its contract.
        Contract = "contract",
        /// The code reports itself as not implemented.
        NotImplemented = "not_implemented",
        /// Any other error.
        Runtime = "runtime",
    }
}

impl Symptom {
    /// Returns the symptom shown by a message or by the end of a traceback.
    pub fn from_message(message: &str) -> Self {
        let is_apart = |c: char| !(c.is_alphanumeric() || c == '_');
        let raised = |word: &&str| {
            word.ends_with("Error") || word.ends_with("Exception") || matches!(*word, "assert" | "Failed")
        };
        match message.split(is_apart).find(raised) {
            Some("AssertionError" | "assert" | "Failed") => Self::Assertion,
            Some("NameError" | "AttributeError" | "ImportError" | "ModuleNotFoundError" | "UnboundLocalError") => {
                Self::MissingSymbol
            }
            Some("TypeError" | "ValueError") => Self::Contract,
            Some("NotImplementedError") => Self::NotImplemented,
            _ => Self::Runtime,
        }
    }
}

/// Counts the failures in the output of pytest (short summary) or unittest, by symptom.
pub fn of_output(text: &str) -> BTreeMap<Symptom, u64> {
    let mut found: BTreeMap<Symptom, u64> = BTreeMap::new();
    let mut count = |symptom| *found.entry(symptom).or_default() += 1;
    // The last unindented line of a unittest block names the error.
    let mut block: Option<&str> = None;
    for line in text.lines() {
        let short = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "));
        let is_rule = |sign| line.len() > 20 && line.bytes().all(|byte| byte == sign);
        if let Some(short) = short.filter(|short| short.contains("::") || short.contains(".py")) {
            count(Symptom::from_message(short.split_once(" - ").map_or("", |(_, message)| message)));
        } else if line.starts_with("ERROR: ") || line.starts_with("FAIL: ") {
            block.take().map(Symptom::from_message).into_iter().for_each(&mut count);
            block = Some("");
        } else if is_rule(b'=') || line.starts_with("Ran ") {
            block.take().map(Symptom::from_message).into_iter().for_each(&mut count);
        } else if block.is_some() && line.starts_with(|c: char| c.is_alphabetic()) && !line.starts_with("Traceback") {
            // An error raised while another is handled comes last.
            let head = line.split(':').next().unwrap_or(line);
            if !head.contains(' ') {
                block = Some(head);
            }
        }
    }
    block.map(Symptom::from_message).into_iter().for_each(&mut count);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart_by_what_was_raised() {
        for (message, expected) in [
            ("AssertionError: 1 != 2", Symptom::Assertion),
            ("assert False\n +  where False = f()", Symptom::Assertion),
            ("NameError: name '_wrapper' is not defined", Symptom::MissingSymbol),
            ("ImportError: cannot import name 'x' from 'y'", Symptom::MissingSymbol),
            ("failed on setup with \"TypeError: f() takes 1 positional argument\"", Symptom::Contract),
            ("NotImplementedError", Symptom::NotImplemented),
            ("KeyError: 'a'", Symptom::Runtime),
            ("it takes too long", Symptom::Runtime),
        ] {
            assert_eq!(Symptom::from_message(message), expected, "{message}");
        }
    }

    #[test]
    fn both_programs_are_read() {
        let pytest = "\
=================================== FAILURES ===================================
E       AssertionError: this is not the summary
=========================== short test summary info ============================
FAILED tests/test_a.py::test_sum - assert 3 == 4
FAILED tests/test_a.py::test_name - NameError: name 'x' is not defined
FAILED tests/test_a.py::test_hang
ERROR tests/test_b.py - ImportError: cannot import name 'y'
========================= 3 failed, 7 passed in 0.12s ==========================
";
        let expected = [(Symptom::Assertion, 1), (Symptom::MissingSymbol, 2), (Symptom::Runtime, 1)];
        assert_eq!(of_output(pytest), expected.into());
        let unittest = "\
EF.E
======================================================================
ERROR: test_scale (test_calc.All.test_scale)
----------------------------------------------------------------------
Traceback (most recent call last):
  File \"test_calc.py\", line 12, in test_scale
    self.assertEqual(scale([1, 2]), [3, 6])
TypeError: scale() missing 1 required positional argument: 'k'

======================================================================
ERROR: test_total (test_calc.All.test_total)
----------------------------------------------------------------------
Traceback (most recent call last):
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
NotImplementedError

======================================================================
FAIL: test_add (test_calc.All.test_add)
----------------------------------------------------------------------
Traceback (most recent call last):
AssertionError: None != 3

----------------------------------------------------------------------
Ran 4 tests in 0.001s
";
        let expected = [(Symptom::Assertion, 1), (Symptom::Contract, 1), (Symptom::NotImplemented, 1)];
        assert_eq!(of_output(unittest), expected.into());
        assert_eq!(of_output("Ran 5 tests in 0.1s\n\nOK\n"), BTreeMap::new());
    }
}
