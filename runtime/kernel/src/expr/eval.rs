//! Evaluates a lowered expression and counts every step.
//!
//! Steps measure operations, not time, so the same values give the same verdict on every machine. As in CEL, `&&`,
//! `||`, `all` and `exists` absorb errors (`error || true` is true), but never exhaustion of the steps.

use std::cmp::Ordering;
use std::rc::Rc;

use super::arithmetic::{DIFFERENCE, PRODUCT, QUOTIENT};
use super::lower::{Binary, Conversion, Fold, Loop, Node, TextTest};
use super::meter::{EvalAbort, Meter, Result};
use super::value::{Item, Items, Text, Val, misplaced};
use super::{Dialect, Variables};

/// Maximum steps of one evaluation: nodes, compared elements, and texts by length. Enough for a check of references
/// among some hundred elements, in a few hundredths of a second.
pub(super) const STEPS_MAX: usize = 1_000_000;
/// Bytes of text that a small regular expression reads in one step.
const MATCHED_BYTES_PER_STEP: usize = 4;

/// Evaluates an expression to true or false.
pub(super) fn evaluate<'a>(
    node: &'a Node,
    variables: &'a Variables<'_>,
    dialect: Dialect,
    meter: &mut Meter,
) -> Result<bool> {
    let mut run = Run { variables, dialect, meter: meter.clone(), locals: Vec::new() };
    let value = run.value(node);
    *meter = run.meter.clone();
    match value? {
        Val::Bool(value) => Ok(value),
        other => Err(EvalAbort::Error(format!("the result is {}, not true or false", other.type_name()))),
    }
}

struct Run<'a> {
    variables: &'a Variables<'a>,
    dialect: Dialect,
    meter: Meter,
    /// Values of the loops' variables, outermost first.
    locals: Vec<Val<'a>>,
}

