//! Checks the places that expressions look at: missing ones, invalid loops, and conditions that never hold.
//!
//! Uses the schema and the values of the variables in a rule, an invariant or `done` (SPEC section 6). Reports
//! nothing where the schema leaves the case open.

use serde_json::{Value, json};

use super::cached_schema::CachedSchema;
use super::invariants::adds;
use super::{Expression, Linter, suggest};
use patchboard_kernel::blueprint::{EventOp, GrantOp, Rule, Trigger};
use patchboard_kernel::expr::{Existence, Lookup, LookupStep, Variable, Variables};
use patchboard_kernel::expressions::{BOUND, ExpressionOwner, place};
use patchboard_kernel::pattern::Pattern;

/// Members of `event` for a rule on a change.
const EVENT_MEMBERS: [&str; 5] = ["op", "path", "captures", "worker", "version"];
/// Members of `event` for a rule on a signal.
const SIGNAL_MEMBERS: [&str; 2] = ["op", "name"];

impl Linter<'_> {
    /// Reports loops over places where the schema allows neither list nor object, and loops that confuse the names of
    /// an object with its values. Every evaluation of one is an error.
    pub(super) fn ranges(&self) {
        let mut found = Vec::new();
        for expression in &self.expressions {
            let looks = expression.expr.lookups();
            for look in looks.iter().filter(|look| look.is_range || look.is_searched) {
                let Some(place) = place(look, expression.owner, self.paths) else { continue };
                let Some((schema, sought, _)) = self.schema_of(&place) else { continue };
                if schema.may_be_array(&sought) {
                    continue;
                }
                let is_entered = |other: &Lookup| {
                    let below = other.steps.strip_prefix(look.steps.as_slice());
                    other.variable == look.variable && matches!(below, Some([LookupStep::Element, _, ..]))
                };
                let place = if place.to_string().is_empty() { "the document".to_owned() } else { format!("`{place}`") };
                let (message, help) = if !schema.may_be_object(&sought) {
                    let (what, help) = match look.is_range {
                        true => ("a loop goes over", "Loop over an array or an object."),
                        false => ("`in` looks into", "Look into an array or an object; `==` compares two values."),
                    };
                    (format!("{what} a list or an object, and the schema allows neither at {place}"), help)
                } else if look.is_range && !look.is_pair && looks.iter().any(is_entered) {
                    (
                        format!(
                            "{place} is an object, and a loop with one variable goes over the names of its members"
                        ),
                        "Name key and value: `all(key, value, …)`, `exists(key, value, …)`, `transformList(key, value, …)`.",
                    )
                } else {
                    continue;
                };
                let finding = (expression.pointer.clone(), offset(expression, last_name(look)), message, help);
                if !found.contains(&finding) {
                    found.push(finding);
                }
            }
        }
        for (pointer, at, message, help) in found {
            self.report("bad_condition", &pointer, message, help);
            self.point_into(&pointer, at);
        }
    }

    /// Warns of places that can never exist, and of conditions that never hold.
    pub(super) fn conditions(&self) {
        for expression in &self.expressions {
            let never = self.never_holds(expression);
            self.unguarded_old(expression);
            let mut reported = Vec::new();
            for look in expression.expr.lookups() {
                if self.is_name(&look, expression.owner) {
                    continue;
                }
                let Some((wrong, message, help)) = self.unknown_member(&look, expression.owner) else { continue };
                // A null variable is reported once, with its consequence.
                if reported.contains(&message) || (never && is_null(expression.owner, look.variable)) {
                    continue;
                }
                self.report("unknown_member", &expression.pointer, message.clone(), help);
                self.point_into(&expression.pointer, offset(expression, Some(&wrong)));
                reported.push(message);
            }
            self.comparisons(expression, &mut reported);
        }
    }

    /// Reports a condition that never holds, independent of the state.
    fn never_holds(&self, expression: &Expression<'_>) -> bool {
        let owner = expression.owner;
        let mut known = Variables::new();
        for variable in ["event", "value", "patch"].into_iter().filter(|variable| is_null(owner, variable)) {
            known.insert(variable, Variable::from(Value::Null));
        }
        if let ExpressionOwner::Rule(rule) = owner {
            let event = |name: &str| ("event", Variable::from(json!({"op": "signal", "name": name})));
            known.extend(signal_of(rule).map(event));
        }
        // A variable without a value is an error, and logic absorbs errors, so false now means always false. If all
        // variables are known, an error is permanent too.
        let outcome = expression.expr.evaluate(&known);
        let all_known = expression.expr.references().iter().all(|reference| known.contains_key(reference.variable));
        let into_null = |look: &Lookup| is_null(owner, look.variable) && (look.is_range || !look.steps.is_empty());
        let known_of = |look: &Lookup| match look {
            look if into_null(look) => Existence::Never,
            look if self.is_required(look, owner) => Existence::Always,
            _ => Existence::Maybe,
        };
        let may_hold = expression.expr.may_hold(&known_of);
        let never = outcome == Ok(false) || (outcome.is_err() && all_known) || !may_hold;
        if !never {
            return false;
        }
        let nulls = known.iter().filter(|(name, value)| value.is_null() && expression.expr.uses(name));
        let nulls: Vec<String> = nulls.map(|(name, _)| format!("`{name}`")).collect();
        let why = if nulls.is_empty() { String::new() } else { format!(": {} is null here", nulls.join(" and ")) };
        match owner {
            ExpressionOwner::Rule(rule) => {
                let message = format!("`{}` can never fire, because its condition never holds{why}", rule.name);
                let help = if nulls.is_empty() {
                    "Change the condition, or remove the rule."
                } else {
                    "Only a rule on a change or a signal has an event with a value, and only a change has a patch; ask \
                     the state instead."
                };
                self.report("never_fires", &expression.pointer, message, help);
            }
            ExpressionOwner::Done => {
                let help = "Write what is there when the task is finished: `done: {when: has(state.answer)}`.";
                self.report("no_done", &expression.pointer, "the condition of `done` never holds", help);
            }
            // An invariant that fails on the initial state is reported separately.
            ExpressionOwner::Invariant(_) | ExpressionOwner::Read(_) | ExpressionOwner::Write(_) => {}
        }
        true
    }

    /// Returns true if the triggering value always has the member that a condition looks at.
    fn is_required(&self, look: &Lookup, owner: ExpressionOwner<'_>) -> bool {
        let (ExpressionOwner::Rule(rule), "value", [LookupStep::Member(name)]) =
            (owner, look.variable, look.steps.as_slice())
        else {
            return false;
        };
        if !matches!(rule.trigger, Trigger::Each(_) | Trigger::Event { op: Some(EventOp::Add | EventOp::Replace), .. })
        {
            return false;
        }
        let value = Lookup { steps: Vec::new(), ..look.clone() };
        let said = self.lookup_schema(&value, owner).map(|(_, said)| said).unwrap_or_default();
        // Asking a non-object for a member is an error, so the condition does not hold either.
        said.get("required").and_then(Value::as_array).is_some_and(|required| required.iter().any(|it| it == name))
            && (matches!(rule.trigger, Trigger::Each(_)) || self.is_written_at_once(&value, name, owner))
    }

    /// Returns true if a place is always written as a whole. Then no patch adds it first and its member later, or
    /// replaces it.
    fn is_written_at_once(&self, value: &Lookup, name: &str, owner: ExpressionOwner<'_>) -> bool {
        let whole = place(value, owner, self.paths);
        let member = place(&value.clone().then(LookupStep::Member(name.to_owned())), owner, self.paths);
        let (Some(whole), Some(member)) = (whole, member) else { return false };
        let is_only_added = |ops: &[GrantOp]| ops.iter().all(|op| *op == GrantOp::Add);
        self.writes().all(|(_, write)| {
            let pattern = write.pattern.under_any_binding();
            !pattern.collides(&member) && (!pattern.collides(&whole) || is_only_added(&write.grant.ops))
        })
    }

    /// Warns of an invariant that cannot be evaluated for a new instance, if one can be added.
    fn unguarded_old(&self, expression: &Expression<'_>) {
        let ExpressionOwner::Invariant(invariant) = expression.owner else { return };
        let into_old = |look: &Lookup| match look.variable == "old" && (look.is_range || !look.steps.is_empty()) {
            true => Existence::Never,
            false => Existence::Maybe,
        };
        let each = invariant.each.as_deref().and_then(|each| Pattern::parse(each).ok());
        let Some(each) = each.filter(|_| expression.expr.uses("old") && !expression.expr.may_hold(&into_old)) else {
            return;
        };
        let can_be_added = self
            .writes()
            .any(|(_, write)| adds(write) && (each.collides(&write.pattern) || write.pattern.lies_above(&each)));
        if can_be_added {
            let name = &invariant.name;
            let message =
                format!("`{name}` refuses each `{each}` that is added: nothing was there before, and `old` is null");
            let help = "Begin with `old == null ||`.";
            self.report("unguarded_old", &expression.pointer, message, help);
            self.point_into(&expression.pointer, offset(expression, Some("old")));
        }
    }

    /// Returns the wrong name in a place that can never exist, with message and help.
    fn unknown_member(&self, look: &Lookup, owner: ExpressionOwner<'_>) -> Option<(String, String, String)> {
        if look.variable == "event" {
            let ExpressionOwner::Rule(rule) = owner else { return None };
            let Some(LookupStep::Member(name)) = look.steps.first() else { return None };
            let known: &[&str] = match rule.trigger {
                Trigger::Event { .. } | Trigger::Each(_) => &EVENT_MEMBERS,
                Trigger::Signal(_) | Trigger::Manual | Trigger::Every(_) => &SIGNAL_MEMBERS,
                _ => &[],
            };
            if known.contains(&name.as_str()) {
                return None;
            }
            let help = suggest(name, known.iter().copied(), "`event` is null here; only a change or a signal has one.");
            return Some((name.clone(), format!("`event` has no `{name}` here"), help));
        }
        if look.variable == BOUND {
            let Some(LookupStep::Member(name)) = look.steps.first() else { return None };
            return self.unbound_member(name, owner);
        }
        if is_null(owner, look.variable) {
            let Some(LookupStep::Member(name)) = look.steps.first() else { return None };
            let help = "Only a rule on a change or a signal has a value, and only a change has a patch.".to_owned();
            return Some((name.clone(), format!("`{}` is null here and has no `{name}`", look.variable), help));
        }
        match (look.variable, owner) {
            ("value", ExpressionOwner::Rule(rule)) if rule.trigger.is_signal() => self.never_carried_at(rule, look),
            _ => self.never_at(&place(look, owner, self.paths)?),
        }
    }

    /// Returns true if a loop iterates over the names of an object, which are not places.
    pub(super) fn is_name(&self, look: &Lookup, owner: ExpressionOwner<'_>) -> bool {
        self.goes_over(look, owner, |range| {
            range.is_some_and(|(schema, sought)| !schema.may_be_array(sought) && schema.may_be_object(sought))
        })
    }

    /// Returns true if a look iterates over a place for which `is_so` holds. The place is `None` if its schema is
    /// unknown.
    pub(super) fn goes_over(
        &self,
        look: &Lookup,
        owner: ExpressionOwner<'_>,
        is_so: impl Fn(Option<(&CachedSchema, &Pattern)>) -> bool,
    ) -> bool {
        let elements = look.steps.iter().enumerate().filter(|(_, step)| **step == LookupStep::Element);
        elements.into_iter().any(|(at, _)| {
            let range = Lookup { steps: look.steps[..at].to_vec(), ..look.clone() };
            let place = place(&range, owner, self.paths);
            let known = place.as_ref().and_then(|place| self.schema_of(place));
            is_so(known.as_ref().map(|(schema, sought, _)| (*schema, sought)))
        })
    }

    /// Moves the last finding from an expression to a part of it.
    pub(super) fn point_into(&self, pointer: &str, offset: Option<usize>) {
        let position = offset.and_then(|offset| self.source.position_in(pointer, offset));
        if let (Some(position), Some(finding)) = (position, self.findings.borrow_mut().last_mut())
            && finding.pointer == pointer
        {
            finding.position = Some(position);
        }
    }
}

