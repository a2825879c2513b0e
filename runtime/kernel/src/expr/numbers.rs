//! Makes divisions exact where a schema says `number`.
//!
//! JSON may write 3.0 as 3, and CEL divides integers as integers, so the schema of a place decides. For a `number`,
//! half of 7 is 3.5. For an `integer`, and without a schema, a quotient of integers is an integer.

use super::analysis::{Lookup, LookupStep, Walk};
use super::lower::{Binary, Conversion, Fold, Loop, Node};
use super::{Dialect, Expr};

impl Expr {
    /// Divides exactly where `is_number` reports that a place holds fractional numbers.
    #[must_use]
    pub(crate) fn with_numbers(mut self, is_number: &dyn Fn(&Lookup) -> bool) -> Self {
        if self.dialect == Dialect::Plain {
            let mut numbers = Numbers { walk: Walk::default(), fractions: Vec::new(), known: Vec::new(), is_number };
            numbers.visit(&mut self.node);
        }
        self
    }
}

struct Numbers<'a> {
    walk: Walk,
    /// True for each loop variable that may be a fractional number, outermost first.
    fractions: Vec<bool>,
    /// Cached answers of `is_number`.
    known: Vec<(Lookup, bool)>,
    is_number: &'a dyn Fn(&Lookup) -> bool,
}

impl Numbers<'_> {
    fn visit(&mut self, node: &mut Node) {
        if let Node::Binary(binary @ Binary::Divide, a, b) = node
            && (self.may_have_fraction(a) || self.may_have_fraction(b))
        {
            *binary = Binary::Ratio;
        }
        match node {
            Node::Null | Node::Bool(_) | Node::Int(_) | Node::UInt(_) | Node::Double(_) | Node::Text(_) => {}
            Node::Path(..) | Node::Local(_) => {}
            Node::Member(of, _) | Node::Has(of, _) | Node::Not(of) | Node::Negate(of) => self.visit(of),
            Node::Convert(_, of) | Node::Matches(of, ..) => self.visit(of),
            Node::Index(a, b) | Node::And(a, b) | Node::Or(a, b) | Node::Binary(_, a, b) | Node::Test(_, a, b) => {
                self.visit(a);
                self.visit(b);
            }
            Node::If(a, b, c) => [a, b, c].into_iter().for_each(|part| self.visit(part)),
            Node::List(elements) => elements.iter_mut().for_each(|element| self.visit(element)),
            Node::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
                self.visit(key);
                self.visit(value);
            }),
            Node::Loop(of) => {
                let Loop { range, condition, body, is_pair, .. } = of.as_mut();
                self.visit(range);
                self.enter(range, *is_pair);
                condition.iter_mut().for_each(|condition| self.visit(condition));
                self.visit(body);
                self.leave(*is_pair);
            }
        }
    }

    fn enter(&mut self, range: &Node, is_pair: bool) {
        let has_fractions = self.has_fractions(range);
        self.walk.enter(range, is_pair);
        self.fractions.resize(self.walk.locals.len() - 1, false);
        self.fractions.push(has_fractions);
    }

    fn leave(&mut self, is_pair: bool) {
        self.walk.leave(is_pair);
        self.fractions.truncate(self.walk.locals.len());
    }

    /// Returns true if the schema says `number` for a place.
    fn is_number(&mut self, place: Lookup) -> bool {
        if let Some((_, known)) = self.known.iter().find(|(known, _)| *known == place) {
            return *known;
        }
        let is_number = (self.is_number)(&place);
        self.known.push((place, is_number));
        is_number
    }

    /// Returns true if the schema says `number` for an element with this index.
    fn is_number_at(&mut self, node: &Node) -> bool {
        let Node::Index(of, key) = node else { return false };
        let (Node::Int(index), Some(place)) = (key.as_ref(), self.walk.place(of)) else { return false };
        self.is_number(place.then(LookupStep::Member(index.to_string())))
    }

    /// Returns true if a node is a number that may have a fraction.
    fn may_have_fraction(&mut self, node: &Node) -> bool {
        if let Some(place) = self.walk.place(node) {
            return self.is_number(place) || self.is_number_at(node);
        }
        match node {
            Node::Double(_) | Node::Convert(Conversion::Double, _) => true,
            Node::Convert(Conversion::Sum | Conversion::Min | Conversion::Max, list) => self.has_fractions(list),
            Node::Local(depth) => self.fractions.get(*depth).copied().unwrap_or(false),
            Node::Member(of, _) | Node::Index(of, _) => self.has_fractions(of),
            Node::Negate(of) => self.may_have_fraction(of),
            Node::If(_, a, b) => self.may_have_fraction(a) || self.may_have_fraction(b),
            Node::Binary(binary, a, b) => {
                binary.is_arithmetic() && (self.may_have_fraction(a) || self.may_have_fraction(b))
            }
            _ => false,
        }
    }

    /// Returns true if elements of a list, or members of a map, are numbers that may have a fraction.
    fn has_fractions(&mut self, of: &Node) -> bool {
        if let Some(place) = self.walk.place(of) {
            return self.is_number(place.then(LookupStep::Any));
        }
        match of {
            Node::List(elements) => elements.iter().any(|element| self.may_have_fraction(element)),
            Node::Map(entries) => entries.iter().any(|(_, value)| self.may_have_fraction(value)),
            Node::Loop(made) if matches!(made.fold, Fold::Map | Fold::TransformList) => {
                self.enter(&made.range, made.is_pair);
                let has_fractions = self.may_have_fraction(&made.body);
                self.leave(made.is_pair);
                has_fractions
            }
            Node::Loop(made) if matches!(made.fold, Fold::Filter) => self.has_fractions(&made.range),
            Node::If(_, a, b) | Node::Binary(Binary::Add, a, b) => self.has_fractions(a) || self.has_fractions(b),
            _ => false,
        }
    }
}
