//! Writers of fields: fields with two writers, intended or forbidden by the blueprint, and fields without one.

use std::collections::BTreeSet;

use serde_json::Value;

use super::schema_keywords::named_values;
use super::{GrantedWrite, Linter};
use crate::graph;
use crate::source::child;
use patchboard_kernel::blueprint::{GrantOp, Writers};
use patchboard_kernel::pattern::Pattern;
use patchboard_kernel::work_budget::WorkKind;

/// Maximum fields of a schema that are checked.
const FIELDS_MAX: usize = 1000;

/// Maximum depth of the walk through a schema; recursive schemas have no end.
const DEPTH_MAX: usize = 12;

impl Linter<'_> {
    /// Warns of fields with more than one writer, and of those with none.
    pub(super) fn fields(&self) {
        self.two_writers();
        let unwritten = self.unwritten_reads();
        self.unwritten_fields(&unwritten);
    }

    /// Reports fields with two writers if the blueprint allows only one.
    pub(super) fn one_writer(&self) {
        if self.blueprint.writers != Writers::One {
            return;
        }
        let writes: Vec<_> = self.writes().collect();
        for (number, (name, write)) in writes.iter().enumerate() {
            let met = writes[..number]
                .iter()
                .find(|(other, met)| other != name && graph::are_writers_of_one(&write.pattern, &met.pattern));
            if let Some((other, met)) = met {
                let message = format!(
                    "`{name}` and `{other}` may both write `{}` (`{}`), and `writers: one` allows one",
                    write.grant.path, met.grant.path
                );
                let help =
                    "Give each a field of its own, let one only append to an array (`/-`), or say `writers: many`.";
                self.report("second_writer", &format!("{}/path", write.pointer), message, help);
            }
        }
    }

    fn two_writers(&self) {
        let replaces = |write: &&GrantedWrite<'_>| write.grant.ops.contains(&GrantOp::Replace);
        let seats: Vec<_> = self.worker_grants.iter().collect();
        for (number, (name, seat)) in seats.iter().enumerate() {
            for (other_name, other) in &seats[..number] {
                let pair = seat.writes.iter().filter(replaces).find_map(|write| {
                    // Two conditions let the state decide between the writers; disjoint `value` schemas let the value
                    // decide.
                    let is_disjoint = |met: &GrantedWrite<'_>| {
                        (write.grant.condition.is_some() && met.grant.condition.is_some())
                            || are_apart(write.grant.value.as_ref(), met.grant.value.as_ref())
                    };
                    let mut others = other.writes.iter().filter(replaces);
                    let met = others.find(|met| {
                        self.effort.spend(WorkKind::Grants, write.pattern.steps())
                            && write.pattern.overlaps(&met.pattern)
                            && !is_disjoint(met)
                    });
                    met.map(|met| (write, met))
                });
                if let Some((write, met)) = pair {
                    let message = format!(
                        "`{name}` and `{other_name}` may both overwrite `{}` (`{}`)",
                        write.grant.path, met.grant.path
                    );
                    let help = "Give each a field of its own, let one only `add`, or say of both when they may (`where`) \
                                or what (`value`).";
                    self.report("two_writers", &format!("{}/path", write.pointer), message, help);
                }
            }
        }
    }

    /// Reports reads of places that are absent at first and that no grant can create; returns their patterns.
    fn unwritten_reads(&self) -> Vec<Pattern> {
        let mut patterns = Vec::new();
        for (name, seat) in &self.worker_grants {
            for read in &seat.reads {
                let text = read.pattern.to_string();
                let pattern = read.pattern.under_any_binding();
                let there = self.is_there_at_first(&pattern);
                let comes = |write: &GrantedWrite<'_>| {
                    self.may_create(write, &read.pattern) || read.pattern.lies_above(&write.pattern)
                };
                if !there && !self.writes().any(|(_, write)| comes(write)) {
                    let message =
                        format!("`{name}` reads `{text}`, which is never initialised and no worker can write");
                    let help = "Put it into `state.initial`, grant a worker to write it, or do not read it.";
                    self.report("read_never_written", &read.pointer, message, help);
                    patterns.push(read.pattern.clone());
                }
            }
        }
        patterns
    }

    /// Returns true if a write can create a value at an absent place.
    pub(super) fn may_create(&self, write: &GrantedWrite<'_>, place: &Pattern) -> bool {
        let makes = |op: &GrantOp| !matches!(op, GrantOp::Remove | GrantOp::Replace);
        let writes = |op: &GrantOp| *op != GrantOp::Remove;
        (write.pattern.collides(place) && write.grant.ops.iter().any(makes))
            || (write.pattern.lies_above(place) && write.grant.ops.iter().any(writes))
    }

    /// Returns true if a place exists when the board begins.
    pub(super) fn is_there_at_first(&self, place: &Pattern) -> bool {
        self.is_given(place) || self.initial.first(place).is_some()
    }

    /// Reports declared fields that are absent at first and that no grant can create.
    fn unwritten_fields(&self, reported: &[Pattern]) {
        let document = &self.blueprint.state.schema;
        let mut fields = Fields { document, seen: BTreeSet::new(), found: Vec::new() };
        fields.walk("", document, "", 0);
        // Sorted by place, so that a field precedes the places below it.
        fields.found.sort();
        let mut missing: Vec<Pattern> = reported.to_vec();
        for (place, schema) in &fields.found {
            let Ok(pattern) = Pattern::parse(place) else { continue };
            if self.is_there_at_first(&pattern) {
                continue;
            }
            // Places below a missing field are missing for the same reason.
            if missing.iter().any(|other| other.collides(&pattern) || other.lies_above(&pattern)) {
                continue;
            }
            if !self.writes().any(|(_, write)| self.may_create(write, &pattern)) {
                let is_replaced = self
                    .writes()
                    .any(|(_, write)| write.pattern.collides(&pattern) && write.grant.ops.contains(&GrantOp::Replace));
                let (may, help) = match is_replaced {
                    true => ("may only be replaced", "Grant `add`, or put it into `state.initial`."),
                    false => (
                        "no worker can write it",
                        "Grant a worker to write it, put it into `state.initial`, or remove it from the schema.",
                    ),
                };
                let message = format!("`{place}` is never initialised and {may}");
                self.report_at_key("never_written", &format!("/state/schema{schema}"), message, help);
                missing.push(pattern);
            }
        }
    }
}

