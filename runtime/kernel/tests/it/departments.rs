//! Departments: every valid manifest becomes a valid blueprint. Each field has one writer, and only the roles
//! `classify` and `resume` may read the user's words.

use std::collections::BTreeMap;

use jsonptr::PointerBuf;
use patchboard_kernel::blueprint::{AgentKind, Blueprint, Writers};
use patchboard_kernel::contract::Contract;
use patchboard_kernel::expressions::ExpressionCompiler;
use patchboard_kernel::pattern::PathSyntax;
use patchboard_lint::Report;
use patchboard_lint::source::{FileLoader, Source};
use patchboard_protocols::department::{DEPARTMENT_SCHEMA, DEPARTMENTS_MAX, Department, Manifest};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Blueprint with the places that departments need, and a rule that triggers one by its name.
const CASE: &str = r##"blueprint: 1
name: case
request: {type: object, additionalProperties: false, properties: {text: {type: string}, who: {type: string}}}
state:
  schema:
    type: object
    additionalProperties: false
    properties:
      request: true
      turn:
        type: object
        properties:
          text: {type: string}
          who: {type: string}
          pending: {type: object, properties: {department: {type: string}}}
          waits: {type: object, properties: {department: {type: string}}}
      chosen: {type: array, items: {$ref: "#/$defs/group:departments"}}
      results: {type: array, items: {type: object}}
  initial: {turn: {text: hello, who: somebody}, chosen: [], results: []}
departments: {from: d, promises: {text: /turn/text, who: /turn/who, pending: /turn/pending, waits: /turn/waits}, into: /results/-, group: departments}
workers:
  chooser: {agent: llm, reads: [/turn/text], writes: [{path: /chosen/-, ops: [add]}, {path: /turn/pending}, {path: /turn/waits}]}
