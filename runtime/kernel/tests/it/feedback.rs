//! Feedback: a worker is shown all its own rejections, and those of others at its writable places, without values.

use crate::played::Played;
use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::record::Body;
use patchboard_kernel::rejection::{Code, Stage};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

/// Returns a board with two writers of claims, and one of notes.
fn review() -> Played {
    let claims = json!({"type": "array", "items": {"type": "object", "properties": {"status": {"enum": ["draft"]}}}});
    let writer = |path: &str| json!({"agent": "llm", "reads": ["/notes"], "writes": [{"path": path, "ops": ["add", "replace"]}]});
    Played::new(json!({
        "state": {"schema": {"type": "object", "properties": {"claims": claims}}, "initial": {"claims": [], "notes": []}},
        "concurrency": 9,
        "workers": {"one": writer("/claims/-"), "two": writer("/claims/-"), "three": writer("/claims/*/status"),
            "scribe": writer("/notes/-")},
        "rules": [
            {"name": "one", "trigger": {"signal": "one"}, "run": "one"},
            {"name": "two", "trigger": {"signal": "two"}, "run": "two"},
            {"name": "three", "trigger": {"signal": "three"}, "run": "three"},
            {"name": "scribe", "trigger": {"signal": "scribe"}, "run": "scribe"},
        ],
    }))
}

/// Returns the feedback lines of a worker that is triggered now.
fn feedback(played: &mut Played, worker: &str) -> Vec<String> {
    played.give(patchboard_kernel::board::Input::Signal { name: worker.into(), value: json!(null), key: None });
    let lines = played.view().lines().skip_while(|line| *line != "## Refused before").skip(1);
    lines.take_while(|line| !line.starts_with("## ")).map(str::to_owned).collect()
}

#[test]
fn rejections_of_others_at_writable_places_are_reported_without_values() {
    let mut played = review();
    let secret = json!([{"op": "add", "path": "/claims/-", "value": {"status": "S3CRET"}}]);
    played.direct("one", &secret.to_string());
    let expected = ["- schema/schema_violation of one", "  /claims/0/status (enum): schema_violation"];
    assert_eq!(feedback(&mut played, "two"), expected);
    assert_eq!(feedback(&mut played, "three"), expected, "it may write what was broken");
    assert_eq!(feedback(&mut played, "scribe"), [""; 0], "that is none of its business");
    assert!(feedback(&mut played, "one").concat().contains("S3CRET"), "what it wrote itself it may see");
    let seqs: Vec<usize> = played
        .bodies()
        .filter_map(|body| match body {
            Body::Invoked(invoked) => Some(invoked.feedback.len()),
            _ => None,
        })
        .collect();
    assert_eq!(seqs, [1, 1, 0, 1]);

    // The author's next commit clears its rejections.
    played.direct("one", &json!([{"op": "add", "path": "/claims/-", "value": {"status": "draft"}}]).to_string());
    assert_eq!(feedback(&mut played, "two"), [""; 0]);
    played.holds();
}

#[test]
fn the_last_rejections_of_others_and_of_its_own_are_reported() {
    let mut played = review();
    for value in 0..5 {
        played.direct("one", &json!([{"op": "add", "path": "/claims/-", "value": value}]).to_string());
        played.direct("two", &json!([{"op": "add", "path": "/claims/-", "value": {"status": value}}]).to_string());
    }
    let lines = feedback(&mut played, "two");
    let of = |end: &str| lines.iter().filter(|line| line.starts_with("- ") && line.ends_with(end)).count();
    // Rejections of others are shown without values, so two of them look equal.
    assert_eq!((of(" of one, 2 times"), of("schema_violation")), (1, 3), "{lines:#?}");
    played.holds();
}

#[test]
fn an_attempt_knows_failures_since_the_last_judged_reply_and_rejected_views() {
    let mut played = Played::new(json!({
        "state": {"schema": {"type": "object", "properties": {"notes": {"type": "array"}}}, "initial": {"notes": []}},
        "workers": {"scribe": {"agent": "llm", "writes": [{"path": "/notes/-", "ops": ["add"]}], "limits": {"attempts": 6}}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "scribe"}],
    }));
    let past =
        |step: &patchboard_kernel::board::Step| step.effects.calls.first().map(|call| call.earlier_attempts.clone());
    played.signal();
    let mut seen = Vec::new();
    for code in [Some(FailureCode::Empty), Some(FailureCode::Protocol), None, Some(FailureCode::Truncated)] {
        let (invocation, attempt, _) = played.calls.remove(0);
        let step = match code {
            Some(code) => {
                let message = "it failed".to_owned();
                played.give(Input::AgentFailed { invocation, attempt, code, message, usage: None })
            }
            None => {
                played.calls.insert(0, (invocation, attempt, "scribe".to_owned()));
                played.says("no patch");
                played.give(Input::Tick)
            }
        };
        let open = &played.board.scheduler().open()[&invocation];
        seen.push((open.past.failures.clone(), open.past.rejected_views.len()));
        if let Some(called) = past(&step) {
            assert_eq!(called, open.past);
        }
    }
    use FailureCode::{Empty, Protocol, Truncated};
    assert_eq!(seen, [(vec![Empty], 0), (vec![Empty, Protocol], 0), (vec![], 1), (vec![Truncated], 1)]);
    let recovered = patchboard_kernel::board::Board::recover(&played.records, &PLANS).expect("a board");
    let open: Vec<_> = recovered.scheduler().open().values().map(|open| open.past.clone()).collect();
    assert_eq!(
        open.iter().collect::<Vec<_>>(),
        played.board.scheduler().open().values().map(|open| &open.past).collect::<Vec<_>>()
    );
    played.holds();
}

