//! The schema of a board's state, with incremental validation of trees.

use std::ops::Deref;

use serde_json::Value;

use super::incremental::{Cost, Incremental, Settings};
use super::meter::Outcome;
use super::{Schema, SchemaError, draft};
use crate::rejection::Violation;
use crate::tree::{Node, Revision};

/// A schema for states; dereferences to [`Schema`].
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
    /// Compiles a schema, and the plan for incremental validation. Fails like [`Schema::compile`].
    pub fn compile(document: &Value, assert_formats: bool) -> Result<Self, SchemaError> {
        let schema = Schema::compile(document, assert_formats)?;
        let settings = Settings { draft: draft(document)?, assert_formats };
        let incremental =
            Incremental::compile(&schema.document, settings, &schema.map, &schema.regexes, schema.weight)?;
        Ok(Self { schema, incremental })
    }

    /// Returns true if the whole tree is valid.
    pub fn is_valid_tree(&self, root: &Node) -> bool {
        self.incremental.outcome(root) == Outcome::Valid
    }

    /// Returns the first `max` violations of a tree, as [`Schema::violations`] does for its value.
    pub fn tree_violations(&self, root: &Node, max: usize) -> Vec<Violation> {
        self.incremental.violations(&self.schema, root, max)
    }

    /// Returns true if a tree is valid. It must have been valid at `version`, and all later changes must have later
    /// stamps.
    ///
    /// The cost depends on the changes and on the schema ([`Self::costs`]). A root replaced as a whole has no stamp of
    /// its own and requires [`Self::is_valid_tree`].
    pub fn is_valid_since(&self, root: &Node, version: Revision) -> bool {
        self.incremental.outcome_since(root, version) == Outcome::Valid
    }

    /// Returns the first `max` violations of such a tree: those of [`Self::tree_violations`], in any order.
    pub fn violations_since(&self, root: &Node, version: Revision, max: usize) -> Vec<Violation> {
        self.incremental.violations_since(&self.schema, root, version, max)
    }

    /// Returns the places where a write validates more than it touches; for very large or deep schemas only the first
    /// ones.
    pub fn costs(&self) -> Vec<Cost> {
        self.incremental.costs(&self.schema.document, &self.schema.map)
    }

    /// Returns true if every change requires validation of the whole document.
    pub fn is_opaque(&self) -> bool {
        self.incremental.is_opaque()
    }
}
