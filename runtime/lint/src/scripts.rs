//! Fixed replies that the worker's grants, a schema or a limit reject.

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use super::{GrantedWrite, Linter, Read, WorkerGrants, closest_name};
use patchboard_kernel::blueprint::GrantOp;
use patchboard_kernel::expand_request::ExpandRequest;
use patchboard_kernel::pattern::{Pattern, is_index};
use patchboard_kernel::pipeline::{self, ReplyBody};
use patchboard_kernel::rejection::Code;
use patchboard_kernel::schema::{Schema, nearest, shorten};
use patchboard_kernel::work_budget::WorkKind;

impl Linter<'_> {
    /// Returns the schema violation of a value at a place. Returns nothing for a value with bound names, because their
    /// text is unknown.
    fn schema_violation(&self, place: &Pattern, value: &Value, bound: &[&str]) -> Option<String> {
        let (schema, sought, _) = self.schema_of(&place.under_any_binding())?;
        let mut fragment = schema.fragment(&sought).filter(|_| !has_name(value, bound))?;
        for shared in ["$schema", "$defs", "definitions"] {
            if let (Some(fragment), Some(said)) = (fragment.as_object_mut(), self.blueprint.state.schema.get(shared)) {
                fragment.entry(shared).or_insert_with(|| said.clone());
            }
        }
        let schema = Schema::compile_within(&fragment, self.blueprint.state.assert_formats, &self.effort).ok()?;
        let violation = schema.violations(value, 1).into_iter().next()?;
        Some(match violation.pointer.as_str() {
            "" => violation.message,
            below => format!("{below}: {}", violation.message),
        })
    }

    /// Warns of operations in fixed replies that no write grant of the worker allows. `bound`: the names that have a
    /// value there.
    pub(super) fn rejected_replies(&self, name: &str, seat: &WorkerGrants<'_>, bound: Option<&BTreeSet<String>>) {
        let bound: Vec<&str> = bound.into_iter().flatten().map(String::as_str).collect();
        // The last reply that contains each text.
        let mut said = BTreeMap::new();
        for (nth, reply) in seat.worker.script.iter().enumerate() {
            said.extend(texts(reply).into_iter().map(|text| (text, nth)));
        }
        for (nth, reply) in seat.worker.script.iter().enumerate() {
            let (at, reply) = match reply.get("reply") {
                Some(inner) => (format!("{}/script/{nth}/reply", seat.pointer), inner),
                None => (format!("{}/script/{nth}", seat.pointer), reply),
            };
            // Earlier replies may be rejected on purpose.
            let is_last = nth + 1 == seat.worker.script.len();
            if is_last && let Some((message, help)) = malformed(name, seat, reply) {
                self.report("script_refused", &at, message, help);
            }
            let (at, patch) = match reply.get("patch") {
                Some(patch) => (format!("{at}/patch"), patch),
                None => (at, reply),
            };
            for (op_nth, op) in patch.as_array().into_iter().flatten().enumerate() {
                let (Some(op), Some(path)) = (written(op), op.get("path").and_then(Value::as_str)) else { continue };
                let refuse = |member: &str, message: String, help: String| {
                    self.report("script_refused", &format!("{at}/{op_nth}/{member}"), message, help);
                };
                if path == "/$expand/-" {
                    continue;
                }
                let Ok(place) = PointerBuf::parse(path) else {
                    let message = format!("`{name}` answers with `{op}` at `{path}`, which is no JSON Pointer");
                    let help = format!("Begin it with a slash: `/{path}`.");
                    refuse("path", message, help);
                    continue;
                };
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
                    refuse("path", message, help);
                    continue;
                }
                let appends = place.split_back().filter(|(_, last)| is_index(&last.decoded()));
                let appends = appends.map(|(array, _)| array.with_trailing_token("-"));
                let allows = |write: &GrantedWrite<'_>| {
                    let pattern = write.pattern.under_any_binding();
                    pattern.matches(&place) || appends.as_ref().is_some_and(|append| pattern.matches(append))
                };
                let sought = template.as_ref().map(Pattern::under_any_binding);
                if let Some(missing) = sought.as_ref().and_then(|place| self.missing(place)) {
                    let message =
                        format!("`{name}` answers with `{op}` at `{path}`, which is no place: {}", missing.why);
                    refuse("path", message, missing.help);
                    continue;
                }
                // Other names are allowed there, but one similar to a declared name is probably misspelt.
                if let Some((holder, wrong, known)) = sought.as_ref().and_then(|place| self.undeclared(place))
                    && let Some(near) = closest_name(&wrong, known.iter().map(String::as_str))
                {
                    let message = format!("`{path}`: `properties` of {holder} has no `{wrong}`");
                    let help = format!("Did you mean `{near}`?");
                    self.report("undeclared_name", &format!("{at}/{op_nth}/path"), message, help);
                }
                let matching: Vec<&GrantedWrite<'_>> = seat.writes.iter().filter(|write| allows(write)).collect();
                if matching.is_empty() {
                    let message = format!("`{name}` answers with `{op}` at `{path}`, and no grant of it matches that");
                    let help = "Grant the place under `writes`, or write elsewhere.".to_owned();
                    refuse("path", message, help);
                    continue;
                }
                if is_last && !matching.iter().any(|write| may(&write.grant.ops, op)) {
                    let message =
                        format!("`{name}` answers with `{op}` at `{path}`, and its grant there has no such operation");
                    let help = format!("Name `{op}` in `ops` of the grant, or write another operation.");
                    refuse("op", message, help);
                    continue;
                }
                // A reply that a later one corrects is rejected on purpose.
                let is_put_right = said.get(path).is_some_and(|last| *last > nth);
                let value = patch[op_nth].get("value").filter(|_| matches!(op, "add" | "replace") && !is_put_right);
                let Some(value) = value else { continue };
                let takes = |write: &&GrantedWrite<'_>| {
                    let schema = write.grant.value.as_ref().and_then(|of| self.values.compile(of).ok());
                    schema.is_none_or(|schema| schema.is_valid(value))
                };
                if !matching.iter().any(takes) {
                    let message =
                        format!("`{name}` answers with a value at `{path}` that `value` of its grant does not allow");
                    let help = "Change the value, or `value` of the grant.".to_owned();
                    refuse("value", message, help);
                } else if self.effort.spend(WorkKind::Grants, patch.as_array().map_or(0, Vec::len) as u64)
                    && is_alone(patch, op_nth, path)
                    && let Some(violation) =
                        template.as_ref().and_then(|place| self.schema_violation(place, value, &bound))
                {
                    let message =
                        format!("`{name}` answers with a value at `{path}` that the schema refuses: {violation}");
                    let help = "Change the value, or the schema.".to_owned();
                    refuse("value", message, help);
                }
            }
        }
    }
}

