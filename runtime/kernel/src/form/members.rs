//! What invariants say a value must be one of.
//!
//! An invariant like `state.admissible.exists(a, a == self)` says of every value at a place that a list holds it. Where
//! the worker was shown the whole list, its reply can be held to that.

use serde_json::{Value, json};

use super::places::Document;
use crate::expr::Step;
use crate::pattern::{Pattern, PatternToken};
use crate::plan::Plan;
use crate::tree::Node;

/// The most characters of values that are listed.
const CHARS_MAX: usize = 3000;

/// The values that can be written by a grant.
pub(super) struct Members(Vec<Vec<Node>>);

impl Members {
    /// Those that the invariants on the places of a grant leave, as far as the worker knows.
    pub(super) fn of(document: &Document<'_>, plan: &Plan, pattern: &Pattern) -> Self {
        let on_it = plan.invariants.iter().filter(|one| one.each.as_ref().is_some_and(|each| lands_in(pattern, each)));
        let lists = on_it.flat_map(|invariant| invariant.expr.memberships("self")).filter_map(|look| {
            let mut steps = look.steps;
            match look.variable {
                "state" => {}
                "request" => steps.insert(0, Step::Member("request".to_owned())),
                _ => return None,
            }
            document.values(&steps)
        });
        Self(lists.collect())
    }

    /// Whether a value is one of them.
    pub(super) fn hold(&self, node: &Node) -> bool {
        self.0.iter().all(|list| list.contains(node))
    }

    /// A schema of them; of anything, if they are too many or too large to list.
    pub(super) fn schema(&self) -> Value {
        let Some((first, rest)) = self.0.split_first() else { return json!({}) };
        let mut values: Vec<&Node> = Vec::new();
        for node in first.iter().filter(|node| rest.iter().all(|list| list.contains(node))) {
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
}

/// Whether whatever is written by a grant on one pattern is an instance of the other.
fn lands_in(grant: &Pattern, each: &Pattern) -> bool {
    let lands = |(grant, each): (&PatternToken, &PatternToken)| match (grant, each) {
        (PatternToken::Deep, _) | (_, PatternToken::Deep) => false,
        (_, PatternToken::Any) => true,
        (grant, each) => grant == each,
    };
    grant.tokens().len() == each.tokens().len() && grant.tokens().iter().zip(each.tokens()).all(lands)
}
