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
use super::meter::{Outcome, Weight};
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
    weight: Weight,
}

impl Incremental {
    /// Makes the plan of a document that a schema was compiled of.
    pub(super) fn compile(
        document: &Value,
        settings: Settings,
        map: &SchemaMap,
        regexes: &Regexes,
        weight: Weight,
    ) -> Result<Self, SchemaError> {
        Ok(Self { places: compile::compile(document, settings, map, regexes)?, weight })
    }

    /// Validates a tree, all of it.
    pub(super) fn outcome(&self, root: &Node) -> Outcome {
        let meter = self.weight.verdict(root.bytes());
        let is_valid = self.whole(&mut Verdict(&meter), root);
        Outcome::of(is_valid, &meter)
    }

    /// Validates what changed in a tree since a version at which it was valid.
    pub(super) fn outcome_since(&self, root: &Node, version: At) -> Outcome {
        let meter = self.weight.change();
        let is_valid = self.walk(&mut Verdict(&meter), root, version);
        match Outcome::of(is_valid, &meter) {
            // A walk goes every way to what changed, a validator of the whole remembers where it has been.
            Outcome::Unknown => self.outcome(root),
            known => known,
        }
    }

    pub(super) fn violations(&self, schema: &Schema, root: &Node, max: usize) -> Vec<Violation> {
        let outcome = self.outcome(root);
        self.explained(outcome, schema, root, max, |listing| self.whole(listing, root))
    }

    pub(super) fn violations_since(&self, schema: &Schema, root: &Node, version: At, max: usize) -> Vec<Violation> {
        // Nearly always there are none, and saying so is cheaper than looking for them.
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
        findings.done()
    }

    fn whole<J: Judge>(&self, judge: &mut J, root: &Node) -> bool {
        self.places[0].whole.as_ref().is_none_or(|check| judge.check(check, root, &Path::Root))
    }

    fn walk<J: Judge>(&self, judge: &mut J, root: &Node, version: At) -> bool {
        let is_scalar = !matches!(root, Node::Array(_) | Node::Object(_));
        if is_scalar {
            return self.whole(judge, root);
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
