//! Who writes what: fields with two writers, where that is meant and where the blueprint forbids it, and fields with none.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Check, Write};
use crate::blueprint::{GrantOp, Writers};
use crate::graph;
use crate::pattern::Pattern;
use crate::source::child;

/// The most fields of a schema that are looked at.
const FIELDS_MAX: usize = 1000;

/// How deep the schema is looked into; recursive schemas have no end.
const DEPTH_MAX: usize = 12;

impl Check<'_> {
    /// Warns of fields with more than one writer, and of those with none.
    pub(super) fn fields(&mut self) {
        self.two_writers();
        let unwritten = self.unwritten_reads();
        self.unwritten_fields(&unwritten);
    }

    /// Holds the blueprint to one writer for each field, if it says so itself.
    pub(super) fn one_writer(&mut self) {
        if self.blueprint.writers != Writers::One {
            return;
        }
        let writes: Vec<_> = self.writes().collect();
        let mut found = Vec::new();
        for (number, (name, write)) in writes.iter().enumerate() {
            let met = writes[..number]
                .iter()
                .find(|(other, met)| other != name && graph::are_writers_of_one(&write.pattern, &met.pattern));
            if let Some((other, met)) = met {
                let message = format!(
                    "`{name}` and `{other}` may both write `{}` (`{}`), and `writers: one` allows one",
                    write.grant.path, met.grant.path
                );
                found.push((format!("{}/path", write.pointer), message));
            }
        }
        for (pointer, message) in found {
            let help = "Give each a field of its own, let one only append to an array (`/-`), or say `writers: many`.";
            self.find("second_writer", &pointer, message, help);
        }
    }

    fn two_writers(&mut self) {
        let replaces = |write: &&Write<'_>| write.grant.ops.contains(&GrantOp::Replace);
        let mut found = Vec::new();
        let seats: Vec<_> = self.seats.iter().collect();
        for (number, (name, seat)) in seats.iter().enumerate() {
            for (other_name, other) in &seats[..number] {
                let pair = seat.writes.iter().filter(replaces).find_map(|write| {
                    // Where each has a condition, the state says whose turn it is.
                    let is_told_apart =
                        |met: &Write<'_>| write.grant.condition.is_some() && met.grant.condition.is_some();
                    let mut others = other.writes.iter().filter(replaces);
                    let met = others.find(|met| write.pattern.overlaps(&met.pattern) && !is_told_apart(met));
                    met.map(|met| (write, met))
                });
                if let Some((write, met)) = pair {
                    let message = format!(
                        "`{name}` and `{other_name}` may both overwrite `{}` (`{}`)",
                        write.grant.path, met.grant.path
                    );
                    found.push((format!("{}/path", write.pointer), message));
                }
            }
        }
        for (pointer, message) in found {
            let help = "Give each a field of its own, or let one only `add`.";
            self.find("two_writers", &pointer, message, help);
        }
    }

    /// Reports reads of places where nothing is and nothing can come to be; returns their patterns.
    fn unwritten_reads(&mut self) -> Vec<Pattern> {
        let initial = &self.blueprint.state.initial;
        let mut found = Vec::new();
        for (name, seat) in &self.seats {
            for read in &seat.reads {
                let text = read.pattern.to_string();
                let pattern = read.pattern.under_any_binding();
                let there = self.is_given(&pattern) || !pattern.instances_of_value(initial, 1).is_empty();
                let comes = |write: &Write<'_>| {
                    self.may_create(write, &read.pattern) || read.pattern.lies_above(&write.pattern)
                };
                if !there && !self.writes().any(|(_, write)| comes(write)) {
                    let message = format!("`{name}` reads `{text}`, which is not there at first and nobody can write");
                    found.push((read.pointer.clone(), read.pattern.clone(), message));
                }
            }
        }
        let mut patterns = Vec::new();
        for (pointer, pattern, message) in found {
            let help = "Put it into `state.initial`, grant a worker to write it, or do not read it.";
            self.find("read_never_written", &pointer, message, help);
            patterns.push(pattern);
        }
        patterns
    }

    /// Whether a write can bring about something at a place.
    fn may_create(&self, write: &Write<'_>, place: &Pattern) -> bool {
        let only_removes = write.grant.ops.iter().all(|op| *op == GrantOp::Remove);
        !only_removes && (write.pattern.collides(place) || write.pattern.lies_above(place))
    }

    /// Reports fields that the schema declares, where nothing is and nothing can come to be.
    fn unwritten_fields(&mut self, reported: &[Pattern]) {
        let document = &self.blueprint.state.schema;
        let initial = &self.blueprint.state.initial;
        let mut fields = Fields { document, seen: BTreeSet::new(), found: Vec::new() };
        fields.walk("", document, "", 0);
        // Sorted by place, so that a field comes before what lies below it.
        fields.found.sort();
        let mut found = Vec::new();
        let mut missing: Vec<Pattern> = reported.to_vec();
        for (place, schema) in &fields.found {
            let Ok(pattern) = Pattern::parse(place) else { continue };
            if self.is_given(&pattern) || !pattern.instances_of_value(initial, 1).is_empty() {
                continue;
            }
            // What lies below a missing field is missing for the same reason.
            if missing.iter().any(|other| other.collides(&pattern) || other.lies_above(&pattern)) {
                continue;
            }
            if !self.writes().any(|(_, write)| self.may_create(write, &pattern)) {
                found.push((format!("/state/schema{schema}"), place.clone()));
                missing.push(pattern);
            }
        }
        for (pointer, place) in found {
            let message = format!("`{place}` is not there at first and nobody can write it");
            let help = "Grant a worker to write it, put it into `state.initial`, or remove it from the schema.";
            self.find("never_written", &pointer, message, help);
            self.point_at_key();
        }
    }
}

/// The walk through a schema that collects the fields it declares.
struct Fields<'a> {
    document: &'a Value,
    seen: BTreeSet<String>,
    /// Path pattern of a field, and JSON Pointer of its declaration in the schema.
    found: Vec<(String, String)>,
}

impl<'a> Fields<'a> {
    /// `place` is the path pattern of what `schema` describes, `pointer` where the schema itself stands.
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
