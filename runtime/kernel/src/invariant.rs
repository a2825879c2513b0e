//! Invariants: selection of those that a change can break, and their evaluation (SPEC section 6).
//!
//! The cost of a check depends on the patch, not on the size of the board. Its completeness rests on four points:
//!
//! * **The result of an expression is a function of its references.** [`Expr::references`] covers every value that the
//!   evaluator reads. The number of steps is part of that function.
//! * **An untouched reference has its old value.** [`ChangesSince::may_have_changed`] checks it by the stamps of the
//!   tree. Every change of a value, and every added or removed member on the path, leaves a stamp later than the
//!   version compared with. `before` and `patch` are new each time and always count as touched.
//! * **All invariants held before**, for every instance: all are evaluated on the initial state, and a candidate that
//!   violates one is never committed.
//! * **An existing instance without changes was judged before.** An element shifted by an insertion or removal keeps
//!   its value. Its old place was an instance, too, because patterns distinguish indices only where they name them. A
//!   value that moves to a named place counts as new
//!   ([`Pattern::instances_since`](crate::pattern::Pattern::instances_since)).
//!
//! `old` is the value of an instance before the commit: it differs from `self` only if that is touched. An invariant
//! that uses it must hold where both are equal: untouched instances are not evaluated, unless an outside reference is
//! touched. `key` of an element changes if elements before it are added or removed, so an invariant that uses it is
//! evaluated for those as well.
//!
//! Hence an invariant without `for` is evaluated if any of its references is touched. An invariant with `for` is
//! evaluated for every instance if a reference outside of `self` is touched. Otherwise it is evaluated only for
//! instances that are new or have touched references.
//!
//! **Limits.** A verdict also depends on the step limit shared by all evaluations for one proposal, and so on the other
//! evaluations. The error is one-sided: an evaluation without steps left rejects, so an accepted proposal was evaluated
//! completely. A skipped evaluation held within the limit of one evaluation and takes no steps from the others. The
//! selection follows from the patch and the stamps of the tree, both of which replay derives again: equal histories
//! give equal verdicts, limits included. A stored tree must therefore include its stamps.

use std::iter::once;

use jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use crate::expr::{Allowance, Expr, Reference, Variable, Variables};
use crate::pattern::{Instance, Pattern, PatternToken};
use crate::plan::Invariant;
use crate::rejection::{Code, VIOLATIONS_MAX, Violation};
use crate::tree::{ChangesSince, Node};

/// Maximum instances for which one invariant is evaluated at a time.
const INSTANCES_MAX: usize = 100_000;

/// Name of the variable for the instance.
const INSTANCE: &str = "self";
/// Name of the variable for the value before the commit; null if it is new.
const OLD: &str = "old";
/// Name of the variable for the name or index of the instance: the token of the last wildcard of the pattern.
const KEY: &str = "key";

/// Change to check.
pub struct Change<'a> {
    /// State from which the candidate is made.
    pub before: &'a Node,
    /// Candidate for the next state.
    pub candidate: ChangesSince<'a>,
    /// Patch that makes the candidate.
    pub patch: &'a Value,
    /// Original request; `None` for the one in the candidate.
    pub request: Option<&'a Node>,
    /// Returns the old place of the value at a place, if it existed before.
    pub original_place: &'a dyn Fn(&Pointer) -> Option<PointerBuf>,
}

/// Checks a candidate against its predecessor, which satisfied all invariants. Evaluates those that can have become
/// false, in the order of the invariants and of the document, within the remaining `allowance`. Returns at most
/// [`VIOLATIONS_MAX`] violations.
pub fn check<'i>(
    invariants: impl IntoIterator<Item = &'i Invariant>,
    change: &Change<'_>,
    allowance: &mut Allowance,
) -> Vec<Violation> {
    check_up_to(invariants, change, INSTANCES_MAX, allowance)
}

/// Checks the initial state, which no patch made: evaluates everything.
pub fn check_whole<'i>(invariants: impl IntoIterator<Item = &'i Invariant>, state: &Node) -> Vec<Violation> {
    let patch = Value::Array(Vec::new());
    let (candidate, original_place) = (ChangesSince::all_changed(state), &|place: &Pointer| Some(place.to_buf()));
    let change = Change { before: state, candidate, patch: &patch, request: None, original_place };
    check(invariants, &change, &mut Allowance::new())
}

