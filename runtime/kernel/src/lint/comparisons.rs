//! Checks what expressions compare, take for true or false, and divide: by the schema, and by what the variables are.

use serde_json::Value;

use super::conditions::{last_name, offset};
use super::{Check, Expression, suggest};
use crate::blueprint::{EventOp, Trigger};
use crate::expr::{Compared, Comparison, Look, Step, Test};
use crate::id::WorkerName;
use crate::pattern::Pattern;
use crate::plan::{BOUND, Owner, place};
use crate::schema::Schema;

/// What is said of a comparison, and what mends it.
type Told = (String, String);

const NAME_ANOTHER: &str = "Compare it with a value that the schema allows.";

impl Check<'_> {
    /// Warns of comparisons that come out the same whatever the document is, of values that are never true or false, and of
    /// divisions that cut off a fraction. `reported`: messages about the expression so far.
    pub(super) fn comparisons(&mut self, expression: &Expression<'_>, reported: &mut Vec<String>) {
        let owner = expression.owner;
        let mut found = Vec::new();
        for comparison in expression.expr.comparisons() {
            let (told, name) = match &comparison.of {
                Compared::Place(look) if self.is_name(look, owner) => continue,
                Compared::Place(look) => {
                    (self.never_equal(look, &comparison, owner), last_name(look).map(str::to_owned))
                }
                Compared::Made { function, is_number } => {
                    (never_made(function, *is_number, &comparison), Some((*function).to_owned()))
                }
            };
            found.extend(told.map(|(message, help)| ("never_equal", message, help, name)));
        }
        for look in expression.expr.truths() {
            let told = self.no_truth(&look, owner).map(|(message, help)| ("never_true", message, help));
            found.extend(told.map(|(code, message, help)| (code, message, help, last_name(&look).map(str::to_owned))));
        }
        for whole in expression.expr.divisions() {
            if whole.iter().all(|look| self.is_whole(look, owner)) {
                let message =
                    "both sides of `/` are whole numbers, so the fraction of the result is cut off".to_owned();
                let help = "Write `double(…)` around one side.".to_owned();
                found.push(("whole_division", message, help, whole.first().and_then(last_name).map(str::to_owned)));
            }
        }
        for (code, message, help, name) in found {
            if !reported.contains(&message) {
                self.find(code, &expression.pointer, message.clone(), help);
                self.point_into(&expression.pointer, offset(expression, name.as_deref()));
                reported.push(message);
            }
        }
    }

    /// Says that a place never is what an expression compares it with.
    fn never_equal(&self, look: &Look, comparison: &Comparison, owner: Owner<'_>) -> Option<Told> {
        let Comparison { with, test, .. } = comparison;
        let into_event = |name: &str| {
            look.variable == "event" && matches!(owner, Owner::Rule(_)) && look.steps == [Step::Member(name.to_owned())]
        };
        if look.variable == BOUND {
            let is_of_name = look.steps.len() == 1 && !with.is_string() && !with.is_null();
            return is_of_name.then(|| {
                let help = format!("Write it as a text: `\"{with}\"`.");
                (format!("a name that a trigger binds is a text, and never {with}{}", outcome(*test)), help)
            });
        }
        if into_event("op") {
            return never_op(comparison, owner);
        }
        if into_event("worker") || (look.variable == "worker" && look.steps.is_empty()) {
            return self.never_worker(look.variable == "worker", comparison, owner);
        }
        // Nothing was there where it is new.
        if look.variable == "old" && look.steps.is_empty() && with.is_null() {
            return None;
        }
        let place = place(look, owner, self.paths)?;
        let fragment = self.said_of(&place)?;
        if *test == Test::Order {
            let is_other = |of: &str| !may_be(&fragment, of);
            let never = (with.is_number() && is_other("number")) || (with.is_string() && is_other("string"));
            let message = || {
                format!("`{place}` and {with} cannot be compared by `<` or `>`: the schema says {}", types(&fragment))
            };
            return never.then(|| (message(), NAME_ANOTHER.to_owned()));
        }
        if Schema::compile(&fragment, false).ok()?.is_valid(with) {
            return None;
        }
        if with.is_null() && matches!(look.steps.last(), Some(Step::Member(_))) {
            let member: String = look.steps.iter().map(written).collect();
            let not = if *test == Test::Equal { "!" } else { "" };
            let message =
                format!("`{place}` is never null by its schema; while it is not there, this cannot be evaluated");
            return Some((message, format!("Write `{not}has({}{member})`.", look.variable)));
        }
        let known = fragment.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let help = match with.as_str() {
            Some(text) => suggest(text, known, NAME_ANOTHER),
            None => NAME_ANOTHER.to_owned(),
        };
        Some((format!("`{place}` is never {with} by its schema{}", outcome(*test)), help))
    }

    /// Says that no worker of this name can be meant. `is_woken`: it is the one that the rule wakes.
    fn never_worker(&self, is_woken: bool, comparison: &Comparison, owner: Owner<'_>) -> Option<Told> {
        let name = comparison.with.as_str()?;
        let outcome = outcome(comparison.test);
        let workers = self.blueprint.workers.keys().map(WorkerName::as_str);
        // Administrators and programs have names of their own.
        let is_known = name.starts_with('$') || workers.clone().any(|worker| worker == name);
        if !is_known {
            let help = suggest(name, workers, "The blueprint has no workers.");
            return Some((format!("there is no worker `{name}`{outcome}"), help));
        }
        let Owner::Rule(rule) = owner else { return None };
        if !is_woken || self.blueprint.woken_by(&rule.run).into_iter().any(|woken| woken.as_str() == name) {
            return None;
        }
        let message = format!("`worker` is who is woken, and `{}` never wakes `{name}`{outcome}", rule.name);
        Some((message, "Write `event.worker` for who made the change.".to_owned()))
    }

    /// Says that what stands at a place is never true or false.
    fn no_truth(&self, look: &Look, owner: Owner<'_>) -> Option<Told> {
        if self.is_name(look, owner) {
            return None;
        }
        let place = place(look, owner, self.paths)?;
        let fragment = self.said_of(&place)?;
        let message = || format!("`{place}` is neither true nor false: the schema says {}", types(&fragment));
        let help = || "Compare it with something, or ask with `has(…)` whether it is there.".to_owned();
        (!may_be(&fragment, "boolean")).then(|| (message(), help()))
    }

    fn is_whole(&self, look: &Look, owner: Owner<'_>) -> bool {
        let said = place(look, owner, self.paths).and_then(|place| self.said_of(&place));
        said.is_some_and(|said| said.get("type").is_some_and(|of| of == "integer"))
    }

    /// What the schema says of a place; `None` if it says it elsewhere.
    fn said_of(&self, place: &Pattern) -> Option<Value> {
        let (schema, sought, _) = self.schema_of(place)?;
        schema.fragment(&sought).filter(|fragment| fragment.get("$ref").is_none())
    }
}

