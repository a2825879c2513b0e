//! The roles of this project as agents: a seat's view is the input, a patch the output.

use std::sync::Arc;
use std::time::Duration;

use jsonptr::PointerBuf;
use patchboard_agents::config::{Config, Environment};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::freshness::ReadSet;
use patchboard_kernel::plan::PlanSource as _;
use patchboard_kernel::record::{Body, Cause};
use patchboard_kernel::replay;
use patchboard_kernel::state::State;
use patchboard_protocols::PLANS;
use patchboard_roles::departments::storage::Storage;
use patchboard_runtime::agent::{Agent as _, Call, Failure};
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal as _;
use patchboard_storage::sqlite::SqliteJournal;
use serde_json::{Value, json};

use crate::support::{call, seat};

fn seats(storage: Storage) -> Arc<AgentRegistry> {
    let environment = Environment::from_iter([("PATH", "")]);
    Arc::new(AgentRegistry::new(Config::default(), &environment, InlinePrograms::Denied).with_storage(storage))
}

/// Returns a department with two lists.
fn notes() -> Value {
    json!({"department": {
        "name": "notes",
        "storage": {"entity": "entry", "fields": {
            "list": {"type": "string", "enum": ["household", "office"], "ask": "which list"},
            "item": {"type": "string"}}},
        "actions": {
            "add": {"does": "insert", "sets": ["list", "item"], "confirm": "Put {item} on the {list} list."},
            "remove": {"does": "delete", "finds": ["list", "item"], "confirm": "Took {item} off the {list} list."},
        },
    }})
}

fn role(name: &str) -> Value {
    let within = json!({"agent": format!("builtin:{name}"), "with": notes()});
    match name {
        "begin" | "coordinator" | "handoff" | "negotiator" | "perceive" | "vote" => {
            json!({"agent": format!("builtin:{name}")})
        }
        "workflow" => json!({"agent": "builtin:workflow", "with": {"nodes": {"a": {}}}}),
        _ => within,
    }
}

/// Returns a call of a seat with these parts of a document in view.
fn asked(fields: Value, document: &Value, reads: &[&str], may_expand: bool) -> Call {
    let fields = seat(fields);
    let blueprint = json!({"blueprint": 1, "name": "b", "state": {"schema": true}, "workers": {"w": fields}});
    let plan = PLANS.plan(serde_json::from_value(blueprint).expect("a blueprint"), &Mode::default()).expect("a plan");
    let state = State::new(document, &Hasher::new(&Salt::ZERO));
    let reads = reads.iter().map(|place| PointerBuf::parse(*place).expect("a pointer")).collect();
    let basis = ReadSet { state, reads, members: Vec::new() };
    let shown = CallContext::new(plan, "w".into(), Arc::new(basis), may_expand).expect("the worker is there");
    let mut call = call("w", fields, "x", 0);
    call.decided.context = Arc::new(shown);
    call
}

async fn answered(seats: &AgentRegistry, call: &Call) -> Result<Value, Failure> {
    let reply = seats.call(call).await?;
    Ok(serde_json::from_str(&reply.text).expect("JSON"))
}

/// Returns the value that a role puts at a place.
pub(crate) async fn put(seats: &AgentRegistry, name: &str, document: &Value, at: &str) -> Value {
    let reads: Vec<String> = document.as_object().expect("an object").keys().map(|key| format!("/{key}")).collect();
    let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
    let said = answered(seats, &asked(role(name), document, &reads, false)).await.expect("a reply");
    assert_eq!((&said["patch"][0]["op"], &said["patch"][0]["path"]), (&json!("add"), &json!(at)));
    said["patch"][0]["value"].clone()
}

/// Returns the outcome of a resolved request, carried out on a board of this name.
pub(crate) async fn carried_out(seats: &AgentRegistry, board: &str, found: &Value) -> Value {
    let mut call = asked(role("crud"), &json!({"resolved": found}), &["/resolved"], false);
    call.decided.board = board.into();
    answered(seats, &call).await.expect("a reply")["patch"][0]["value"].clone()
}

