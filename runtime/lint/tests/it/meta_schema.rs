//! Checks that the published meta-schema and the serde model accept the same blueprints and have the same defaults.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Validator;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_lint::META_SCHEMA;
use patchboard_protocols::PLANS;
use patchboard_protocols::department::Departments;
use patchboard_protocols::workflow::Definition;
use serde_json::{Value, json};

/// Returns a blueprint that uses every field in every form.
fn full() -> Value {
    json!({
        "blueprint": 2, "name": "full", "description": "All of it.", "request": {"type": "object"},
        "signals": {"s": {"type": "string"}}, "backlog": {"s": {"at": "/a", "max": 3}},
        "state": {"schema": {"type": "object", "$defs": {"group:g": {"enum": ["w"], "description": "w: Does it."}}}, "initial": {"a": 1}, "assert_formats": true},
        "workers": {"w": {
            "agent": "builtin:vote", "role": "Do it.", "group": "g", "order": -1, "description": "Does it.",
            "reads": ["/a", {"path": "/b", "where": "worker == 'w'"}],
            "writes": [{"path": "/a", "ops": ["add", "replace", "insert", "remove", "move", "copy"], "value": {"type": "integer"},
                        "approval": {"by": "h", "expires": "90m", "four_eyes": true}, "where": {"of": "/a", "expr": "self == 1"}}],
            "view": {"budget": 10, "unit": "tokens"},
            "limits": {"invocations": 1, "concurrency": 1, "unmetered_concurrency": true, "exempt": true, "attempts": 2, "conflicts": 3, "timeout": "4ms", "tokens": 5, "money": 0.5, "reply_tokens": 6},
            "patch": {"max_ops": 1, "max_bytes": 2, "intent": "required"},
            "freshness": "members", "clarify": {"by": "h", "expires": "never", "four_eyes": true}, "model": "m", "command": "c", "program": ["p", "x"], "restart": "replay",
            "script": [[{"op": "add", "path": "/a", "value": 1}]],
            "files": {"view": ["**"], "edit": ["src/**"], "run": ["pytest"], "iterations": 9},
            "board": {"of": "b", "input": {"x": "/a"}, "output": {"/a": "/b"},
                      "failed": {"path": "/a", "value": {"is": "bad"}, "message": "why"}},
            "pass": true, "format": "critic", "with": {"answers": "/answers"},
        }},
        "rules": [
            {"name": "r1", "trigger": {"op": "add", "path": "/a"}, "when": "true", "run": "w"},
            {"name": "r2", "trigger": "start", "run": "w", "limits": {"tokens": 9}}, {"name": "r3", "trigger": "manual", "run": "w"},
            {"name": "r4", "trigger": {"every": "* * * * *"}, "run": "w"},
            {"name": "r5", "trigger": {"signal": "s"}, "run": "w", "bind": {"a": "/id"}}, {"name": "r6", "trigger": {"after": ["r1"]}, "run": "w"},
            {"name": "r11", "trigger": {"settled": ["r1"]}, "run": "w"}, {"name": "r12", "trigger": {"after_first": ["r1"]}, "run": "w"},
            {"name": "r13", "trigger": {"start": "/a"}, "run": "w"},
            {"name": "r7", "trigger": {"idle": ["r1"]}, "run": {"group": "g"}},
            {"name": "r8", "trigger": {"path": "/a"}, "run": {"group": "g", "at": "/x"}, "priority": "high", "urgent": true, "delay": "5m"},
            {"name": "r9", "trigger": {"path": "/a"}, "run": "w", "delay": {"at": "/ms"}},
            {"name": "r10", "trigger": {"path": "/a"}, "run": "w", "delay": {"for": "5m", "except_waits_of": ["g"]}},
        ],
        "invariants": [{"name": "i", "for": "/a", "expr": "true", "message": "Do it otherwise."}],
        "workspace": {"dir": "code", "granularity": "file", "isolation": "soft", "intent": "optional", "annotate": false,
                      "exclude": ["dist/**"], "presentation": "brief", "payload": 900, "max_files": 7},
        "done": {"when": "true"}, "result": "/a",
        "circuit": {
            "rejections": {"limit": 1, "then": {"wake": "w"}}, "no_ops": {"limit": 1, "then": {"wake": "w"}},
            "crashes": {"limit": 1, "then": {"wake": "w"}}, "passes": {"limit": 1, "then": {"wake": "w"}},
            "cycles": {"window": 2, "repeats": 1, "then": {"wake": "w"}}, "budget": {"then": {"wake": "w"}}, "cooldown": 4,
        },
        "limits": {"commits": 1, "edits": 5, "tokens": 2, "wall": "2d", "money": 2.5, "patience": "1h", "dedup": "2h", "journal": 6, "state_bytes": 3, "depth": 4},
        "writers": "one", "concurrency": 1, "models": {"m": "x", "n": ["y", "z"]}, "seed": 9,
        "boards": {"b": inside()}, "use": ["f"],
        "departments": {"from": "d", "promises": {"text": "/a"}, "into": "/b/-", "group": "g"},
        "workflow": {
            "workflow_id": "f", "data": {"a": 1}, "metadata": {"by": "x"},
            "nodes": {"n": {
                "node_id": "n", "agent_id": "w", "dependencies": ["m"], "trigger_type": "SCHEDULE", "signal": "s",
                "every": "* * * * *", "when": "data.a > 0", "input_mapping": {"x": "a"}, "output_mapping": {"y": "b"},
                "metadata": {"by": "x"},
            }},
        },
    })
}

