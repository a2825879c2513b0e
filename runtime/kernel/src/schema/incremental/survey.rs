//! Classifies the keywords of a schema by the data they inspect, and finds the subschemas a write can be traced
//! through.
//!
//! A subschema can be traced only if its text alone determines its meaning. It must have no base URI of its own, no
//! reference out of the document or to several places, and no cycle of references. Otherwise the enclosing schema is
//! validated as a whole.

use petgraph::algo::toposort;
use serde_json::{Map, Value, json};

use super::super::bounds::graph_in_place;
use super::super::map::{Id, REFERENCES, Role, SchemaMap, below};

/// URI of the document for references during compilation.
pub(super) const DOCUMENT: &str = "patchboard:///state";

/// Reason for validating a whole value after any change inside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Opaque {
    /// This keyword depends on the results of all others.
    Keyword(&'static str),
    /// The target of a reference is uncertain.
    Reference,
    /// A part of it has its own identifier.
    Identifier,
    /// The schema applies itself to the same value.
    Cycle,
    /// A part of it cannot be compiled on its own.
    Uncompiled,
}

impl Opaque {
    /// Returns the keyword to name in messages.
    pub(super) const fn keyword(&self) -> &'static str {
        match self {
            Self::Keyword(keyword) => keyword,
            Self::Reference | Self::Cycle | Self::Uncompiled => "$ref",
            Self::Identifier => "$id",
        }
    }

    /// Returns the JSON Pointer of the first dynamic reference, if that is the reason.
    pub(super) fn at(&self, document: &Value) -> Option<String> {
        if *self != Self::Keyword("$dynamicRef") {
            return None;
        }
        let mut pending = vec![(document, String::new())];
        while let Some((value, at)) = pending.pop() {
            match value {
                Value::Object(members) => {
                    let is_there = |name: &&&str| members.get(**name).is_some_and(Value::is_string);
                    if let Some(name) = ["$dynamicRef", "$recursiveRef"].iter().find(is_there) {
                        return Some(below(&at, name));
                    }
                    let schemas = members.iter().rev().filter(|(name, _)| !is_data(name));
                    pending.extend(schemas.map(|(name, value)| (value, below(&at, name))));
                }
                Value::Array(items) => {
                    let each = items.iter().enumerate().rev();
                    pending.extend(each.map(|(index, value)| (value, below(&at, &index.to_string()))));
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        None
    }
}

/// Keywords of a schema object, by the data they inspect.
#[derive(Debug, Default)]
pub(super) struct Keywords {
    /// Keywords about the set of members or elements, not their values.
    pub(super) shape: Map<String, Value>,
    /// Keywords about the value as a whole or its contents; their subschemas are references.
    pub(super) across: Map<String, Value>,
    /// `uniqueItems`.
    pub(super) unique: bool,
}

/// Facts about the document before compilation.
pub(super) struct Survey<'s> {
    document: &'s Value,
    map: &'s SchemaMap,
    /// Reason for tracing no part of the document.
    untraceable: Option<Opaque>,
}

impl<'s> Survey<'s> {
    pub(super) fn new(document: &'s Value, map: &'s SchemaMap) -> Self {
        let survey = Self { document, map, untraceable: None };
        let untraceable = survey.find_untraceable();
        Self { untraceable, ..survey }
    }

    /// Marks the whole document as not traceable.
    pub(super) fn mark_untraceable(&mut self) {
        self.untraceable = Some(Opaque::Uncompiled);
    }

    /// Returns the reason that makes the whole document depend on the start of validation, if there is one.
    fn find_untraceable(&self) -> Option<Opaque> {
        let is_dynamic = |id| self.map.node(id).refs.iter().any(|targets| targets.len() > 1);
        if (0..self.map.len()).any(is_dynamic) {
            return Some(Opaque::Keyword("$dynamicRef"));
        }
        // The meaning of a cycle depends on its entry point.
        // A subschema that leads back to itself on the same instance.
        if toposort(&graph_in_place(self.map), None).is_err() {
            return Some(Opaque::Cycle);
        }
        let (mut identified, mut dynamic, mut outward) = (false, false, false);
        let mut pending = vec![(self.document, true)];
        while let Some((value, is_root)) = pending.pop() {
            match value {
                Value::Object(members) => {
                    let is_text = |name: &str| members.get(name).is_some_and(Value::is_string);
                    identified |= !is_root && is_text("$id");
                    dynamic |= is_text("$dynamicAnchor") || members.get("$recursiveAnchor") == Some(&Value::Bool(true));
                    outward |= REFERENCES.iter().any(|name| {
                        members.get(*name).and_then(Value::as_str).is_some_and(|reference| !reference.starts_with('#'))
                    });
                    pending.extend(members.values().map(|value| (value, false)));
                }
                Value::Array(items) => pending.extend(items.iter().map(|value| (value, false))),
                // A schema that uses our internal URIs is suspicious.
                Value::String(text) if text.starts_with("patchboard:") => return Some(Opaque::Identifier),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let has_own_name = self.document.get("$id").is_some();
        match (identified || outward, dynamic) {
            (true, true) => Some(Opaque::Keyword("$dynamicRef")),
            (true, false) if has_own_name => Some(Opaque::Reference),
            (true | false, _) => None,
        }
    }

    /// Returns the reason for validating this subschema as a whole; `None` if it can be traced.
    pub(super) fn opaque(&self, id: Id) -> Option<Opaque> {
        if let Some(hopeless) = &self.untraceable {
            return Some(hopeless.clone());
        }
        let node = self.map.node(id);
        let members = self.members(id);
        let leads_elsewhere = |name: &&str| members.is_some_and(|members| is_external_reference(members, name));
        if node.outside || REFERENCES.iter().any(leads_elsewhere) {
            return Some(Opaque::Reference);
        }
        let parts = node.children.iter().filter(|(role, _)| *role != Role::Definition).map(|(_, part)| *part);
        if parts.chain(node.refs.iter().flatten().copied()).any(|part| self.has_foreign_base(part)) {
            return Some(Opaque::Identifier);
        }
        let has = |role| node.one(&role).is_some();
        if has(Role::UnevaluatedProperties) {
            return Some(Opaque::Keyword("unevaluatedProperties"));
        }
        has(Role::UnevaluatedItems).then_some(Opaque::Keyword("unevaluatedItems"))
    }

    /// Returns true if an enclosing schema changes the base URI or dialect of this subschema.
    fn has_foreign_base(&self, id: Id) -> bool {
        let mut pointer = self.map.node(id).pointer.as_str();
        loop {
            let Some(end) = pointer.rfind('/') else { return false };
            let is_text = |value: &Value, name| value.get(name).is_some_and(Value::is_string);
            if self.document.pointer(pointer).is_some_and(|value| is_text(value, "$id") || is_text(value, "$schema")) {
                return true;
            }
            pointer = &pointer[..end];
        }
    }

    fn members(&self, id: Id) -> Option<&'s Map<String, Value>> {
        self.document.pointer(&self.map.node(id).pointer)?.as_object()
    }

    /// Returns the target of a subschema that consists of one reference only.
    pub(super) fn only_refers_to(&self, id: Id) -> Option<Id> {
        let node = self.map.node(id);
        let [targets] = node.refs.as_slice() else { return None };
        let [target] = targets.as_slice() else { return None };
        if self.opaque(id).is_some() || node.children.iter().any(|(role, _)| *role != Role::Definition) {
            return None;
        }
        let members = self.members(id)?;
        // Up to draft 7 the map omits siblings of a reference; for later drafts they are checked here.
        let asks = |keyword: &String| !REFERENCES.contains(&keyword.as_str()) && !is_annotation(keyword);
        (self.map.node(id).hides_siblings || !members.keys().any(asks)).then_some(*target)
    }

    /// Returns the keywords of a subschema that are not traced into its parts.
    pub(super) fn keywords(&self, id: Id) -> Keywords {
        let mut keywords = Keywords::default();
        let Some(members) = self.members(id) else { return keywords };
        if self.map.node(id).hides_siblings {
            return keywords;
        }
        let place = &self.map.node(id).pointer;
        for (keyword, value) in members {
            let refer = |pointer: String| json!({ "$ref": reference(&pointer) });
            let at = below(place, keyword);
            match (keyword.as_str(), value) {
                ("required" | "minProperties" | "maxProperties" | "minItems" | "maxItems" | "dependentRequired", _) => {
                    keywords.shape.insert(keyword.clone(), value.clone());
                }
                ("additionalItems", Value::Bool(false)) => {
                    // The tuple's elements are traced; only its length matters here.
                    if let Some(Value::Array(tuple)) = members.get("items") {
                        keywords.shape.insert("items".to_owned(), vec![Value::Bool(true); tuple.len()].into());
                        keywords.shape.insert(keyword.clone(), value.clone());
                    }
                }
                // An object that permits no members at all.
                ("additionalProperties", Value::Bool(false))
                    if !members.contains_key("properties") && !members.contains_key("patternProperties") =>
                {
                    keywords.shape.insert(keyword.clone(), value.clone());
                }
                ("dependencies", Value::Object(named)) if named.values().all(Value::is_array) => {
                    keywords.shape.insert(keyword.clone(), value.clone());
                }
                ("dependencies" | "dependentSchemas", Value::Object(named)) => {
                    let entry = |(name, value): (&String, &Value)| {
                        let value = if value.is_array() { value.clone() } else { refer(below(&at, name)) };
                        (name.clone(), value)
                    };
                    keywords.across.insert(keyword.clone(), named.iter().map(entry).collect());
                }
                ("enum" | "const" | "minContains" | "maxContains", _) => {
                    keywords.across.insert(keyword.clone(), value.clone());
                }
                ("not" | "if" | "then" | "else" | "contains", _) => {
                    keywords.across.insert(keyword.clone(), refer(at));
                }
                ("anyOf" | "oneOf", Value::Array(list)) => {
                    let each = (0..list.len()).map(|index| refer(format!("{at}/{index}")));
                    keywords.across.insert(keyword.clone(), each.collect());
                }
                ("uniqueItems", Value::Bool(true)) => keywords.unique = true,
                // Traced keywords, keywords about scalars or types only, and annotations.
                _ => {}
            }
        }
        keywords
    }
}

/// Returns true if a reference is more than a fragment.
fn is_external_reference(members: &Map<String, Value>, keyword: &str) -> bool {
    members.get(keyword).and_then(Value::as_str).is_some_and(|reference| !reference.starts_with('#'))
}

/// Returns true for keywords that hold values instead of schemas.
fn is_data(keyword: &str) -> bool {
    ["const", "enum", "default", "examples"].contains(&keyword)
}

/// Returns true for keywords that constrain nothing.
fn is_annotation(keyword: &str) -> bool {
    let annotations = "$comment $defs $id $schema $anchor default definitions deprecated description examples readOnly \
                       title writeOnly";
    annotations.split(' ').any(|annotation| annotation == keyword)
}

/// Returns a reference to a place in the document.
pub(super) fn reference(pointer: &str) -> String {
    let mut reference = format!("{DOCUMENT}#");
    for byte in pointer.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                reference.push(char::from(byte));
            }
            _ => reference.push_str(&format!("%{byte:02X}")),
        }
    }
    reference
}
