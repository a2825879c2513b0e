//! Grants on everything or on the request, and grants of values that the schema never allows.

use serde_json::Value;

use super::schema_keywords::{ELSEWHERE, is_closed, named_values, number, required, types_of};
use super::{GrantedWrite, Linter, suggest};
use crate::source::child;
use patchboard_kernel::blueprint::GrantOp;
use patchboard_kernel::pattern::{Pattern, PatternToken};
use patchboard_kernel::schema::Schema;

impl Linter<'_> {
    /// Warns of grants on everything and on the request, of unusable grants, and of script replies that no grant
    /// allows.
    pub(super) fn widths(&self) {
        let request = Pattern::parse("/request").ok();
        let needed = self.needed_names();
        for (name, grants) in &self.worker_grants {
            for write in &grants.writes {
                let pointer = format!("{}/path", write.pointer);
                let (path, tokens) = (&write.grant.path, write.pattern.tokens());
                let is_any = |token: &PatternToken| matches!(token, PatternToken::Deep | PatternToken::Any);
                if tokens.contains(&PatternToken::Deep) && tokens.iter().all(is_any) {
                    let message = format!("`{name}` may write everywhere: `{path}`");
                    let help = "Name the places that it is to write.";
                    self.report("wide_grant", &pointer, message, help);
                    continue;
                }
                let found = self.misfit(name.as_str(), write).into_iter().chain(self.undeclared_values(write));
                for (code, at, message, help) in found {
                    self.report(code, &at, message, help);
                }
                if write.grant.ops.iter().all(|op| *op == GrantOp::Add) && self.is_always_there(&write.pattern) {
                    let message =
                        format!("`{name}` may only add `{path}`, which is there at the beginning and never removed");
                    let help = "Grant `replace`, or leave it out of `state.initial`.";
                    self.report("unusable_grant", &pointer, message, help);
                }
                if let Some(above) = self.missing_above(write) {
                    let message =
                        format!("`{name}` may write `{path}`, and nothing is at `{above}`, which no worker may add");
                    let help = format!("Grant a worker to add `{above}`, or put it into `state.initial`.");
                    self.report("unusable_grant", &pointer, message, help);
                }
                let reaches = |request: &Pattern| write.pattern.overlaps(request) || request.lies_above(&write.pattern);
                if request.as_ref().is_some_and(reaches) {
                    let message = format!("`{name}` may write to the request: `{path}`");
                    let help = "Let it write beside the request, which says what the user asked for.";
                    self.report("writes_request", &pointer, message, help);
                }
            }
            self.rejected_replies(name.as_str(), grants, needed.get(*name));
        }
    }

    /// Returns the parent of a write's place, if it is absent and no grant can create it.
    fn missing_above(&self, write: &GrantedWrite<'_>) -> Option<Pattern> {
        let above = write.pattern.prefix(write.pattern.tokens().len().checked_sub(1).filter(|above| *above > 0)?);
        let place = above.under_any_binding();
        let is_fixed = !place.tokens().contains(&PatternToken::Deep);
        let comes = || self.writes().any(|(_, write)| self.may_create(write, &place));
        (is_fixed && !self.is_there_at_first(&place) && !comes()).then_some(above)
    }

    /// Reports a name in a `value` schema that `properties` of the state schema does not declare.
    fn undeclared_values(&self, write: &GrantedWrite<'_>) -> Option<(&'static str, String, String, String)> {
        let value = write.grant.value.as_ref()?;
        let (schema, sought, _) = self.schema_of(&write.pattern.under_any_binding())?;
        let (at, name, known) = undeclared_in(value, &schema.fragment(&sought)?, "")?;
        let message = format!("`properties` of `{}` has no `{name}`", write.grant.path);
        let help = suggest(&name, known.iter().map(String::as_str), "Declare it.");
        Some(("undeclared_name", format!("{}/value{at}", write.pointer), message, help))
    }

    /// Reports a `value` schema with no value that the state schema allows.
    fn misfit(&self, name: &str, write: &GrantedWrite<'_>) -> Option<(&'static str, String, String, String)> {
        let value = write.grant.value.as_ref()?;
        let (schema, sought, _) = self.schema_of(&write.pattern.under_any_binding())?;
        let fragment = schema.fragment(&sought).filter(|fragment| fragment.get("$ref").is_none())?;
        let (at, what) = misfit_in(value, &fragment, "")?;
        let message = format!(
            "`{name}` may write {what} by this grant on `{}`, which the schema does not allow",
            write.grant.path
        );
        let help = "Name values that the schema allows.".to_owned();
        Some(("value_never_fits", format!("{}/value{at}", write.pointer), message, help))
    }
}