rules:
  - {name: begin, trigger: start, run: chooser}
  - {name: dispatch, trigger: {op: add, path: /chosen/*}, run: {group: departments, at: ""}}
done: {when: size(state.results) > 0}
writers: one
"##;

/// Manifests by folder name, each as JSON, a subset of YAML.
struct Folders(BTreeMap<String, Value>);

impl FileLoader for Folders {
    fn text(&mut self, name: &str) -> Result<String, String> {
        let folder = name.strip_prefix("d/").and_then(|name| name.strip_suffix("/department.yaml"));
        folder.and_then(|folder| self.0.get(folder)).map(Value::to_string).ok_or_else(|| "no such file".to_owned())
    }

    fn folders(&mut self, _: &str) -> Result<Vec<String>, String> {
        // Directories are listed in arbitrary order.
        Ok(self.0.keys().rev().cloned().collect())
    }
}

fn checked(manifests: impl IntoIterator<Item = Value>) -> Report {
    let folders = manifests
        .into_iter()
        .map(|manifest| (manifest["name"].as_str().expect("a manifest has a name").to_owned(), manifest));
    let source = Source::read("case.yaml", CASE).expect("it is YAML");
    match patchboard_protocols::resolve(source, &mut Folders(folders.collect())) {
        Ok(source) => patchboard_protocols::check(&source),
        Err(findings) => Report { blueprint: None, findings, opaque: Vec::new() },
    }
}

fn notes() -> Value {
    json!({
        "department": 1, "name": "notes", "description": "Keeps notes.", "needs": {"text": {"type": "string"}},
        "storage": {"entity": "note", "fields": {"item": {"type": "string"}}},
        "actions": {"add": {"does": "insert", "description": "keeps a note", "sets": ["item"], "confirm": "Noted: {item}."}},
    })
}

/// Generates valid manifests with this name.
fn manifests(name: &'static str) -> impl Strategy<Value = Value> {
    let field = prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": "string", "enum": ["red", "green"], "ask": "which colour"})),
        Just(json!({"type": "string", "pattern": "^[a-z ]*$", "maxLength": 40})),
        Just(json!({"type": "integer", "description": "How many."})),
        Just(json!({"type": "number", "enum": [0.5, 1]})),
        Just(json!({"type": "boolean"})),
    ];
    let fields = prop::collection::btree_map("[a-m][a-z0-9_]{0,11}", field, 1..6);
    let fields = fields.prop_filter("names of columns are taken", |fields| {
        fields.keys().all(|name| !["id", "key", "deleted", "count"].contains(&name.as_str()))
    });
    let actions = prop::collection::btree_map("[a-m][a-z0-9_]{0,11}", (0_usize..4, any::<u64>(), any::<u64>()), 1..5);
    let words = "[ -~]{1,60}";
    (fields, actions, words, any::<bool>(), any::<bool>()).prop_map(move |(fields, actions, words, has_who, promises)| {
        let names: Vec<&String> = fields.keys().collect();
        let some = |bits: u64| -> Vec<&String> {
            let some: Vec<&String> =
                names.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, name)| *name).collect();
            if some.is_empty() { vec![names[0]] } else { some }
        };
        let action = |(does, finds, sets): (usize, u64, u64)| {
            let (finds, sets) = (some(finds), some(sets));
            let said = "does something";
            match does {
                0 => json!({"does": "insert", "description": said, "sets": sets, "confirm": format!("Kept {{{}}}.", sets[0])}),
                1 => json!({"does": "update", "description": said, "finds": finds, "sets": sets, "confirm": format!("Changed {{{}}}.", finds[0])}),
                2 => json!({"does": "delete", "description": said, "finds": finds, "confirm": "Gone."}),
                _ => json!({"does": "select", "description": said, "finds": finds, "confirm": format!("{{count}}: {{rows.{}}}", names[0])}),
            }
        };
        let actions: Map<String, Value> = actions.into_iter().map(|(name, how)| (name, action(how))).collect();
        let first = actions.keys().next().expect("there is one").clone();
        let mut needs = json!({"text": {"type": "string"}});
        if has_who {
            needs["who"] = json!({"type": "string", "maxLength": 9});
        }
        let mut manifest = json!({
            "department": 1, "name": name, "description": format!("Keeps something for {name}."), "needs": needs,
            "storage": {"entity": "thing", "fields": fields}, "actions": actions,
            "examples": [{"text": format!("x{words}"), "classified": {"action": first}}],
        });
        if promises {
            manifest["promises"] = json!({"things": {"type": "array"}, "number": {"type": "integer"}});
        }
        manifest
    })
}

/// Roles that must not read the user's words.
const WORDLESS: [&str; 3] = ["crud", "resolve", "confirm"];

fn judge(blueprint: &Blueprint, name: &str) {
    let inner = &blueprint.boards[name];
    assert_eq!(inner.writers, Writers::One);
    for (role, worker) in &inner.workers {
        if let AgentKind::Builtin(_) = worker.agent {
            let with = Value::Object(worker.with.clone().expect("a role is told of its department"));
            let department: Department = serde_json::from_value(with["department"].clone()).expect("of this form");
            assert_eq!((department.name.as_str(), department.validation_errors()), (name, vec![]));
        }
        if WORDLESS.contains(&role.as_str()) {
            let contract = Contract::compile(worker, &inner.state.schema, &ExpressionCompiler::new(PathSyntax::Plain))
                .expect("its patterns are some");
            let document = json!({"request": {"text": "words", "who": "somebody", "pending": {"text": "words"}, "waits": {"action": "add"}},
                                  "classified": {"action": "add", "slots": {}, "normalised": "words"}});
            let document = patchboard_kernel::tree::Node::from(&document);
            let readable = contract.readable(&document);
            for said in [
                "/request",
                "/request/text",
                "/request/who",
                "/request/pending",
                "/classified/normalised",
                "/classified",
            ] {
                let place = PointerBuf::parse(said).expect("a pointer");
                assert!(!readable.may_read(&place), "{role} of {name} may read {said}");
            }
            // Pending questions contain no words of the user; only resolve reads them.
            let waits = PointerBuf::from_tokens(["request", "waits"]);
            assert_eq!(readable.may_read(&waits), role.as_str() == "resolve", "{role}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn every_sound_manifest_becomes_a_sound_blueprint(one in manifests("notes"), other in manifests("time-line_2")) {
        let report = checked([one.clone(), other]);
        prop_assert!(report.findings.is_empty(), "{:?}\n{one:#}", report.findings);
        let blueprint = report.blueprint.expect("there is no error");
        prop_assert_eq!(&blueprint.departments, &None);
        for name in ["notes", "time-line_2"] {
            judge(&blueprint, name);
        }
        // The blueprint as stored in the journal passes the lint and is unchanged.
        let stored = serde_json::to_value(&blueprint).expect("a blueprint is JSON");
        let again = patchboard_protocols::check_value(stored);
        prop_assert_eq!(again.findings, vec![]);
        prop_assert_eq!(again.blueprint, Some(blueprint));
    }

    /// A changed manifest is rejected with a place, or is valid as before; the lint must not panic.
    #[test]
    fn every_changed_manifest_is_rejected_with_a_place_or_sound(
        manifest in manifests("notes"), at in any::<prop::sample::Index>(), with in changes(),
    ) {
        let places = places(&manifest);
        let mut changed = manifest;
        let place: &String = at.get(&places);
        *changed.pointer_mut(place).expect("the place is there") = with;
        if changed["name"] != "notes" {
            changed["name"] = "notes".into();
        }
        let schema: Value = serde_json::from_str(DEPARTMENT_SCHEMA).expect("it is JSON");
        let published = jsonschema::draft202012::is_valid(&schema, &changed);
        let model = serde_json::from_value::<Manifest>(changed.clone());
        prop_assert!(!published || model.is_ok(), "the schema accepts what the model refuses: {:?} {changed}", model.err());
        let report = checked([changed.clone()]);
        prop_assert_eq!(report.blueprint.is_some(), report.findings.iter().all(|finding| finding.code == "unused_board"), "{:?}", &report.findings);
        if !published {
            prop_assert!(report.blueprint.is_none(), "{changed}");
        }
        for finding in report.findings {
            prop_assert!(finding.position.is_some() && finding.file.is_some() && !finding.help.is_empty(), "{finding:?}");
        }
    }
}

fn changes() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!("")),
        Just(json!("{oops")),
        Just(json!("id")),
        Just(json!([])),
        Just(json!({})),
        Just(json!({"type": "no type"})),
        Just(json!({"type": "string", "pattern": "("})),
        Just(json!(["nowhere"])),
        Just(json!(-1)),
        Just(json!(true)),
    ]
}

fn places(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![(String::new(), value)];
    while let Some((pointer, value)) = left.pop() {
        let members = value.as_object().into_iter().flatten();
        left.extend(members.map(|(name, member)| (format!("{pointer}/{name}"), member)));
        left.extend(
            value.as_array().into_iter().flatten().enumerate().map(|(at, item)| (format!("{pointer}/{at}"), item)),
        );
        if !pointer.is_empty() {
            found.push(pointer);
        }
    }
    found
}

#[test]
fn a_department_becomes_one_board_and_one_worker_of_the_group() {
    let blueprint = checked([notes()]).blueprint.expect("it is sound");
    let worker = serde_json::to_value(&blueprint.workers["notes"]).expect("JSON");
    assert_eq!(
        (&worker["agent"], &worker["group"], &worker["description"]),
        (&json!("board"), &json!("departments"), &json!("Keeps notes."))
    );
    assert_eq!(
        worker["board"],
        json!({
            "of": "notes", "input": {"text": "/turn/text", "pending": "/turn/pending", "waits": "/turn/waits"}, "output": {"/results/-": "/result"},
            "failed": {"path": "/results/-", "value": {"department": "notes", "status": "error"}, "message": "text"},
        })
    );
    // Questions of other departments are hidden.
    let own = |place: &str| json!({"path": place, "where": "self.department == worker"});
    assert_eq!(worker["reads"], json!(["/turn/text", own("/turn/pending"), own("/turn/waits")]));
    let inner = serde_json::to_value(&blueprint.boards["notes"]).expect("JSON");
    assert_eq!(inner["request"]["required"], json!(["text"]));
    assert_eq!(
        inner["state"]["schema"]["properties"]["classified"]["properties"]["action"]["enum"],
        json!(["add", "none"])
    );
    let classify = inner["workers"]["classify"]["role"].as_str().expect("a role");
    assert!(classify.contains("- add: keeps a note (slots item)"), "{classify}");
    // The description of the group describes the department to the planner.
    let group = &blueprint.state.schema["$defs"]["group:departments"];
    assert_eq!(*group, json!({"enum": ["notes"], "description": "notes: Keeps notes."}));
}

#[test]
fn inputs_are_optional_unless_required_and_may_be_renamed() {
    let inner = |manifest: Value| {
        let report = checked([manifest]);
        assert_eq!(report.findings, []);
        let blueprint = report.blueprint.expect("it is sound");
        let required = blueprint.boards["notes"].request["required"].clone();
        (required, serde_json::to_value(&blueprint.workers["notes"]).expect("JSON"))
    };
    let mut manifest = notes();
    manifest["needs"]["who"] = json!({"type": "string"});
    assert_eq!(inner(manifest.clone()).0, json!(["text"]));
    manifest["required"] = json!(["who"]);
    assert_eq!(inner(manifest.clone()).0, json!(["text", "who"]));
    // A folder that was written for other names.
    manifest["needs"]["speaker"] = json!({"type": "string"});
    manifest["dispatch"] = json!({"input": {"speaker": "who"}});
    let (_, worker) = inner(manifest.clone());
    let input = json!({
        "text": "/turn/text", "who": "/turn/who", "speaker": "/turn/who", "pending": "/turn/pending", "waits": "/turn/waits",
    });
    assert_eq!(worker["board"]["input"], input);
    let reads = worker["reads"].as_array().expect("a list");
    assert_eq!(reads[..2], [json!("/turn/who"), json!("/turn/text")], "each is read once");
    let own = |read: &Value| read["where"] == "self.department == worker";
    assert!(reads.len() == 4 && reads[2..].iter().all(own), "{reads:?}");
    manifest["required"] = json!(["whom"]);
    manifest["dispatch"] = json!({"input": {"whom": "who"}});
    let found: Vec<String> = checked([manifest]).findings.into_iter().map(|finding| finding.message).collect();
    assert_eq!(found, ["`whom` is none of its `needs`"; 2]);
}

#[test]
fn questions_of_any_department_are_rejected_as_input() {
    for of in ["pending", "waits"] {
        let mut manifest = notes();
        manifest["needs"]["question"] = json!({"type": "object"});
        manifest["dispatch"] = json!({"input": {"question": of}});
        let findings = checked([manifest]).findings;
        let found: Vec<_> =
            findings.iter().map(|finding| (finding.code, finding.pointer.as_str(), finding.message.as_str())).collect();
        let message = "`question` is what a department has asked, whichever that is";
        assert_eq!(found, [("bad_department", "/dispatch/input/question", message)]);
    }
    // A department may read its own pending questions under another name.
    let mut manifest = notes();
    manifest["dispatch"] = json!({"input": {"waits": "pending"}});
    assert_eq!(checked([manifest]).findings, []);
}

#[test]
fn a_department_with_a_description_beyond_the_limit_is_rejected() {
    let mut manifest = notes();
    let example = |n: usize| json!({"text": format!("{n} {}", "x".repeat(390)), "classified": {"action": "add", "slots": {"item": "y".repeat(900)}}});
    manifest["examples"] = (0..16).map(example).collect();
    let findings = checked([manifest.clone()]).findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].code == "bad_department" && findings[0].message.contains("more than 16000"), "{findings:?}");
    manifest["examples"] = (0..8).map(example).collect();
    assert_eq!(checked([manifest]).findings, []);
}

#[test]
fn a_member_that_only_classify_may_see_is_in_no_other_prompt() {
    let mut manifest = notes();
    manifest["examples"] =
        json!([{"text": "Remember the zebra.", "classified": {"action": "add", "slots": {"item": "zebra"}}}]);
    let blueprint = checked([manifest]).blueprint.expect("it is sound");
    for (name, worker) in &blueprint.boards["notes"].workers {
        let text = serde_json::to_string(worker).expect("JSON");
        assert_eq!(text.contains("zebra"), name.as_str() == "classify", "{name}");
    }
}

#[test]
fn too_many_department_folders_are_rejected() {
    let many = |count: usize| {
        (0..count).map(|number| {
            let mut manifest = notes();
            manifest["name"] = format!("notes{number}").into();
            manifest["description"] = format!("Keeps notes of kind {number}.").into();
            manifest
        })
    };
    assert_eq!(checked(many(DEPARTMENTS_MAX)).findings, []);
    let codes: Vec<&str> = checked(many(DEPARTMENTS_MAX + 1)).findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["fragment_limit"]);
}

#[test]
fn the_findings_of_all_manifests_are_reported_together() {
    let (mut one, mut other) = (notes(), notes());
    one["needs"]["weather"] = json!({"type": "string"});
    (other["name"], other["storage"]["entity"]) = (json!("others"), json!(""));
    let report = checked([one, other]);
    let found: Vec<(&str, &str)> =
        report.findings.iter().map(|finding| (finding.code, finding.file.as_deref().unwrap_or_default())).collect();
    assert_eq!(found, [("unmet_need", "d/notes/department.yaml"), ("bad_value", "d/others/department.yaml")]);
}

#[test]
fn a_reserved_department_name_is_rejected() {
    let mut manifest = notes();
    manifest["name"] = "nobody".into();
    let report = checked([manifest]);
    let found: Vec<(&str, &str)> =
        report.findings.iter().map(|finding| (finding.code, finding.pointer.as_str())).collect();
    assert_eq!(found, [("bad_department", "/name")]);
}

#[test]
fn needs_exclude_questions_and_test_answers_must_be_valid_classifications() {
    let found = |change: &dyn Fn(&mut Value)| {
        let mut manifest = notes();
        change(&mut manifest);
        let findings = checked([manifest]).findings.into_iter();
        findings.map(|finding| (finding.code, finding.pointer)).collect::<Vec<_>>()
    };
    for member in ["pending", "waits"] {
        let needed = found(&|manifest| manifest["needs"][member] = json!({"type": "object"}));
        assert_eq!(needed, [("bad_department", format!("/needs/{member}"))]);
    }
    let answered = |reply: Value| {
        found(&|manifest| {
            manifest["tests"] =
                json!([{"classified": {"action": "add"}, "answers": [reply], "expect": {"status": "done"}}]);
        })
    };
    assert_eq!(answered(json!("tea")), []);
    assert_eq!(answered(json!({"action": "add", "slots": {"item": "tea"}})), []);
    assert_eq!(
        answered(json!({"action": "add", "slots": {"colour": "red"}})),
        [("bad_department", "/tests/0/answers/0/slots/colour".to_owned())]
    );
    assert_eq!(answered(json!({"action": 3})).len(), 1);
    assert_eq!(answered(json!("")).len(), 1);
}
