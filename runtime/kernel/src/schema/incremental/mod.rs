//! Incremental validation: checks only the parts that a commit touched.
//!
//! A plan is built once per schema: `survey` classifies keywords, `sketch` traces them, `compile` builds a `plan`, and
//! `cost` reports the expensive parts. `walk` then follows the change stamps of a candidate's tree.
//!
//! The verdict is the same as for the whole document. A valid document satisfies every subschema that is joined to the
//! root by conjunctions only, and only these are followed, so their untouched parts stay valid. All other keywords
//! (alternatives, negations, counts) are checked again on their whole value.

mod compile;
mod cost;
mod plan;
mod sketch;
mod survey;
mod walk;

use serde_json::Value;

use super::explain::Findings;
use super::map::SchemaMap;
use super::meter::{Outcome, Weight};
use super::regexes::Regexes;
use super::{Schema, SchemaError};
use crate::rejection::Violation;
use crate::tree::{Node, Revision};
use plan::{Inside, Place};
use walk::{Judge, Listing, Path, Verdict, Walk};

pub(super) use compile::Settings;
pub use cost::{Cost, SMALL_COLLECTION_MAX};

/// A validation plan.
pub(super) struct Incremental {
    /// Places of the plan; the first is the root's.
    places: Vec<Place>,
    weight: Weight,
}

impl Incremental {
    /// Builds the plan for the document of a compiled schema.
    pub(super) fn compile(
        document: &Value,
        settings: Settings,
        map: &SchemaMap,
        regexes: &Regexes,
        weight: Weight,
    ) -> Result<Self, SchemaError> {
        Ok(Self { places: compile::compile(document, settings, map, regexes)?, weight })
    }

    /// Validates a whole tree.
    pub(super) fn outcome(&self, root: &Node) -> Outcome {
        let meter = self.weight.verdict(root.bytes());
        let is_valid = self.whole(&mut Verdict(&meter), root);
        Outcome::from_verdict(is_valid, &meter)
    }

    /// Validates the changes of a tree since a version at which it was valid.
    pub(super) fn outcome_since(&self, root: &Node, version: Revision) -> Outcome {
        let meter = self.weight.change();
        let is_valid = self.walk(&mut Verdict(&meter), root, version);
        match Outcome::from_verdict(is_valid, &meter) {
            // A walk repeats shared parts for every path, while a validator of the whole document caches results.
            Outcome::Unknown => self.outcome(root),
            known => known,
        }
    }

    pub(super) fn violations(&self, schema: &Schema, root: &Node, max: usize) -> Vec<Violation> {
        let outcome = self.outcome(root);
        self.explained(outcome, schema, root, max, |listing| self.whole(listing, root))
    }

    pub(super) fn violations_since(
        &self,
        schema: &Schema,
        root: &Node,
        version: Revision,
        max: usize,
    ) -> Vec<Violation> {
        // Violations are rare, and a verdict is cheaper than searching for them.
        let outcome = self.outcome_since(root, version);
        self.explained(outcome, schema, root, max, |listing| self.walk(listing, root, version))
    }

    fn explained(
        &self,
        outcome: Outcome,
        schema: &Schema,
        root: &Node,
        max: usize,
        look: impl FnOnce(&mut Listing<'_, '_>) -> bool,
    ) -> Vec<Violation> {
        let mut findings = Findings::new(schema, max);
        match outcome {
            Outcome::Valid => {}
            Outcome::Unknown => findings.endless(),
            Outcome::Invalid => {
                let meter = self.weight.findings(root.bytes());
                look(&mut Listing { findings: &mut findings, meter: &meter });
                if meter.is_spent() || findings.is_empty() {
                    findings.unexplained("");
                }
            }
        }
        findings.into_violations()
    }

    fn whole<J: Judge>(&self, judge: &mut J, root: &Node) -> bool {
        self.places[0].whole.as_ref().is_none_or(|check| judge.check(check, root, &Path::Root))
    }

    fn walk<J: Judge>(&self, judge: &mut J, root: &Node, version: Revision) -> bool {
        let is_scalar = !matches!(root, Node::Array(_) | Node::Object(_));
        if is_scalar {
            return self.whole(judge, root);
        }
        root.modified_at() <= version
            || Walk { places: &self.places, since: version }.inside(judge, 0, root, &Path::Root)
    }

    pub(super) fn costs(&self, document: &Value, map: &SchemaMap) -> Vec<Cost> {
        cost::costs(document, map, &self.places)
    }

    /// Returns true if every change requires validation of the whole document.
    pub(super) fn is_opaque(&self) -> bool {
        matches!(self.places[0].inside, Inside::Whole(_))
    }
}
