//! Compiled `value` schemas of grants; equal schemas are compiled once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::definitions::with_definitions;
use crate::schema::{REGEX_BYTES_MAX, Schema, SchemaError, regexes_too_large};
use crate::work_budget::{WorkBudget, WorkKind};

/// Schema bytes that count as one step of effort when a schema is looked up.
const BYTES_OF_STEP: u64 = 64;

/// Compiles the value schemas of the grants of one blueprint.
pub struct Values<'s> {
    /// The state schema, with definitions that value schemas may refer to.
    state: &'s Value,
    /// Compiled schemas by their text in the blueprint, as compact JSON.
    compiled: RefCell<BTreeMap<String, Result<Arc<Schema>, SchemaError>>>,
    /// Bytes of the regular expressions of all schemas of the blueprint compiled so far.
    regex_bytes: Cell<usize>,
    effort: WorkBudget,
}

impl<'s> Values<'s> {
    /// Creates an empty cache for a state schema.
    pub fn new(state: &'s Value) -> Self {
        Self { state, compiled: RefCell::default(), regex_bytes: Cell::new(0), effort: WorkBudget::default() }
    }

    /// Charges compilation to the effort of a check.
    pub fn within(self, effort: WorkBudget) -> Self {
        Self { effort, ..self }
    }

    /// Counts the regular expressions of another schema of the blueprint. Fails if all together exceed the limit for a
    /// blueprint.
    pub fn count(&self, schema: &Schema) -> Result<(), SchemaError> {
        let all = self.regex_bytes.get() + schema.regex_bytes();
        self.regex_bytes.set(all);
        if self.is_full() { Err(SchemaError::new("", regexes_too_large())) } else { Ok(()) }
    }

    /// Returns true if the regular expressions exceed the limit for a blueprint.
    pub fn is_full(&self) -> bool {
        self.regex_bytes.get() > REGEX_BYTES_MAX
    }

    /// Compiles a schema of the blueprint, or returns the result for an equal one.
    pub fn compile(&self, written: &Value) -> Result<Arc<Schema>, SchemaError> {
        let text = written.to_string();
        self.effort.spend(WorkKind::Schemas, text.len() as u64 / BYTES_OF_STEP);
        if let Some(known) = self.compiled.borrow().get(&text) {
            return known.clone();
        }
        let compiled = Schema::compile_within(&with_definitions(written, self.state), false, &self.effort)
            .and_then(|schema| self.count(&schema).map(|()| Arc::new(schema)));
        self.compiled.borrow_mut().insert(text, compiled.clone());
        compiled
    }
}