/// Returns a nested board's blueprint with its defaults spelled out.
fn inside() -> Value {
    let blueprint =
        read(&json!({"blueprint": 1, "name": "b", "state": {"schema": true}, "workers": {"w": {"agent": "llm"}}}));
    serde_json::to_value(blueprint.expect("the model reads it")).expect("the model is written")
}

/// Returns a blueprint with required fields only, and one of everything that has defaults.
fn sparse() -> Value {
    json!({
        "blueprint": 1, "name": "sparse", "state": {"schema": true},
        "workers": {"w": {"agent": "llm", "writes": [{"path": "/a", "approval": {"by": "h"}}],
                         "clarify": {"by": "h"}, "files": {}, "board": {"of": "b", "output": {"/a": "/b"}}}},
        "workspace": {"dir": "code"},
    })
}

fn meta() -> Value {
    serde_json::from_str(META_SCHEMA).expect("the meta-schema is JSON")
}

fn validator() -> Validator {
    jsonschema::draft202012::new(&meta()).expect("the meta-schema is a schema")
}

/// Reads a blueprint as the kernel does, and the members of extensions as these do.
fn read(value: &Value) -> Option<Blueprint> {
    let blueprint: Blueprint = serde_json::from_value(value.clone()).ok()?;
    for worker in blueprint.workers.values() {
        worker.format.as_ref().map(|format| PLANS.0(format, worker)).transpose().ok()?;
    }
    if let Some(departments) = &blueprint.departments {
        serde_json::from_value::<Departments>(departments.clone()).ok()?;
    }
    match &blueprint.workflow {
        None | Some(Value::String(_)) => {}
        Some(workflow) => drop(serde_json::from_value::<Definition>(workflow.clone()).ok()?),
    }
    Some(blueprint)
}

#[test]
fn a_full_and_a_sparse_blueprint_pass_and_come_back_unchanged() {
    for value in [full(), sparse()] {
        assert!(validator().is_valid(&value));
        let written = serde_json::to_value(read(&value).expect("the model reads it")).expect("the model is written");
        let complaints: Vec<String> = validator().iter_errors(&written).map(|error| error.to_string()).collect();
        assert!(complaints.is_empty(), "{complaints:?}");
        assert_eq!(read(&written), read(&value));
    }
    assert_eq!(serde_json::to_value(read(&full()).expect("the model reads it")).expect("it is written"), full());
}

#[test]
fn the_model_and_the_meta_schema_have_the_same_fields() {
    let mut declared = BTreeSet::new();
    fields(&meta(), &meta(), "", &mut declared);
    let written = serde_json::to_value(read(&full()).expect("the model reads it")).expect("it is written");
    let mut present = BTreeSet::new();
    members(&written, "", &declared, &mut present);
    assert_eq!(declared, present);
    assert!(declared.contains("/workers/*/writes/*/approval/expires"), "the walk sees nested fields");
    assert!(declared.len() > 70, "{}", declared.len());
}

