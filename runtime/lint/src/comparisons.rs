//! Checks comparisons, truth values and divisions in expressions, by the schema and the types of the variables.

use serde_json::Value;

use super::conditions::{last_name, offset, signal_of};
use super::schema_keywords::{is_closed, number};
use super::{Expression, Linter, suggest};
use patchboard_kernel::blueprint::{EventOp, Trigger};
use patchboard_kernel::expr::{CompareOp, Comparison, DecidedComparisons, EXACT_MAX, Lookup, LookupStep, Operand};
use patchboard_kernel::expressions::{BOUND, ExpressionOwner, place, pushed};
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::pattern::{is_index, is_name};
use patchboard_kernel::schema::Schema;

/// Message and help about a comparison.
pub(super) type Advice = (String, String);

const NAME_ANOTHER: &str = "Compare it with a value that the schema allows.";

impl Linter<'_> {
    /// Warns of comparisons with a constant outcome, of values that are never boolean, and of divisions that cut off a
    /// fraction. `reported`: messages about the expression so far.
    pub(super) fn comparisons(&self, expression: &Expression<'_>, reported: &mut Vec<String>) {
        let owner = expression.owner;
        let mut found = Vec::new();
        for comparison in expression.expr.comparisons() {
            // Each branch of a conditional must have another value.
            let may_hold = |of: &Operand| match of {
                Operand::Constant(value) => is_order(comparison.test) || *value == comparison.with,
                _ => false,
            };
            if comparison.of.iter().any(may_hold) {
                continue;
            }
            let others = comparison.of.iter().filter(|of| !matches!(of, Operand::Constant(_)));
            let findings: Option<Vec<_>> = others.map(|of| self.never(of, &comparison, owner)).collect();
            let first = findings.into_iter().flatten().next();
            found.extend(first.map(|((message, help), name)| ("never_equal", message, help, Some(name))));
        }
        for look in expression.expr.truths() {
            let name = || last_name(&look).map(str::to_owned);
            found.extend(self.no_truth(&look, owner).map(|(message, help)| ("never_true", message, help, name())));
        }
        for member in expression.expr.members_of_numbers() {
            let message = format!("`{member}`: a number has no members");
            let help = "Put a name with `-` in brackets: `state.tickets[\"T-1\"].class`.".to_owned();
            found.push(("unknown_member", message, help, Some(member)));
        }
        for constant in expression.expr.constant_truths() {
            let message = format!("{constant} is neither true nor false, one of which is expected here");
            let help = "Compare each: `value == \"a\" || value == \"b\"`, or `value in [\"a\", \"b\"]`.".to_owned();
            found.push(("never_true", message, help, Some(constant)));
        }
        for whole in expression.expr.divisions() {
            if whole.iter().all(|look| self.is_whole(look, owner)) {
                let message =
                    "both sides of `/` are whole numbers, so the fraction of the result is cut off".to_owned();
                let help = "Write `double(…)` around one side.".to_owned();
                found.push(("whole_division", message, help, whole.first().and_then(last_name).map(str::to_owned)));
            }
        }
        for together in expression.expr.decided_comparisons() {
            if !self.is_of_one_type(&together, owner) {
                continue;
            }
            let (message, name) = decided(&together);
            let help = match together.always {
                true => "Write `&&`, if all are to hold.",
                false => "Write `||`, if one of them is enough.",
            };
            found.push(("decided_together", message, help.to_owned(), name));
        }
        for (code, message, help, name) in found {
            if !reported.contains(&message) {
                self.report(code, &expression.pointer, message.clone(), help);
                self.point_into(&expression.pointer, offset(expression, name.as_deref()));
                reported.push(message);
            }
        }
    }

    /// Returns the finding that an operand can never satisfy a comparison, and names the operand.
    fn never(&self, of: &Operand, comparison: &Comparison, owner: ExpressionOwner<'_>) -> Option<(Advice, String)> {
        let named = |look: &Lookup| last_name(look).unwrap_or_default().to_owned();
        Some(match of {
            Operand::Place(look) => (self.never_equal(look, comparison, owner)?, named(look)),
            Operand::Size(look) => {
                let finding =
                    never_made("size", true, comparison).or_else(|| self.never_of_size(look, comparison, owner));
                (finding?, "size".to_owned())
            }
            Operand::FunctionResult { function, is_number } => {
                (never_made(function, *is_number, comparison)?, (*function).to_owned())
            }
            Operand::Constant(_) => return None,
        })
    }

    /// Returns the finding that the schema at a place excludes a size.
    fn never_of_size(&self, look: &Lookup, comparison: &Comparison, owner: ExpressionOwner<'_>) -> Option<Advice> {
        // The document holds more than its schema describes.
        let is_document = matches!(look.variable, "state" | "before") && look.steps.is_empty();
        let (place, fragment) = self.lookup_schema(look, owner).filter(|_| !is_document)?;
        let (least, most) = Bounds::of_size(&fragment)?.beyond(comparison)?;
        let bounds = [least.map(|least| format!("at least {least}")), most.map(|most| format!("at most {most}"))];
        let bounds: Vec<String> = bounds.into_iter().flatten().collect();
        let message =
            format!("the size of {place} is {} by its schema{}", bounds.join(" and "), outcome(comparison.test));
        Some((message, "Compare it with a size that the schema allows.".to_owned()))
    }

    /// Returns the finding that a place never has the value an expression compares it with.
    fn never_equal(&self, look: &Lookup, comparison: &Comparison, owner: ExpressionOwner<'_>) -> Option<Advice> {
        let Comparison { with, test, .. } = comparison;
        let into_event = |name: &str| {
            look.variable == "event"
                && matches!(owner, ExpressionOwner::Rule(_))
                && look.steps == [LookupStep::Member(name.to_owned())]
        };
        if look.variable == BOUND {
            let is_of_name = look.steps.len() == 1 && !with.is_string() && !with.is_null();
            return is_of_name.then(|| {
                let help = format!("Write it as a text: `\"{with}\"`.");
                (format!("a name that a trigger binds is a text, and never {with}{}", outcome_of_type(*test)), help)
            });
        }
        if into_event("op") {
            return never_op(comparison, owner);
        }
        if into_event("worker") || (look.variable == "worker" && look.steps.is_empty()) {
            return self.never_worker(look.variable == "worker", comparison, owner);
        }
        // `old` is null for a new instance.
        if look.variable == "old" && look.steps.is_empty() && with.is_null() {
            return None;
        }
        let (place, fragment) = self.lookup_schema(look, owner)?;
        if is_order(*test) {
            let is_other = |of: &str| !may_be(&fragment, of);
            if (with.is_number() && is_other("number")) || (with.is_string() && is_other("string")) {
                let said = types(&fragment);
                let message = format!("{place} and {with} cannot be compared by `<` or `>`: the schema says {said}");
                return Some((message, NAME_ANOTHER.to_owned()));
            }
            let (least, most) = Bounds::of_number(&fragment)?.beyond(comparison)?;
            let bounds = [least.map(|least| format!("{least} or more")), most.map(|most| format!("{most} or less"))];
            let bounds: Vec<String> = bounds.into_iter().flatten().collect();
            let message = format!("{place} is {} by its schema{}", bounds.join(" and "), outcome(*test));
            return Some((message, NAME_ANOTHER.to_owned()));
        }
        if Schema::compile_within(&fragment, false, &self.effort).ok()?.is_valid(with) {
            return None;
        }
        if with.is_null() && matches!(look.steps.last(), Some(LookupStep::Member(_))) {
            let member: String = look.steps.iter().map(written).collect();
            let not = if *test == CompareOp::Unequal { "" } else { "!" };
            let message =
                format!("{place} is never null by its schema; while it is not there, this cannot be evaluated");
            return Some((message, format!("Write `{not}has({}{member})`.", look.variable)));
        }
        let known = fragment.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let help = match with.as_str() {
            Some(text) => suggest(text, known, NAME_ANOTHER),
            None => NAME_ANOTHER.to_owned(),
        };
        Some((format!("{place} is never {with} by its schema{}", outcome(*test)), help))
    }

    /// Returns the finding that no such worker can occur. `is_woken`: the name is that of the worker that the rule
    /// triggers.
    fn never_worker(&self, is_woken: bool, comparison: &Comparison, owner: ExpressionOwner<'_>) -> Option<Advice> {
        let name = comparison.with.as_str()?;
        let outcome = outcome(comparison.test);
        let workers = self.blueprint.workers.keys().map(WorkerName::as_str);
        // Administrators and programs have `$` names of their own.
        let is_known = name.starts_with('$') || workers.clone().any(|worker| worker == name);
        if !is_known {
            let help = suggest(name, workers, "The blueprint has no workers.");
            return Some((format!("there is no worker `{name}`{outcome}"), help));
        }
        let ExpressionOwner::Rule(rule) = owner else { return None };
        if !is_woken || self.blueprint.triggered_workers(&rule.run).into_iter().any(|woken| woken.as_str() == name) {
            return None;
        }
        let message = format!("`worker` is the triggered worker, and `{}` never triggers `{name}`{outcome}", rule.name);
        Some((message, "Write `event.worker` for the author of the change.".to_owned()))
    }

    /// Returns true if every operand of comparisons by `<` that are joined by `||` has one type that they can compare.
    /// Also true without such comparisons.
    fn is_of_one_type(&self, together: &DecidedComparisons, owner: ExpressionOwner<'_>) -> bool {
        if !together.always || !together.tests.iter().any(|(test, _)| is_order(*test)) {
            return true;
        }
        let all = |is: fn(&Value) -> bool| together.tests.iter().all(|(_, with)| is(with));
        let said = |look: &Lookup| self.lookup_schema(look, owner).map(|(_, said)| said);
        match &together.of {
            Operand::Place(look) => said(look).is_some_and(|said| match said.get("type").and_then(Value::as_str) {
                Some("number" | "integer") => all(Value::is_number),
                Some("string") => all(Value::is_string),
                _ => false,
            }),
            Operand::Size(_) => all(Value::is_number),
            Operand::FunctionResult { .. } | Operand::Constant(_) => false,
        }
    }

    /// Returns the finding that a place never holds a boolean.
    fn no_truth(&self, look: &Lookup, owner: ExpressionOwner<'_>) -> Option<Advice> {
        let (place, fragment) = self.lookup_schema(look, owner)?;
        let message = || format!("{place} is neither true nor false: the schema says {}", types(&fragment));
        let help = || "Compare it with something, or ask with `has(…)` whether it is there.".to_owned();
        (!may_be(&fragment, "boolean")).then(|| (message(), help()))
    }

    /// Returns true if a loop or `in` may iterate over the names of an object, which are not places.
    fn may_be_name(&self, look: &Lookup, owner: ExpressionOwner<'_>) -> bool {
        self.goes_over(look, owner, |range| {
            range.is_none_or(|(schema, sought)| {
                let said = schema.fragment(sought).unwrap_or_default();
                let has_one = |keywords: &[&str]| keywords.iter().any(|keyword| said.get(*keyword).is_some());
                let is_list = has_one(&["items", "prefixItems"])
                    && !has_one(&["type", "properties", "patternProperties", "additionalProperties"]);
                schema.may_be_object(sought) && !is_list
            })
        })
    }

    fn is_whole(&self, look: &Lookup, owner: ExpressionOwner<'_>) -> bool {
        self.lookup_schema(look, owner).is_some_and(|(_, said)| said.get("type").is_some_and(|of| of == "integer"))
    }

    /// Returns a place as a message names it, and its schema; `None` if the schema is not found there.
    pub(super) fn lookup_schema(&self, look: &Lookup, owner: ExpressionOwner<'_>) -> Option<(String, Value)> {
        let (place, fragment) = match (owner, look.variable) {
            (ExpressionOwner::Rule(rule), "value") if signal_of(rule).is_some() => {
                self.trigger_value_schema(rule, &look.steps.iter().try_fold(String::new(), pushed)?)?
            }
            _ => {
                let place = place(look, owner, self.paths)?;
                let (schema, sought, _) = self.schema_of(&place)?;
                if !schema.is_described(&sought) || self.may_be_name(look, owner) {
                    return None;
                }
                (format!("`{place}`"), schema.fragment(&sought)?)
            }
        };
        fragment.get("$ref").is_none().then_some((place, fragment))
    }
}

