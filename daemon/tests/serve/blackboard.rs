//! The shipped blackboard on a daemon: what a seat's token opens of rooms.

use patchboard_kernel::source::Source;
use reqwest::Method;
use serde_json::{Value, json};

use crate::daemon::Daemon;

const TEXT: &str = include_str!("../../../blueprints/blackboard.yaml");

/// Two experts talk in a room, in words with a mark, and conclude; then the decider ends it.
fn scripted() -> Value {
    let source = Source::read("blackboard.yaml", TEXT).expect("it can be read");
    let mut blueprint = source.value().clone();
    let conflict = "{\"conflict list\": [{\"agent\": \"expert_1\", \"message\": \"It is 7.\"}, \
        {\"agent\": \"expert_2\", \"message\": \"It is 8.\"}]}";
    for (name, worker) in blueprint["workers"].as_object_mut().expect("workers") {
        let words: &[&str] = match name.as_str() {
            "generator" => &["{\"Counter\": \"Counts.\", \"Doubter\": \"Doubts.\"}"],
            "control" => &[
                "{\"chosen agents\": [\"expert_1\", \"expert_2\", \"conflict_resolver\"]}",
                "{\"chosen agents\": [\"critic\", \"decider\"]}",
            ],
            "expert_1" => &["It is 7.", "<W> I have counted.", "<W> Count again.", "It is 7."],
            "expert_2" => &["It is 8.", "<W> So have I.", "<W> You are right.", "It is 7."],
            "conflict_resolver" => &[conflict],
            "decider" => &["the final answer is boxed[7]"],
            _ => &["waiting for more information"],
        };
        if worker["agent"] == "llm" {
            worker["agent"] = json!("script");
            worker["script"] = words.iter().map(|words| json!({"text": words})).collect();
        }
    }
    blueprint
}

#[tokio::test]
async fn a_token_of_a_seat_opens_the_rooms_of_that_seat_and_no_other() {
    let mut daemon = Daemon::at_rest(&["--require-tokens"]);
    let admin = daemon.token("admin");
    daemon.start();
    let get = async |token: &str, path: &str| {
        daemon.request(Method::GET, path, &[("authorization", &format!("Bearer {token}"))], None).await
    };
    let blueprint = scripted();
    let body = json!({"source": blueprint.to_string(), "request": {"question": "How many are there?"}});
    let bearer = format!("Bearer {admin}");
    let made = daemon.post_with("/v1/boards", &body, &[("authorization", &bearer)]).await.is(201);
    let board = format!("/v1/boards/{}", made["board"].as_str().expect("an id"));
    let mut state = json!({});
    for _ in 0..600 {
        state = get(&admin, &format!("{board}/state")).await.is(200);
        if state["state"]["answer"].is_object() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let rooms = state["state"]["board"]["rooms"].as_object().unwrap_or_else(|| panic!("no rooms in {state}"));
    let room = rooms.keys().next().expect("a room").clone();
    let version = state["version"].as_u64().expect("a version");
    for worker in blueprint["workers"].as_object().expect("workers").keys() {
        let token = daemon.token(&format!("seat:{}/{worker}", made["board"].as_str().expect("an id")));
        for path in ["state", "journal", "events", "why?pointer=/board", "views/expert_3"] {
            let is_own = path.ends_with(worker.as_str());
            let status = get(&token, &format!("{board}/{path}")).await.status;
            assert_eq!(status == 403, !is_own, "{worker} at {path}: {status}");
        }
        let (is_member, mut heard) = (matches!(worker.as_str(), "expert_1" | "expert_2"), 0);
        for at in (0..=version).step_by(5) {
            let view = get(&token, &format!("{board}/views/{worker}?at={at}")).await.is(200).to_string();
            let is_told = view.contains("<W>") || view.contains(&room);
            assert!(is_member || !is_told, "{worker} is told of {room} at {at}: {view}");
            heard += usize::from(is_told);
        }
        assert_eq!(heard > 1, is_member, "{worker}");
    }
}