/// Returns true if the `done` condition can have become true. A failing evaluation is recorded each time, so at most
/// once for each change of its references.
pub fn may_be_done(done: &Expr, state: &ChangesSince<'_>) -> bool {
    is_touched(done, state)
}

/// Returns the references of an expression outside of the instance; a change of one causes an evaluation for every
/// instance. `before` and `patch` change with every commit.
pub fn shared_references(expr: &Expr) -> impl Iterator<Item = &Reference> {
    expr.references().iter().filter(|reference| !matches!(reference.variable, INSTANCE | OLD | KEY))
}

fn check_up_to<'i>(
    invariants: impl IntoIterator<Item = &'i Invariant>,
    change: &Change<'_>,
    max: usize,
    allowance: &mut Allowance,
) -> Vec<Violation> {
    let Change { before, candidate, patch, request, original_place: stood } = change;
    let mut violations = Vec::new();
    let request = request.or_else(|| candidate.node.child("request")).unwrap_or(&Node::Null);
    let mut variables = Variables::from([
        ("request", request.into()),
        ("state", candidate.node.into()),
        ("before", (*before).into()),
        ("patch", (*patch).into()),
    ]);
    for invariant in invariants {
        let DueInstances { instances, is_all } = due(invariant, candidate, max);
        if !is_all {
            // An invariant that is not evaluated counts as violated.
            let message = format!("{} has too many instances: fewer than {max} can be checked", invariant.name);
            violations.push(Violation::new(Code::InvariantViolated, "", message).with_rule(invariant.name.clone()));
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
            // The error message may contain values, so it is subject to concealment.
            violation.found = trouble.map(|error| error.to_string().into());
            violations.push(violation.with_rule(invariant.name.clone()));
            if violations.len() >= VIOLATIONS_MAX {
                return violations;
            }
        }
        [INSTANCE, OLD, KEY].iter().for_each(|name| drop(variables.remove(name)));
    }
    violations
}

/// Returns the name or index matched by the last wildcard of a pattern at an instance. With `**`, or without a
/// wildcard, it is the last token of the place. `is_list` returns true for the place of an array.
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

/// Instances for which an invariant must be evaluated.
struct DueInstances<'a> {
    /// Instances to evaluate; the whole document for an invariant without `for`.
    instances: Vec<Instance<'a>>,
    /// True if the list is complete.
    is_all: bool,
}

fn due<'a>(invariant: &Invariant, candidate: &ChangesSince<'a>, max: usize) -> DueInstances<'a> {
    let is_touched_outside = candidate.is_new() || is_touched(&invariant.expr, candidate);
    let Some(pattern) = &invariant.each else {
        let whole = is_touched_outside.then(|| Instance { place: jsonptr::PointerBuf::root(), part: *candidate });
        return DueInstances { instances: Vec::from_iter(whole), is_all: true };
    };
    let root = if is_touched_outside { ChangesSince::all_changed(candidate.node) } else { *candidate };
    // A shifted element has another index.
    let mut instances = match invariant.expr.uses(KEY) {
        true => pattern.instances_since_or_moved(root, max),
        false => pattern.instances_since(root, max),
    };
    let is_all = instances.len() < max;
    let in_self = || invariant.expr.references().iter().filter(|one| matches!(one.variable, INSTANCE | OLD));
    instances.retain(|Instance { part, .. }| {
        part.is_new() || in_self().any(|reference| part.may_have_changed(reference.path.iter().map(String::as_str)))
    });
    DueInstances { instances, is_all }
}

/// Returns true if a reference of an expression outside of `self` may have changed.
fn is_touched(expr: &Expr, state: &ChangesSince<'_>) -> bool {
    expr.references().iter().any(|Reference { variable, path }| {
        let names = path.iter().map(String::as_str);
        match *variable {
            INSTANCE | OLD | KEY => false,
            "state" => state.may_have_changed(names),
            "request" => state.may_have_changed(once("request").chain(names)),
            // All other variables are new with each commit.
            _ => true,
        }
    })
}

#[cfg(test)]
mod tests;