/// Describes the outcome of a comparison that can never match.
const fn outcome(test: CompareOp) -> &'static str {
    match test {
        CompareOp::Equal => ": this is never true",
        CompareOp::Among => ": it never is that one of the list",
        CompareOp::Unequal => ": this is always true",
        CompareOp::Less | CompareOp::LessOrEqual | CompareOp::Greater | CompareOp::GreaterOrEqual => {
            ": this is never true"
        }
    }
}

/// Describes the outcome of a comparison with a value of another type.
const fn outcome_of_type(test: CompareOp) -> &'static str {
    if is_order(test) { ": this cannot be evaluated" } else { outcome(test) }
}

const fn is_order(test: CompareOp) -> bool {
    !matches!(test, CompareOp::Equal | CompareOp::Among | CompareOp::Unequal)
}

/// Minimum and maximum of a number.
#[derive(Clone, Copy)]
struct Bounds {
    least: f64,
    most: f64,
    /// True for an exclusive bound: (minimum, maximum).
    without: (bool, bool),
}

impl Bounds {
    /// Returns the bounds of the numbers that a schema allows.
    fn of_number(said: &Value) -> Option<Self> {
        let bound = |keyword: &str| number(said, keyword);
        let values = match (said.get("const"), said.get("enum").and_then(Value::as_array)) {
            (Some(value), _) => vec![value.as_f64()?],
            (None, Some(values)) => values.iter().filter_map(Value::as_f64).collect(),
            (None, None) => Vec::new(),
        };
        if let Some(first) = values.first() {
            let least = values.iter().copied().fold(*first, f64::min);
            return Some(Self { least, most: values.iter().copied().fold(*first, f64::max), without: (false, false) });
        }
        let (low, above) =
            (bound("minimum").unwrap_or(f64::NEG_INFINITY), bound("exclusiveMinimum").unwrap_or(f64::NEG_INFINITY));
        let (high, below) =
            (bound("maximum").unwrap_or(f64::INFINITY), bound("exclusiveMaximum").unwrap_or(f64::INFINITY));
        Some(Self { least: low.max(above), most: high.min(below), without: (above >= low, below <= high) })
    }