/// Both give the same verdict on removing a member, adding one, or replacing one by a value of another type.
#[test]
fn both_accept_and_reject_the_same_mutations() {
    let validator = validator();
    let mut tried = 0;
    let mut refused = 0;
    for pointer in places(&full()) {
        let mut mutants: Vec<Value> = Vec::new();
        let replaced = |with: Value| {
            let mut mutant = full();
            *mutant.pointer_mut(&pointer).expect("the place is there") = with;
            mutant
        };
        mutants.push(replaced(json!([[]])));
        mutants.push(replaced(json!({"surely": "unknown"})));
        mutants.push(replaced(json!("surely unknown")));
        mutants.push(replaced(json!(-1)));
        mutants.push(replaced(json!(2.5)));
        if let Some((holder, key)) = pointer.rsplit_once('/') {
            let mut mutant = full();
            if let Some(map) = mutant.pointer_mut(holder).and_then(Value::as_object_mut) {
                map.remove(key);
                mutants.push(mutant);
            }
        }
        let mut mutant = full();
        if let Some(map) = mutant.pointer_mut(&pointer).and_then(Value::as_object_mut) {
            map.insert("surely-unknown".into(), json!(true));
            mutants.push(mutant);
        }
        for mutant in mutants {
            let (published, model) = (validator.is_valid(&mutant), read(&mutant).is_some());
            tried += 1;
            refused += usize::from(!published);
            // The meta-schema bounds numbers and texts, and the model does not: it may be stricter, never laxer. File
            // names of nested boards are resolved before the model is read.
            let boards = mutant["boards"].as_object();
            let names_file = boards.is_some_and(|boards| boards.values().any(Value::is_string));
            // The state and workers may come from a workflow, fragments or departments.
            let is_brought = ["state", "workers"].iter().any(|part| mutant.get(part).is_none());
            assert!(
                model || !published || names_file || is_brought,
                "the meta-schema accepts what the model refuses at {pointer}: {mutant}"
            );
            if model && !published {
                // Serde also reads a struct from a list of its fields in order.
                let positional = mutant.pointer(&pointer).is_some_and(Value::is_array);
                let negative = mutant.pointer(&pointer) == Some(&json!(-1));
                let excused = bounded_text(&pointer) || is_schema(&pointer) || positional || negative;
                assert!(excused, "the model accepts what the meta-schema refuses at {pointer}: {mutant}");
            }
        }
    }
    assert!(tried > 300 && refused > 200, "{tried} {refused}");
}

/// Places where the meta-schema restricts texts or names, and the model does not.
fn bounded_text(pointer: &str) -> bool {
    let last = pointer.rsplit('/').next().unwrap_or_default();
    if pointer == "/backlog/s/at" {
        return true;
    }
    let holder = pointer.rsplit('/').nth(1).unwrap_or_default();
    matches!(
        last,
        "name"
            | "run"
            | "group"
            | "by"
            | "wake"
            | "model"
            | "blueprint"
            | "version"
            | "workers"
            | "models"
            | "dir"
            | "of"
            | "output"
            | "message"
            | "into"
            | "from"
            | "promises"
    ) || matches!(
        holder,
        "promises"
            | "after"
            | "settled"
            | "after_first"
            | "idle"
            | "start"
            | "models"
            | "workers"
            | "view"
            | "edit"
            | "run"
            | "exclude"
            | "except_waits_of"
    )
}

/// Places of schemas and of the initial state; the model accepts any value there.
fn is_schema(pointer: &str) -> bool {
    matches!(
        pointer,
        "/request" | "/signals" | "/signals/s" | "/state/schema" | "/state/initial" | "/workers/w/writes/0/value"
    )
}

#[test]
fn every_default_that_is_stated_is_the_default_of_the_code() {
    let mut stated = BTreeMap::new();
    defaults(&meta(), &meta(), "", &mut stated);
    let written = serde_json::to_value(read(&sparse()).expect("the model reads it")).expect("it is written");
    let mut filled = BTreeSet::new();
    let mut declared = BTreeSet::new();
    fields(&meta(), &meta(), "", &mut declared);
    members(&written, "", &declared, &mut filled);
    let given: BTreeSet<String> = {
        let mut given = BTreeSet::new();
        members(&sparse(), "", &declared, &mut given);
        given
    };
    // Every default in the code equals the default in the meta-schema.
    for place in filled.difference(&given) {
        let pointer = place.replace("/workers/*", "/workers/w").replace("/writes/*", "/writes/0");
        let value = written.pointer(&pointer).expect("it was filled in");
        // Below an object with a default of its own, the parts need none.
        let is_in = |streak: &&str| place.starts_with(&format!("/circuit/{streak}/"));
        let within_streak = ["rejections", "no_ops", "crashes"].iter().any(is_in);
        if !within_streak {
            assert_eq!(stated.get(place), Some(value), "{place}");
        }
    }
    // The meta-schema has no default that the code does not apply.
    for place in stated.keys() {
        assert!(filled.contains(place), "{place} has a default that the code does not know");
    }
}

