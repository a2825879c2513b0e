//! A schema with cached lookups, for checks that query the same places repeatedly.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;

use serde_json::Value;

use patchboard_kernel::pattern::Pattern;
use patchboard_kernel::schema::{Location, Schema};

/// Maximum cached answers per kind of lookup.
const ANSWERS_MAX: usize = 1024;

pub(super) struct CachedSchema {
    schema: Schema,
    located: RefCell<BTreeMap<Pattern, Location>>,
    shown: RefCell<BTreeMap<Pattern, Option<Value>>>,
}

impl From<Schema> for CachedSchema {
    fn from(schema: Schema) -> Self {
        Self { schema, located: RefCell::default(), shown: RefCell::default() }
    }
}

impl Deref for CachedSchema {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        &self.schema
    }
}

impl CachedSchema {
    /// Like [`Schema::locate`], cached.
    pub(super) fn locate(&self, pattern: &Pattern) -> Location {
        answered(&self.located, pattern, || self.schema.locate(pattern))
    }

    /// Like [`Schema::fragment`], cached.
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