    /// Returns the bounds of the size that a schema allows; `None` if it allows several types.
    fn of_size(said: &Value) -> Option<Self> {
        let count = |keyword: &str| number(said, keyword);
        let members = |keyword: &str| {
            let members = said.get(keyword)?;
            let count = members.as_array().map(Vec::len).or_else(|| Some(members.as_object()?.len()))?;
            u32::try_from(count).ok().map(f64::from)
        };
        let (least, most) = match said.get("type")?.as_str()? {
            "array" => {
                let all = members("prefixItems").filter(|_| said.get("items") == Some(&Value::Bool(false)));
                (count("minItems"), [count("maxItems"), all])
            }
            "object" => {
                let all = members("properties").filter(|_| is_closed(said));
                (count("minProperties").or(members("required")), [count("maxProperties"), all])
            }
            "string" => (count("minLength"), [count("maxLength"), None]),
            _ => return None,
        };
        let most = most.into_iter().flatten().fold(f64::INFINITY, f64::min);
        Some(Self { least: least.unwrap_or(0.0), most, without: (false, false) })
    }

    /// Returns the bound that a comparison exceeds; `None` if it can hold.
    fn beyond(self, comparison: &Comparison) -> Option<(Option<f64>, Option<f64>)> {
        let with = comparison.with.as_f64()?;
        if [with, self.least, self.most].iter().any(|bound| bound.is_finite() && bound.abs() >= EXACT_MAX) {
            return None;
        }
        let is_over = with > self.most || (with == self.most && self.without.1);
        let is_under = with < self.least || (with == self.least && self.without.0);
        let (under, over) = match comparison.test {
            CompareOp::Equal | CompareOp::Among | CompareOp::Unequal => (is_under, is_over),
            CompareOp::Less => (is_under || with == self.least, false),
            CompareOp::LessOrEqual => (is_under, false),
            CompareOp::Greater => (false, is_over || with == self.most),
            CompareOp::GreaterOrEqual => (false, is_over),
        };
        (under || over).then_some((under.then_some(self.least), over.then_some(self.most)))
    }
}

