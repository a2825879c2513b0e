//! Tests declared by a department: rows and a classified request go in, members of the result are compared.
//!
//! The real roles run on a database in memory; only the model's classification is given.

use patchboard_kernel::id::Timestamp;
use patchboard_lint::{FindingCode, Severity};
use patchboard_protocols::department::{Department, Test, TestAnswer};
use serde_json::{Map, Value};

use super::answers::answer;
use super::confirm::{self, DepartmentResult};
use super::crud::execute;
use super::pending_question::{self, Classification};
use super::resolve::resolve;
use super::resume::resume;
use super::storage::{Storage, StorageError};
use super::types::{Resolution, Status, Values};

/// Code of a failed test.
pub const FAILED: &str = "failed_test";

/// Findings of tests: code, severity, meaning.
pub const CODES: &[FindingCode] = &[(FAILED, Severity::Error, "A test of a department does not come out as it says.")];

/// Greatest size of an outcome's rows in bytes.
pub(super) const RESULT_BYTES_MAX: usize = 32 * 1024;

/// Expectation that was not met.
#[derive(Clone, PartialEq, Debug)]
pub struct FailedExpectation {
    /// Member of the result, `rows`, `rows/N` for an initial row, or `answers/N`.
    pub at: String,
    /// Expected value.
    pub expected: Value,
    /// Actual value.
    pub found: Value,
}

/// Runs a test. Returns the expectations that were not met.
pub fn run(department: &Department, test: &Test) -> Result<Vec<FailedExpectation>, StorageError> {
    let storage = Storage::in_memory();
    let case = Case { department, storage: &storage };
    if let Some(miss) = case.prepare(&test.rows)? {
        return Ok(vec![miss]);
    }
    let department_result = match case.play(test)? {
        Ok(result) => result,
        Err(miss) => return Ok(vec![miss]),
    };
    let result = serde_json::to_value(&department_result).unwrap_or_default();
    let mut misses = Vec::new();
    for (member, expected) in &test.expect {
        let found = result.get(member).cloned().unwrap_or_default();
        if found != *expected {
            misses.push(FailedExpectation { at: member.clone(), expected: expected.clone(), found });
        }
    }
    if let Some(then) = &test.then {
        let sorted = |mut rows: Vec<Values>| {
            rows.sort_by_key(|row| Value::Object(row.clone()).to_string());
            rows
        };
        let expected = sorted(then.clone());
        let found = sorted(storage.rows(department)?.into_iter().map(|row| row.values).collect());
        if found != expected {
            let list = |rows: Vec<Values>| rows.into_iter().map(Value::Object).collect();
            misses.push(FailedExpectation { at: "rows".to_owned(), expected: list(expected), found: list(found) });
        }
    }
    Ok(misses)
}

struct Case<'a> {
    department: &'a Department,
    storage: &'a Storage,
}

impl Case<'_> {
    /// Inserts the initial rows, which must be valid.
    fn prepare(&self, rows: &[Map<String, Value>]) -> Result<Option<FailedExpectation>, StorageError> {
        // Uses an action of its own, because a department need not have one that inserts whole rows.
        let mut department = self.department.clone();
        for (index, row) in rows.iter().enumerate() {
            let sets = row.keys().cloned().collect();
            let action = patchboard_protocols::department::Action {
                does: patchboard_protocols::department::RowOperation::Insert,
                description: String::new(),
                finds: Vec::new(),
                sets,
                confirm: String::new(),
            };
            department.actions.insert("row".to_owned(), action);
            let found = Resolution::new(Status::Found, "row", row.clone());
            let now = Timestamp(i64::try_from(index).unwrap_or(0));
            let outcome = execute(self.storage, &department, &format!("row:{index}"), &found, now, RESULT_BYTES_MAX)?;
            if outcome.wrong.is_some() {
                let (at, why) = (format!("rows/{index}"), confirm::done(&department, &outcome, RESULT_BYTES_MAX).text);
                return Ok(Some(FailedExpectation { at, expected: Value::Object(row.clone()), found: why.into() }));
            }
        }
        Ok(None)
    }

    /// Runs the request and answers its questions while the test has answers. Returns the last result.
    fn play(&self, test: &Test) -> Result<Result<DepartmentResult, FailedExpectation>, StorageError> {
        let mut now = Timestamp(1_000_000);
        let rows = self.storage.rows(self.department)?;
        let mut resolved = resolve(self.department, &test.classified.action, &test.classified.slots, &rows);
        let mut replies = test.answers.iter().enumerate();
        loop {
            let result = if resolved.status == Status::Found {
                let key = format!("case:{}", now.0);
                confirm::done(
                    self.department,
                    &execute(self.storage, self.department, &key, &resolved, now, RESULT_BYTES_MAX)?,
                    RESULT_BYTES_MAX,
                )
            } else {
                confirm::not_done(self.department, &resolved, now, RESULT_BYTES_MAX)
            };
            let Some((pending, (nth, reply))) =
                result.pending.as_ref().and_then(|question| Some((question, replies.next()?)))
            else {
                return Ok(Ok(result));
            };
            now = now.plus_ms(1000);
            resolved = match reply {
                TestAnswer::Words(words) if answer(&pending.into(), words).is_some() => {
                    resume(self.department, pending, words, now)
                }
                TestAnswer::Words(words) => {
                    let expected = "a clear answer, or what the words mean (`action`, `slots`)".into();
                    return Ok(Err(FailedExpectation {
                        at: format!("answers/{nth}"),
                        expected,
                        found: words.as_str().into(),
                    }));
                }
                TestAnswer::Classified(classified) => {
                    let understood = Classification { action: &classified.action, slots: &classified.slots };
                    let search = |action: &str, slots: &Values| resolve(self.department, action, slots, &rows);
                    pending_question::resolve(self.department, Some(pending), understood, now, search)
                }
            };
        }
    }
}

#[cfg(test)]
pub(in crate::departments) mod tests;