impl<'a> Run<'a> {
    fn value(&mut self, node: &'a Node) -> Result<Val<'a>> {
        self.meter.spend(1)?;
        match node {
            Node::Null => Ok(Val::Null),
            Node::Bool(value) => Ok(Val::Bool(*value)),
            Node::Int(int) => Ok(Val::Int(*int)),
            Node::UInt(uint) => Ok(Val::UInt(*uint)),
            Node::Double(double) => Ok(Val::Double(*double)),
            Node::Text(text) => Ok(Val::Text(Text::Borrowed(text))),
            Node::Path(variable, path) => self.path(variable, path),
            Node::Local(depth) => self
                .locals
                .get(*depth)
                .cloned()
                .ok_or_else(|| EvalAbort::error("a loop's variable outside of its loop")),
            Node::Member(of, name) => {
                let of = self.value(of)?;
                member(&of, name, &mut self.meter)
            }
            Node::Has(of, name) => self.has(of, name),
            Node::Index(of, key) => self.index(of, key),
            Node::Not(node) => self.bool(node, "!").map(|value| Val::Bool(!value)),
            Node::Negate(node) => self.value(node)?.negate(self.dialect),
            Node::And(a, b) => self.logic(a, b, false),
            Node::Or(a, b) => self.logic(a, b, true),
            Node::If(condition, a, b) => {
                let holds = self.bool(condition, "?:")?;
                self.value(if holds { a } else { b })
            }
            Node::Binary(binary, a, b) => self.binary(*binary, a, b),
            Node::List(nodes) => {
                let elements: Result<Vec<_>> = nodes.iter().map(|node| self.value(node)).collect();
                Ok(Val::List(Rc::new(elements?)))
            }
            Node::Map(entries) => self.map(entries),
            Node::Convert(conversion, node) => self.convert(*conversion, node),
            Node::Test(test, a, b) => self.test(*test, a, b),
            Node::Matches(text, regex, weight) => match self.value(text)? {
                Val::Text(text) => {
                    self.meter.spend(text.len().saturating_mul(*weight) / MATCHED_BYTES_PER_STEP)?;
                    Ok(Val::Bool(regex.is_match(&text)))
                }
                other => Err(misplaced("matches()", &other)),
            },
            Node::Loop(of) => self.fold(of),
        }
    }

    fn bool(&mut self, node: &'a Node, operator: &str) -> Result<bool> {
        match self.value(node)? {
            Val::Bool(value) => Ok(value),
            other => Err(misplaced(operator, &other)),
        }
    }

    fn path(&mut self, variable: &str, path: &'a [String]) -> Result<Val<'a>> {
        self.meter.spend(path.len())?;
        let Some(root) = self.variables.get(variable) else {
            return Err(EvalAbort::Error(format!("{variable} has no value here")));
        };
        path.iter().try_fold(root.value(), |value, name| member(&value, name, &mut self.meter))
    }

    fn has(&mut self, of: &'a Node, name: &str) -> Result<Val<'a>> {
        let of = self.value(of)?;
        match of.map_len() {
            Some(_) => {
                self.meter.spend_text(name.len())?;
                Ok(Val::Bool(of.member(name).is_some()))
            }
            None => Err(misplaced("has()", &of)),
        }
    }

    fn index(&mut self, of: &'a Node, key: &'a Node) -> Result<Val<'a>> {
        let of = self.value(of)?;
        let key = self.value(key)?;
        let missing = if of.map_len().is_some() { "no such member" } else { "index out of range" };
        of.at(&key, &mut self.meter)?.ok_or_else(|| EvalAbort::error(missing))
    }

    /// `a && b` or `a || b`: a `decisive` value on either side determines the result, even if the other side fails.
    fn logic(&mut self, a: &'a Node, b: &'a Node, decisive: bool) -> Result<Val<'a>> {
        let operator = if decisive { "||" } else { "&&" };
        let left = match self.bool(a, operator) {
            Ok(value) if value == decisive => return Ok(Val::Bool(decisive)),
            Err(EvalAbort::Exhausted) => return Err(EvalAbort::Exhausted),
            left => left,
        };
        match self.bool(b, operator)? {
            value if value == decisive => Ok(Val::Bool(decisive)),
            _ => left.map(Val::Bool),
        }
    }

    fn binary(&mut self, binary: Binary, a: &'a Node, b: &'a Node) -> Result<Val<'a>> {
        let a = self.value(a)?;
        let b = self.value(b)?;
        let (meter, dialect) = (&mut self.meter, self.dialect);
        match binary {
            Binary::Add => a.add(&b, dialect, meter),
            Binary::Subtract => DIFFERENCE.apply(&a, &b, dialect),
            Binary::Multiply => PRODUCT.apply(&a, &b, dialect),
            Binary::Divide => QUOTIENT.apply(&a, &b, dialect),
            Binary::Ratio => a.ratio(&b, dialect),
            Binary::Remainder => a.remainder(&b, dialect),
            Binary::Equal => a.equals(&b, meter).map(Val::Bool),
            Binary::Unequal => a.equals(&b, meter).map(|equal| Val::Bool(!equal)),
            Binary::Less => a.compare(&b, "<", meter).map(|order| Val::Bool(order == Ordering::Less)),
            Binary::LessOrEqual => a.compare(&b, "<=", meter).map(|order| Val::Bool(order != Ordering::Greater)),
            Binary::Greater => a.compare(&b, ">", meter).map(|order| Val::Bool(order == Ordering::Greater)),
            Binary::GreaterOrEqual => a.compare(&b, ">=", meter).map(|order| Val::Bool(order != Ordering::Less)),
            Binary::In => b.contains(&a, meter).map(Val::Bool),
        }
    }

