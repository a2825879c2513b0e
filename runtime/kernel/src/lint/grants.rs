//! Grants on everything or on the request, and fixed replies that no grant of their worker matches.

use std::collections::BTreeSet;

use jsonptr::PointerBuf;
use serde_json::Value;

use super::{Check, Seat, Write, meant};
use crate::pattern::{Pattern, PatternToken, is_index};
use crate::schema::{Schema, nearest};

impl Check<'_> {
    /// Warns of grants on everything and on the request, and of replies of scripts that no grant allows.
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

    /// Reports a `value` that the schema allows nowhere.
    fn misfit(&self, name: &str, write: &Write<'_>) -> Option<(&'static str, String, String, String)> {
        let value = write.grant.value.as_ref()?;
        let (schema, sought, _) = self.schema_of(&write.pattern.under_any_binding())?;
        let fragment = schema.fragment(&sought).filter(|fragment| fragment.get("$ref").is_none())?;
        let (at, values) = misfit_in(value, &fragment, "")?;
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        let message = format!(
            "`{name}` may write {} by this grant on `{}`, which the schema does not allow",
            values.join(" or "),
            write.grant.path
        );
        let help = "Name values that the schema allows.".to_owned();
        Some(("value_never_fits", format!("{}/value{at}", write.pointer), message, help))
    }

    /// Returns the schema's violation by a value at a place. Returns nothing for a value with bound names, whose text is unknown.
    fn refusal(&self, place: &Pattern, value: &Value, bound: &[&str]) -> Option<String> {
        let (schema, sought, _) = self.schema_of(&place.under_any_binding())?;
        let mut fragment = schema.fragment(&sought).filter(|_| !has_name(value, bound))?;
        if let (Some(fragment), Some(definitions)) =
            (fragment.as_object_mut(), self.blueprint.state.schema.get("$defs"))
        {
            fragment.entry("$defs").or_insert_with(|| definitions.clone());
        }
        let schema = Schema::compile(&fragment, self.blueprint.state.assert_formats).ok()?;
        let violation = schema.violations(value, 1).into_iter().next()?;
        Some(match violation.pointer.as_str() {
            "" => violation.message,
            below => format!("{below}: {}", violation.message),
        })
    }

    /// Operations of fixed replies that no write grant of the worker allows. `bound`: the names that stand for something there.
    fn refused_replies(
        &self,
        name: &str,
        seat: &Seat<'_>,
        bound: Option<&BTreeSet<String>>,
    ) -> Vec<(&'static str, String, String, String)> {
        let mut found = Vec::new();
        let bound: Vec<&str> = bound.into_iter().flatten().map(String::as_str).collect();
        for (nth, reply) in seat.worker.script.iter().enumerate() {
            let (at, reply) = match reply.get("reply") {
                Some(inner) => (format!("{}/script/{nth}/reply", seat.pointer), inner),
                None => (format!("{}/script/{nth}", seat.pointer), reply),
            };
            let (at, patch) = match reply.get("patch") {
                Some(patch) => (format!("{at}/patch"), patch),
                None => (at, reply),
            };
            for (op_nth, op) in patch.as_array().into_iter().flatten().enumerate() {
                let (Some(op), Some(path)) = (written(op), op.get("path").and_then(Value::as_str)) else { continue };
                if path == "/$expand/-" {
                    continue;
                }
                let Ok(place) = PointerBuf::parse(path) else { continue };
                let template = self.paths.parse(path).ok();
                let mut names = template.iter().flat_map(|template| template.names());
                if let Some(unbound) = names.find(|name| !bound.contains(name)) {
                    let message =
                        format!("`{name}` answers with `{op}` at `{path}`, and nothing binds `{{{unbound}}}` for it");
                    let help = match (nearest(unbound, bound.iter().copied()), bound.first()) {
                        (Some(name), _) => format!("Did you mean `{{{name}}}`?"),
                        (None, Some(name)) => format!("Its paths use `{{{name}}}`."),
                        (None, None) => {
                            "Name the place itself, or bind the name: `reads` and `writes` of the worker use it, and \
                                         the path of the rule's trigger binds it."
                                .to_owned()
                        }
                    };
                    found.push(("script_refused", format!("{at}/{op_nth}/path"), message, help));
                    continue;
                }
                let appends = place.split_back().filter(|(_, last)| is_index(&last.decoded()));
                let appends = appends.map(|(array, _)| array.with_trailing_token("-"));
                let allows = |write: &Write<'_>| {
                    let pattern = write.pattern.under_any_binding();
                    pattern.matches(&place) || appends.as_ref().is_some_and(|append| pattern.matches(append))
                };
                let sought = template.as_ref().map(Pattern::under_any_binding);
                if let Some(missing) = sought.as_ref().and_then(|place| self.missing(place)) {
                    let message =
                        format!("`{name}` answers with `{op}` at `{path}`, which is no place: {}", missing.why);
                    found.push(("script_refused", format!("{at}/{op_nth}/path"), message, missing.help));
                    continue;
                }
                // Other names are allowed there; one that is nearly declared is probably meant to be that.
                if let Some((holder, wrong, known)) = sought.as_ref().and_then(|place| self.undeclared(place))
                    && let Some(near) = meant(&wrong, known.iter().map(String::as_str))
                {
                    let message = format!("`{path}`: `properties` of {holder} has no `{wrong}`");
                    let help = format!("Did you mean `{near}`?");
                    found.push(("undeclared_name", format!("{at}/{op_nth}/path"), message, help));
                }
                let matching: Vec<&Write<'_>> = seat.writes.iter().filter(|write| allows(write)).collect();
                if matching.is_empty() {
                    let message = format!("`{name}` answers with `{op}` at `{path}`, and no grant of it matches that");
                    let help = "Grant the place under `writes`, or write elsewhere.".to_owned();
                    found.push(("script_refused", format!("{at}/{op_nth}/path"), message, help));
                    continue;
                }
                // A reply that is put right by a later one is meant to be refused.
                let quoted = Value::from(path).to_string();
                let is_put_right =
                    || seat.worker.script[nth + 1..].iter().any(|reply| reply.to_string().contains(&quoted));
                let value = patch[op_nth].get("value").filter(|_| matches!(op, "add" | "replace") && !is_put_right());
                let Some(value) = value else { continue };
                let takes = |write: &&Write<'_>| {
                    let schema = write.grant.value.as_ref().and_then(|value| Schema::compile(value, false).ok());
                    schema.is_none_or(|schema| schema.is_valid(value))
                };
                if !matching.iter().any(takes) {
                    let message =
                        format!("`{name}` answers with a value at `{path}` that `value` of its grant does not allow");
                    let help = "Change the value, or `value` of the grant.".to_owned();
                    found.push(("script_refused", format!("{at}/{op_nth}/value"), message, help));
                } else if is_alone(patch, op_nth, path)
                    && let Some(violation) = template.as_ref().and_then(|place| self.refusal(place, value, &bound))
                {
                    let message =
                        format!("`{name}` answers with a value at `{path}` that the schema refuses: {violation}");
                    let help = "Change the value, or the schema.".to_owned();
                    found.push(("script_refused", format!("{at}/{op_nth}/value"), message, help));
                }
            }
        }
        found
    }
}