#[test]
fn a_wildcard_of_a_grant_that_a_patch_repeats_is_answered_with_what_there_is() {
    let claim = json!({"type": "object", "properties": {"status": {"type": "string"}}, "additionalProperties": false});
    let note = json!({"type": "object", "properties": {"x": true}, "additionalProperties": false});
    let few =
        json!({"type": "object", "properties": {"a/b": true, "k/2": true, "l~m": true}, "additionalProperties": false});
    let closed = json!({"type": "object", "properties": {
        "claims": {"type": "array", "items": claim}, "odd": true, "hidden": true, "few": few,
        "notes": {"type": "object", "propertyNames": {"maxLength": 1}, "additionalProperties": note}}, "additionalProperties": false});
    wildcards_are_answered_with_what_there_is(&json!({"type": "object"}));
    wildcards_are_answered_with_what_there_is(&closed);
}

fn wildcards_are_answered_with_what_there_is(schema: &Value) {
    let mut played = Played::new(json!({
        "state": {"schema": schema, "initial": {
            "claims": [{"status": "open"}, {"status": "open"}], "notes": {"a": {"x": 1}, "b": {}}, "odd": {"*": 1}, "hidden": {}, "few": {"k/2": 1}}},
        "workers": {"w": {"agent": "llm", "reads": ["/claims", "/notes", "/odd", "/few"], "writes": [
            {"path": "/claims/*/status", "ops": ["replace"]}, {"path": "/notes/*", "ops": ["add", "copy"]}, {"path": "/notes/*/x", "ops": ["add", "copy"]},
            {"path": "/odd/*", "ops": ["add", "replace"]}, {"path": "/hidden/*", "ops": ["add"]}, {"path": "/few/*", "ops": ["add", "replace"]}]}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
    }));
    let mut refused = |op: &str, path: &str, from: Option<&str>| {
        let mut op = json!({"op": op, "path": path, "value": "ok"});
        if let Some(from) = from {
            op["from"] = from.into();
            op.as_object_mut().expect("an object").remove("value");
        }
        let rejection = played.rejection("w", json!([op]));
        (rejection.stage, rejection.code, rejection.violations[0].message.clone())
    };
    let found = |message: &str| (Stage::Application, Code::PathNotFound, message.to_owned());
    assert_eq!(refused("replace", "/claims/*/status", None), found("name one: 0 to 1; `*` stands for any index"));
    let of_names = "name one: a, b; `*` stands for any name. A member called `*` is written with its object";
    let of_new =
        "name the new member (there are a, b); `*` stands for any name. A member called `*` is written with its object";
    assert_eq!(refused("add", "/notes/*", None), found(of_new));
    assert_eq!(refused("copy", "/notes/*", Some("/claims/0")), found(of_new));
    // Names are escaped as in a path.
    let of_few = match schema.get("properties") {
        None => {
            "name the new member (there are k~12); `*` stands for any name. A member called `*` is written with its object"
        }
        Some(_) => "name one: a~1b, l~0m; `*` stands for any name. A member called `*` is written with its object",
    };
    assert_eq!(refused("add", "/few/*", None), found(of_few));
    assert_eq!(
        refused("replace", "/few/*", None),
        found("name one: k~12; `*` stands for any name. A member called `*` is written with its object")
    );
    assert_eq!(refused("add", "/notes/*/x", None), found(of_names));
    assert_eq!(refused("copy", "/notes/b/x", Some("/notes/*/x")), found(of_names));
    // Unreadable places are not revealed.
    assert_eq!(refused("add", "/hidden/*", None), found("there is no such place"));
    // An existing member of this name is accepted.
    let replaced = played.direct("w", &json!([{"op": "replace", "path": "/odd/*", "value": 2}]).to_string());
    assert!(matches!(replaced, Outcome::Committed { .. }), "{replaced:?}");
    played.holds();
}
