//! Shows the piece of a schema that governs a place, short enough for a model to read.
//!
//! What is shown says at least as much as is allowed: references that are too long to resolve stay references, and
//! parts that are too long to show are cut down to type and description. The names of a group are always shown, once: who
//! is not told them cannot choose.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::claim::Claim;
use super::locate::claims_of;
use super::map::{Id, REFERENCES, SchemaMap, below};
use crate::blueprint::GROUP_DEFINITION;
use crate::json;
use crate::pattern::Pattern;

/// The most characters of a fragment as compact JSON, beside the groups in it.
const CHARS_MAX: usize = 1500;
/// The most characters of what is said of the members of a group, beside their names.
const GROUP_CHARS_MAX: usize = 12_000;
/// The most characters of a description beside a reference or in a part that was cut down.
const DESCRIPTION_MAX: usize = 120;
/// Keywords that say nothing to somebody who writes a value.
const DROPPED: [&str; 10] = [
    "$schema",
    "$id",
    "$defs",
    "definitions",
    "$anchor",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$comment",
    "title",
    "examples",
];
/// How far references are resolved and how deep parts are shown: the first pair whose result is short enough is taken.
const ATTEMPTS: [(usize, usize); 11] = [
    (8, usize::MAX),
    (4, usize::MAX),
    (2, usize::MAX),
    (1, usize::MAX),
    (0, usize::MAX),
    (1, 4),
    (0, 4),
    (0, 3),
    (0, 2),
    (0, 1),
    (0, 0),
];

/// The schema at the places that a pattern matches; `None` where anything goes or nothing is allowed.
pub(super) fn fragment(document: &Value, map: &SchemaMap, pattern: &Pattern) -> Option<Value> {
    let mut claims = claims_of(map, pattern);
    // A schema that has `items` and no `type` leaves open what an object in that place holds; what it says is shown.
    claims.remove(&Claim::Anything);
    ATTEMPTS.iter().find_map(|&(inline, deep)| {
        let mut shown = Attempt { document, map, left: CHARS_MAX, groups: BTreeMap::new(), resolving: Vec::new() };
        let parts = claims.iter().map(|claim| shown.claim(claim, inline, deep)).collect::<Option<Vec<_>>>()?;
        let mut parts = parts.into_iter();
        let first = parts.next()?;
        let others = parts.collect::<Vec<_>>();
        let whole = if others.is_empty() {
            first
        } else {
            json!({ "anyOf": std::iter::once(first).chain(others).collect::<Vec<_>>() })
        };
        let of_groups: usize = shown.groups.values().sum();
        (whole.to_string().chars().count() <= CHARS_MAX + of_groups).then_some(whole)
    })
}

/// One attempt to show something.
struct Attempt<'a> {
    document: &'a Value,
    map: &'a SchemaMap,
    /// About how many more characters fit; the attempt ends when there are none.
    left: usize,
    /// The groups that are shown, and how many characters each takes.
    groups: BTreeMap<Id, usize>,
    /// The targets of the references that are being resolved.
    resolving: Vec<Id>,
}

