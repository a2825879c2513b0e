//! Invariants: which of them a change can break, and whether they hold (SPEC section 6).
//!
//! What is evaluated costs what a patch touched, not what the board holds. That nothing is missed rests on four points:
//!
//! * **What an expression comes to is a function of what it refers to.** [`Expr::references`] covers everything that
//!   the evaluator looks at, and the steps it takes are part of that function.
//! * **A reference that is not touched is what it was.** [`Since::touches`] follows it through the stamps of the tree:
//!   every change of a value, and every coming and going of a member on the way, has left one that is later than the
//!   version compared with. What `before` and `patch` are is new each time: they always count as touched.
//! * **All invariants held before**, for every instance: of the initial state all are evaluated, and a candidate that
//!   breaks one is never committed.
//! * **An instance that was there before, in which nothing changed, is an instance that was judged.** One that an
//!   insertion or removal moved keeps its value, and its old place was an instance too, because a pattern tells no
//!   index from another unless it names it; what comes to a place that is named counts as new
//!   ([`Pattern::instances_since`](crate::pattern::Pattern::instances_since)).
//!
//! `old` is what an instance was before the commit: it differs from `self` only where that is touched. An invariant that looks
//! at it must hold where both are the same: untouched instances are not asked, unless a reference outside of them is
//! touched. `key` of an element changes when elements before it come or go, so an invariant that uses it
//! is evaluated for those as well.
//!
//! So an invariant without `for` is evaluated if anything that it refers to is touched. One with `for` is evaluated for
//! every instance if anything outside of `self` is touched that it refers to; else only for instances that are new or
//! touched in what it refers to.
//!
//! **Limits.** A verdict also depends on the steps that all evaluations for one proposal may take together, and so on
//! what else is evaluated. That errs to one side only: an evaluation that finds no steps left refuses, so what is
//! accepted was evaluated to its end, and what is left out, which held within the limit of one evaluation, takes
//! nothing from the rest. What is evaluated follows from the patch and the stamps of the tree, both of which replay
//! derives again: the same history gives the same verdicts, limits included. A tree that is stored must therefore
//! be stored with its stamps.

use std::iter::once;

use jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use crate::expr::{Allowance, Expr, Reference, Variable, Variables};
use crate::pattern::{Instance, Pattern, PatternToken};
use crate::plan::Invariant;
use crate::rejection::{Code, VIOLATIONS_MAX, Violation};
use crate::tree::{Node, Since};

/// The most instances that one invariant is evaluated for at a time.
const INSTANCES_MAX: usize = 100_000;

/// What the instance is called in expressions.
const INSTANCE: &str = "self";
/// Name of the variable for the value before the commit; null, if there was none.
const OLD: &str = "old";
/// Name of the variable for the name or index of the instance: the token of the last wildcard of the pattern.
const KEY: &str = "key";

/// Change that is checked.
pub struct Change<'a> {
    /// The state that the candidate is made from.
    pub before: &'a Node,
    /// The state that would come next.
    pub candidate: Since<'a>,
    /// Patch that made it.
    pub patch: &'a Value,
    /// The request as it was given; none: what stands in the candidate.
    pub request: Option<&'a Node>,
    /// Returns the place at which the value at a place stood before, if it was there.
    pub stood: &'a dyn Fn(&Pointer) -> Option<PointerBuf>,
}

/// Checks a candidate against the state it is made from, which satisfied all invariants: evaluates what can have
/// become false, in the order of the invariants and of the document, up to [`VIOLATIONS_MAX`] violations and within what
/// is left of an allowance.
pub fn check<'i>(
    invariants: impl IntoIterator<Item = &'i Invariant>,
    change: &Change<'_>,
    allowance: &mut Allowance,
) -> Vec<Violation> {
    check_up_to(invariants, change, INSTANCES_MAX, allowance)
}

/// Checks a state that no patch made, the initial one: evaluates everything.
pub fn check_whole<'i>(invariants: impl IntoIterator<Item = &'i Invariant>, state: &Node) -> Vec<Violation> {
    let patch = Value::Array(Vec::new());
    let stood = |place: &Pointer| Some(place.to_buf());
    let change = Change { before: state, candidate: Since::anew(state), patch: &patch, request: None, stood: &stood };
    check(invariants, &change, &mut Allowance::new())
}

/// Whether the `done` condition can have become true: if not, it need not be evaluated. One that cannot be evaluated
/// is worth a record each time it is, and so once for each time that something it refers to changed.
pub fn may_be_done(done: &Expr, state: &Since<'_>) -> bool {
    is_touched(done, state)
}

/// What lets an invariant with `for` and this expression be evaluated for every instance when it changes: all that it
/// refers to outside of the instance. `before` and `patch` change with every commit.
pub fn shared_references(expr: &Expr) -> impl Iterator<Item = &Reference> {
    expr.references().iter().filter(|reference| !matches!(reference.variable, INSTANCE | OLD | KEY))
}

