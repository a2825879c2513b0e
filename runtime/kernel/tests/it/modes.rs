//! Ablation modes: each disables its components and nothing else. Every board is replayed and recovered at the end.

use patchboard_kernel::ablation::{Component, Mode};
use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::record::{Answer, Body, Kind};
use patchboard_kernel::rejection::{Code, Stage};
use serde_json::{Value, json};

use crate::played::Played;

/// Returns a blueprint with a language-model writer, and a world that is a program.
fn members() -> Value {
    json!({
        "state": {
            "schema": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "plan": {"type": "object", "properties": {"goal": {"type": "string"}, "step": {"type": "integer"}}},
                    "notes": {"type": "array", "items": {"type": "string", "maxLength": 20}},
                    "count": {"type": "integer"},
                    "hidden": {"type": "string"},
                    "seen": {},
                },
            },
            "initial": {"plan": {"goal": "g", "step": 1}, "notes": [], "count": 0, "hidden": "nobody may read this"},
        },
        "workers": {
            "writer": {
                "agent": "llm",
                "role": "Count the notes.",
                "reads": ["/plan", "/notes/*", "/count"],
                "writes": [{"path": "/plan"}, {"path": "/notes/-", "ops": ["add"]}, {"path": "/count", "ops": ["replace"]}],
                "patch": {"max_ops": 2},
                "limits": {"attempts": 3},
            },
            "world": {
                "agent": "command",
                "reads": ["/count"],
                "writes": [{"path": "/seen"}],
            },
        },
        "rules": [
            {"name": "go", "trigger": {"signal": "go"}, "run": "writer"},
            {"name": "counted", "trigger": {"op": "replace", "path": "/count"}, "run": "world"},
        ],
        "invariants": [{"name": "counts-up", "expr": "state.count >= before.count"}],
        "circuit": {
            "rejections": {"limit": 50, "then": "stop_branch"},
            "no_ops": {"limit": 50, "then": "stop_branch"},
        },
    })
}

fn board(mode: Mode) -> Played {
    let mut played = Played::in_mode(mode, members());
    played.signal();
    played
}

fn without(part: Component) -> Played {
    board(Mode::without([part]))
}

fn document(played: &Played) -> Value {
    played.board.state().root().to_value()
}

/// Returns the stage and code of a rejection, or `None`.
fn refusal(played: &mut Played, reply: &str) -> Option<(Stage, Code)> {
    match played.says(reply) {
        Outcome::Rejected { rejection, .. } => Some((rejection.stage, rejection.violations[0].code)),
        Outcome::Committed { .. } => None,
        other => panic!("{reply} was {other:?}"),
    }
}

