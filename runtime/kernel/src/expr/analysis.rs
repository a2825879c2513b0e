//! Static analysis for the lint: places that an expression looks up, and satisfiability.
//!
//! A [`super::Reference`] records dependencies. A [`Lookup`] follows indices and loop variables as far as possible, and
//! is kept even if another look is above it. Callers with the schema check if a place exists.

mod comparison;

pub use comparison::{CompareOp, Comparison, Operand};
pub(super) use comparison::{constant, test_of};

use super::Expr;
use super::lower::{Binary, Conversion, Fold, Loop, Node};

/// A step from a value into it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LookupStep {
    /// The member of this name.
    Member(String),
    /// Any member or element: a computed index, or the values of a loop with key and value.
    Any,
    /// Element of a list in a loop with one variable. For an object such a loop yields names, which are not places.
    Element,
}

/// A place that an expression looks up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// Variable that the place begins at.
    pub variable: &'static str,
    /// Steps from the variable to the place.
    pub steps: Vec<LookupStep>,
    /// True if a loop iterates over it.
    pub is_range: bool,
    /// True if that loop has variables for key and value.
    pub is_pair: bool,
    /// True if the whole collection may be scanned: by a loop, or by `in` if it is a list.
    pub is_searched: bool,
}

impl Lookup {
    /// Appends a step.
    #[must_use]
    pub fn then(mut self, step: LookupStep) -> Self {
        self.steps.push(step);
        self
    }
}

/// Static knowledge of a place that an expression looks up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existence {
    /// Each lookup is an error.
    Never,
    /// The place always has a value.
    Always,
    /// The place may have a value.
    Maybe,
}

impl Expr {
    /// Returns the comparisons of places with constants, in source order.
    pub fn comparisons(&self) -> Vec<Comparison> {
        let mut walk = Walk::default();
        walk.visit(&self.node, false, &mut Vec::new());
        walk.compared
    }

    /// Returns the places that are used as truth values.
    pub fn truths(&self) -> Vec<Lookup> {
        let mut looks = Vec::new();
        Walk::default().truths(&self.node, &mut looks);
        looks
    }

    /// Returns the place that guards the rest of the expression: `!has(x) || …`, `has(x) && …`, `has(x) ? … : true`.
    pub fn guard(&self) -> Option<Lookup> {
        let guard = match &self.node {
            Node::Or(guard, _) => match guard.as_ref() {
                Node::Not(guard) => guard,
                _ => return None,
            },
            Node::And(guard, _) | Node::If(guard, ..) => guard,
            _ => return None,
        };
        let Node::Has(of, name) = guard.as_ref() else { return None };
        Walk::default().place(of).map(|place| place.then(LookupStep::Member(name.clone())))
    }

    /// Returns selections from numbers, as they are written: `a.T-1.b` subtracts `1.b` from `a.T`.
    pub fn members_of_numbers(&self) -> Vec<String> {
        let (mut found, mut pending) = (Vec::new(), vec![&self.node]);
        while let Some(node) = pending.pop() {
            if let Node::Member(of, name) | Node::Has(of, name) = node {
                match of.as_ref() {
                    Node::Int(number) => found.push(format!("{number}.{name}")),
                    Node::UInt(number) => found.push(format!("{number}u.{name}")),
                    _ => {}
                }
            }
            pending.extend(parts(node));
        }
        found
    }

    /// Returns constants used as truth values that are not booleans, as they are written.
    pub fn constant_truths(&self) -> Vec<String> {
        let mut found = Vec::new();
        constant_truths(&self.node, &mut found);
        found
    }

    /// Returns the divisions for which truncation may matter, each as the places of its operands. Their divisor is not
    /// constant, or their result is compared with a fraction. A division truncates if all its places hold integers.
    pub fn divisions(&self) -> Vec<Vec<Lookup>> {
        let mut walk = Walk::default();
        walk.visit(&self.node, false, &mut Vec::new());
        walk.divisions
    }

    /// Returns the places that it looks up, including `has`, in source order, possibly with duplicates.
    pub fn lookups(&self) -> Vec<Lookup> {
        let mut looks = Vec::new();
        Walk::default().visit(&self.node, false, &mut looks);
        looks
    }

    /// Returns true if the expression can hold with this knowledge of places, as far as its logic shows.
    pub fn may_hold(&self, known: &dyn Fn(&Lookup) -> Existence) -> bool {
        Walk::default().outcomes(&self.node, known).holds
    }
}

