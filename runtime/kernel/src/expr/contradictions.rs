//! Contradictory comparisons joined by `&&`, and exhaustive comparisons joined by `||`, of one operand.

use std::cmp::Ordering;

use serde_json::Value;

use super::Expr;
use super::analysis::{CompareOp, Operand, Walk, constant, parts, test_of};
use super::lower::{Conversion, Node};

/// Smallest number that may be the result of rounding.
pub const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Maximum number of comparisons of one operand that are analysed together.
const TOGETHER_MAX: usize = 16;

/// Comparisons that never all hold, or at least one of them always holds.
#[derive(Clone, PartialEq, Debug)]
pub struct DecidedComparisons {
    /// The operand.
    pub of: Operand,
    /// The comparisons, with the operand on the left.
    pub tests: Vec<(CompareOp, Value)>,
    /// True if at least one always holds: they are joined by `||`.
    pub always: bool,
}

/// A comparison of an operand with a constant.
struct Joined {
    /// The operand as it is written. Equal texts are equal values, because all are in one scope.
    operand: String,
    of: Operand,
    test: CompareOp,
    with: Value,
}

impl Expr {
    /// Returns contradictory comparisons joined by `&&`, and exhaustive ones joined by `||`.
    pub fn decided_comparisons(&self) -> Vec<DecidedComparisons> {
        let mut found = Vec::new();
        Walk::default().together(&self.node, &mut found);
        found
    }
}

impl Walk {
    fn together(&mut self, node: &Node, found: &mut Vec<DecidedComparisons>) {
        match node {
            Node::And(..) | Node::Or(..) => {
                let always = matches!(node, Node::Or(..));
                let (mut joined, mut others) = (Vec::new(), Vec::new());
                self.joined(node, !always, &mut joined, &mut others);
                others.into_iter().for_each(|other| self.together(other, found));
                while let Some(first) = joined.first() {
                    let (operand, of) = (first.operand.clone(), first.of.clone());
                    let (same, rest): (Vec<_>, Vec<_>) = joined.into_iter().partition(|one| one.operand == operand);
                    joined = rest;
                    let tests: Vec<_> = same.into_iter().map(|one| (one.test, one.with)).collect();
                    let written = |(test, with): (CompareOp, Value)| (if always { test.negated() } else { test }, with);
                    if let Some(tests) = never_all(&tests) {
                        found.push(DecidedComparisons { of, tests: tests.into_iter().map(written).collect(), always });
                    }
                }
            }
            Node::Loop(of) => {
                self.together(&of.range, found);
                self.enter(&of.range, of.is_pair);
                of.condition.iter().chain([&of.body]).for_each(|part| self.together(part, found));
                self.leave(of.is_pair);
            }
            _ => parts(node).into_iter().for_each(|part| self.together(part, found)),
        }
    }

    /// Collects the comparisons that must hold for a node to evaluate to `wanted`, and the other operands.
    fn joined<'n>(&self, node: &'n Node, wanted: bool, out: &mut Vec<Joined>, others: &mut Vec<&'n Node>) {
        match node {
            Node::And(a, b) if wanted => [a, b].into_iter().for_each(|part| self.joined(part, wanted, out, others)),
            Node::Or(a, b) if !wanted => [a, b].into_iter().for_each(|part| self.joined(part, wanted, out, others)),
            Node::Not(of) => self.joined(of, !wanted, out, others),
            Node::Binary(binary, a, b) => {
                let joined = test_of(*binary).and_then(|test| {
                    [(a, b, test), (b, a, test.with_exchanged_operands())].into_iter().find_map(|(of, with, test)| {
                        let test = if wanted { test } else { test.negated() };
                        Some(Joined { operand: format!("{of:?}"), of: self.operand(of)?, test, with: constant(with)? })
                    })
                });
                match joined {
                    Some(joined) => out.push(joined),
                    None => others.push(node),
                }
            }
            _ => others.push(node),
        }
    }

    /// Returns the place, or the size of one, that a node denotes.
    fn operand(&self, node: &Node) -> Option<Operand> {
        match node {
            Node::Path(..) | Node::Local(_) | Node::Member(..) | Node::Index(..) => {
                self.place(node).map(Operand::Place)
            }
            Node::Convert(Conversion::Size, of) if !matches!(of.as_ref(), Node::Loop(_)) => {
                self.place(of).map(Operand::Size)
            }
            _ => None,
        }
    }
}

/// Returns comparisons of one value that never all hold; only two of them if two suffice.
fn never_all(tests: &[(CompareOp, Value)]) -> Option<Vec<(CompareOp, Value)>> {
    let is_tried = |with: &Value| match with {
        Value::Number(number) => number.as_f64().is_some_and(|number| number.abs() < EXACT_MAX),
        Value::Array(_) | Value::Object(_) => false,
        _ => true,
    };
    if tests.len() > TOGETHER_MAX || !tests.iter().all(|(_, with)| is_tried(with)) || may_all(tests) {
        return None;
    }
    let pairs = (1..tests.len()).flat_map(|second| (0..second).map(move |first| [first, second]));
    let mut pairs = pairs.map(|pair| pair.map(|at| tests[at].clone()));
    Some(pairs.find(|pair| !may_all(pair)).map_or_else(|| tests.to_vec(), Vec::from))
}

/// Returns true if some value satisfies all comparisons.
fn may_all(tests: &[(CompareOp, Value)]) -> bool {
    // Some other value satisfies them all.
    if tests.iter().all(|(test, _)| *test == CompareOp::Unequal) {
        return true;
    }
    let named = tests.iter().map(|(_, with)| with.clone());
    let mut numbers: Vec<f64> = tests.iter().filter_map(|(_, with)| with.as_f64()).collect();
    numbers.sort_by(f64::total_cmp);
    let between = numbers.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
    let beyond = [numbers.first().map(|least| least - 1.0), numbers.last().map(|most| most + 1.0)];
    let numbers = between.chain(beyond.into_iter().flatten()).map(Value::from);
    // The smallest text, and the next text after each.
    let texts = tests.iter().filter_map(|(_, with)| with.as_str());
    let texts = texts.flat_map(|text| [String::new(), format!("{text}\0")]).map(Value::from);
    named.chain(numbers).chain(texts).any(|value| tests.iter().all(|(test, with)| holds(&value, *test, with)))
}

/// Returns true if a comparison of two values holds; false if it cannot be evaluated.
fn holds(value: &Value, test: CompareOp, with: &Value) -> bool {
    let order = match (value.as_f64(), with.as_f64(), value.as_str(), with.as_str()) {
        (Some(a), Some(b), ..) => a.partial_cmp(&b),
        (.., Some(a), Some(b)) => Some(a.cmp(b)),
        _ => None,
    };
    let is_equal = order.map_or(value == with, Ordering::is_eq);
    match test {
        CompareOp::Equal | CompareOp::Among => is_equal,
        CompareOp::Unequal => !is_equal,
        CompareOp::Less => order.is_some_and(Ordering::is_lt),
        CompareOp::LessOrEqual => order.is_some_and(Ordering::is_le),
        CompareOp::Greater => order.is_some_and(Ordering::is_gt),
        CompareOp::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
    }
}
