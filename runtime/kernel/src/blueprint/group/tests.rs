//! Tests of `group.rs`.

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
fn misdefined_groups_are_kept_and_named() {
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
fn the_target_of_a_rule_has_three_forms() {
    for form in [json!("w"), json!({"group": "g"}), json!({"group": "g", "at": ""})] {
        let run: Run = serde_json::from_value(form.clone()).expect("a form");
        assert_eq!(serde_json::to_value(&run).expect("it is JSON"), form);
    }
    for bad in [json!({"at": "/x"}), json!({"group": "g", "to": 1}), json!(["w"]), json!(null)] {
        assert!(serde_json::from_value::<Run>(bad.clone()).is_err(), "{bad}");
    }
}