/// Returns true if no other operation of a patch writes at, below or above the place of one. Otherwise the schema
/// applies only to the combined result.
fn is_alone(patch: &Value, nth: usize, path: &str) -> bool {
    let is_within = |inner: &str, outer: &str| inner == outer || inner.starts_with(&format!("{outer}/"));
    let mut others = patch.as_array().into_iter().flatten().enumerate().filter(|(other, _)| *other != nth);
    !others.any(|(_, op)| {
        let mut others = ["path", "from"].iter().filter_map(|member| op.get(*member).and_then(Value::as_str));
        path.ends_with("/-") || others.any(|other| is_within(other, path) || is_within(path, other))
    })
}

/// Returns true if a text in a value contains one of these names in braces.
fn has_name(value: &Value, bound: &[&str]) -> bool {
    let text = value.to_string();
    bound.iter().any(|name| text.contains(&format!("{{{name}}}")))
}

/// Returns the fault of a reply that every board rejects: its form, its size, or a place or person not allowed for the
/// worker.
fn malformed(name: &str, seat: &WorkerGrants<'_>, reply: &Value) -> Option<(String, String)> {
    let operations = reply.get("patch").unwrap_or(reply);
    if let Some(operation) = operations.as_array().into_iter().flatten().find(|operation| !is_operation(operation)) {
        let message = format!("`{name}` answers with what is no operation of a JSON Patch: {}", shorten(operation));
        let help =
            "A script is a list of replies, a reply a list of operations: `[[{op: add, path: /answer, value: …}]]`.";
        return Some((message, help.to_owned()));
    }
    if operations.is_object() && ["op", "path"].iter().all(|member| operations.get(member).is_some()) {
        let message = format!("`{name}` answers with an operation where a reply is a list of operations");
        return Some((message, "Put it into a list of its own: `[[{op: add, path: /answer, value: …}]]`.".to_owned()));
    }
    let body = match reply.get("text").and_then(Value::as_str) {
        Some(text) => ReplyBody::Text(text.to_owned()),
        None => ReplyBody::Json(reply.clone()),
    };
    // A failure needs no check, and a reply in another format is checked by that format.
    if seat.worker.format.is_some() || reply.get("fail").is_some() {
        return None;
    }
    let reply = match pipeline::read_reply(&body, seat.worker) {
        Ok(reply) => reply,
        // The paths of operations are checked one by one.
        Err(violation) if violation.code == Code::BadPointer && violation.pointer.as_str().ends_with("/path") => {
            return None;
        }
        Err(violation) => {
            let place =
                if violation.pointer.is_empty() { String::new() } else { format!(" at `{}`", violation.pointer) };
            let message = format!("`{name}` answers with what is refused{place}: {}", violation.message);
            let help = match violation.code {
                Code::TooLarge => "Answer with less, or raise `patch.max_ops` or `patch.max_bytes` of the worker.",
                Code::IntentMissing => "Write `{patch: […], intent: …}`.",
                _ if reply.get("pass").is_some() && !seat.worker.pass => "Add `pass: true` to the worker.",
                _ if violation.pointer.is_empty() => {
                    "A reply is a list of operations, or an object with one as `patch`."
                }
                _ => "Correct the reply there.",
            };
            return Some((message, help.to_owned()));
        }
    };
    if reply.clarify.is_some() && seat.worker.clarify.is_none() {
        let message = format!("`{name}` asks a person, and has no `clarify`");
        return Some((message, "Add `clarify: {by: PERSON}` to the worker.".to_owned()));
    }
    let unread = |place: &Pointer, reaches: bool| {
        let may_read = |read: &Read| {
            let pattern = read.pattern.under_any_binding();
            pattern.covers(place) || (reaches && pattern.reaches_below(place))
        };
        let is_named = place.to_string().contains('{');
        !is_named && !seat.reads.iter().any(may_read)
    };
    let asked = reply.expand.iter().filter_map(ExpandRequest::place).find(|place| unread(place, true));
    let tested = || {
        let ops = reply.patch.as_array().into_iter().flatten().filter(|op| op.get("op").is_some_and(|op| op == "test"));
        let mut places = ops.filter_map(|op| PointerBuf::parse(op.get("path")?.as_str()?).ok());
        places.find(|place| unread(place, false))
    };
    let (what, place) = asked.map(|place| ("asks to be shown", place)).or_else(|| Some(("tests", tested()?)))?;
    let place = if place.is_root() { "the whole state".to_owned() } else { format!("`{place}`") };
    let message = format!("`{name}` {what} {place}, which it may not read");
    Some((message, "Add the place to `reads` of the worker, or take it out of the reply.".to_owned()))
}

