//! Renders the part of a schema that governs a place, short enough for a model to read.
//!
//! A fragment may allow more than the schema: long references stay unresolved, and long parts are reduced to type and
//! description. The names of a group are always shown, once, because a model cannot choose from names that it does not
//! see.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::Schema;
use super::claim::Claim;
use super::locate::claims_of;
use super::map::{Id, REFERENCES, SchemaMap, below};
use crate::blueprint::GROUP_DEFINITION;
use crate::json;
use crate::pattern::Pattern;
use crate::text::truncated;

/// Maximum characters of a fragment as compact JSON, without its groups.
const CHARS_MAX: usize = 1500;
/// Maximum characters of the descriptions of a group's members, without their names.
const GROUP_CHARS_MAX: usize = 12_000;
/// Maximum characters of a description beside a reference or in a reduced part.
const DESCRIPTION_MAX: usize = 120;
/// Keywords without information for the author of a value.
const DROPPED: &str = "$schema $id $defs definitions $anchor $dynamicAnchor $recursiveAnchor $comment title examples";
/// Levels of resolved references, in order of attempt, while all levels of parts are shown.
const RESOLVED: [usize; 5] = [8, 4, 2, 1, 0];

/// Levels of resolved references and of shown parts after that. The first pair with a short enough result wins.
const SHALLOW: [(usize, usize); 6] = [(1, 4), (0, 4), (0, 3), (0, 2), (0, 1), (0, 0)];

impl Schema {
    /// Returns the schema at these places, rendered for a worker, with local `$ref`s resolved if the result is finite
    /// and short. `None` if it allows anything or nothing there.
    ///
    /// At most about 1,500 characters of compact JSON, without groups and their descriptions. Longer parts keep their
    /// `$ref` (into [`Self::document`]) or are reduced to type and description, so a fragment may allow more than the
    /// schema. It allows less only if the schema leaves a container's type open: `/list/*` shows `items`, not that any
    /// object is permitted.
    pub fn fragment(&self, pattern: &Pattern) -> Option<Value> {
        let (document, map) = (&self.document, &self.map);
        let mut claims = claims_of(map, pattern);
        // A schema with `items` and no `type` permits any object there; only its constraints are shown.
        claims.remove(&Claim::Anything);
        let mut attempts = RESOLVED.into_iter().map(|inline| (inline, usize::MAX)).chain(SHALLOW);
        attempts.find_map(|(inline, deep)| {
            let mut shown = Attempt { document, map, left: CHARS_MAX, groups: BTreeMap::new(), resolving: Vec::new() };
            let mut parts = claims.iter().map(|claim| shown.claim(claim, inline, deep)).collect::<Option<Vec<_>>>()?;
            let whole = match parts.len() {
                0 => return None,
                1 => parts.remove(0),
                _ => json!({ "anyOf": parts }),
            };
            let of_groups: usize = shown.groups.values().sum();
            (whole.to_string().chars().count() <= CHARS_MAX + of_groups).then_some(whole)
        })
    }
}

/// One attempt to render a fragment.
struct Attempt<'a> {
    document: &'a Value,
    map: &'a SchemaMap,
    /// Approximate number of remaining characters; the attempt fails when it is exhausted.
    left: usize,
    /// Groups shown, with the characters of each.
    groups: BTreeMap<Id, usize>,
    /// Targets of the references under resolution.
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
            if DROPPED.split(' ').any(|dropped| dropped == keyword) || REFERENCES.contains(&keyword.as_str()) {
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

    /// Renders a keyword's value, or a part of it: schemas are rendered as such, other values are copied.
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

    /// Renders the outline of a schema that is too deep to show.
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
        let short = truncated(description.as_str().unwrap_or_default(), DESCRIPTION_MAX);
        self.spend(short.len() + 16)?;
        Some(short.into())
    }

    /// Returns true for the definition of a group that has not been shown yet.
    fn is_new_group(&self, target: Id) -> bool {
        let name = self.map.node(target).pointer.strip_prefix("/$defs/");
        name.is_some_and(|name| name.starts_with(GROUP_DEFINITION)) && !self.groups.contains_key(&target)
    }

    /// Returns the referenced group, if it has not been shown yet.
    fn group_of(&self, reference: &str) -> Option<Id> {
        let pointer = reference.strip_prefix('#')?;
        self.map.at(pointer).filter(|target| self.is_new_group(*target))
    }

    /// Renders a group: all names, and their descriptions shortened to equal shares of the limit.
    fn group(&mut self, target: Id) -> Value {
        let mut group = self.document.pointer(&self.map.node(target).pointer).cloned().unwrap_or_default();
        if let Some(Value::String(lines)) = group.get_mut("description")
            && lines.chars().count() > GROUP_CHARS_MAX
        {
            let share = GROUP_CHARS_MAX / lines.lines().count().max(1);
            let short = lines.lines().map(|line| truncated(line, share)).collect::<Vec<_>>();
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

/// Removes duplicate values, keeping the order.
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

/// Merges the keywords beside a reference with its target.
fn merged(mut beside: Map<String, Value>, resolved: Value) -> Map<String, Value> {
    match resolved {
        // The description beside a reference is the more specific one.
        Value::Object(resolved) if beside.keys().all(|keyword| keyword == "description") => {
            for (keyword, value) in resolved {
                beside.entry(keyword).or_insert(value);
            }
            beside
        }
        resolved => {
            match beside.entry("allOf").or_insert_with(|| Value::Array(Vec::new())) {
                Value::Array(parts) => parts.push(resolved),
                // The meta-schema requires `allOf` to be an array.
                other => *other = resolved,
            }
            beside
        }
    }
}
