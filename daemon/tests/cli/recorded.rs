//! Recordings of shipped blueprints with a language model, replayed without one.

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, shipped};

/// Printed only if recorded answers are left over.
const NOTHING_LEFT: &str = "of the recording were not used";

#[test]
fn a_question_that_a_model_answered_on_the_blackboard() {
    let sandbox = Sandbox::new();
    let request = format!("@{}", shipped("blackboard/request.json"));
    let (blueprint, cassette) = (shipped("blackboard.yaml"), shipped("blackboard/cassette.jsonl"));
    let arguments =
        ["run", &blueprint, "--request", &request, "--seed", "1", "--cassette", &cassette, "--output", "json"];
    let played = sandbox.run(&arguments).expect_exit(0);
    assert!(!played.stderr.contains(NOTHING_LEFT), "{}", played.stderr);
    let state = &played.json()["state"];
    assert_eq!((&state["answer"]["text"], &state["answer"]["by"]), (&json!("5 rolls"), &json!("vote")));
    assert_eq!(state["rounds"].as_array().map(Vec::len), Some(2));
    // Two experts discussed in a private room and reported the result to the others.
    let room = state["board"]["rooms"]["room_10"].clone();
    assert_eq!(
        (&room["members"], room["messages"].as_array().map(Vec::len)),
        (&json!(["expert_1", "expert_2"]), Some(4))
    );
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_conversation_that_a_model_led_with_departments() {
    let sandbox = Sandbox::new();
    let request = format!("@{}", shipped("clipboard/request.json"));
    let (blueprint, cassette) = (shipped("clipboard.yaml"), shipped("clipboard/cassette.jsonl"));
    let played = ["--cassette", &cassette, "--output", "json"];
    let reply = |state: &Value| state["replies"][0]["text"].as_str().expect("a reply").to_owned();
    let begin = sandbox.run(&[&["run", &blueprint, "--request", &request][..], &played].concat()).expect_exit(4).json();
    let mut replies = vec![reply(&begin["state"])];
    for words in ["Put bananas on the office list.", "Throw the bananas off the list.", "the household one"] {
        let words = json!(words).to_string();
        let said = sandbox.run(&[&["signal", "last", "say", &words][..], &played].concat()).expect_exit(4);
        let is_last = !said.stderr.contains(NOTHING_LEFT);
        assert_eq!(is_last, words.contains("one"), "{}", said.stderr);
        replies.push(reply(&said.json()["state"]));
    }
    let expected = [
        "Put bananas on the household list.",
        "Put bananas on the office list.",
        "which list, household or office?",
        "Took bananas off the household list.",
    ];
    assert_eq!(replies, expected);
    sandbox.run(&["replay", "last"]).expect_exit(0);
    // A step within a department is replayed from the recording of the surrounding conversation.
    let boards = sandbox.run(&["boards", "--output", "json"]).expect_exit(0).lines();
    let inside: Vec<&str> = boards
        .iter()
        .filter(|board| board["name"] == "notes")
        .map(|board| board["board"].as_str().expect("an id"))
        .collect();
    assert_eq!(inside.len(), 4);
    let mut stepped = Vec::new();
    for board in inside {
        for record in sandbox.run(&["log", board, "--kind", "invoked", "--output", "json"]).expect_exit(0).lines() {
            let (worker, seq) = (record["worker"].as_str().expect("a name"), record["seq"].to_string());
            let step = ["step", board, "--at", &seq, "--worker", worker, "--cassette", &cassette, "--output", "json"];
            assert_eq!(sandbox.run(&step).expect_exit(0).json()["recorded"]["same"], true, "{worker} on {board}");
            stepped.push(worker.to_owned());
        }
    }
    for role in ["classify", "resolve", "crud", "resume", "confirm"] {
        assert!(stepped.iter().any(|worker| worker == role), "{role}: {stepped:?}");
    }
    let other =
        ["step", "last", "--at", "3", "--worker", "planner", "--cassette", &shipped("blackboard/cassette.jsonl")];
    assert!(sandbox.run(&other).expect_exit(2).stderr.contains("wrong_cassette"));
}
