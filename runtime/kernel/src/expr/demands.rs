//! Derives what an expression demands of a variable's value, for a worker that must write such a value.
//!
//! Finds necessary conditions, but not all of them: for `self.n < size(state.list) && f(self)`, only the first half.

use super::Expr;
use super::analysis::{Lookup, LookupStep, Walk};
use super::lower::{Binary, Conversion, Fold, Loop, Node};

/// Demand on a part of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Demand {
    /// Steps from the value to the part; [`LookupStep::Any`] matches every element. If the part is missing, nothing is
    /// demanded.
    pub(crate) part: Vec<LookupStep>,
    pub(crate) requirement: Requirement,
}

/// Kinds of demands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Requirement {
    /// Equal to one of the values at the end of this path: `state.tasks.exists(t, t.id == self)` is `state`, `tasks`,
    /// any, `id`.
    BeOneOf(Lookup),
    /// A number below the number of elements there, like an index.
    BeBelowSizeOf(Lookup),
}

impl Expr {
    /// Returns the demands on the value of `variable` that this expression implies.
    pub(crate) fn demands(&self, variable: &str) -> Vec<Demand> {
        let mut search = Search { variable, walk: Walk::default(), subjects: Vec::new(), found: Vec::new() };
        search.visit(&self.node, &[]);
        search.found
    }
}

struct Search<'a> {
    variable: &'a str,
    walk: Walk,
    /// The parts of the value that the enclosing loops' variables denote, outermost first.
    subjects: Vec<Option<Vec<LookupStep>>>,
    found: Vec<Demand>,
}

impl Search<'_> {
    /// `within` is the part that must exist for the node to be evaluated at all.
    fn visit(&mut self, node: &Node, within: &[LookupStep]) {
        match node {
            Node::And(a, b) => {
                self.visit(a, within);
                self.visit(b, within);
            }
            // `!has(part) || demand`: a demand on a part that may be missing.
            Node::Or(a, b) => {
                for (guard, demand) in [(a, b), (b, a)] {
                    let Node::Not(guard) = guard.as_ref() else { continue };
                    let Node::Has(of, name) = guard.as_ref() else { continue };
                    if let Some(mut part) = self.subject(of) {
                        part.push(LookupStep::Member(name.clone()));
                        self.visit(demand, &longer(within, &part));
                    }
                }
            }
            // `all` holds for an empty list, so the body only constrains the elements.
            Node::Loop(of) if matches!(of.fold, Fold::All) => {
                if let Some(mut part) = self.subject(&of.range) {
                    part.push(if of.is_pair { LookupStep::Any } else { LookupStep::Element });
                    let within = longer(within, &part);
                    self.enter(of, Some(part), &within);
                }
            }
            Node::Loop(of) if matches!(of.fold, Fold::Exists | Fold::ExistsOne) => self.enter(of, None, within),
            Node::Binary(Binary::In, of, list) => {
                if let Some(list) = self.other(list) {
                    self.demand(of, within, Requirement::BeOneOf(list.then(LookupStep::Any)));
                }
            }
            Node::Binary(Binary::Equal, a, b) => {
                for (of, other) in [(a, b), (b, a)] {
                    if let Some(other) = self.other(other) {
                        self.demand(of, within, Requirement::BeOneOf(other));
                    }
                }
            }
            Node::Binary(Binary::Less, of, size) | Node::Binary(Binary::Greater, size, of) => {
                if let Node::Convert(Conversion::Size, list) = size.as_ref()
                    && let Some(list) = self.other(list)
                {
                    self.demand(of, within, Requirement::BeBelowSizeOf(list));
                }
            }
            _ => {}
        }
    }

    fn enter(&mut self, of: &Loop, subject: Option<Vec<LookupStep>>, within: &[LookupStep]) {
        self.walk.enter(&of.range, of.is_pair);
        let outer = self.subjects.len();
        self.subjects.resize(outer + usize::from(of.is_pair), None);
        self.subjects.push(subject);
        self.visit(&of.body, within);
        self.subjects.truncate(outer);
        self.walk.leave(of.is_pair);
    }

    fn demand(&mut self, of: &Node, within: &[LookupStep], must: Requirement) {
        if let Some(part) = self.subject(of).filter(|part| part.starts_with(within)) {
            self.found.push(Demand { part, requirement: must });
        }
    }

    /// Returns the part of the value that a node denotes.
    fn subject(&self, node: &Node) -> Option<Vec<LookupStep>> {
        match node {
            Node::Path(variable, path) if *variable == self.variable => {
                Some(path.iter().cloned().map(LookupStep::Member).collect())
            }
            Node::Local(depth) => self.subjects.get(*depth)?.clone(),
            Node::Member(of, name) => {
                let mut part = self.subject(of)?;
                part.push(LookupStep::Member(name.clone()));
                Some(part)
            }
            _ => None,
        }
    }

    /// Returns the place that a node denotes, if it is outside of the value itself.
    fn other(&self, node: &Node) -> Option<Lookup> {
        self.walk.place(node).filter(|place| place.variable != self.variable)
    }
}

fn longer(one: &[LookupStep], other: &[LookupStep]) -> Vec<LookupStep> {
    if one.len() > other.len() { one.to_vec() } else { other.to_vec() }
}

#[cfg(test)]
mod tests;
