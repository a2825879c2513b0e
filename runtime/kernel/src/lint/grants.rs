//! Grants on everything or on the request, and on values that the schema allows nowhere.

use serde_json::Value;

use super::keywords::ELSEWHERE;
use super::{Check, Write, suggest};
use crate::blueprint::GrantOp;
use crate::pattern::{Pattern, PatternToken};
use crate::schema::Schema;
use crate::source::child;

impl Check<'_> {
    /// Warns of grants on everything and on the request, of those that nothing can use, and of replies of scripts that no grant
    /// allows.
    pub(super) fn widths(&mut self) {
        let request = Pattern::parse("/request").ok();
        let needed = self.needed_names();
        let mut found = Vec::new();
        for (name, seat) in &self.seats {
            for write in &seat.writes {
                let pointer = format!("{}/path", write.pointer);
                let (path, tokens) = (&write.grant.path, write.pattern.tokens());
                let is_any = |token: &PatternToken| matches!(token, PatternToken::Deep | PatternToken::Any);
                if tokens.contains(&PatternToken::Deep) && tokens.iter().all(is_any) {
                    let message = format!("`{name}` may write everywhere: `{path}`");
                    let help = "Name the places that it is to write.";
                    found.push(("wide_grant", pointer, message, help.to_owned()));
                    continue;
                }
                found.extend(self.misfit(name.as_str(), write));
                found.extend(self.undeclared_values(write));
                if write.grant.ops.iter().all(|op| *op == GrantOp::Add) && self.is_always_there(&write.pattern) {
                    let message =
                        format!("`{name}` may only add `{path}`, which is there at the beginning and never removed");
                    let help = "Grant `replace`, or leave it out of `state.initial`.";
                    found.push(("unusable_grant", pointer.clone(), message, help.to_owned()));
                }
                let reaches = |request: &Pattern| write.pattern.overlaps(request) || request.lies_above(&write.pattern);
                if request.as_ref().is_some_and(reaches) {
                    let message = format!("`{name}` may write to the request: `{path}`");
                    let help = "Let it write beside the request, which says what the user asked for.";
                    found.push(("writes_request", pointer, message, help.to_owned()));
                }
            }
            found.extend(self.refused_replies(name.as_str(), seat, needed.get(*name)));
        }
        for (code, pointer, message, help) in found {
            self.find(code, &pointer, message, help);
        }
    }

    /// Reports a name in a `value` that `properties` of the schema there does not declare.
    fn undeclared_values(&self, write: &Write<'_>) -> Option<(&'static str, String, String, String)> {
        let value = write.grant.value.as_ref()?;
        let (schema, sought, _) = self.schema_of(&write.pattern.under_any_binding())?;
        let (at, name, known) = undeclared_in(value, &schema.fragment(&sought)?, "")?;
        let message = format!("`properties` of `{}` has no `{name}`", write.grant.path);
        let help = suggest(&name, known.iter().map(String::as_str), "Declare it.");
        Some(("undeclared_name", format!("{}/value{at}", write.pointer), message, help))
    }

    /// Reports a `value` that the schema allows nowhere.
    fn misfit(&self, name: &str, write: &Write<'_>) -> Option<(&'static str, String, String, String)> {
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

/// Returns the values that a schema names: `const`, or those of `enum`; none if it names none.
fn named_values(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(values)) => Some(values.iter().collect()),
        (None, None) => None,
    }
}

/// Returns the first name in `properties` or `required` of a `value` schema that `properties` of the schema of the state does not
/// declare: where it stands, the name, and what is declared.
fn undeclared_in(value: &Value, fragment: &Value, at: &str) -> Option<(String, String, Vec<String>)> {
    // Other schemas may declare the name.
    if ELSEWHERE.iter().any(|keyword| fragment.get(*keyword).is_some_and(|said| !said.is_boolean())) {
        return None;
    }
    let declared = fragment.get("properties")?.as_object().filter(|declared| !declared.is_empty())?;
    let told = |name: &String, at: String| (at, name.clone(), declared.keys().cloned().collect());
    let properties = value.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (name, member) in properties {
        let at = child(&format!("{at}/properties"), name);
        match declared.get(name) {
            // A name that is forbidden need not be declared.
            None if *member == Value::Bool(false) => {}
            None => return Some(told(name, at)),
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
    Some(told(&name.to_owned(), format!("{at}/required/{nth}")))
}

/// Returns the place in a `value` schema, and there is one, where the schema of the state refuses all that it allows, and what it
/// allows.
fn misfit_in(value: &Value, fragment: &Value, at: &str) -> Option<(String, String)> {
    let told = |what: String| Some((at.to_owned(), what));
    if let Some(values) = named_values(value) {
        let schema = Schema::compile(fragment, false).ok()?;
        let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
        return if values.iter().any(|value| schema.is_valid(value)) { None } else { told(texts.join(" or ")) };
    }
    if let (Some(allowed), Some(there)) = (types_of(value), types_of(fragment))
        && !allowed.iter().any(|of| there.iter().any(|other| is_of(of, other) || is_of(other, of)))
    {
        return told(format!("a value of type {}", allowed.join(" or ")));
    }
    let number = |schema: &Value, keyword: &str| schema.get(keyword).and_then(Value::as_f64);
    for (least, most) in [("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems")] {
        for (low, high) in [(value, fragment), (fragment, value)] {
            if let (Some(low), Some(high)) = (number(low, least), number(high, most))
                && low > high
            {
                return told(format!("what has {least} {low} and {most} {high}"));
            }
        }
    }
    let declared = fragment.get("properties").and_then(Value::as_object);
    let is_closed = fragment.get("additionalProperties") == Some(&Value::Bool(false))
        && fragment.get("patternProperties").is_none();
    let required = value.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let missing = |name: &&str| is_closed && !declared.is_some_and(|declared| declared.contains_key(*name));
    if let Some(name) = required.into_iter().find(missing) {
        return told(format!("what has `{name}`"));
    }
    let members = value.get("properties").and_then(Value::as_object)?;
    members.iter().find_map(|(name, member)| {
        let below = declared?.get(name).filter(|below| below.get("$ref").is_none())?;
        misfit_in(member, below, &child(&format!("{at}/properties"), name))
    })
}

/// The types that a schema names, if it names any.
fn types_of(schema: &Value) -> Option<Vec<&str>> {
    match schema.get("type")? {
        Value::Array(types) => Some(types.iter().filter_map(Value::as_str).collect()),
        one => Some(vec![one.as_str()?]),
    }
}

/// Whether all values of a type are of another.
fn is_of(of: &str, other: &str) -> bool {
    of == other || (of == "integer" && other == "number")
}
