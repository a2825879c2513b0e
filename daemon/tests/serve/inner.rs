//! Nested boards across kills of the daemon.

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::{Value, json};

use crate::daemon::Daemon;

/// Returns a board with a nested board as its only worker; in the nested board a remote worker has to answer.
fn outer() -> Value {
    let inside = json!({
        "blueprint": 1, "name": "inside",
        "request": {"type": "object", "additionalProperties": false, "properties": {}},
        "state": {"schema": {"type": "object", "properties": {
            "request": true, "begun": {"type": "boolean"}, "answer": {"type": "string"},
        }}},
        "workers": {
            "beginner": {"agent": "script", "script": [[{"op": "add", "path": "/begun", "value": true}]],
                         "writes": [{"path": "/begun"}]},
            "asked": {"agent": "remote", "reads": ["/begun"], "writes": [{"path": "/answer"}]},
        },
        "rules": [
            {"name": "begin", "trigger": "start", "run": "beginner"},
            {"name": "ask", "trigger": {"op": "add", "path": "/begun"}, "run": "asked"},
        ],
        "done": {"when": "has(state.answer)"},
    });
    json!({
        "blueprint": 1, "name": "outer",
        "state": {"schema": {"type": "object", "properties": {"request": true, "answer": {"type": "string"}}}},
        "workers": {"inside": {
            "agent": "board", "writes": [{"path": "/answer"}], "limits": {"timeout": "5m"},
            "board": {"of": "inside", "output": {"/answer": "/answer"}},
        }},
        "rules": [{"name": "begin", "trigger": "start", "run": "inside"}],
        "done": {"when": "has(state.answer)"},
        "boards": {"inside": inside},
    })
}

async fn inside(daemon: &Daemon) -> Vec<Value> {
    let boards = daemon.get("/v1/boards").await.expect_status(200);
    let boards = boards["boards"].as_array().expect("a list");
    boards.iter().filter(|board| board.get("parent").is_some()).cloned().collect()
}

#[tokio::test]
async fn after_a_kill_the_board_inside_goes_on_and_its_answer_comes_out() {
    let mut daemon = Daemon::new();
    let made = daemon.post("/v1/boards", &json!({"blueprint": outer(), "request": {}})).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    for _ in 0..500 {
        if inside(&daemon).await.first().is_some_and(|inside| inside["version"] == 1) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    daemon.kill();
    daemon.start();
    let boards = inside(&daemon).await;
    let [inner] = boards.as_slice() else { panic!("{boards:?}") };
    assert_eq!((&inner["parent"], &inner["version"]), (&json!(board), &json!(1)));
    let id = inner["board"].as_str().expect("an id");
    let leases = format!("/v1/boards/{id}/leases");
    let lease = daemon.post(&leases, &json!({"worker": "asked", "seconds": 60, "wait": 30})).await.expect_status(200);
    let answer = json!({"worker": "asked", "patch": [{"op": "add", "path": "/answer", "value": "at last"}]});
    let lease = lease["lease"].as_str().expect("a lease");
    daemon.post(&format!("{leases}/{lease}/answer"), &answer).await.expect_status(200);
    daemon.until(&board, "done").await;
    assert_eq!(daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200)["state"]["answer"], "at last");
    assert_eq!(inside(&daemon).await.len(), 1);
}

#[tokio::test]
async fn a_board_inside_that_its_provider_pauses_is_paused_wherever_it_is_listed() {
    let refused = ScriptedResponse::Say(401, "", r#"{"error":{"message":"Incorrect API key provided"}}"#.into());
    let endpoint = Endpoint::new(vec![refused]);
    let mut daemon = Daemon::not_started(&[]);
    daemon.configure(&format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n", endpoint.url));
    daemon.start();
    let mut blueprint = outer();
    blueprint["boards"]["inside"]["workers"]["asked"]["agent"] = json!("llm");
    let made = daemon.post("/v1/boards", &json!({"blueprint": blueprint, "request": {}})).await.expect_status(201);
    let outer = made["board"].as_str().expect("an id");
    for _ in 0..2 {
        daemon.until(outer, "paused").await;
        let listed = daemon.get("/v1/boards").await.expect_status(200);
        let boards = listed["boards"].as_array().expect("a list").iter();
        let states: Vec<_> = boards.map(|board| (board["status"].clone(), board["cause"].clone())).collect();
        assert_eq!(states, vec![(json!("paused"), json!("provider_unavailable")); 2]);
        let output = daemon.command(&["boards"]).output().expect("the binary can be run");
        let text = String::from_utf8(output.stdout).expect("text");
        let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert!(rows.len() == 2 && rows.iter().all(|board| board["status"] == "paused"), "{text}");
        daemon.kill();
        daemon.start();
    }
}
