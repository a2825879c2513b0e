//! The initial document with cached lookups, for checks that query many patterns.

use std::cell::RefCell;
use std::collections::BTreeMap;

use jsonptr::PointerBuf;
use serde_json::Value;

use patchboard_kernel::pattern::{Pattern, PatternToken};
use patchboard_kernel::work_budget::{WorkBudget, WorkKind};

/// Maximum cached answers.
const ANSWERS_MAX: usize = 4096;

/// The initial document with its cached answers.
pub(super) struct InitialDocument<'a> {
    document: &'a Value,
    /// Number of values in it: the cost of a pattern with a wildcard.
    values: u64,
    found: RefCell<BTreeMap<Pattern, Option<PointerBuf>>>,
    effort: WorkBudget,
}

impl<'a> InitialDocument<'a> {
    pub(super) fn new(document: &'a Value, effort: WorkBudget) -> Self {
        Self { document, values: values(document), found: RefCell::default(), effort }
    }

    /// Returns the first place that a pattern matches; `None` without a match, or if no effort is left.
    pub(super) fn first(&self, pattern: &Pattern) -> Option<PointerBuf> {
        if let Some(known) = self.found.borrow().get(pattern) {
            return known.clone();
        }
        let is_wild = |token: &PatternToken| matches!(token, PatternToken::Any | PatternToken::Deep);
        let steps = if pattern.tokens().iter().any(is_wild) { 2 * self.values } else { 1 };
        if !self.effort.spend(WorkKind::Places, steps) {
            return None;
        }
        let first = pattern.instances_of_value(self.document, 1).pop();
        let mut found = self.found.borrow_mut();
        if found.len() < ANSWERS_MAX {
            found.insert(pattern.clone(), first.clone());
        }
        first
    }
}

/// Counts a value and all values in it.
fn values(of: &Value) -> u64 {
    let (mut count, mut pending) = (0, vec![of]);
    while let Some(value) = pending.pop() {
        count += 1;
        match value {
            Value::Array(items) => pending.extend(items),
            Value::Object(members) => pending.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    count
}