#[tokio::test]
async fn every_role_of_the_protocols_can_be_seated() {
    let seats = seats(Storage::in_memory());
    for name in patchboard_protocols::Role::ALL.iter().map(|role| role.as_str()) {
        let mut fields = role(name);
        fields["pass"] = json!(true);
        let document = json!({"classified": {"action": "add"}, "request": {"text": "x", "pending": {
            "department": "notes", "action": "add", "asked": 1, "expires_at": 0}}, "resolved": {"status": "none", "action": "x"}, "workflow": {"status": "RUNNING",
            "nodes": {"a": {"node_id": "a", "status": "PENDING"}}, "data": {}, "round": {"number": 0, "more": true}}});
        let call = asked(fields, &document, &["/classified", "/request", "/resolved"], false);
        assert_eq!(seats.check(&call.context.plan().blueprint), [], "{name}");
        let said = answered(&seats, &call).await.expect("a reply");
        assert!(said["patch"].is_array() || said["pass"].is_string(), "{name}: {said}");
    }
    let unknown = asked(json!({"agent": "builtin:voting"}), &json!({}), &[], false);
    assert_eq!(seats.check(&unknown.context.plan().blueprint).len(), 1);
}

#[tokio::test]
async fn invalid_role_settings_are_reported_before_a_run_and_at_a_call() {
    let seats = seats(Storage::in_memory());
    let mut evil = notes();
    evil["department"]["name"] = json!("notes\"; DROP TABLE x");
    let mut lost = notes();
    lost["department"]["actions"]["add"]["sets"] = json!(["size"]);
    for (name, with, said) in [
        ("resolve", json!({}), "missing field `department`"),
        ("crud", evil, "/department/name"),
        ("confirm", lost, "/department/actions/add/sets/0"),
        ("resume", json!({"department": notes()["department"], "more": 1}), "unknown field `more`"),
        ("begin", json!({"turn": "turn"}), "names places"),
        ("workflow", json!({"nodes": {"a": {"dependencies": "b"}}}), "invalid type"),
        ("perceive", json!({"into": ""}), "names places"),
    ] {
        let call = asked(json!({"agent": format!("builtin:{name}"), "with": with}), &json!({}), &[], false);
        let problems = seats.check(&call.context.plan().blueprint);
        assert!(problems.len() == 1 && problems[0].message.contains(said), "{problems:?}");
        let failure = answered(&seats, &call).await.expect_err("it cannot be used");
        assert_eq!((failure.code, failure.message.contains(said)), (FailureCode::NotConfigured, true), "{failure}");
    }
}

#[tokio::test]
async fn a_request_goes_from_role_to_role() {
    let seats = seats(Storage::in_memory());
    for list in ["household", "office"] {
        let classified = json!({"action": "add", "slots": {"list": list, "item": "bananas"}});
        let resolved = put(&seats, "resolve", &json!({"classified": classified}), "/resolved").await;
        // Each board has its own invocation; here all calls share one, so the board's name differs.
        let mut call = asked(role("crud"), &json!({"resolved": resolved}), &["/resolved"], false);
        call.decided.board = list.into();
        let first = answered(&seats, &call).await.expect("a reply");
        assert_eq!(first["patch"][0]["value"]["status"], "done");
        assert_eq!(answered(&seats, &call).await.expect("a reply"), first, "it is done once");
    }
    let classified =
        json!({"action": "remove", "slots": {"item": "bananas"}, "normalised": "remove bananas from a list"});
    let resolved = put(&seats, "resolve", &json!({"classified": classified}), "/resolved").await;
    let asks = put(&seats, "confirm", &json!({"resolved": resolved}), "/result").await;
    assert_eq!(asks["question"], "which list, household or office?");
    let request = json!({"text": "The office.", "pending": asks["pending"]});
    let resumed = put(&seats, "resume", &json!({"request": request}), "/resumed").await;
    let outcome = put(&seats, "crud", &json!({"resumed": resumed}), "/outcome").await;
    let result = put(&seats, "confirm", &json!({"resumed": resumed, "outcome": outcome}), "/result").await;
    assert_eq!((&result["status"], &result["text"]), (&json!("done"), &json!("Took bananas off the office list.")));
}

#[tokio::test]
async fn a_role_goes_by_what_its_seat_is_shown() {
    let seats = seats(Storage::in_memory());
    let document = json!({"classified": {"action": "add", "slots": {}}});
    let failure = answered(&seats, &asked(role("resolve"), &document, &["/classified/slots"], false)).await;
    let failure = failure.expect_err("the action is not shown");
    assert_eq!(failure.code, FailureCode::NotConfigured);
    assert!(failure.message.contains("/classified/action"), "{failure}");
    let said = answered(&seats, &asked(role("resolve"), &document, &["/classified/slots"], true)).await;
    assert_eq!(said.expect("a reply"), json!({"patch": [], "expand": ["/classified/action"]}));
    let nothing = answered(&seats, &asked(role("resolve"), &json!({}), &[], true)).await.expect_err("nothing is there");
    assert!(nothing.message.contains("there is nothing at /classified/action"), "{nothing}");
    let begin = answered(&seats, &asked(role("begin"), &json!({}), &[], false)).await.expect_err("it may not pass");
    assert_eq!(begin.code, FailureCode::Refused);
}