/// Describes the joint outcome of comparisons of one operand, and names the operand.
fn decided(together: &DecidedComparisons) -> (String, Option<String>) {
    let (Operand::Place(look) | Operand::Size(look)) = &together.of else { return Default::default() };
    let place: String = std::iter::once(look.variable.to_owned()).chain(look.steps.iter().map(written)).collect();
    let operand = if matches!(together.of, Operand::Size(_)) { format!("size({place})") } else { place };
    let written = |(test, with): &(CompareOp, Value)| format!("`{operand} {} {with}`", test.as_str());
    let tests: Vec<String> = together.tests.iter().map(written).collect();
    let message = match together.always {
        true => format!("one of {} holds whatever the value is", tests.join(" and ")),
        false => format!("{} never hold together: this is never true", tests.join(" and ")),
    };
    (message, last_name(look).map(str::to_owned))
}

fn written(step: &LookupStep) -> String {
    match step {
        LookupStep::Member(name) if is_name(name) => format!(".{name}"),
        LookupStep::Member(name) if is_index(name) => format!("[{name}]"),
        LookupStep::Member(name) => format!("[{name:?}]"),
        LookupStep::Any | LookupStep::Element => "[…]".to_owned(),
    }
}

/// Returns the finding that a function never returns this type.
fn never_made(function: &str, is_number: bool, comparison: &Comparison) -> Option<Advice> {
    let Comparison { with, test, .. } = comparison;
    let fits = if is_number { with.is_number() } else { with.is_string() };
    let what = if is_number { "a number" } else { "a text" };
    let message = || format!("`{function}(…)` is {what}, and never {with}{}", outcome_of_type(*test));
    (!fits).then(|| (message(), format!("Compare it with {what}.")))
}

/// Returns the finding that no event of a rule has this `op`.
fn never_op(comparison: &Comparison, owner: ExpressionOwner<'_>) -> Option<Advice> {
    let (ExpressionOwner::Rule(rule), Some(op)) = (owner, comparison.with.as_str()) else { return None };
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

/// Returns true if a schema allows a value of this type.
pub(super) fn may_be(said: &Value, of: &str) -> bool {
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

/// Describes the types that a schema names.
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