impl Attempt<'_> {
    fn claim(&mut self, claim: &Claim, inline: usize, deep: usize) -> Option<Value> {
        let (keyword, parts) = match claim {
            Claim::Anything => return Some(Value::Bool(true)),
            Claim::Nothing => return Some(Value::Bool(false)),
            Claim::Of(id) => return self.schema(*id, inline, deep),
            Claim::All(parts) => ("allOf", parts),
            Claim::Any(parts) => ("anyOf", parts),
        };
        let parts = distinct(parts.iter().map(|part| self.claim(part, inline, deep)))?;
        self.spend(keyword.len() + 6)?;
        Some(match <[Value; 1]>::try_from(parts) {
            Ok([only]) => only,
            Err(parts) => Value::Object(Map::from_iter([(keyword.to_owned(), Value::Array(parts))])),
        })
    }

    fn schema(&mut self, id: Id, inline: usize, deep: usize) -> Option<Value> {
        if self.is_new_group(id) {
            return Some(self.group(id));
        }
        let node = self.map.node(id);
        let value = self.document.pointer(&node.pointer).expect("every subschema is a place of the document");
        let Some(members) = value.as_object() else {
            self.spend(5)?;
            return Some(value.clone());
        };
        if deep == 0 {
            return self.outline(members);
        }
        let mut shown = Map::new();
        for (keyword, value) in members {
            if DROPPED.contains(&keyword.as_str()) || REFERENCES.contains(&keyword.as_str()) {
                continue;
            }
            self.spend(keyword.len() + 4)?;
            let value = self.value(&below(&node.pointer, keyword), value, inline, deep)?;
            shown.insert(keyword.clone(), value);
        }
        for keyword in REFERENCES {
            let Some(reference) = members.get(keyword).and_then(Value::as_str) else { continue };
            let target = match node.refs.iter().flatten().collect::<Vec<_>>()[..] {
                [&only] => Some(only),
                _ => None,
            };
            shown = match target {
                Some(target) if self.is_new_group(target) => merged(shown, self.group(target)),
                Some(target) if inline > 0 && !self.resolving.contains(&target) => {
                    self.resolving.push(target);
                    let resolved = self.schema(target, inline - 1, deep)?;
                    self.resolving.pop();
                    merged(shown, resolved)
                }
                _ => {
                    self.spend(reference.len() + 10)?;
                    shown.insert(keyword.to_owned(), reference.into());
                    let described = target.and_then(|target| self.document.pointer(&self.map.node(target).pointer));
                    if let Some(description) = described.and_then(|schema| schema.get("description"))
                        && !shown.contains_key("description")
                    {
                        let description = self.description(description)?;
                        shown.insert("description".into(), description);
                    }
                    shown
                }
            };
        }
        Some(Value::Object(shown))
    }

    /// The value of a keyword, or a part of one: schemas in it are shown as such, all else as it is.
    fn value(&mut self, pointer: &str, value: &Value, inline: usize, deep: usize) -> Option<Value> {
        if let Some(id) = self.map.at(pointer) {
            return self.schema(id, inline, deep - 1);
        }
        let holds_schemas = |token: &str| self.map.at(&below(pointer, token)).is_some();
        match value {
            Value::Array(items) if holds_schemas("0") => {
                let places = (0..items.len()).map(|index| format!("{pointer}/{index}"));
                let shown = places.zip(items).map(|(place, item)| self.value(&place, item, inline, deep));
                Some(Value::Array(shown.collect::<Option<_>>()?))
            }
            Value::Object(members) if members.keys().any(|name| holds_schemas(name)) => {
                let mut shown = Map::new();
                for (name, member) in members {
                    self.spend(name.len() + 4)?;
                    shown.insert(name.clone(), self.value(&below(pointer, name), member, inline, deep)?);
                }
                Some(Value::Object(shown))
            }
            _ => {
                self.spend_value(value)?;
                Some(value.clone())
            }
        }
    }

    /// What is left of a schema that is too deep to show.
    fn outline(&mut self, members: &Map<String, Value>) -> Option<Value> {
        let mut shown = Map::new();
        for keyword in ["type", "const", "enum", "$ref"] {
            if keyword == "$ref"
                && let Some(group) = members.get(keyword).and_then(Value::as_str).and_then(|name| self.group_of(name))
            {
                shown = merged(shown, self.group(group));
            } else if let Some(value) = members.get(keyword)
                && json::size_within(value, DESCRIPTION_MAX as u64).is_some()
            {
                self.spend(keyword.len() + 4)?;
                self.spend_value(value)?;
                shown.insert(keyword.to_owned(), value.clone());
            }
        }
        if let Some(description) = members.get("description") {
            let description = self.description(description)?;
            shown.insert("description".into(), description);
        }
        Some(Value::Object(shown))
    }

    fn description(&mut self, description: &Value) -> Option<Value> {
        let short = shortened(description.as_str().unwrap_or_default(), DESCRIPTION_MAX);
        self.spend(short.len() + 16)?;
        Some(short.into())
    }

    /// Whether it is the definition of a group that has not been shown yet.
    fn is_new_group(&self, target: Id) -> bool {
        let name = self.map.node(target).pointer.strip_prefix("/$defs/");
        name.is_some_and(|name| name.starts_with(GROUP_DEFINITION)) && !self.groups.contains_key(&target)
    }

    /// The group that a reference means, if it was not shown.
    fn group_of(&self, reference: &str) -> Option<Id> {
        let pointer = reference.strip_prefix('#')?;
        self.map.at(pointer).filter(|target| self.is_new_group(*target))
    }

    /// The names of a group, and of what is said of them as much as there is room for: the same share of each line.
    fn group(&mut self, target: Id) -> Value {
        let mut group = self.document.pointer(&self.map.node(target).pointer).cloned().unwrap_or_default();
        if let Some(Value::String(lines)) = group.get_mut("description")
            && lines.chars().count() > GROUP_CHARS_MAX
        {
            let share = GROUP_CHARS_MAX / lines.lines().count().max(1);
            let short = lines.lines().map(|line| shortened(line, share)).collect::<Vec<_>>();
            *lines = short.join("\n");
        }
        self.groups.insert(target, group.to_string().chars().count());
        group
    }

    fn spend_value(&mut self, value: &Value) -> Option<()> {
        let chars = json::size_within(value, self.left as u64)?;
        self.spend(usize::try_from(chars).ok()?)
    }

    fn spend(&mut self, chars: usize) -> Option<()> {
        self.map.spend(4 + chars / 4);
        self.left = self.left.checked_sub(chars)?;
        Some(())
    }
}

/// As many characters of a text.
fn shortened(text: &str, chars: usize) -> String {
    let mut short = text.chars().take(chars).collect::<String>();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Each value once, in their order.
fn distinct(values: impl Iterator<Item = Option<Value>>) -> Option<Vec<Value>> {
    let mut seen = BTreeSet::new();
    let mut distinct = Vec::new();
    for value in values {
        let value = value?;
        if seen.insert(value.to_string()) {
            distinct.push(value);
        }
    }
    Some(distinct)
}

/// A schema that says what stood beside a reference and what the reference leads to.
fn merged(mut beside: Map<String, Value>, resolved: Value) -> Map<String, Value> {
    match resolved {
        // The description beside a reference is the closer one.
        Value::Object(resolved) if beside.keys().all(|keyword| keyword == "description") => {
            for (keyword, value) in resolved {
                beside.entry(keyword).or_insert(value);
            }
            beside
        }
        resolved => {
            match beside.entry("allOf").or_insert_with(|| Value::Array(Vec::new())) {
                Value::Array(parts) => parts.push(resolved),
                // The meta-schema has `allOf` be an array.
                other => *other = resolved,
            }
            beside
        }
    }
}