#[tokio::test]
async fn protocol_documents_must_be_readable_but_may_be_outside_the_view() {
    let seats = seats(Storage::in_memory());
    let document = json!({"negotiation": {"events": []}, "request": {"topic": "steel"}});
    let ask = async |reads: Value| {
        let seat = json!({"agent": "builtin:negotiator", "group": "parties", "reads": reads});
        answered(&seats, &asked(seat, &document, &["/request"], false)).await
    };
    let opened = ask(json!(["/negotiation", "/request"])).await.expect("a reply");
    assert_eq!(opened["patch"][0]["value"]["topic"], "steel", "{opened}");
    let failure = ask(json!(["/request"])).await.expect_err("it may not read it");
    assert_eq!(failure.code, FailureCode::NotConfigured);
    assert!(failure.message.contains("not shown all of /negotiation"), "{failure}");
}

#[tokio::test]
async fn without_a_place_for_rows_a_department_says_so() {
    let document = json!({"classified": {"action": "add", "slots": {}}});
    let call = asked(role("resolve"), &document, &["/classified"], false);
    let seats = AgentRegistry::new(Config::default(), &Environment::from_iter([("PATH", "")]), InlinePrograms::Denied);
    let failure = answered(&seats, &call).await.expect_err("there is no place");
    assert_eq!(failure.code, FailureCode::NotConfigured);
}

/// Returns a blueprint that perceives and begins messages, with views too small for all of them.
fn blueprint() -> Blueprint {
    let blueprint = json!({
        "blueprint": 1, "name": "talk",
        "state": {"schema": {"type": "object"}, "initial": {"messages": [], "decisions": [], "results": []}},
        "workers": {
            "perceive": {"agent": "builtin:perceive", "pass": true, "reads": ["/request"],
                "writes": [{"path": "/messages/-", "ops": ["add"]}]},
            "begin": {"agent": "builtin:begin", "pass": true, "reads": ["/messages", "/turn", "/results"],
                "view": {"budget": 4000}, "writes": [{"path": "/turn"}, {"path": "/decisions"}, {"path": "/results"},
                    {"path": "/messages/*", "ops": ["remove"]}]},
        },
        "rules": [
            {"name": "first", "trigger": "start", "run": "perceive"},
            {"name": "say", "trigger": {"signal": "say"}, "run": "perceive"},
            {"name": "go", "trigger": {"signal": "go"}, "run": "begin"},
        ],
        "done": {"when": "has(state.turn) && state.turn.n == 4"}, "concurrency": 1, "limits": {"wall": "60s"},
    });
    serde_json::from_value(blueprint).expect("a blueprint")
}

#[tokio::test]
async fn signals_are_taken_down_and_processed_in_order() {
    let data = tempfile::tempdir().expect("a directory");
    let journal = Arc::new(SqliteJournal::open(data.path()).expect("a journal"));
    let options = Options::new(seats(Storage::in_dir(data.path())));
    let runtime = Runtime::start(Arc::clone(&journal) as _, options, PLANS).await.expect("a runtime");
    let board = runtime.create(blueprint(), json!({"text": "m1"}), None).await.expect("a board");
    let long = |n: u32| format!("m{n} {}", "x".repeat(700));
    for value in [json!({"text": long(2)}), json!(long(3)), json!({"nothing": "said"}), json!(long(4))]
        .into_iter()
        .chain((5..12).map(|n| json!(long(n))))
    {
        board.signal("say", value, None).await.expect("it is heard");
    }
    for _ in 0..4 {
        board.signal("go", Value::Null, None).await.expect("it is heard");
    }
    let ended = tokio::time::timeout(Duration::from_secs(60), board.wait_for_end()).await.expect("in time");
    let records = wait(journal.records(board.id(), None, 10_000)).expect("records");
    assert_eq!(ended.expect("it ends").cause, Cause::Done, "{records:#?}");
    let bodies: Vec<&Body> = records.iter().map(|record| record.body().expect("readable")).collect();
    assert!(bodies.iter().any(|body| matches!(body, Body::Expanded(_))), "the view was too small for all");
    assert!(!bodies.iter().any(|body| matches!(body, Body::Rejected(_) | Body::Failed(_))), "{bodies:#?}");
    let state = replay::replay(&records, None, &PLANS).expect("it follows").board.state().root().to_value();
    assert_eq!(state["turn"], json!({"n": 4, "text": long(4)}));
    assert_eq!(state["messages"].as_array().map(Vec::len), Some(7));
}
