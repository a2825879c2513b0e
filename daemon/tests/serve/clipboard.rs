//! A conversation with departments on a daemon: one was added by files alone, and a question survives a kill.

use std::time::Duration;

use patchboard_endpoint::Endpoint;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::events::Events;
use crate::voices::{copy_into, voices};

/// A department that no other file mentions.
const PLANTS: &str = r#"department: 1
name: plants
description: House plants, and in which room they are.
# What others have come to, too: nothing else changes for that.
needs: {text: {type: string}, results: {type: array}}
storage:
  entity: plant
  fields:
    plant: {type: string, ask: which plant}
    room: {type: string, ask: in which room}
  identity: [plant, room]
actions:
  buy: {does: insert, description: a plant is new, sets: [plant, room], confirm: "The {plant} in the {room} is noted."}
  lose: {does: delete, description: a plant is gone, finds: [plant, room], confirm: "The {plant} in the {room} is gone."}
tests:
  - rows: [{plant: fern, room: hall}, {plant: fern, room: study}]
    classified: {action: lose, slots: {plant: fern}}
    expect: {status: clarification}
"#;

struct Conversation {
    daemon: Daemon,
    board: String,
    /// Sequence number of the last record read.
    heard: u64,
    _voices: Endpoint,
}

impl Conversation {
    async fn begin() -> Self {
        let (daemon, voices) = (Daemon::not_started(&[]), voices());
        let mut daemon = daemon;
        copy_into(daemon.path());
        let folder = daemon.path().join("departments/plants");
        std::fs::create_dir_all(&folder).expect("a directory can be made");
        std::fs::write(folder.join("department.yaml"), PLANTS).expect("a file can be written");
        daemon.configure(&format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n", voices.url));
        let whole = daemon.command(&["check", "--whole", "clipboard.yaml"]).output().expect("the binary can be run");
        assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));
        let blueprint: Value = serde_json::from_slice(&whole.stdout).expect("JSON");
        daemon.start();
        let made = daemon.post("/v1/boards", &json!({"blueprint": blueprint, "request": {}})).await.expect_status(201);
        let board = made["board"].as_str().expect("an id").to_owned();
        Self { daemon, board, heard: 0, _voices: voices }
    }

    async fn state(&self) -> Value {
        self.daemon.get(&format!("/v1/boards/{}/state", self.board)).await.expect_status(200)["state"].clone()
    }

    /// Says a sentence, as a signal that is accepted at once.
    async fn say(&self, words: &str) {
        let signal = json!({"name": "say", "value": words});
        self.daemon.post(&format!("/v1/boards/{}/signals", self.board), &signal).await.expect_status(202);
    }

    /// Returns the next reply from the event stream, which continues after the last record read.
    async fn replied(&mut self) -> String {
        let following = async {
            let mut events = Events::of(&self.daemon, &self.board, Some(self.heard)).await;
            loop {
                let event = events.next().await;
                if event.kind == "committed" && event.data["by"]["worker"] == "responder" {
                    let text = event.data["patch"][0]["value"]["text"].as_str().expect("a reply has a text").to_owned();
                    return (event.id, text);
                }
            }
        };
        let heard = tokio::time::timeout(Duration::from_secs(60), following).await.expect("a reply comes");
        self.heard = heard.0;
        heard.1
    }
}

#[tokio::test]
async fn a_folder_that_was_dropped_in_is_asked_and_its_question_outlives_the_daemon() {
    let mut conversation = Conversation::begin().await;
    // An unanswerable signal is rejected at once and not recorded.
    let signals = format!("/v1/boards/{}/signals", conversation.board);
    for value in [json!(null), json!(" "), json!({"words": "x"}), json!("x".repeat(4001))] {
        let refused =
            conversation.daemon.post(&signals, &json!({"name": "say", "value": value})).await.expect_status(422);
        assert_eq!(refused["code"], "bad_request", "{refused}");
    }
    // Both signals are sent at once and answered in turn.
    conversation.say("The fern in the hall is new.").await;
    conversation.say("The fern in the study is new.").await;
    assert_eq!(conversation.replied().await, "The fern in the hall is noted.");
    assert_eq!(conversation.replied().await, "The fern in the study is noted.");
    conversation.say("The fern has died.").await;
    let question = conversation.replied().await;
    assert!(question.contains("in which room, hall or study?"), "{question}");
    let asked = conversation.state().await["results"][0].clone();
    assert_eq!((&asked["department"], &asked["status"]), (&json!("plants"), &json!("clarification")));
    conversation.daemon.kill();
    conversation.daemon.start();
    conversation.say("the study").await;
    assert_eq!(conversation.replied().await, "The fern in the study is gone.");
    assert_eq!(conversation.state().await["turn"]["pending"]["department"], "plants");
    // The other department is unaffected.
    conversation.say("What is on the office list?").await;
    assert_eq!(conversation.replied().await, "On the office list: nothing.");
}