fn is_null(owner: ExpressionOwner<'_>, variable: &str) -> bool {
    let ExpressionOwner::Rule(rule) = owner else { return false };
    match rule.trigger {
        Trigger::Manual | Trigger::Signal(_) | Trigger::Every(_) | Trigger::Each(_) => variable == "patch",
        Trigger::Event { .. } => false,
        _ => matches!(variable, "event" | "value" | "patch"),
    }
}

/// Returns the signal that a rule waits for.
pub(super) fn signal_of(rule: &Rule) -> Option<&str> {
    match &rule.trigger {
        Trigger::Signal(signal) => Some(signal),
        Trigger::Manual => Some(rule.name.as_str()),
        _ => None,
    }
}

pub(super) fn last_name(look: &Lookup) -> Option<&str> {
    let named = look.steps.iter().rev().find_map(|step| match step {
        LookupStep::Member(name) => Some(name.as_str()),
        LookupStep::Any | LookupStep::Element => None,
    });
    named.or(Some(look.variable))
}

/// Returns the offset of a name's first occurrence in an expression as a whole word.
pub(super) fn offset(expression: &Expression<'_>, name: Option<&str>) -> Option<usize> {
    let (text, name) = (expression.expr.source(), name?);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_whole = |at: &usize| !text[..*at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part);
    text.match_indices(name).map(|(at, _)| at).find(is_whole)
}
