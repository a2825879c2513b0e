//! The schema of a board's state: one that also validates trees, and of a tree only what changed.

use std::ops::Deref;

use serde_json::Value;

use super::incremental::{Cost, Incremental, Settings};
use super::meter::Outcome;
use super::{Schema, SchemaError, draft};
use crate::rejection::Violation;
use crate::tree::{At, Node};

/// A schema for states. What a [`Schema`] does, it does, too.
pub struct StateSchema {
    schema: Schema,
    incremental: Incremental,
}

impl Deref for StateSchema {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        &self.schema
    }
}

impl StateSchema {
    /// Compiles a schema, and the plan by which changes are validated.
    ///
    /// # Errors
    /// As [`Schema::compile`].
    pub fn compile(document: &Value, assert_formats: bool) -> Result<Self, SchemaError> {
        let schema = Schema::compile(document, assert_formats)?;
        let settings = Settings { draft: draft(document)?, assert_formats };
        let incremental =
            Incremental::compile(&schema.document, settings, &schema.map, &schema.regexes, schema.weight)?;
        Ok(Self { schema, incremental })
    }

    /// Whether a tree is valid, all of it.
    pub fn is_valid_tree(&self, root: &Node) -> bool {
        self.incremental.outcome(root) == Outcome::Valid
    }

    /// The first `max` violations of a tree, as [`Schema::violations`] of its value says them.
    pub fn tree_violations(&self, root: &Node, max: usize) -> Vec<Violation> {
        self.incremental.violations(&self.schema, root, max)
    }

    /// Whether a tree is valid that was so at `version`, and in which everything changed since has later stamps.
    ///
    /// Costs what was touched since, and what the schema makes of it ([`Self::costs`]). A root that was replaced as a
    /// whole has no stamp to show it: that needs [`Self::is_valid_tree`].
    pub fn is_valid_since(&self, root: &Node, version: At) -> bool {
        self.incremental.outcome_since(root, version) == Outcome::Valid
    }

    /// The first `max` violations of such a tree: the ones of [`Self::tree_violations`], maybe in another order.
    pub fn violations_since(&self, root: &Node, version: At, max: usize) -> Vec<Violation> {
        self.incremental.violations_since(&self.schema, root, version, max)
    }

    /// Where a write validates more than it touches, and why. Of a very large or deep schema the first places.
    pub fn costs(&self) -> Vec<Cost> {
        self.incremental.costs(&self.schema.document, &self.schema.map)
    }

    /// Whether every change makes the whole document be validated.
    pub fn is_opaque(&self) -> bool {
        self.incremental.is_opaque()
    }
}