/// Replies that are each rejected by one component.
const FORBIDDEN: [(Component, &str, Stage, Code); 4] = [
    (
        Component::Contracts,
        r#"[{"op":"replace","path":"/hidden","value":"mine"}]"#,
        Stage::Authorization,
        Code::PathNotGranted,
    ),
    (Component::Schema, r#"[{"op":"replace","path":"/count","value":"many"}]"#, Stage::Schema, Code::SchemaViolation),
    (Component::Schema, r#"[{"op":"replace","path":"/count","value":-1}]"#, Stage::Invariant, Code::InvariantViolated),
    (Component::Patch, r#"{"plan":{"goal":"g","step":2},"notes":[],"count":0}"#, Stage::Syntax, Code::NotAPatch),
];

#[test]
fn each_component_rejects_its_own_violation_and_no_other() {
    let others = [Component::Contracts, Component::Schema, Component::Feedback, Component::Slicing].map(Some);
    for left_out in std::iter::once(None).chain(others) {
        for (part, reply, stage, code) in FORBIDDEN {
            let mut played = board(Mode::without(left_out));
            let expected = (left_out != Some(part)).then_some((stage, code));
            assert_eq!(refusal(&mut played, reply), expected, "without {left_out:?}: {reply}");
            played.holds();
        }
    }
    let mut played = without(Component::Patch);
    assert_eq!(refusal(&mut played, FORBIDDEN[3].1), None);
    assert_eq!(document(&played)["plan"], json!({"goal": "g", "step": 2}));
    played.holds();
}

#[test]
fn without_contracts_the_whole_document_names_of_the_kernel_and_places_unknown_to_the_schema_stay_out_of_reach() {
    for (reply, code) in [
        (r#"[{"op":"replace","path":"","value":{}}]"#, Code::PathNotGranted),
        (r#"[{"op":"add","path":"/$messages","value":[]}]"#, Code::UnknownLocation),
        (r#"[{"op":"add","path":"/unknown","value":1}]"#, Code::UnknownLocation),
        // Reads are still checked.
        (r#"[{"op":"test","path":"/hidden","value":"guess"}]"#, Code::PathNotGranted),
        (r#"[{"op":"copy","from":"/hidden","path":"/plan/goal"}]"#, Code::PathNotGranted),
    ] {
        let mut played = without(Component::Contracts);
        assert_eq!(refusal(&mut played, reply), Some((Stage::Authorization, code)), "{reply}");
        played.holds();
    }
}

#[test]
fn programs_keep_their_contracts_in_every_mode() {
    for mode in [Mode::without(Component::ALL.iter().copied()), Mode::Plain {}, Mode::Structured {}] {
        let mut played = board(mode.clone());
        let counted = match mode {
            Mode::Patchboard { .. } => {
                r#"{"plan":{"goal":"g","step":1},"notes":[],"count":1,"hidden":"nobody may read this"}"#
            }
            Mode::Plain {} => "One note.\n/count: 1",
            Mode::Structured {} => r#"{"count": 1}"#,
        };
        assert_eq!(refusal(&mut played, counted), None, "{mode}");
        assert_eq!(played.calls[0].2, "world", "{mode}: the rule fires");
        let forbidden = r#"[{"op":"replace","path":"/count","value":5}]"#;
        assert_eq!(refusal(&mut played, forbidden), Some((Stage::Authorization, Code::PathNotGranted)), "{mode}");
        assert_eq!(refusal(&mut played, r#"[{"op":"add","path":"/seen","value":1}]"#), None, "{mode}");
        assert_eq!(document(&played)["seen"], 1, "{mode}");
        played.holds();
    }
}

#[test]
fn without_slicing_a_view_shows_what_may_not_be_read_and_only_then() {
    for part in Component::ALL {
        let played = without(*part);
        let is_shown = played.view().contains("nobody may read this");
        assert_eq!(is_shown, *part == Component::Slicing, "without {part}:\n{}", played.view());
        played.holds();
    }
}

#[test]
fn disabled_feedback_hides_rejections_and_keeps_the_number_of_attempts() {
    for part in Component::ALL {
        let mut played = without(*part);
        for attempt in 1..=3 {
            let has_feedback = played.view().contains("## Refused before");
            assert_eq!(has_feedback, attempt > 1 && *part != Component::Feedback, "without {part}, attempt {attempt}");
            assert!(refusal(&mut played, "not JSON").is_some());
        }
        assert!(played.calls.is_empty(), "without {part}: three attempts");
        played.holds();
    }
}

#[test]
fn a_whole_object_is_compared_with_what_was_shown_and_judged_like_a_patch() {
    let refused = |code| Err((Stage::Authorization, code));
    for (reply, expected) in [
        // The plan is granted as a whole and its members are not, so the whole plan is written.
        (
            r#"{"plan":{"goal":"h","step":1},"notes":["n"],"count":0}"#,
            Ok(json!([
                {"op": "add", "path": "/notes/-", "value": "n"},
                {"op": "replace", "path": "/plan", "value": {"goal": "h", "step": 1}},
            ])),
        ),
        (r#"{"plan":{"goal":"g","step":1},"notes":[]}"#, refused(Code::OpNotGranted)),
        (r#"{"plan":{"goal":"g","step":1},"notes":[],"count":0,"hidden":"x"}"#, refused(Code::PathNotGranted)),
        (r#"[{"op":"replace","path":"/count","value":1}]"#, Err((Stage::Syntax, Code::NotAnObject))),
        ("I think so", Err((Stage::Syntax, Code::InvalidJson))),
    ] {
        let mut played = without(Component::Patch);
        assert!(played.view().contains(r#"{"count":0,"notes":[],"plan":{"goal":"g","step":1}}"#), "{}", played.view());
        assert!(played.instructions().contains("Answer with that whole object"));
        match (refusal(&mut played, reply), expected) {
            (None, Ok(patch)) => {
                let committed = played.bodies().find_map(|body| match body {
                    Body::Committed(committed) => Some(committed),
                    _ => None,
                });
                let mut made = committed.expect("a commit").patch.as_array().expect("a patch").clone();
                made.sort_by_key(|op| op["path"].to_string());
                assert_eq!(Value::Array(made), patch, "{reply}");
            }
            (found, expected) => assert_eq!(found, expected.err(), "{reply}"),
        }
        played.holds();
    }
    let mut played = without(Component::Patch);
    let same = r#"{"count":0,"notes":[],"plan":{"goal":"g","step":1}}"#;
    assert!(matches!(played.says(same), Outcome::NoOp { .. }));
    played.holds();
}

#[test]
fn the_same_reply_to_the_same_attempt_counts_once_in_every_mode() {
    for (mode, reply) in [
        (Mode::default(), r#"[{"op":"replace","path":"/count","value":1}]"#),
        (Mode::without([Component::Patch]), r#"{"count":1,"notes":[],"plan":{"goal":"g","step":1}}"#),
        (Mode::Structured {}, r#"{"count":1}"#),
        (Mode::Plain {}, "/count: 1"),
    ] {
        let mut played = board(mode.clone());
        let call = played.calls[0].clone();
        assert_eq!(refusal(&mut played, reply), None, "{mode}");
        played.calls.insert(0, call);
        assert!(matches!(played.says(reply), Outcome::Duplicate(_)), "{mode}");
        played.holds();
    }
}

#[test]
fn a_structured_blackboard_accepts_any_object_and_reports_other_replies() {
    let mut played = board(Mode::Structured {});
    assert!(played.view().contains("nobody may read this"), "everybody sees everything");
    assert_eq!(refusal(&mut played, "I think so"), Some((Stage::Syntax, Code::InvalidJson)));
    assert!(played.view().contains("invalid_json"), "{}", played.view());
    assert_eq!(refusal(&mut played, "[1]"), Some((Stage::Syntax, Code::NotAnObject)));
    let reply = r#"{"count": "many", "plan": {"step": null, "more": true}, "/notes/-": "a note that is too long for its schema",
        "new": [1], "/deep/er/place": 2, "/notes/9": "nowhere"}"#;
    assert_eq!(refusal(&mut played, reply), None);
    let expected = json!({
        "count": "many", "plan": {"goal": "g", "more": true}, "notes": ["a note that is too long for its schema"],
        "hidden": "nobody may read this", "new": [1], "deep": {"er": {"place": 2}},
    });
    assert_eq!(document(&played), expected);
    played.holds();
}

#[test]
fn a_structured_blackboard_appends_as_often_as_it_is_asked_and_in_that_order() {
    let mut played = board(Mode::Structured {});
    let reply = r#"{"/notes/-": "b", "/notes/-": "a", "/notes/1": "c", "/notes/2": "d", "count": 1, "count": 2}"#;
    assert_eq!(refusal(&mut played, reply), None);
    let now = document(&played);
    assert_eq!((&now["notes"], &now["count"]), (&json!(["b", "c", "d"]), &json!(2)));
    assert_eq!(refusal(&mut played, r#"[{"op":"add","path":"/seen","value":1}]"#), None, "the world");
    played.signal();
    assert_eq!(refusal(&mut played, r#"{"plan": {"step": 1, "step": 2}}"#), Some((Stage::Syntax, Code::DuplicateKey)));
    played.holds();
}

#[test]
fn modes_without_copies_ask_for_values_and_raise_the_reply_tokens() {
    let mut members = members();
    members["workers"]["writer"]["writes"][1]["ops"] = json!(["copy"]);
    members["workers"]["writer"]["view"] = json!({"budget": 6000});
    members["workers"]["writer"]["limits"]["reply_tokens"] = json!(100);
    let tokens = |mode: &Mode| {
        let mut played = Played::in_mode(mode.clone(), members.clone());
        played.signal();
        let (instructions, view) = (played.instructions().to_owned(), played.view().to_owned());
        let seat = &played.board.plan().workers["writer"];
        let has_copies = instructions.contains("copy") || view.contains("copy");
        assert_eq!(has_copies, *mode == Mode::default(), "{mode}: {instructions}{view}");
        seat.worker.limits.reply_tokens
    };
    assert_eq!(tokens(&Mode::default()), 100);
    for mode in [Mode::Plain {}, Mode::Structured {}, Mode::without([Component::Patch])] {
        assert_eq!(tokens(&mode), 2100, "{mode}");
    }
    members["workers"]["writer"]["writes"][1]["ops"] = json!(["add"]);
    for (mode, expected) in
        [(Mode::Plain {}, 100), (Mode::Structured {}, 100), (Mode::without([Component::Patch]), 2100)]
    {
        let played = Played::in_mode(mode.clone(), members.clone());
        let seat = &played.board.plan().workers["writer"];
        assert_eq!(seat.worker.limits.reply_tokens, expected, "{mode}: who writes values writes no more of them");
    }
}

#[test]
fn a_message_may_set_what_takes_several_lines_and_what_is_broken_sets_nothing() {
    let mut played = board(Mode::Plain {});
    assert!(played.view().contains(r#"The document at the beginning: {"count":0"#), "{}", played.view());
    let message =
        "I plan.\n/plan: {\n  \"goal\": \"h\",\n  \"step\": 2\n}\n/notes/-: [unfinished\n/notes/-: done\n/count: 3";
    assert_eq!(refusal(&mut played, message), None);
    let now = document(&played);
    assert_eq!((&now["plan"], &now["notes"]), (&json!({"goal": "h", "step": 2}), &json!(["done"])));
    assert_eq!(now["count"], 3);
    played.holds();
}

#[test]
fn a_plain_blackboard_keeps_messages_and_what_their_lines_set() {
    let mut played = board(Mode::Plain {});
    assert!(played.instructions().contains("\nset /plan: "), "{}", played.instructions());
    let message =
        "I count one note.\n- **set /count: 1**\n/notes/-: milk, eggs\n`/plan: {\"goal\":\"h\"}`\n/nowhere/9/x";
    assert_eq!(refusal(&mut played, message), None);
    let now = document(&played);
    assert_eq!((&now["count"], &now["notes"]), (&json!(1), &json!(["milk, eggs"])));
    assert_eq!(now["plan"], json!({"goal": "h"}));
    assert_eq!(now["$messages"], json!([{"from": "writer", "text": message}]));
    // A program's patch is shown as a message.
    assert_eq!(refusal(&mut played, r#"[{"op":"add","path":"/seen","value":{"room":"kitchen"}}]"#), None);
    assert_eq!(document(&played)["$messages"][1]["text"], r#"set /seen: {"room":"kitchen"}"#);
    played.signal();
    for part in ["writer: I count one note.\n  - **set /count: 1**", "world: set /seen: {\"room\":\"kitchen\"}"] {
        assert!(played.view().contains(part), "{part:?} is not in:\n{}", played.view());
    }
    // Plain text triggers no worker, and messages cannot be removed.
    let before = played.calls.len();
    assert_eq!(refusal(&mut played, "Hello.\n/$messages: []"), None);
    assert_eq!(document(&played)["$messages"].as_array().map(Vec::len), Some(3));
    assert_eq!(played.calls.len(), before - 1);
    played.holds();
}

#[test]
fn words_that_set_nothing_are_to_the_breaker_what_an_empty_patch_is() {
    let mut members = members();
    members["circuit"]["no_ops"] = json!({"limit": 2, "then": "stop_branch"});
    let mut played = Played::in_mode(Mode::Plain {}, members);
    for _ in 0..2 {
        played.signal();
        assert_eq!(refusal(&mut played, "Let us think."), None);
    }
    assert_eq!(played.count(Kind::Breaker), 1);
    played.signal();
    assert!(played.calls.is_empty(), "the branch is stopped");
    played.holds();
}

#[test]
fn a_long_conversation_is_shown_from_its_newest_end_within_the_cap() {
    let mut played = board(Mode::Plain {});
    for number in 0..20 {
        if number > 0 {
            played.signal();
        }
        assert_eq!(refusal(&mut played, &format!("message {number} {}", "x".repeat(5000))), None);
    }
    played.signal();
    let view = played.view();
    assert!(view.chars().count() <= 64_000);
    assert!(view.contains("message 19 ") && !view.contains("message 0 ") && view.contains("Older messages"), "{view}");
    played.holds();
}

#[test]
fn the_usual_mode_is_not_recorded_and_others_are() {
    let created = |played: &Played| played.records[0].header.clone();
    assert!(!created(&board(Mode::default())).contains("mode"));
    let header = created(&without(Component::Patch));
    assert!(header.contains(r#""mode":{"ablate":["patch"],"system":"patchboard"}"#), "{header}");
    assert!(created(&board(Mode::Plain {})).contains(r#""mode":{"system":"plain"}"#));
}

#[test]
fn a_question_to_a_person_is_about_the_patch_that_was_made_of_the_reply() {
    let mut members = members();
    members["workers"]["boss"] = json!({"agent": "human"});
    members["workers"]["writer"]["writes"][2]["approval"] = json!({"by": "boss"});
    // Limits on patches do not apply to workers that write none.
    members["workers"]["writer"]["patch"] = json!({"max_ops": 2, "intent": "required"});
    let mut played = Played::in_mode(Mode::without([Component::Patch]), members);
    played.signal();
    let call = played.calls[0].clone();
    let reply = r#"{"count":1,"notes":["a","b"],"plan":{"goal":"g","step":1}}"#;
    assert!(matches!(played.says(reply), Outcome::AwaitingApproval { .. }));
    let (of, question) = played.board.pending().iter().next().map(|(of, it)| (*of, it.clone())).expect("a question");
    let replace = json!({"op": "replace", "path": "/count", "value": 1});
    let append = |note| json!({"op": "add", "path": "/notes/-", "value": note});
    assert_eq!(question.patch, json!([replace, append("a"), append("b")]));
    let answer = Input::Answer(Answer {
        of,
        by: "boss".into(),
        digest: question.digest,
        agrees: true,
        reason: None,
        text: None,
    });
    let outcome = played.give(answer).outcome;
    assert!(matches!(outcome, Some(Outcome::Committed { .. })), "{outcome:?}");
    assert_eq!((document(&played)["count"].clone(), played.count(Kind::Committed)), (json!(1), 1));
    played.calls.insert(0, call);
    assert!(matches!(played.says(reply), Outcome::Duplicate(_)), "the same reply once more");
    played.holds();
}
