//! Which places an expression looks at, and whether it can come true: what the lint asks before anything runs.
//!
//! Unlike [`super::Reference`], which says what an expression depends on, a [`Look`] follows indices and the variables
//! of loops as far as they can be followed, and is kept beside others that lie above it. Whether a place exists is for
//! who knows the schema.

use serde_json::{Value, json};

use super::Expr;
use super::lower::{Binary, Conversion, Fold, Loop, Node};

/// A step from a value into it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The member of this name.
    Member(String),
    /// Some member or element: an index that is computed, or what a loop with key and value goes over.
    Any,
    /// Element of a list that a loop with one variable goes over. Of an object the loop has the names, which are no places.
    Element,
}

/// A place that an expression looks at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    pub(crate) variable: &'static str,
    /// From the variable to the place.
    pub(crate) steps: Vec<Step>,
    /// Whether a loop goes over it.
    pub(crate) is_range: bool,
    /// Whether that loop has variables for key and value.
    pub(crate) is_pair: bool,
    /// Whether all of it may be gone through: by a loop, or by `in` if it is a list.
    pub(crate) is_searched: bool,
}

impl Look {
    pub(crate) fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// Knowledge of a place that an expression looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// Looking at it is always an error.
    Fails,
    /// The place always has a value.
    There,
    /// It may have one.
    Nothing,
}

/// Operand that an expression compares with a constant.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Compared {
    /// Value at a place.
    Place(Look),
    /// Size of what is at a place.
    Size(Look),
    /// Result of a function: a number, or else a text.
    Made { function: &'static str, is_number: bool },
    /// A constant.
    Constant(Value),
}

/// How it is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    /// `==`, or `in` of what is no list of constants.
    Equal,
    /// `in` of a list of constants.
    Among,
    /// `!=`.
    Unequal,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
}

impl Test {
    /// Returns it as it is written.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::Among => "in",
            Self::Unequal => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// Returns the test that holds where this one does not.
    pub(super) const fn negated(self) -> Self {
        match self {
            Self::Equal | Self::Among => Self::Unequal,
            Self::Unequal => Self::Equal,
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
        }
    }

    /// Returns it with its operands exchanged.
    pub(super) const fn turned(self) -> Self {
        match self {
            Self::Equal | Self::Among | Self::Unequal => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }
}

/// A comparison with a value that an expression names.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Comparison {
    /// Operands: each branch of a choice, or the one that is written.
    pub(crate) of: Vec<Compared>,
    pub(crate) with: Value,
    pub(crate) test: Test,
}

impl Expr {
    /// Returns the places that it compares with values, in the order in which they are written.
    pub(crate) fn comparisons(&self) -> Vec<Comparison> {
        let mut walk = Walk::default();
        walk.visit(&self.node, false, &mut Vec::new());
        walk.compared
    }

    /// Returns the places whose values it takes for true or false.
    pub(crate) fn truths(&self) -> Vec<Look> {
        let mut looks = Vec::new();
        Walk::default().truths(&self.node, &mut looks);
        looks
    }

    /// Returns the place without which the rest of the expression is not asked: `!has(x) || …`, `has(x) && …`, `has(x) ? … : true`.
    pub(crate) fn guard(&self) -> Option<Look> {
        let guard = match &self.node {
            Node::Or(guard, _) => match guard.as_ref() {
                Node::Not(guard) => guard,
                _ => return None,
            },
            Node::And(guard, _) | Node::If(guard, ..) => guard,
            _ => return None,
        };
        let Node::Has(of, name) = guard.as_ref() else { return None };
        Walk::default().place(of).map(|place| place.then(Step::Member(name.clone())))
    }

    /// Returns the members of numbers that it looks at, as they are written: `a.T-1.b` subtracts `1.b` from `a.T`.
    pub(crate) fn members_of_numbers(&self) -> Vec<String> {
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

    /// Returns constants that stand for true or false and are neither, as they are written.
    pub(crate) fn constant_truths(&self) -> Vec<String> {
        let mut found = Vec::new();
        constant_truths(&self.node, &mut found);
        found
    }

    /// Returns the divisions whose fraction may matter, by what is no constant or compared with a fraction. It is cut off if all
    /// the places of one are whole numbers.
    pub(crate) fn divisions(&self) -> Vec<Vec<Look>> {
        let mut walk = Walk::default();
        walk.visit(&self.node, false, &mut Vec::new());
        walk.divisions
    }

    /// The places that it looks at, `has` included, in the order in which they are written; a place may be there twice.
    pub(crate) fn looks(&self) -> Vec<Look> {
        let mut looks = Vec::new();
        Walk::default().visit(&self.node, false, &mut looks);
        looks
    }

    /// Returns true if it can come true with what is known of places, as far as its logic tells.
    pub(crate) fn may_hold(&self, known: &dyn Fn(&Look) -> Known) -> bool {
        Walk::default().outcomes(&self.node, known).holds
    }
}

/// Collects constants that a node takes for true or false.
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

/// What a truth value can be.
#[derive(Clone, Copy)]
struct Outcomes {
    holds: bool,
    fails: bool,
}

impl Outcomes {
    const BOTH: Self = Self { holds: true, fails: true };
    /// It is always an error.
    const NONE: Self = Self { holds: false, fails: false };
}

/// The places of the variables of the loops around a node, outermost first.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) locals: Vec<Option<Look>>,
    /// Comparisons found so far.
    compared: Vec<Comparison>,
    /// Divisions found so far.
    divisions: Vec<Vec<Look>>,
}