/// Collects non-boolean constants that a node uses as truth values.
fn constant_truths(node: &Node, found: &mut Vec<String>) {
    match node {
        Node::Text(text) => found.push(format!("{text:?}")),
        Node::Int(number) => found.push(number.to_string()),
        Node::UInt(number) => found.push(number.to_string()),
        Node::Double(number) => found.push(number.to_string()),
        Node::Null => found.push("null".to_owned()),
        Node::Not(of) => constant_truths(of, found),
        Node::And(a, b) | Node::Or(a, b) | Node::If(_, a, b) => {
            constant_truths(a, found);
            constant_truths(b, found);
        }
        Node::Loop(of) if matches!(of.fold, Fold::All | Fold::Exists | Fold::ExistsOne) => {
            constant_truths(&of.body, found);
        }
        _ => {}
    }
}

/// Possible outcomes of a truth value.
#[derive(Clone, Copy)]
struct Outcomes {
    holds: bool,
    fails: bool,
}

impl Outcomes {
    const BOTH: Self = Self { holds: true, fails: true };
    /// Always an error.
    const NONE: Self = Self { holds: false, fails: false };
}

/// Traversal state: the places of the enclosing loops' variables, outermost first.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) locals: Vec<Option<Lookup>>,
    /// Comparisons found so far.
    compared: Vec<Comparison>,
    /// Divisions found so far.
    divisions: Vec<Vec<Lookup>>,
}

impl Walk {
    /// Returns the place that a node denotes.
    pub(super) fn place(&self, node: &Node) -> Option<Lookup> {
        match node {
            Node::Path(variable, path) => {
                let steps = path.iter().cloned().map(LookupStep::Member).collect();
                Some(Lookup { variable, steps, is_range: false, is_pair: false, is_searched: false })
            }
            Node::Local(depth) => self.locals.get(*depth)?.clone(),
            Node::Member(of, name) => Some(self.place(of)?.then(LookupStep::Member(name.clone()))),
            Node::Index(of, key) => match key.as_ref() {
                Node::Text(name) => Some(self.place(of)?.then(LookupStep::Member(name.clone()))),
                // An index into a filtered list is not an index into the original list.
                Node::Int(index) if *index >= 0 && !matches!(of.as_ref(), Node::Loop(_)) => {
                    Some(self.place(of)?.then(LookupStep::Member(index.to_string())))
                }
                _ => Some(self.place(of)?.then(step_into(of, LookupStep::Any))),
            },
            // Elements of a filtered list are elements of the original list.
            Node::Loop(of) if matches!(of.fold, Fold::Filter) => self.place(&of.range),
            _ => None,
        }
    }

    /// Collects the looks of a node. `is_counted` is true for the prefix of a collected place.
    fn visit(&mut self, node: &Node, is_counted: bool, looks: &mut Vec<Lookup>) {
        match node {
            Node::Path(..) | Node::Local(_) | Node::Member(..) | Node::Index(..) => {
                if !is_counted {
                    looks.extend(self.place(node));
                }
                if let Node::Member(of, _) | Node::Index(of, _) = node {
                    self.visit(of, true, looks);
                }
                if let Node::Index(_, key) = node {
                    self.visit(key, false, looks);
                }
            }
            Node::Has(of, name) => {
                looks.extend(self.place(of).map(|place| place.then(LookupStep::Member(name.clone()))));
                self.visit(of, true, looks);
            }
            Node::Loop(of) => {
                let Loop { range, condition, body, is_pair, .. } = of.as_ref();
                let over = self.place(range);
                looks.extend(over.map(|over| Lookup { is_range: true, is_pair: *is_pair, is_searched: true, ..over }));
                self.visit(range, true, looks);
                self.enter(range, *is_pair);
                condition.iter().for_each(|condition| self.visit(condition, false, looks));
                self.visit(body, false, looks);
                self.leave(*is_pair);
            }
            Node::Binary(Binary::In, of, list) => {
                match list.as_ref() {
                    Node::List(values) => values.iter().for_each(|value| self.compare(of, value, CompareOp::Among)),
                    list => {
                        let element = self.element(list, LookupStep::Element).map(|look| vec![Operand::Place(look)]);
                        self.note(element, of, CompareOp::Equal);
                    }
                }
                self.visit(of, false, looks);
                looks.extend(self.place(list).map(|place| Lookup { is_searched: true, ..place }));
                self.visit(list, true, looks);
            }
            _ => {
                if let Node::Binary(binary, a, b) = node
                    && let Some(test) = test_of(*binary)
                {
                    self.compare(a, b, test);
                    self.compare(b, a, test.with_exchanged_operands());
                }
                self.divide(node);
                parts(node).into_iter().for_each(|part| self.visit(part, false, looks));
            }
        }
    }

    /// Records a comparison with a value.
    fn compare(&mut self, of: &Node, value: &Node, test: CompareOp) {
        let mut operands = Vec::new();
        let is_known = self.operands(of, &mut operands);
        self.note(is_known.then_some(operands), value, test);
    }

    fn note(&mut self, of: Option<Vec<Operand>>, value: &Node, test: CompareOp) {
        if let (Some(of), Some(with)) = (of, constant(value)) {
            self.compared.push(Comparison { of, with, test });
        }
    }