fn check_up_to<'i>(
    invariants: impl IntoIterator<Item = &'i Invariant>,
    change: &Change<'_>,
    max: usize,
    allowance: &mut Allowance,
) -> Vec<Violation> {
    let Change { before, candidate, patch, request, stood } = change;
    let mut violations = Vec::new();
    let request = request.or_else(|| candidate.node.child("request")).unwrap_or(&Node::Null);
    let mut variables = Variables::from([
        ("request", request.into()),
        ("state", candidate.node.into()),
        ("before", (*before).into()),
        ("patch", (*patch).into()),
    ]);
    for invariant in invariants {
        let Due { instances, is_all } = due(invariant, candidate, max);
        if !is_all {
            // What is not evaluated does not hold.
            let message = format!("{} has too many instances: fewer than {max} can be checked", invariant.name);
            violations.push(Violation::new(Code::InvariantViolated, "", message).by_rule(invariant.name.clone()));
        }
        for Instance { place, part } in instances {
            if let Some(pattern) = &invariant.each {
                variables.insert(INSTANCE, part.node.into());
                if invariant.expr.uses(OLD) {
                    let old = stood(&place).and_then(|place| before.get(&place));
                    variables.insert(OLD, old.map_or_else(|| Value::Null.into(), Variable::from));
                }
                if invariant.expr.uses(KEY) {
                    let is_list =
                        |above: &Pointer| candidate.node.get(above).is_some_and(|node| node.as_array().is_some());
                    variables.insert(KEY, key(pattern, &place, is_list).into());
                }
            }
            let Invariant { name, expr, message, .. } = invariant;
            let source = expr.source();
            let (message, trouble) = match (expr.evaluate_within(&variables, allowance), message) {
                (Ok(true), _) => continue,
                (Ok(false), Some(message)) => (format!("{name} does not hold: {message} ({source})"), None),
                (Ok(false), None) => (format!("{name} does not hold: {source}"), None),
                (Err(error), _) => (format!("{name} cannot be evaluated: {source}"), Some(error)),
            };
            let mut violation = Violation::new(Code::InvariantViolated, place.to_string(), message);
            // What went wrong in it speaks of what is there.
            violation.found = trouble.map(|error| error.to_string().into());
            violations.push(violation.by_rule(invariant.name.clone()));
            if violations.len() >= VIOLATIONS_MAX {
                return violations;
            }
        }
        [INSTANCE, OLD, KEY].iter().for_each(|name| drop(variables.remove(name)));
    }
    violations
}

/// Returns the name or index that the last wildcard of a pattern stands for at an instance; with `**`, or without a wildcard,
/// the end of the place. `is_list`: whether a list is at a place.
pub fn key(pattern: &Pattern, place: &Pointer, is_list: impl Fn(&Pointer) -> bool) -> Value {
    let tokens = pattern.tokens();
    let is_deep = tokens.contains(&PatternToken::Deep);
    let last = tokens.iter().rposition(|token| *token == PatternToken::Any).filter(|_| !is_deep);
    let at = last.unwrap_or_else(|| place.tokens().count().saturating_sub(1));
    let Some(token) = place.tokens().nth(at) else { return Value::Null };
    let above = PointerBuf::from_tokens(place.tokens().take(at));
    let token = token.decoded();
    match token.parse::<u64>() {
        Ok(index) if is_list(&above) => index.into(),
        _ => token.as_ref().into(),
    }
}

/// What an invariant must be evaluated for.
struct Due<'a> {
    /// Where; the whole document for an invariant without `for`.
    instances: Vec<Instance<'a>>,
    /// Whether there is nothing beyond.
    is_all: bool,
}

fn due<'a>(invariant: &Invariant, candidate: &Since<'a>, max: usize) -> Due<'a> {
    let is_touched_outside = candidate.is_new() || is_touched(&invariant.expr, candidate);
    let Some(pattern) = &invariant.each else {
        let whole = is_touched_outside.then(|| Instance { place: jsonptr::PointerBuf::root(), part: *candidate });
        return Due { instances: Vec::from_iter(whole), is_all: true };
    };
    let root = if is_touched_outside { Since::anew(candidate.node) } else { *candidate };
    // An element that is only moved has another index.
    let mut instances = match invariant.expr.uses(KEY) {
        true => pattern.instances_since_or_moved(root, max),
        false => pattern.instances_since(root, max),
    };
    let is_all = instances.len() < max;
    let in_self = || invariant.expr.references().iter().filter(|one| matches!(one.variable, INSTANCE | OLD));
    instances.retain(|Instance { part, .. }| {
        part.is_new() || in_self().any(|reference| part.touches(reference.path.iter().map(String::as_str)))
    });
    Due { instances, is_all }
}

/// Whether anything that an expression refers to outside of `self` may have changed.
fn is_touched(expr: &Expr, state: &Since<'_>) -> bool {
    expr.references().iter().any(|Reference { variable, path }| {
        let names = path.iter().map(String::as_str);
        match *variable {
            INSTANCE | OLD | KEY => false,
            "state" => state.touches(names),
            "request" => state.touches(once("request").chain(names)),
            // What comes with each commit anew.
            _ => true,
        }
    })
}

#[cfg(test)]
mod tests;
