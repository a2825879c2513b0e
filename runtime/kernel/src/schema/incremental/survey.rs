//! Sorts the keywords of a schema by what they look at, and says which subschemas a write can be followed through.
//!
//! A subschema is followed only if nothing but its own text decides what it means: no base URI of its own, no reference
//! out of the document or to several places, no circle of references. Where that is not sure, the schema around it is
//! validated whole.

use petgraph::algo::toposort;
use petgraph::graph::{DiGraph, NodeIndex};
use serde_json::{Map, Value, json};

use super::super::map::{Id, REFERENCES, Role, SchemaMap, below};

/// The URI under which the document can be referred to while its parts are compiled.
pub(super) const DOCUMENT: &str = "patchboard:///state";

/// Why a schema is validated whole on the whole value when anything in it changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Opaque {
    /// This keyword needs to know what all the others saw.
    Keyword(&'static str),
    /// A reference of which it is not sure where it leads.
    Reference,
    /// A part of it has an identifier of its own.
    Identifier,
    /// It applies itself to the same value.
    Circle,
    /// A part of it cannot be compiled alone.
    Uncompiled,
}

impl Opaque {
    /// The keyword to name in messages.
    pub(super) const fn keyword(&self) -> &'static str {
        match self {
            Self::Keyword(keyword) => keyword,
            Self::Reference | Self::Circle | Self::Uncompiled => "$ref",
            Self::Identifier => "$id",
        }
    }

    /// JSON Pointer of the first dynamic reference, if that is the reason.
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

/// What a schema object asks, sorted by what it looks at.
#[derive(Debug, Default)]
pub(super) struct Keywords {
    /// What looks at the members or elements there are, not into them.
    pub(super) shape: Map<String, Value>,
    /// What looks across or into the value; its subschemas are references to where they stand.
    pub(super) across: Map<String, Value>,
    /// `uniqueItems`.
    pub(super) unique: bool,
}

/// What is known of the document before anything is compiled.
pub(super) struct Survey<'s> {
    document: &'s Value,
    map: &'s SchemaMap,
    /// Nothing in the document can be followed.
    hopeless: Option<Opaque>,
}

impl<'s> Survey<'s> {
    pub(super) fn of(document: &'s Value, map: &'s SchemaMap) -> Self {
        let survey = Self { document, map, hopeless: None };
        let hopeless = survey.hopeless();
        Self { hopeless, ..survey }
    }

    /// Gives up: all of the document is validated whole.
    pub(super) fn give_up(&mut self) {
        self.hopeless = Some(Opaque::Uncompiled);
    }

    /// What makes all of the document depend on where validation began.
    fn hopeless(&self) -> Option<Opaque> {
        let is_dynamic = |id| self.map.node(id).refs.iter().any(|targets| targets.len() > 1);
        if (0..self.map.len()).any(is_dynamic) {
            return Some(Opaque::Keyword("$dynamicRef"));
        }
        // What a circle means is decided by where it was entered.
        if has_circle(self.map) {
            return Some(Opaque::Circle);
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
                // Whoever speaks of our own URIs is up to something.
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

    /// Why this subschema has to be validated whole; `None` if it can be followed.
    pub(super) fn opaque(&self, id: Id) -> Option<Opaque> {
        if let Some(hopeless) = &self.hopeless {
            return Some(hopeless.clone());
        }
        let node = self.map.node(id);
        let members = self.members(id);
        let leads_elsewhere = |name: &&str| members.is_some_and(|members| leads_elsewhere(members, name));
        if node.outside || REFERENCES.iter().any(leads_elsewhere) {
            return Some(Opaque::Reference);
        }
        let parts = node.children.iter().filter(|(role, _)| *role != Role::Definition).map(|(_, part)| *part);
        if parts.chain(node.refs.iter().flatten().copied()).any(|part| self.is_strange(part)) {
            return Some(Opaque::Identifier);
        }
        let has = |role| node.one(&role).is_some();
        if has(Role::UnevaluatedProperties) {
            return Some(Opaque::Keyword("unevaluatedProperties"));
        }
        has(Role::UnevaluatedItems).then_some(Opaque::Keyword("unevaluatedItems"))
    }

    /// Whether something between the document and this subschema gives it another base URI or dialect.
    fn is_strange(&self, id: Id) -> bool {
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

    /// Whether only a reference counts in this subschema: the subschema it leads to.
    pub(super) fn only_refers_to(&self, id: Id) -> Option<Id> {
        let node = self.map.node(id);
        let [targets] = node.refs.as_slice() else { return None };
        let [target] = targets.as_slice() else { return None };
        if self.opaque(id).is_some() || node.children.iter().any(|(role, _)| *role != Role::Definition) {
            return None;
        }
        let members = self.members(id)?;
        // Up to draft 7 the map leaves out what stands beside a reference; after it, what asks something is looked at.
        let asks = |keyword: &String| !REFERENCES.contains(&keyword.as_str()) && !is_annotation(keyword);
        (self.map.node(id).hides_siblings || !members.keys().any(asks)).then_some(*target)
    }

    /// The keywords of a subschema that are not followed into its parts.
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
                    // The tuple before it is followed; only its length counts here.
                    if let Some(Value::Array(tuple)) = members.get("items") {
                        keywords.shape.insert("items".to_owned(), vec![Value::Bool(true); tuple.len()].into());
                        keywords.shape.insert(keyword.clone(), value.clone());
                    }
                }
                // An object that may have no members at all.
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
                // What is followed, what looks at scalars or kinds only, and what asks nothing.
                _ => {}
            }
        }
        keywords
    }
}

/// Whether a reference is more than a fragment.
fn leads_elsewhere(members: &Map<String, Value>, keyword: &str) -> bool {
    members.get(keyword).and_then(Value::as_str).is_some_and(|reference| !reference.starts_with('#'))
}

/// What holds values, not schemas.
fn is_data(keyword: &str) -> bool {
    ["const", "enum", "default", "examples"].contains(&keyword)
}

/// What asks nothing of an instance.
fn is_annotation(keyword: &str) -> bool {
    let annotations = [
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "$anchor",
        "default",
        "definitions",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    ];
    annotations.contains(&keyword)
}

/// A reference to a place in the document.
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

/// Whether a subschema comes to itself again on the same instance.
fn has_circle(map: &SchemaMap) -> bool {
    let mut graph = DiGraph::<(), (), usize>::default();
    for _ in 0..map.len() {
        graph.add_node(());
    }
    for id in 0..map.len() {
        for to in map.node(id).in_place() {
            graph.add_edge(NodeIndex::new(id), NodeIndex::new(to), ());
        }
    }
    toposort(&graph, None).is_err()
}
