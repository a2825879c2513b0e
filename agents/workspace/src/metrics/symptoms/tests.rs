//! Kinds of failures in the output of test programs.

use super::*;

#[test]
fn failures_are_distinguished_by_what_was_raised() {
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