#[test]
fn every_field_is_described() {
    let meta = meta();
    let mut undescribed = Vec::new();
    described(&meta, "", &mut undescribed);
    assert!(undescribed.is_empty(), "{undescribed:?}");
    assert_eq!(meta["$id"], "urn:patchboard:blueprint:1");
}

/// Collects the path of every property that a schema declares; `*` denotes elements and unnamed members.
fn fields(meta: &Value, schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    each_part(meta, schema, path, &mut |path, _| {
        found.insert(path.to_owned());
    });
}

fn defaults(meta: &Value, schema: &Value, path: &str, found: &mut BTreeMap<String, Value>) {
    each_part(meta, schema, path, &mut |path, field| {
        let target = field.get("$ref").and_then(Value::as_str).and_then(|target| meta.pointer(&target[1..]));
        let default = field.get("default").or_else(|| target?.get("default"));
        if let Some(default) = default {
            found.insert(path.to_owned(), default.clone());
        }
    });
}

fn each_part(meta: &Value, schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        each_part(meta, meta.pointer(&target[1..]).expect("the reference resolves"), path, visit);
    }
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = format!("{path}/{name}");
        visit(&path, field);
        each_part(meta, field, &path, visit);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(element) = schema.get(keyword).filter(|element| element.is_object()) {
            each_part(meta, element, &format!("{path}/*"), visit);
        }
    }
    for option in schema.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
        each_part(meta, option, path, visit);
    }
}

/// Collects the paths of a value's members, in the notation of [`fields`]. Data is everything below a field without
/// fields.
fn members(value: &Value, path: &str, declared: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    let known = |path: &str| declared.contains(path);
    let below = |path: &str| declared.iter().any(|other| other.starts_with(&format!("{path}/")));
    match value {
        Value::Object(map) => {
            for (key, member) in map {
                let (named, any) = (format!("{path}/{key}"), format!("{path}/*"));
                if known(&named) || !below(&any) {
                    found.insert(named.clone());
                    if below(&named) {
                        members(member, &named, declared, found);
                    }
                } else {
                    members(member, &any, declared, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| members(item, &format!("{path}/*"), declared, found)),
        _ => {}
    }
}

/// Returns the JSON Pointers of a value's parts.
fn places(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![(String::new(), value)];
    while let Some((pointer, value)) = pending.pop() {
        let map = value.as_object().into_iter().flatten();
        pending.extend(map.map(|(key, member)| (format!("{pointer}/{}", key.replace('/', "~1")), member)));
        let items = value.as_array().into_iter().flatten().enumerate();
        pending.extend(items.map(|(index, item)| (format!("{pointer}/{index}"), item)));
        // Data may have any form; only its container is restricted. A nested board is a blueprint like this one.
        let data = [
            "/request/",
            "/state/schema/",
            "/state/initial/",
            "/workers/w/script/",
            "/workers/w/writes/0/value/",
            "/workers/w/board/failed/value/",
            "/boards/b/",
            "/workflow/data/",
            "/workflow/metadata/",
            "/workflow/nodes/n/metadata/",
        ];
        if !data.iter().any(|holder| pointer.starts_with(holder)) {
            found.push(pointer);
        }
    }
    found
}

fn described(schema: &Value, path: &str, undescribed: &mut Vec<String>) {
    let Some(map) = schema.as_object() else { return };
    for holder in ["properties", "$defs"] {
        for (name, field) in map.get(holder).and_then(Value::as_object).into_iter().flatten() {
            let path = format!("{path}/{holder}/{name}");
            if field.get("description").and_then(Value::as_str).is_none_or(str::is_empty) {
                undescribed.push(path.clone());
            }
            described(field, &path, undescribed);
        }
    }
    for option in map.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
        described(option, &format!("{path}/oneOf"), undescribed);
    }
    for keyword in ["items", "additionalProperties"] {
        map.get(keyword).into_iter().for_each(|element| described(element, &format!("{path}/{keyword}"), undescribed));
    }
}
