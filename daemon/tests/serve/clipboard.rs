//! A conversation with departments under a daemon: one of them added as files only, and a question that outlives a kill.

use patchboard_endpoint::Endpoint;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::voices::{copy_into, last_reply, voices};

/// A department that nothing else knows of.
const PLANTS: &str = r#"department: 1
name: plants
description: House plants, and in which room they are.
needs: {text: {type: string}}
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
    _voices: Endpoint,
}

impl Conversation {
    async fn begin() -> Self {
        let (daemon, voices) = (Daemon::at_rest(&[]), voices());
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
        let made = daemon.post("/v1/boards", &json!({"blueprint": blueprint, "request": {}})).await.is(201);
        let board = made["board"].as_str().expect("an id").to_owned();
        Self { daemon, board, _voices: voices }
    }

    async fn state(&self) -> Value {
        self.daemon.get(&format!("/v1/boards/{}/state", self.board)).await.is(200)["state"].clone()
    }

    /// Says something: taken down at once.
    async fn say(&self, words: &str) {
        let signal = json!({"name": "say", "value": words});
        self.daemon.post(&format!("/v1/boards/{}/signals", self.board), &signal).await.is(202);
    }

    /// The state once there are so many replies.
    async fn replied(&self, count: usize) -> Value {
        for _ in 0..1000 {
            let state = self.state().await;
            if state["replies"].as_array().map_or(0, Vec::len) >= count {
                return state;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("never {count} replies: {}", self.state().await);
    }
}

#[tokio::test]
async fn a_folder_that_was_dropped_in_is_asked_and_its_question_outlives_the_daemon() {
    let mut conversation = Conversation::begin().await;
    // Said at once, answered one after the other.
    conversation.say("The fern in the hall is new.").await;
    conversation.say("The fern in the study is new.").await;
    assert_eq!(last_reply(&conversation.replied(2).await), "The fern in the study is noted.");
    conversation.say("The fern has died.").await;
    let asked = conversation.replied(3).await;
    assert_eq!(
        (&asked["results"][0]["department"], &asked["results"][0]["status"]),
        (&json!("plants"), &json!("clarification"))
    );
    assert!(last_reply(&asked).contains("in which room, hall or study?"), "{asked}");
    conversation.daemon.kill();
    conversation.daemon.start();
    conversation.say("the study").await;
    let done = conversation.replied(4).await;
    assert_eq!(last_reply(&done), "The fern in the study is gone.");
    assert_eq!(done["turn"]["pending"]["department"], "plants");
    // Whoever listens is told of the reply when it is there.
    let events = conversation.daemon.get(&format!("/v1/boards/{}/journal", conversation.board)).await.is(200);
    let text = events.to_string();
    assert!(text.contains("The fern in the study is gone."), "the reply is a record of the stream");
    // The other department knows nothing of it.
    conversation.say("What is on the office list?").await;
    assert_eq!(last_reply(&conversation.replied(5).await), "On the office list: nothing.");
}