/// Returns the first name in `properties` or `required` of a `value` schema that `properties` of the state schema does
/// not declare. The tuple holds its JSON Pointer, the name, and the declared names.
fn undeclared_in(value: &Value, fragment: &Value, at: &str) -> Option<(String, String, Vec<String>)> {
    // Other schemas may declare the name.
    if ELSEWHERE.split(' ').any(|keyword| fragment.get(keyword).is_some_and(|said| !said.is_boolean())) {
        return None;
    }
    let declared = fragment.get("properties")?.as_object().filter(|declared| !declared.is_empty())?;
    let undeclared = |name: &String, at: String| (at, name.clone(), declared.keys().cloned().collect());
    let properties = value.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (name, member) in properties {
        let at = child(&format!("{at}/properties"), name);
        match declared.get(name) {
            // A forbidden name need not be declared.
            None if *member == Value::Bool(false) => {}
            None => return Some(undeclared(name, at)),
            Some(below) => {
                if let Some(found) = undeclared_in(member, below, &at) {
                    return Some(found);
                }
            }
        }
    }
    let required = value.get("required").and_then(Value::as_array).into_iter().flatten().enumerate();
    let mut names = required.filter_map(|(nth, name)| Some((nth, name.as_str()?)));
    let (nth, name) = names.find(|(_, name)| !declared.contains_key(*name))?;
    Some(undeclared(&name.to_owned(), format!("{at}/required/{nth}")))
}

/// Returns the place in a `value` schema where the state schema rejects every allowed value, and a description of these
/// values.
fn misfit_in(value: &Value, fragment: &Value, at: &str) -> Option<(String, String)> {
    let misfit = |what: String| Some((at.to_owned(), what));
    // Returns the values of `named` if the other schema allows none of them.
    let refused = |named: &Value, other: &Value| {
        let (values, schema) = (named_values(named)?, Schema::compile(other, false).ok()?);
        let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
        (!values.iter().any(|value| schema.is_valid(value))).then(|| texts.join(" or "))
    };
    if named_values(value).is_some() {
        return misfit(refused(value, fragment)?);
    }
    if let (Some(allowed), Some(there)) = (types_of(value), types_of(fragment))
        && !allowed.iter().any(|of| there.iter().any(|other| is_of(of, other) || is_of(other, of)))
    {
        return misfit(format!("a value of type {}", allowed.join(" or ")));
    }
    if let Some(values) = refused(fragment, value) {
        return misfit(format!("what is not {values}"));
    }
    for (low, high) in [(value, fragment), (fragment, value)] {
        if let Some(what) = beyond(low, high) {
            return misfit(what);
        }
    }
    // `allOf`, then `anyOf` and `oneOf`.
    for (schema, is_value) in [(value, true), (fragment, false)] {
        let parts = |keyword: &str| schema.get(keyword).and_then(Value::as_array).into_iter().flatten().enumerate();
        let of = |keyword: &str, nth: usize, part: &Value| match is_value {
            true => misfit_in(part, fragment, &format!("{at}/{keyword}/{nth}")),
            false => misfit_in(value, part, at),
        };
        if let Some(found) = parts("allOf").find_map(|(nth, part)| of("allOf", nth, part)) {
            return Some(found);
        }
        for keyword in ["anyOf", "oneOf"] {
            let found: Vec<_> = parts(keyword).map(|(nth, part)| of(keyword, nth, part)).collect();
            if let Some(Some(first)) = found.first()
                && found.iter().all(Option::is_some)
            {
                return Some(first.clone());
            }
        }
    }
    if [value, fragment].iter().all(|schema| types_of(schema).is_none_or(|types| types == ["object"])) {
        if let Some(name) = required(value).find(|name| forbids(fragment, name)) {
            return misfit(format!("what has `{name}`"));
        }
        if let Some(name) = required(fragment).find(|name| forbids(value, name)) {
            return misfit(format!("what lacks `{name}`"));
        }
    }
    let has_elements =
        [value, fragment].iter().any(|schema| number(schema, "minItems").is_some_and(|least| least > 0.0));
    if let (Some(element), Some(there), true) = (value.get("items"), fragment.get("items"), has_elements)
        && let Some(found) = misfit_in(element, there, &format!("{at}/items"))
    {
        return Some(found);
    }
    let declared = fragment.get("properties").and_then(Value::as_object);
    let members = value.get("properties").and_then(Value::as_object)?;
    members.iter().find_map(|(name, member)| {
        let below = declared?.get(name).filter(|below| below.get("$ref").is_none())?;
        misfit_in(member, below, &child(&format!("{at}/properties"), name))
    })
}

/// Returns true if a schema rejects every object with this member.
fn forbids(schema: &Value, name: &str) -> bool {
    match schema.get("properties").and_then(|declared| declared.get(name)) {
        Some(member) => *member == Value::Bool(false),
        None => is_closed(schema),
    }
}

/// Describes the empty range between lower bounds of one schema and upper bounds of another; `None` if it is not empty.
fn beyond(low: &Value, high: &Value) -> Option<String> {
    let counted = [("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties")];
    let numbers = [
        ("minimum", "maximum", false),
        ("exclusiveMinimum", "maximum", true),
        ("minimum", "exclusiveMaximum", true),
        ("exclusiveMinimum", "exclusiveMaximum", true),
    ];
    let pairs = counted.map(|(least, most)| (least, most, false)).into_iter().chain(numbers);
    for (least, most, is_open) in pairs {
        if let (Some(low), Some(high)) = (number(low, least), number(high, most))
            && (low > high || is_open && low >= high)
        {
            return Some(format!("what has {least} {low} and {most} {high}"));
        }
    }
    let names = required(low).count();
    let most = number(high, "maxProperties").filter(|most| names as f64 > *most);
    most.map(|most| format!("what has {names} members and maxProperties {most}"))
}

/// Returns true if all values of type `of` are of type `other`.
fn is_of(of: &str, other: &str) -> bool {
    of == other || (of == "integer" && other == "number")
}