    /// Collects the possible operands of a comparison. Returns false if there may be others.
    fn operands(&self, node: &Node, out: &mut Vec<Operand>) -> bool {
        let operand = match node {
            // A filtered list differs from the list at the place.
            Node::Loop(_) => None,
            Node::If(_, a, b) => return self.operands(a, out) && self.operands(b, out),
            // The minimum of texts is a text.
            Node::Convert(Conversion::Min | Conversion::Max, _) => None,
            Node::Convert(Conversion::Size, of) => Some(match self.place(of) {
                // A filtered list has another size.
                Some(look) if !matches!(of.as_ref(), Node::Loop(_)) => Operand::Size(look),
                _ => Operand::FunctionResult { function: Conversion::Size.name(), is_number: true },
            }),
            Node::Convert(conversion, _) => {
                let is_number = !matches!(conversion, Conversion::Text);
                Some(Operand::FunctionResult { function: conversion.name(), is_number })
            }
            node => self.place(node).map(Operand::Place).or_else(|| constant(node).map(Operand::Constant)),
        };
        let is_known = operand.is_some();
        out.extend(operand);
        is_known
    }

    /// Records a division if truncation may matter.
    fn divide(&mut self, node: &Node) {
        let is_constant = |node: &Node| matches!(node, Node::Int(_) | Node::UInt(_));
        let (a, b) = match node {
            Node::Binary(Binary::Divide, a, b) if !is_constant(b) => (a, b),
            Node::Binary(binary, a, b) if test_of(*binary).is_some() => {
                let is_fraction = |node: &Node| matches!(node, Node::Double(value) if value.fract() != 0.0);
                let divided = match (a.as_ref(), b.as_ref()) {
                    (Node::Binary(Binary::Divide, a, by), other) | (other, Node::Binary(Binary::Divide, a, by)) => {
                        (is_fraction(other) && is_constant(by)).then_some((a, by))
                    }
                    _ => None,
                };
                let Some(divided) = divided else { return };
                divided
            }
            _ => return,
        };
        let mut whole = Vec::new();
        if self.whole(a, &mut whole) && self.whole(b, &mut whole) {
            self.divisions.push(whole);
        }
    }

    /// Returns true if a node is an integer, provided that all collected places are.
    fn whole(&self, node: &Node, places: &mut Vec<Lookup>) -> bool {
        match node {
            Node::Int(_) | Node::UInt(_) | Node::Convert(Conversion::Size | Conversion::Int | Conversion::UInt, _) => {
                true
            }
            Node::Convert(Conversion::Sum | Conversion::Min | Conversion::Max, of) => match of.as_ref() {
                Node::List(elements) => elements.iter().all(|element| self.whole(element, places)),
                Node::Loop(of) if matches!(of.fold, Fold::Map | Fold::TransformList) => false,
                of => {
                    places.extend(self.place(of).map(|place| place.then(LookupStep::Any)));
                    self.place(of).is_some()
                }
            },
            Node::Negate(of) => self.whole(of, places),
            Node::Binary(Binary::Add | Binary::Subtract | Binary::Multiply, a, b) => {
                self.whole(a, places) && self.whole(b, places)
            }
            _ => {
                places.extend(self.place(node));
                self.place(node).is_some()
            }
        }
    }

    /// Collects the places that a node uses as truth values.
    fn truths(&mut self, node: &Node, looks: &mut Vec<Lookup>) {
        match node {
            Node::Path(..) | Node::Local(_) | Node::Member(..) | Node::Index(..) => looks.extend(self.place(node)),
            Node::Not(of) => self.truths(of, looks),
            Node::And(a, b) | Node::Or(a, b) | Node::If(_, a, b) => {
                self.truths(a, looks);
                self.truths(b, looks);
            }
            Node::Loop(of) if matches!(of.fold, Fold::All | Fold::Exists | Fold::ExistsOne) => {
                self.enter(&of.range, of.is_pair);
                self.truths(&of.body, looks);
                self.leave(of.is_pair);
            }
            _ => {}
        }
    }

    /// Enters a loop: its value variable denotes the elements of the range; its key variable denotes no place.
    ///
    /// A single variable over an object denotes names; knowledge of places below it applies to lists.
    pub(super) fn enter(&mut self, range: &Node, is_pair: bool) {
        let step = if is_pair { step_into(range, LookupStep::Any) } else { LookupStep::Element };
        let element = self.element(range, step);
        if is_pair {
            self.locals.push(None);
        }
        self.locals.push(element);
    }

