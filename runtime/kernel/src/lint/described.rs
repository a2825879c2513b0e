//! A schema that a check asks of the same places again and again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;

use serde_json::Value;

use crate::pattern::Pattern;
use crate::schema::{Location, Schema};

/// The most answers that are kept to questions of one kind.
const ANSWERS_MAX: usize = 1024;

/// A schema, with what it has answered.
pub(super) struct Described {
    schema: Schema,
    located: RefCell<BTreeMap<Pattern, Location>>,
    shown: RefCell<BTreeMap<Pattern, Option<Value>>>,
}

impl From<Schema> for Described {
    fn from(schema: Schema) -> Self {
        Self { schema, located: RefCell::default(), shown: RefCell::default() }
    }
}

impl Deref for Described {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        &self.schema
    }
}

impl Described {
    /// As [`Schema::locate`].
    pub(super) fn locate(&self, pattern: &Pattern) -> Location {
        answered(&self.located, pattern, || self.schema.locate(pattern))
    }

    /// As [`Schema::fragment`].
    pub(super) fn fragment(&self, pattern: &Pattern) -> Option<Value> {
        answered(&self.shown, pattern, || self.schema.fragment(pattern))
    }
}

fn answered<A: Clone>(kept: &RefCell<BTreeMap<Pattern, A>>, pattern: &Pattern, find: impl FnOnce() -> A) -> A {
    if let Some(known) = kept.borrow().get(pattern) {
        return known.clone();
    }
    let answer = find();
    let mut kept = kept.borrow_mut();
    if kept.len() < ANSWERS_MAX {
        kept.insert(pattern.clone(), answer.clone());
    }
    answer
}
