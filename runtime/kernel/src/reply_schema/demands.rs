//! Demands of invariants on a value, for the reply schema.
//!
//! An invariant like `state.admissible.exists(a, a == self)` requires each value at a place to be in a list. One like
//! `self.rests_on.all(i, i < size(state.verified))` requires parts of the value to be indices. The reply schema can
//! enforce this if the view showed the whole list and the same patch cannot change it.

use serde_json::{Value, json};

use super::places::KnownDocument;
use super::value;
use crate::expr::{Demand, Lookup, LookupStep, Requirement};
use crate::pattern::{Pattern, PatternToken};
use crate::plan::Plan;
use crate::tree::Node;

/// Maximum characters of listed values.
const CHARS_MAX: usize = 3000;

/// Demands on the values that a grant writes.
pub(super) struct Demands(Vec<(Vec<LookupStep>, Constraint)>);

/// Constraint on a part of a value.
enum Constraint {
    OneOf(Vec<Node>),
    /// A number below this.
    Below(usize),
}

impl Demands {
    /// Collects the demands of the invariants on a grant's places, as far as the worker knows their operands.
    pub(super) fn collect(document: &KnownDocument<'_>, plan: &Plan, pattern: &Pattern) -> Self {
        let on_it = plan.invariants.iter().filter(|one| one.each.as_ref().is_some_and(|each| lands_in(pattern, each)));
        let mut demands = Self(Vec::new());
        let stays = |steps: &Vec<LookupStep>| !may_change(document, pattern, steps);
        for Demand { part, requirement: must } in on_it.flat_map(|invariant| invariant.expr.demands("self")) {
            let held = match must {
                Requirement::BeOneOf(look) => {
                    document_path(look).filter(stays).and_then(|steps| document.values(&steps)).map(Constraint::OneOf)
                }
                Requirement::BeBelowSizeOf(look) => {
                    document_path(look).filter(stays).and_then(|steps| document.count(&steps)).map(Constraint::Below)
                }
            };
            demands.0.extend(held.map(|held| (part, held)));
        }
        demands
    }

    /// Returns true if a value satisfies the demands.
    pub(super) fn allow(&self, node: &Node) -> bool {
        self.0.iter().all(|(part, held)| held.holds(node, part))
    }

    /// Returns a schema of the demands; a list that is too long, or has values with parts, allows anything.
    pub(super) fn schema(&self) -> Value {
        let mut whole = json!({});
        for (nth, (part, held)) in self.0.iter().enumerate() {
            let schema = match held {
                // Several lists for one part are merged into their intersection.
                Constraint::OneOf(_) if self.0[..nth].iter().any(|(other, held)| other == part && held.is_list()) => {
                    continue;
                }
                Constraint::OneOf(list) => {
                    let others = self.0[nth + 1..].iter().filter(|(other, _)| other == part);
                    let others: Vec<&Constraint> = others.map(|(_, held)| held).filter(|held| held.is_list()).collect();
                    listed(list.iter().filter(|node| others.iter().all(|held| held.holds(node, &[]))))
                }
                Constraint::Below(count) => json!({"exclusiveMaximum": count}),
            };
            let wrapped = part.iter().rev().fold(schema, |below, step| match step {
                LookupStep::Member(name) => json!({"properties": {name: below}}),
                LookupStep::Any | LookupStep::Element => json!({"items": below}),
            });
            whole = value::intersect(whole, wrapped);
        }
        whole
    }
}

impl Constraint {
    const fn is_list(&self) -> bool {
        matches!(self, Self::OneOf(_))
    }

    /// Returns true if a part of a node satisfies the constraint, or is missing.
    fn holds(&self, node: &Node, part: &[LookupStep]) -> bool {
        match (part.split_first(), self) {
            (None, Self::OneOf(list)) => list.contains(node),
            (None, Self::Below(count)) => node.to_value().as_f64().is_none_or(|number| number < *count as f64),
            (Some((LookupStep::Member(name), rest)), _) => node.child(name).is_none_or(|child| self.holds(child, rest)),
            (Some((LookupStep::Any | LookupStep::Element, rest)), _) => {
                let elements = 0..node.as_array().map_or(0, |array| array.len());
                let mut elements = elements.filter_map(|index| node.child(&index.to_string()));
                elements.all(|element| self.holds(element, rest))
            }
        }
    }
}

/// Returns a schema of these values.
fn listed<'n>(nodes: impl Iterator<Item = &'n Node>) -> Value {
    let mut values: Vec<&Node> = Vec::new();
    for node in nodes {
        if !values.contains(&node) {
            values.push(node);
        }
    }
    let is_short = values.iter().map(|node| node.bytes()).sum::<u64>() <= CHARS_MAX as u64;
    if !is_short || values.iter().any(|node| node.has_parts()) {
        return json!({});
    }
    let values: Vec<Value> = values.into_iter().map(Node::to_value).collect();
    if values.is_empty() { json!(false) } else { json!({"enum": values}) }
}

/// Returns the path from the document's root to the place of a look, if it is in the current document.
fn document_path(look: Lookup) -> Option<Vec<LookupStep>> {
    let mut steps = look.steps;
    match look.variable {
        "state" => {}
        "request" => steps.insert(0, LookupStep::Member("request".to_owned())),
        _ => return None,
    }
    Some(steps)
}

/// Returns true if a patch that uses the grant may change the value at this path, above it or below it. Invariants are
/// evaluated on the document after all operations.
fn may_change(document: &KnownDocument<'_>, grant: &Pattern, way: &[LookupStep]) -> bool {
    let touches = |pattern: &Pattern| {
        let mut steps = pattern.tokens().iter().zip(way);
        let is_deep = pattern.tokens().contains(&PatternToken::Deep);
        is_deep
            || steps.all(|(token, step)| match (token, step) {
                (PatternToken::Literal(name), LookupStep::Member(member)) => name == member,
                _ => true,
            })
    };
    let has_others = document.worker_plan.worker.patch.max_ops > 1;
    touches(grant) || has_others && document.worker_plan.contract.write_patterns().any(touches)
}

/// Returns true if every write by a grant on one pattern is an instance of the other.
fn lands_in(grant: &Pattern, each: &Pattern) -> bool {
    let lands = |(grant, each): (&PatternToken, &PatternToken)| match (grant, each) {
        (PatternToken::Deep, _) | (_, PatternToken::Deep) => false,
        (_, PatternToken::Any) => true,
        (grant, each) => grant == each,
    };
    grant.tokens().len() == each.tokens().len() && grant.tokens().iter().zip(each.tokens()).all(lands)
}
