//! The conversation with departments on the command line: sentences as signals, rows in tables, graphs, dry runs and
//! replay.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::voices::{copy_into, voices};

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    copy_into(sandbox.path());
    sandbox
}

/// Returns the text of the last reply of a conversation.
fn last_reply(state: &Value) -> &str {
    state["replies"].as_array().and_then(|replies| replies.last()?["text"].as_str()).unwrap_or_default()
}

#[test]
fn ambiguous_requests_are_clarified_and_the_next_message_continues() {
    let (sandbox, voices) = (sandbox(), voices());
    let model = ["--model-url", &voices.url, "--model", "m"];
    let begin = ["--output", "json", "run", "clipboard.yaml", "--request"];
    let begin = [&begin[..], &[r#"{"text": "Put bananas on the household list."}"#], &model].concat();
    let said = sandbox.run(&begin).expect_exit(4).json();
    assert_eq!(last_reply(&said["state"]), "Put bananas on the household list.");
    let say = |words: &str| -> Value {
        let words = json!(words).to_string();
        let signal = ["--output", "json", "signal", "last", "say", &words];
        sandbox.run(&[&signal[..], &model].concat()).expect_exit(4).json()["state"].clone()
    };
    assert_eq!(last_reply(&say("Put bananas on the office list.")), "Put bananas on the office list.");
    let asked = say("Throw the bananas off the list.");
    assert_eq!(asked["results"][0]["status"], "clarification");
    let question = last_reply(&asked);
    assert!(question.contains("which list, household or office?"), "{question}");
    // Nothing was removed meanwhile, and another process resumes the conversation.
    let done = say("the household one");
    assert_eq!(done["turn"]["pending"]["department"], "notes");
    assert_eq!(last_reply(&done), "Took bananas off the household list.");
    assert_eq!(last_reply(&say("What is on the office list?")), "On the office list: bananas.");
    assert_eq!(last_reply(&say("What is on the household list?")), "On the household list: nothing.");
    assert_eq!(last_reply(&say("dentist on Friday at 9:30")), "dentist is on Friday at 9:30.");
    assert_eq!(last_reply(&say("Sing me a song.")), "Nobody here does that.");
    // A department's board can be replayed and verified, too.
    for command in ["replay", "verify"] {
        sandbox.run(&[command, "last"]).expect_exit(0);
    }
    let boards = sandbox.run(&["--output", "json", "boards"]).expect_exit(0).lines();
    let inside = boards.iter().filter(|board| board["name"] == "notes").count();
    assert_eq!(inside, 6, "one for each message to it: {boards:?}");
    let refused = sandbox.run(&[&["signal", "last", "say", "7"][..], &model].concat()).expect_exit(2).stderr;
    assert!(refused.contains("bad_request") && refused.contains("`signals`"), "{refused}");
    let closed =
        sandbox.run(&[&["--output", "json", "signal", "last", "close"][..], &model].concat()).expect_exit(0).json();
    assert_eq!(closed["state"]["closed"], true);
}

#[test]
fn a_conversation_is_one_recording_and_is_played_word_for_word() {
    let (sandbox, voices) = (sandbox(), voices());
    let tape = sandbox.path().join("tape.jsonl");
    let tape = tape.to_str().expect("a path");
    let said = [
        "Put bananas on the household list.",
        "Put bananas on the office list.",
        "Throw the bananas off the list.",
        "the household one",
    ];
    let begin = json!({"text": said[0]}).to_string();
    let talk = |sandbox: &Sandbox, first: &[&str], more: &[&str]| -> Vec<Value> {
        let mut states = Vec::new();
        let run = [&["--output", "json", "run", "clipboard.yaml", "--request", &begin], first].concat();
        states.push(sandbox.run(&run).expect_exit(4).json()["state"].clone());
        for words in &said[1..] {
            let words = json!(words).to_string();
            let signal = [&["--output", "json", "signal", "last", "say", &words], more].concat();
            states.push(sandbox.run(&signal).expect_exit(4).json()["state"].clone());
        }
        states
    };
    let model = ["--model-url", &voices.url, "--model", "m", "--record", tape];
    let recorded = talk(&sandbox, &model, &[&model[..], &["--append"]].concat());
    assert_eq!(last_reply(&recorded[3]), "Took bananas off the household list.");
    drop(voices);
    let elsewhere = self::sandbox();
    let played = talk(&elsewhere, &["--cassette", tape], &["--cassette", tape]);
    assert_eq!(played, recorded);
}

#[test]
fn check_runs_the_tests_of_departments_and_says_which_fail() {
    let sandbox = sandbox();
    let checked = sandbox.run(&["check", "--deny-warnings", "clipboard.yaml"]).expect_exit(0).stdout;
    assert!(checked.contains("1 blueprint, 9 tests: 0 errors, 0 warnings: "), "{checked}");
    let manifest = sandbox.path().join("departments/notes/department.yaml");
    let text = std::fs::read_to_string(&manifest).expect("it is there");
    let wrong = text.replace("text: Took bananas off the household list.", "text: Took them.");
    std::fs::write(&manifest, wrong).expect("it can be written");
    let checked = sandbox.run(&["check", "clipboard.yaml"]).expect_exit(2).stdout;
    assert!(
        checked.contains("error[failed_test]") && checked.contains("departments/notes/department.yaml:52:"),
        "{checked}"
    );
    assert!(
        checked
            .contains("`the answer says which`: text is \"Took bananas off the household list.\", not \"Took them.\""),
        "{checked}"
    );
    std::fs::write(&manifest, text.replace("needs:\n", "needs:\n  weather: {type: string}\n"))
        .expect("it can be written");
    let checked = sandbox.run(&["check", "clipboard.yaml"]).expect_exit(2).stdout;
    assert!(
        checked.contains("error[unmet_need]") && checked.contains("departments/notes/department.yaml:6:3"),
        "{checked}"
    );
    let ran = sandbox.run(&["run", "clipboard.yaml", "--request", "{}"]).expect_exit(2).stderr;
    assert!(ran.contains("unmet_need"), "a blueprint whose needs are not met does not start: {ran}");
}

#[test]
fn a_blueprint_is_printed_whole_and_drawn_with_its_departments() {
    let sandbox = sandbox();
    let whole = sandbox.run(&["check", "--whole", "clipboard.yaml"]).expect_exit(0).stdout;
    let blueprint: Value = serde_json::from_str(&whole).expect("JSON");
    assert_eq!((blueprint.get("departments"), &blueprint["workers"]["notes"]["agent"]), (None, &json!("board")));
    sandbox.write("whole.json", &whole);
    sandbox.run(&["check", "--deny-warnings", "whole.json"]).expect_exit(0);
    let graph = sandbox.run(&["graph", "clipboard.yaml"]).expect_exit(0).stdout;
    for word in ["notes", "timeline", "planner", "/results/-"] {
        assert!(graph.contains(word), "{word} is not in\n{graph}");
    }
}
