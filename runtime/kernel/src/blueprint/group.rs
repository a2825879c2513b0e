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
mod tests {
    use super::*;

    fn blueprint(schema: Value) -> Value {
        json!({
            "blueprint": 1, "name": "g", "state": {"schema": schema},
            "workers": {
                "b": {"agent": "llm", "group": "agents"}, "z": {"agent": "llm"},
                "a": {"agent": "llm", "group": "agents", "description": "writes"},
                "k": {"agent": "llm", "group": "kings"},
            },
        })
    }

    fn read(value: &Value) -> Blueprint {
        serde_json::from_value(value.clone()).expect("a blueprint")
    }

    #[test]
    fn a_group_is_defined_once_on_reading_by_its_workers_in_order() {
        let read_once = read(&blueprint(json!({"$defs": {"other": {"type": "string"}}})));
        let expected = json!({
            "other": {"type": "string"},
            "group:agents": {"enum": ["a", "b"], "description": "a: writes"},
            "group:kings": {"enum": ["k"]},
        });
        assert_eq!(read_once.state.schema["$defs"], expected);
        let stored = serde_json::to_value(&read_once).expect("it is JSON");
        assert_eq!(read(&stored), read_once);
        assert_eq!(serde_json::to_value(read(&stored)).expect("it is JSON"), stored);
        assert_eq!(read_once.misdefined_groups(), Vec::<&GroupName>::new());
    }

    #[test]
    fn a_group_is_in_the_order_that_its_workers_say_and_then_in_that_of_names() {
        let mut ordered = blueprint(json!(true));
        ordered["workers"]["c"] = json!({"agent": "llm", "group": "agents", "order": -1});
        ordered["workers"]["a"]["order"] = json!(2);
        ordered["workers"]["d"] = json!({"agent": "llm", "group": "agents"});
        let ordered = read(&ordered);
        let group = GroupName::from("agents");
        assert_eq!(ordered.group(&group), ["c", "b", "d", "a"].map(WorkerName::from).iter().collect::<Vec<_>>());
        let stored = serde_json::to_value(&ordered).expect("it is JSON");
        assert_eq!((&stored["workers"]["c"]["order"], stored["workers"]["b"].get("order")), (&json!(-1), None));
    }

    #[test]
    fn what_is_defined_otherwise_is_left_and_named() {
        let other = read(&blueprint(json!({"$defs": {"group:kings": {"enum": ["k", "l"]}}})));
        assert_eq!(other.state.schema["$defs"]["group:kings"]["enum"], json!(["k", "l"]));
        assert_eq!(other.misdefined_groups(), [&GroupName::from("kings")]);
        let none = read(&blueprint(json!({"$defs": 7})));
        assert_eq!(none.misdefined_groups().len(), 2);
    }

    #[test]
    fn a_schema_without_a_place_for_definitions_stays_as_it_is() {
        let all = read(&blueprint(json!(true)));
        assert_eq!(all.state.schema, json!(true));
        assert_eq!(all.misdefined_groups(), Vec::<&GroupName>::new());
    }

    #[test]
    fn a_blueprint_without_groups_keeps_its_bytes() {
        let written = json!({
            "blueprint": 1, "name": "g", "state": {"schema": {"type": "object"}},
            "workers": {"w": {"agent": "llm"}}, "rules": [{"name": "r", "trigger": "start", "run": "w"}],
        });
        let stored = serde_json::to_value(read(&written)).expect("it is JSON");
        assert_eq!(stored["state"]["schema"], written["state"]["schema"]);
        assert_eq!(stored["rules"], json!([{"name": "r", "trigger": "start", "run": "w"}]));
        let worker = stored["workers"]["w"].as_object().expect("a worker");
        assert!(!worker.contains_key("group") && !worker.contains_key("description"), "{worker:?}");
    }

    #[test]
    fn whom_a_rule_runs_has_three_forms() {
        for form in [json!("w"), json!({"group": "g"}), json!({"group": "g", "at": ""})] {
            let run: Run = serde_json::from_value(form.clone()).expect("a form");
            assert_eq!(serde_json::to_value(&run).expect("it is JSON"), form);
        }
        for bad in [json!({"at": "/x"}), json!({"group": "g", "to": 1}), json!(["w"]), json!(null)] {
            assert!(serde_json::from_value::<Run>(bad.clone()).is_err(), "{bad}");
        }
    }
}