/// What a comparison with what is never so comes to.
const fn outcome(test: Test) -> &'static str {
    match test {
        Test::Equal => ": this is never true",
        Test::Unequal => ": this is always true",
        Test::Order => ": this cannot be evaluated",
    }
}

fn written(step: &Step) -> String {
    match step {
        Step::Member(name) => format!(".{name}"),
        Step::Any | Step::Element => "[…]".to_owned(),
    }
}

/// Says that what a function makes is never of this type.
fn never_made(function: &str, is_number: bool, comparison: &Comparison) -> Option<Told> {
    let Comparison { with, test, .. } = comparison;
    let fits = if is_number { with.is_number() } else { with.is_string() };
    let what = if is_number { "a number" } else { "a text" };
    let message = || format!("`{function}(…)` is {what}, and never {with}{}", outcome(*test));
    (!fits).then(|| (message(), format!("Compare it with {what}.")))
}

/// Says that no event of a rule has this `op`.
fn never_op(comparison: &Comparison, owner: Owner<'_>) -> Option<Told> {
    let (Owner::Rule(rule), Some(op)) = (owner, comparison.with.as_str()) else { return None };
    let all = || EventOp::ALL.iter().map(|op| op.as_str());
    let known: Vec<&str> = match &rule.trigger {
        Trigger::Event { op: Some(op), .. } => vec![op.as_str()],
        Trigger::Event { op: None, .. } => all().collect(),
        Trigger::Each(_) => vec![EventOp::Add.as_str()],
        Trigger::Signal(_) | Trigger::Manual => vec!["signal"],
        Trigger::Every(_) => vec!["every"],
        _ => return None,
    };
    let help = suggest(op, known.iter().copied(), "");
    (!known.contains(&op)).then(|| (format!("`event.op` is never \"{op}\" here{}", outcome(comparison.test)), help))
}

/// Whether a schema leaves a value of this type.
fn may_be(said: &Value, of: &str) -> bool {
    let fits = |named: &Value| named == of || (of == "number" && named == "integer");
    let is_of = |value: &Value| match of {
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        _ => value.is_string(),
    };
    let by_type = match said.get("type") {
        Some(Value::Array(types)) => types.iter().any(fits),
        Some(one) => fits(one),
        None => true,
    };
    let by_values = said.get("enum").and_then(Value::as_array).is_none_or(|values| values.iter().any(is_of));
    by_type && by_values && said.get("const").is_none_or(is_of)
}

/// The types that a schema names, in words.
fn types(said: &Value) -> String {
    let text = |one: &Value| one.as_str().map_or_else(|| one.to_string(), str::to_owned);
    match (said.get("type"), said.get("const"), said.get("enum").and_then(Value::as_array)) {
        (Some(Value::Array(types)), ..) => types.iter().map(text).collect::<Vec<_>>().join(" or "),
        (Some(one), ..) => text(one),
        (None, Some(value), _) => value.to_string(),
        (None, None, Some(values)) => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "),
        (None, None, None) => "otherwise".to_owned(),
    }
}