/// Returns true if both schemas name their values and share none.
fn are_apart(one: Option<&Value>, other: Option<&Value>) -> bool {
    let named =
        |schema: Option<&Value>| schema.and_then(named_values).map(|values| values.into_iter().cloned().collect());
    let (Some(one), Some(other)): (Option<Vec<Value>>, Option<Vec<Value>>) = (named(one), named(other)) else {
        return false;
    };
    !one.iter().any(|value| other.contains(value))
}

/// The walk through a schema that collects the fields it declares.
struct Fields<'a> {
    document: &'a Value,
    seen: BTreeSet<String>,
    /// Path pattern of a field, and JSON Pointer of its declaration in the schema.
    found: Vec<(String, String)>,
}

impl<'a> Fields<'a> {
    /// Collects the fields below `place`, a path pattern. `pointer` is the JSON Pointer of `schema` in the document.
    fn walk(&mut self, place: &str, schema: &'a Value, pointer: &str, depth: usize) {
        let Some(members) = schema.as_object() else { return };
        if depth > DEPTH_MAX || self.found.len() >= FIELDS_MAX || !self.seen.insert(format!("{place} {pointer}")) {
            return;
        }
        for (name, field) in members.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let below = child(place, name);
            // A member called `*` or `-` cannot be named by a pattern.
            if matches!(name.as_str(), "*" | "**" | "-") {
                continue;
            }
            let declared = child(&format!("{pointer}/properties"), name);
            if !self.found.iter().any(|(known, _)| *known == below) {
                self.found.push((below.clone(), declared.clone()));
            }
            self.walk(&below, field, &declared, depth + 1);
        }
        for keyword in ["items", "additionalProperties"] {
            if let Some(element) = members.get(keyword) {
                self.walk(&format!("{place}/*"), element, &child(pointer, keyword), depth + 1);
            }
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            for (index, part) in members.get(keyword).and_then(Value::as_array).into_iter().flatten().enumerate() {
                self.walk(place, part, &format!("{pointer}/{keyword}/{index}"), depth + 1);
            }
        }
        for keyword in ["then", "else"] {
            if let Some(part) = members.get(keyword) {
                self.walk(place, part, &child(pointer, keyword), depth + 1);
            }
        }
        let target = members.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
        if let Some(target) = target
            && let Some(part) = self.document.pointer(target)
        {
            self.walk(place, part, target, depth + 1);
        }
    }
}