impl Walk {
    /// The place whose value a node is.
    pub(super) fn place(&self, node: &Node) -> Option<Look> {
        match node {
            Node::Path(variable, path) => {
                let steps = path.iter().cloned().map(Step::Member).collect();
                Some(Look { variable, steps, is_range: false, is_pair: false, is_searched: false })
            }
            Node::Local(depth) => self.locals.get(*depth)?.clone(),
            Node::Member(of, name) => Some(self.place(of)?.then(Step::Member(name.clone()))),
            Node::Index(of, key) => match key.as_ref() {
                Node::Text(name) => Some(self.place(of)?.then(Step::Member(name.clone()))),
                // Of what is filtered it is another element.
                Node::Int(index) if *index >= 0 && !matches!(of.as_ref(), Node::Loop(_)) => {
                    Some(self.place(of)?.then(Step::Member(index.to_string())))
                }
                _ => Some(self.place(of)?.then(step_into(of, Step::Any))),
            },
            // Its elements are elements of what is filtered.
            Node::Loop(of) if matches!(of.fold, Fold::Filter) => self.place(&of.range),
            _ => None,
        }
    }

    /// Collects the looks of a node; `is_counted`: it is the beginning of a place that has been collected.
    fn visit(&mut self, node: &Node, is_counted: bool, looks: &mut Vec<Look>) {
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
                looks.extend(self.place(of).map(|place| place.then(Step::Member(name.clone()))));
                self.visit(of, true, looks);
            }
            Node::Loop(of) => {
                let Loop { range, condition, body, is_pair, .. } = of.as_ref();
                let over = self.place(range);
                looks.extend(over.map(|over| Look { is_range: true, is_pair: *is_pair, is_searched: true, ..over }));
                self.visit(range, true, looks);
                self.enter(range, *is_pair);
                condition.iter().for_each(|condition| self.visit(condition, false, looks));
                self.visit(body, false, looks);
                self.leave(*is_pair);
            }
            Node::Binary(Binary::In, of, list) => {
                match list.as_ref() {
                    Node::List(values) => values.iter().for_each(|value| self.compare(of, value, Test::Among)),
                    list => {
                        let element = self.element(list, Step::Element).map(|look| vec![Compared::Place(look)]);
                        self.note(element, of, Test::Equal);
                    }
                }
                self.visit(of, false, looks);
                looks.extend(self.place(list).map(|place| Look { is_searched: true, ..place }));
                self.visit(list, true, looks);
            }
            _ => {
                if let Node::Binary(binary, a, b) = node
                    && let Some(test) = test_of(*binary)
                {
                    self.compare(a, b, test);
                    self.compare(b, a, test.turned());
                }
                self.divide(node);
                parts(node).into_iter().for_each(|part| self.visit(part, false, looks));
            }
        }
    }

    /// Notes a comparison with a value.
    fn compare(&mut self, of: &Node, value: &Node, test: Test) {
        let mut operands = Vec::new();
        let is_known = self.operands(of, &mut operands);
        self.note(is_known.then_some(operands), value, test);
    }

    fn note(&mut self, of: Option<Vec<Compared>>, value: &Node, test: Test) {
        if let (Some(of), Some(with)) = (of, constant(value)) {
            self.compared.push(Comparison { of, with, test });
        }
    }

    /// Collects what an operand can be. Returns false if it can be something else.
    fn operands(&self, node: &Node, out: &mut Vec<Compared>) -> bool {
        let operand = match node {
            // A filtered list differs from the list at the place.
            Node::Loop(_) => None,
            Node::If(_, a, b) => return self.operands(a, out) && self.operands(b, out),
            // The smallest of texts is a text.
            Node::Convert(Conversion::Min | Conversion::Max, _) => None,
            Node::Convert(Conversion::Size, of) => Some(match self.place(of) {
                // A filtered list has another size.
                Some(look) if !matches!(of.as_ref(), Node::Loop(_)) => Compared::Size(look),
                _ => Compared::Made { function: Conversion::Size.name(), is_number: true },
            }),
            Node::Convert(conversion, _) => {
                let is_number = !matches!(conversion, Conversion::Text);
                Some(Compared::Made { function: conversion.name(), is_number })
            }
            node => self.place(node).map(Compared::Place).or_else(|| constant(node).map(Compared::Constant)),
        };
        let is_known = operand.is_some();
        out.extend(operand);
        is_known
    }

    /// Notes a division that may cut off what matters.
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

    /// Returns true if a node is a whole number, provided that all collected places are.
    fn whole(&self, node: &Node, places: &mut Vec<Look>) -> bool {
        match node {
            Node::Int(_) | Node::UInt(_) | Node::Convert(Conversion::Size | Conversion::Int | Conversion::UInt, _) => {
                true
            }
            Node::Convert(Conversion::Sum | Conversion::Min | Conversion::Max, of) => match of.as_ref() {
                Node::List(elements) => elements.iter().all(|element| self.whole(element, places)),
                Node::Loop(of) if matches!(of.fold, Fold::Map | Fold::TransformList) => false,
                of => {
                    places.extend(self.place(of).map(|place| place.then(Step::Any)));
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

    /// Collects the places whose values a node takes for true or false.
    fn truths(&mut self, node: &Node, looks: &mut Vec<Look>) {
        match node {
            Node::Path(..) | Node::Local(_) | Node::Member(..) | Node::Index(..) => looks.extend(self.place(node)),
            Node::Not(of) => self.truths(of, looks),
            Node::And(a, b) | Node::Or(a, b) => {
                self.truths(a, looks);
                self.truths(b, looks);
            }
            Node::If(_, a, b) => {
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

    /// Goes into a loop: its variable stands for what it goes over, its index or name for no place.
    ///
    /// One variable that goes over an object stands for its names: what is known of places below it holds of a list.
    pub(super) fn enter(&mut self, range: &Node, is_pair: bool) {
        let step = if is_pair { step_into(range, Step::Any) } else { Step::Element };
        let element = self.element(range, step);
        if is_pair {
            self.locals.push(None);
        }
        self.locals.push(element);
    }

    /// The place of the elements of what a loop or `in` goes over; `step` leads to it from the place of the whole.
    fn element(&mut self, range: &Node, step: Step) -> Option<Look> {
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

    /// What a truth value can be; one that is neither is always an error. Logic absorbs errors on either side.
    fn outcomes(&mut self, node: &Node, known: &dyn Fn(&Look) -> Known) -> Outcomes {
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
                let over = self.place(&of.range).map(|place| Look { is_range: true, ..place });
                if over.is_some_and(|over| known(&over) == Known::Fails) || self.is_error(&of.range, known) {
                    return Outcomes::NONE;
                }
                self.enter(&of.range, of.is_pair);
                let body = self.outcomes(&of.body, known);
                self.leave(of.is_pair);
                match of.fold {
                    // Of no elements, all do and none does.
                    Fold::All => Outcomes { holds: true, ..body },
                    Fold::Exists | Fold::ExistsOne => Outcomes { fails: true, ..body },
                    Fold::Filter | Fold::Map | Fold::TransformList => Outcomes::BOTH,
                }
            }
            Node::Has(of, name) => {
                let look = self.place(of).map(|place| place.then(Step::Member(name.clone())));
                match look.map_or(Known::Nothing, |look| known(&look)) {
                    Known::Fails => Outcomes::NONE,
                    Known::There => Outcomes { fails: false, ..Outcomes::BOTH },
                    Known::Nothing => Outcomes::BOTH,
                }
            }
            _ => {
                let is_error = self.place(node).is_some_and(|place| known(&place) == Known::Fails)
                    || parts(node).into_iter().any(|part| self.is_error(part, known));
                if is_error { Outcomes::NONE } else { Outcomes::BOTH }
            }
        }
    }

    fn is_error(&mut self, node: &Node, known: &dyn Fn(&Look) -> Known) -> bool {
        let outcomes = self.outcomes(node, known);
        !outcomes.holds && !outcomes.fails
    }
}

/// Returns the value of a constant.
pub(super) fn constant(node: &Node) -> Option<Value> {
    match node {
        Node::Null => Some(Value::Null),
        Node::Bool(value) => Some(json!(value)),
        Node::Int(value) => Some(json!(value)),
        Node::UInt(value) => Some(json!(value)),
        Node::Double(value) => Some(json!(value)),
        Node::Text(value) => Some(json!(value)),
        Node::Negate(of) => match of.as_ref() {
            Node::Int(value) => value.checked_neg().map(|value| json!(value)),
            Node::Double(value) => Some(json!(-value)),
            _ => None,
        },
        Node::List(elements) => elements.iter().map(constant).collect(),
        Node::Map(entries) => {
            let member = |(name, value): &(Node, Node)| match name {
                Node::Text(name) => Some((name.clone(), constant(value)?)),
                _ => None,
            };
            entries.iter().map(member).collect::<Option<_>>().map(Value::Object)
        }
        _ => None,
    }
}

/// The kind of comparison that an operator makes, if it makes one.
pub(super) const fn test_of(binary: Binary) -> Option<Test> {
    match binary {
        Binary::Equal => Some(Test::Equal),
        Binary::Unequal => Some(Test::Unequal),
        Binary::Less => Some(Test::Less),
        Binary::LessOrEqual => Some(Test::LessOrEqual),
        Binary::Greater => Some(Test::Greater),
        Binary::GreaterOrEqual => Some(Test::GreaterOrEqual),
        _ => None,
    }
}

/// The step into a collection: what is filtered of an object are its names.
fn step_into(of: &Node, step: Step) -> Step {
    match of {
        Node::Loop(filter) if matches!(filter.fold, Fold::Filter) => Step::Element,
        _ => step,
    }
}

/// The parts of a node that is neither logic nor a loop; each is evaluated whenever the node is.
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