    /// Returns the place of the elements that a loop or `in` iterates over; `step` leads to it from the collection.
    fn element(&mut self, range: &Node, step: LookupStep) -> Option<Lookup> {
        let Node::Loop(of) = range else { return self.place(range).map(|place| place.then(step)) };
        if !matches!(of.fold, Fold::Map | Fold::TransformList) {
            return self.place(range).map(|place| place.then(step));
        }
        self.enter(&of.range, of.is_pair);
        let made = self.place(&of.body);
        self.leave(of.is_pair);
        made
    }

    pub(super) fn leave(&mut self, is_pair: bool) {
        let variables = if is_pair { 2 } else { 1 };
        self.locals.truncate(self.locals.len().saturating_sub(variables));
    }

    /// Computes the possible outcomes; neither means that it always fails. Logic absorbs errors on either side.
    fn outcomes(&mut self, node: &Node, known: &dyn Fn(&Lookup) -> Existence) -> Outcomes {
        match node {
            Node::Bool(value) => Outcomes { holds: *value, fails: !*value },
            Node::Not(of) => {
                let of = self.outcomes(of, known);
                Outcomes { holds: of.fails, fails: of.holds }
            }
            Node::And(a, b) => {
                let (a, b) = (self.outcomes(a, known), self.outcomes(b, known));
                Outcomes { holds: a.holds && b.holds, fails: a.fails || b.fails }
            }
            Node::Or(a, b) => {
                let (a, b) = (self.outcomes(a, known), self.outcomes(b, known));
                Outcomes { holds: a.holds || b.holds, fails: a.fails && b.fails }
            }
            Node::If(condition, a, b) => {
                let condition = self.outcomes(condition, known);
                let (a, b) = (self.outcomes(a, known), self.outcomes(b, known));
                Outcomes {
                    holds: (condition.holds && a.holds) || (condition.fails && b.holds),
                    fails: (condition.holds && a.fails) || (condition.fails && b.fails),
                }
            }
            Node::Loop(of) => {
                let over = self.place(&of.range).map(|place| Lookup { is_range: true, ..place });
                if over.is_some_and(|over| known(&over) == Existence::Never) || self.is_error(&of.range, known) {
                    return Outcomes::NONE;
                }
                self.enter(&of.range, of.is_pair);
                let body = self.outcomes(&of.body, known);
                self.leave(of.is_pair);
                match of.fold {
                    // For an empty list, `all` holds and `exists` fails.
                    Fold::All => Outcomes { holds: true, ..body },
                    Fold::Exists | Fold::ExistsOne => Outcomes { fails: true, ..body },
                    Fold::Filter | Fold::Map | Fold::TransformList => Outcomes::BOTH,
                }
            }
            Node::Has(of, name) => {
                let look = self.place(of).map(|place| place.then(LookupStep::Member(name.clone())));
                match look.map_or(Existence::Maybe, |look| known(&look)) {
                    Existence::Never => Outcomes::NONE,
                    Existence::Always => Outcomes { fails: false, ..Outcomes::BOTH },
                    Existence::Maybe => Outcomes::BOTH,
                }
            }
            _ => {
                let is_error = self.place(node).is_some_and(|place| known(&place) == Existence::Never)
                    || parts(node).into_iter().any(|part| self.is_error(part, known));
                if is_error { Outcomes::NONE } else { Outcomes::BOTH }
            }
        }
    }

    fn is_error(&mut self, node: &Node, known: &dyn Fn(&Lookup) -> Existence) -> bool {
        let outcomes = self.outcomes(node, known);
        !outcomes.holds && !outcomes.fails
    }
}

/// Returns the step into a collection; a filtered object yields its names.
fn step_into(of: &Node, step: LookupStep) -> LookupStep {
    match of {
        Node::Loop(filter) if matches!(filter.fold, Fold::Filter) => LookupStep::Element,
        _ => step,
    }
}

/// Returns the parts of a node that is neither logic nor a loop; each is evaluated whenever the node is.
pub(super) fn parts(node: &Node) -> Vec<&Node> {
    match node {
        Node::Null | Node::Bool(_) | Node::Int(_) | Node::UInt(_) | Node::Double(_) | Node::Text(_) => Vec::new(),
        Node::Path(..) | Node::Local(_) => Vec::new(),
        Node::Member(of, _) | Node::Has(of, _) | Node::Not(of) | Node::Negate(of) => vec![of],
        Node::Convert(_, of) | Node::Matches(of, ..) => vec![of],
        Node::Index(a, b) | Node::And(a, b) | Node::Or(a, b) | Node::Binary(_, a, b) | Node::Test(_, a, b) => {
            vec![a, b]
        }
        Node::If(a, b, c) => vec![a, b, c],
        Node::List(elements) => elements.iter().collect(),
        Node::Map(entries) => entries.iter().flat_map(|(key, value)| [key, value]).collect(),
        Node::Loop(of) => [Some(&of.range), of.condition.as_ref(), Some(&of.body)].into_iter().flatten().collect(),
    }
}