    fn map(&mut self, nodes: &'a [(Node, Node)]) -> Result<Val<'a>> {
        let mut entries: Vec<(Text<'a>, Val<'a>)> = Vec::with_capacity(nodes.len());
        for (key, value) in nodes {
            let key = match self.value(key)? {
                Val::Text(key) => key,
                other => return Err(EvalAbort::Error(format!("{} cannot be the key of a map", other.type_name()))),
            };
            // Each earlier key may be as long, and equal up to its end.
            self.meter.spend_text(key.len().saturating_mul(entries.len()))?;
            if entries.iter().any(|(other, _)| **other == *key) {
                return Err(EvalAbort::error("a map names a key twice"));
            }
            entries.push((key, self.value(value)?));
        }
        Ok(Val::Entries(Rc::new(entries)))
    }

    fn convert(&mut self, conversion: Conversion, node: &'a Node) -> Result<Val<'a>> {
        let value = self.value(node)?;
        match conversion {
            Conversion::Size => value.size(&mut self.meter),
            Conversion::Int => value.to_int(&mut self.meter),
            Conversion::UInt => value.to_uint(&mut self.meter),
            Conversion::Double => value.to_double(self.dialect, &mut self.meter),
            Conversion::Text => value.to_text(),
            Conversion::Sum => value.sum(self.dialect, &mut self.meter),
            Conversion::Min => value.extreme("min()", Ordering::Less, &mut self.meter),
            Conversion::Max => value.extreme("max()", Ordering::Greater, &mut self.meter),
        }
    }

    fn test(&mut self, test: TextTest, a: &'a Node, b: &'a Node) -> Result<Val<'a>> {
        let name = match test {
            TextTest::Contains => "contains()",
            TextTest::StartsWith => "startsWith()",
            TextTest::EndsWith => "endsWith()",
        };
        let a = self.value(a)?;
        let b = self.value(b)?;
        let Val::Text(text) = &a else { return Err(misplaced(name, &a)) };
        let Val::Text(part) = &b else { return Err(misplaced(name, &b)) };
        let (bytes, holds): (usize, fn(&str, &str) -> bool) = match test {
            TextTest::Contains => (text.len() + part.len(), |text, part| text.contains(part)),
            TextTest::StartsWith => (part.len(), |text, part| text.starts_with(part)),
            TextTest::EndsWith => (part.len(), |text, part| text.ends_with(part)),
        };
        self.meter.spend_text(bytes)?;
        Ok(Val::Bool(holds(text, part)))
    }

    fn fold(&mut self, of: &'a Loop) -> Result<Val<'a>> {
        let range = self.value(&of.range)?;
        if self.dialect == Dialect::Strict && range.map_len().is_some() {
            return Err(EvalAbort::error("a loop over a map has no order; loop over a list"));
        }
        let items = Items::try_new(&range, of.is_pair);
        let items = items.ok_or_else(|| EvalAbort::Error(format!("cannot loop over {}", range.type_name())))?;
        let depth = self.locals.len();
        let result = match of.fold {
            Fold::All => self.any(items, &of.body, false),
            Fold::Exists => self.any(items, &of.body, true),
            Fold::ExistsOne => self.exactly_one(items, &of.body),
            Fold::Filter => self.collect(items, Some(&of.body), None),
            Fold::Map | Fold::TransformList => self.collect(items, of.condition.as_ref(), Some(&of.body)),
        };
        self.locals.truncate(depth);
        result
    }

    /// `all` (false is decisive) or `exists` (true is decisive); an error counts only without a decisive value.
    fn any(&mut self, items: Items<'a>, body: &'a Node, decisive: bool) -> Result<Val<'a>> {
        let operator = if decisive { "exists()" } else { "all()" };
        let mut failed = None;
        for item in items {
            match self.with(item, |run| run.bool(body, operator)) {
                Ok(value) if value == decisive => return Ok(Val::Bool(decisive)),
                Ok(_) => {}
                Err(EvalAbort::Exhausted) => return Err(EvalAbort::Exhausted),
                // The last error is returned.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(Val::Bool(!decisive)), Err)
    }

    fn exactly_one(&mut self, items: Items<'a>, body: &'a Node) -> Result<Val<'a>> {
        let mut found = 0_usize;
        for item in items {
            if self.with(item, |run| run.bool(body, "exists_one()"))? {
                found += 1;
            }
        }
        Ok(Val::Bool(found == 1))
    }

    /// `filter` (without `made`), `map` and `transformList`.
    fn collect(&mut self, items: Items<'a>, condition: Option<&'a Node>, made: Option<&'a Node>) -> Result<Val<'a>> {
        let mut collected = Vec::new();
        for item in items {
            let kept = self.with(item, |run| {
                if let Some(condition) = condition
                    && !run.bool(condition, "filter()")?
                {
                    return Ok(None);
                }
                match made {
                    Some(node) => run.value(node).map(Some),
                    None => Ok(run.locals.last().cloned()),
                }
            })?;
            collected.extend(kept);
        }
        Ok(Val::List(Rc::new(collected)))
    }

    /// Runs a loop's body for one item.
    fn with<T>(&mut self, item: Item<'a>, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.meter.spend(1)?;
        let depth = self.locals.len();
        self.locals.extend(item.key);
        self.locals.push(item.value);
        let result = body(self);
        self.locals.truncate(depth);
        result
    }
}

fn member<'a>(of: &Val<'a>, name: &str, meter: &mut Meter) -> Result<Val<'a>> {
    if of.map_len().is_none() {
        return Err(EvalAbort::Error(format!("{} has no member {name}", of.type_name())));
    }
    meter.spend_text(name.len())?;
    of.member(name).ok_or_else(|| EvalAbort::Error(format!("no such member: {name}")))
}