/// Returns all texts in a value, including names of members.
fn texts(value: &Value) -> Vec<&str> {
    let (mut texts, mut pending) = (Vec::new(), vec![value]);
    while let Some(value) = pending.pop() {
        match value {
            Value::String(text) => texts.push(text.as_str()),
            Value::Array(items) => pending.extend(items),
            Value::Object(members) => {
                texts.extend(members.keys().map(String::as_str));
                pending.extend(members.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    texts
}

/// Returns true if a value has the form of a patch operation.
fn is_operation(operation: &Value) -> bool {
    written(operation).is_some() || operation.get("op").is_some_and(|op| op == "test")
}

/// Returns true if a patch operation may have one of the effects that a grant allows.
fn may(granted: &[GrantOp], op: &str) -> bool {
    let effects: &[GrantOp] = match op {
        "add" => &[GrantOp::Add, GrantOp::Insert, GrantOp::Replace],
        "replace" => &[GrantOp::Replace],
        "remove" => &[GrantOp::Remove],
        "move" => &[GrantOp::Move],
        _ => &[GrantOp::Copy],
    };
    granted.iter().any(|op| effects.contains(op))
}

/// Returns the name of an operation that writes to its path.
fn written(op: &Value) -> Option<&str> {
    let name = op.get("op").and_then(Value::as_str)?;
    matches!(name, "add" | "replace" | "remove" | "move" | "copy").then_some(name)
}
