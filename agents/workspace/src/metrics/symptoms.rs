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
mod tests;