/// Returns true if no other operation of a patch writes at, below or above the place of one: the schema is asked about the
/// result of all.
fn is_alone(patch: &Value, nth: usize, path: &str) -> bool {
    let is_within = |inner: &str, outer: &str| inner == outer || inner.starts_with(&format!("{outer}/"));
    let mut others = patch.as_array().into_iter().flatten().enumerate().filter(|(other, _)| *other != nth);
    !others.any(|(_, op)| {
        let other = op.get("path").and_then(Value::as_str);
        path.ends_with("/-") || other.is_some_and(|other| is_within(other, path) || is_within(path, other))
    })
}

/// Returns true if a text in a value has one of these names in braces.
fn has_name(value: &Value, bound: &[&str]) -> bool {
    let text = value.to_string();
    bound.iter().any(|name| text.contains(&format!("{{{name}}}")))
}

/// Returns the values that a schema names: `const`, or those of `enum`; none if it names none.
fn named_values(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(values)) => Some(values.iter().collect()),
        (None, None) => None,
    }
}

/// Returns the place in a `value` schema, and there is one, whose named values are all refused by the schema of the state.
fn misfit_in<'v>(value: &'v Value, fragment: &Value, at: &str) -> Option<(String, Vec<&'v Value>)> {
    if let Some(values) = named_values(value) {
        let schema = Schema::compile(fragment, false).ok()?;
        return (!values.iter().any(|value| schema.is_valid(value))).then(|| (at.to_owned(), values));
    }
    let members = value.get("properties").and_then(Value::as_object)?;
    members.iter().find_map(|(name, member)| {
        let below = fragment.get("properties")?.get(name).filter(|below| below.get("$ref").is_none())?;
        misfit_in(member, below, &format!("{at}/properties/{}", jsonptr::Token::new(name.as_str()).encoded()))
    })
}

/// The name of an operation that writes to its path.
fn written(op: &Value) -> Option<&str> {
    let name = op.get("op").and_then(Value::as_str)?;
    matches!(name, "add" | "replace" | "remove" | "move" | "copy").then_some(name)
}
