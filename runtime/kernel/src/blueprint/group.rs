//! Groups of workers: their members, and the definitions by which the state schema refers to them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Blueprint, Run};
use crate::id::{GroupName, WorkerName};

const DEFINITIONS: &str = "$defs";

/// Prefix of the names of group definitions.
pub const GROUP_DEFINITION: &str = "group:";

/// Returns the name of a group's definition in the state schema, referenced as `#/$defs/NAME`.
pub fn definition_name(group: &GroupName) -> String {
    format!("{GROUP_DEFINITION}{group}")
}

impl Blueprint {
    /// Returns the workers of a group, sorted by `order`, then by name.
    pub fn group<'a>(&'a self, group: &'a GroupName) -> Vec<&'a WorkerName> {
        let members = self.workers.iter().filter(|(_, worker)| worker.group.as_ref() == Some(group));
        let mut members: Vec<_> = members.map(|(name, worker)| (worker.order, name)).collect();
        members.sort();
        members.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns all workers that a rule may trigger, in trigger order. The worker named by [`Run::Worker`] need not
    /// exist.
    pub fn triggered_workers<'a>(&'a self, run: &'a Run) -> Vec<&'a WorkerName> {
        match run {
            Run::Worker(worker) => vec![worker],
            Run::Group(group) | Run::Member { group, .. } => self.group(group),
        }
    }

    /// Returns every group with its definition: the names of its workers, and one line for each described worker.
    pub fn group_definitions(&self) -> BTreeMap<&GroupName, Value> {
        let mut groups: BTreeMap<&GroupName, (Vec<&WorkerName>, Vec<String>)> = BTreeMap::new();
        for (name, worker) in &self.workers {
            let Some(group) = &worker.group else { continue };
            let (names, lines) = groups.entry(group).or_default();
            names.push(name);
            if !worker.description.is_empty() {
                lines.push(format!("{name}: {}", worker.description));
            }
        }
        let define = |(names, lines): (Vec<_>, Vec<_>)| match lines.as_slice() {
            // Without descriptions the names suffice.
            [] => json!({"enum": names}),
            lines => json!({"enum": names, "description": lines.join("\n")}),
        };
        groups.into_iter().map(|(group, members)| (group, define(members))).collect()
    }

    /// Returns the groups with a definition in the state schema that differs from the generated one.
    pub fn misdefined_groups(&self) -> Vec<&GroupName> {
        // A boolean schema has no `$defs`, and nothing in it can refer to a group.
        let Some(schema) = self.state.schema.as_object() else { return Vec::new() };
        let defined = schema.get(DEFINITIONS);
        let is_other = |(group, definition): &(&GroupName, Value)| {
            defined.and_then(|all| all.get(definition_name(group))) != Some(definition)
        };
        self.group_definitions().into_iter().filter(is_other).map(|(group, _)| group).collect()
    }

    /// Adds the missing group definitions to the state schema.
    pub(super) fn define_groups(&mut self) {
        let definitions = self.group_definitions();
        let definitions: Vec<(String, Value)> =
            definitions.into_iter().map(|(group, definition)| (definition_name(group), definition)).collect();
        let Some(schema) = self.state.schema.as_object_mut().filter(|_| !definitions.is_empty()) else { return };
        let held = schema.entry(DEFINITIONS).or_insert_with(|| Value::Object(Map::new()));
        // A `$defs` that is no object is a schema error, reported when the schema is compiled.
        let Some(held) = held.as_object_mut() else { return };
        for (name, definition) in definitions {
            held.entry(name).or_insert(definition);
        }
    }
}

#[cfg(test)]
mod tests;
