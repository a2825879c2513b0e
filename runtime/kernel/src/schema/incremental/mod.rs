//! Validation of what a commit touched, instead of the whole document.
//!
//! A plan is made of the schema once (`survey` sorts keywords, `sketch` follows them, `compile` makes a `plan` of it, `cost` says what stays expensive), and a
//! candidate is followed along the stamps of its tree (`walk`). The argument that the verdict is the same: a valid
//! document satisfies every subschema that is joined to the root by conjunctions only, so a part that was not touched
//! still does, and only such subschemas are followed. All else — alternatives, negations, counts — is run again on the
//! whole value where it stands.

mod compile;
mod cost;
mod plan;
mod sketch;
mod survey;
mod walk;

use serde_json::Value;

use super::explain::Findings;
use super::map::SchemaMap;
use super::regexes::Regexes;
use super::{Schema, SchemaError};
use crate::rejection::Violation;
use crate::tree::{At, Node};
use plan::{Inside, Place};
use walk::{Judge, Listing, Path, Verdict, Walk};

pub(super) use compile::Settings;
pub use cost::{Cost, FEW};

/// A validation plan.
pub(super) struct Incremental {
    /// The first is the root's.
    places: Vec<Place>,
}

impl Incremental {
    /// Makes the plan of a document that a schema was compiled of.
    pub(super) fn compile(
        document: &Value,
        settings: Settings,
        map: &SchemaMap,
        regexes: &Regexes,
    ) -> Result<Self, SchemaError> {
        Ok(Self { places: compile::compile(document, settings, map, regexes)? })
    }

    pub(super) fn is_valid(&self, root: &Node) -> bool {
        self.places[0].whole.as_ref().is_none_or(|check| check.validator.is_valid(root))
    }

    pub(super) fn is_valid_since(&self, root: &Node, version: At) -> bool {
        self.walk(&mut Verdict, root, version)
    }

    pub(super) fn violations(&self, schema: &Schema, root: &Node, max: usize) -> Vec<Violation> {
        let mut findings = Findings::new(schema, max);
        if let Some(check) = &self.places[0].whole {
            Listing(&mut findings).check(check, root, &Path::Root);
        }
        findings.done()
    }

    pub(super) fn violations_since(&self, schema: &Schema, root: &Node, version: At, max: usize) -> Vec<Violation> {
        // Nearly always there are none, and saying so is cheaper than looking for them.
        if self.is_valid_since(root, version) {
            return Vec::new();
        }
        let mut findings = Findings::new(schema, max);
        self.walk(&mut Listing(&mut findings), root, version);
        findings.done()
    }

    fn walk<J: Judge>(&self, judge: &mut J, root: &Node, version: At) -> bool {
        let is_scalar = !matches!(root, Node::Array(_) | Node::Object(_));
        if is_scalar {
            return self.places[0].whole.as_ref().is_none_or(|check| judge.check(check, root, &Path::Root));
        }
        root.touched() <= version || Walk { places: &self.places, since: version }.inside(judge, 0, root, &Path::Root)
    }

    pub(super) fn costs(&self, document: &Value, map: &SchemaMap) -> Vec<Cost> {
        cost::costs(document, map, &self.places)
    }

    /// Whether every change makes the whole document be validated.
    pub(super) fn is_opaque(&self) -> bool {
        matches!(self.places[0].inside, Inside::Whole(_))
    }
}
