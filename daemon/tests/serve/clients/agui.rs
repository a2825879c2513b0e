//! The AG-UI client follows a busy board, loses its connection repeatedly, and ends with the board's document.

use std::time::Duration;

use serde_json::{Value, json};

use super::Client;
use crate::daemon::Daemon;

/// Time limit of the client.
const TIME: Duration = Duration::from_secs(120);

/// Number of times that all proposals are made.
const ROUNDS: usize = 10;

/// Returns consecutive proposals: all operations, paths that some clients misread, and some that the kernel rejects.
fn proposals(round: usize) -> Vec<Value> {
    vec![
        json!([{"op": "add", "path": "/items/-", "value": {"round": round, "big": 1e300, "small": 0.1}}]),
        json!([{"op": "add", "path": "/items/0", "value": [round]}, {"op": "test", "path": "/items/0/0", "value": round}]),
        json!([{"op": "remove", "path": "/items/0"}]),
        json!([{"op": "add", "path": "/items/7777", "value": "refused"}]),
        json!([{"op": "add", "path": format!("/conf/a~1b~0{round}"), "value": null}]),
        json!([{"op": "move", "from": format!("/conf/a~1b~0{round}"), "path": "/conf/moved"}]),
        json!([{"op": "copy", "from": "/items", "path": "/conf/copied"}]),
        json!([{"op": "replace", "path": "/conf/copied", "value": [1, 2, 3]}, {"op": "move", "from": "/conf/copied/0", "path": "/conf/copied/2"}]),
        json!([{"op": "add", "path": "/conf/toString", "value": round}]),
        json!([{"op": "add", "path": "/conf/constructor", "value": {"prototype": round}}]),
        json!([{"op": "replace", "path": "/conf/constructor/prototype", "value": [round]}]),
        json!([{"op": "replace", "path": "/items", "value": "refused"}]),
        json!([{"op": "remove", "path": "/items/0"}]),
        json!([{"op": "add", "path": "/conf/", "value": {"": round}}]),
    ]
}

/// Follows a board to its end; returns the number of destroyed connections.
async fn follows(client: Client, flags: &[&str]) -> u64 {
    let daemon = Daemon::new();
    let made = daemon.post("/v1/boards", &json!({"source": include_str!("agui.yaml")})).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    let url = format!("http://{}/v1/boards/{board}/agui", daemon.address());
    let arguments: Vec<String> = [url.as_str()].iter().chain(flags).map(|flag| (*flag).to_owned()).collect();
    let following = tokio::task::spawn_blocking(move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        client.run("agui.mjs", &arguments, TIME)
    });
    let (path, signals) = (format!("/v1/boards/{board}/proposals"), format!("/v1/boards/{board}/signals"));
    for round in 0..ROUNDS {
        daemon.post(&signals, &json!({"name": "more"})).await.expect_status(202);
        for patch in proposals(round) {
            let answer = daemon.post(&path, &json!({"worker": "anybody", "patch": patch})).await;
            assert!(matches!(answer.status.as_u16(), 200 | 422), "{}", answer.text);
        }
    }
    let end = json!([{"op": "replace", "path": "/closed", "value": true}]);
    daemon.post(&path, &json!({"worker": "anybody", "patch": end})).await.expect_status(200);
    let report: Value = serde_json::from_str(&following.await.expect("it ends")).expect("JSON");
    let state = daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200);
    assert_eq!(report["state"], state["state"]);
    assert_eq!((&report["outcome"]["type"], &report["result"]["version"]), (&json!("success"), &state["version"]));
    let count = |of: &str| report["counts"][of].as_u64().unwrap_or_default();
    assert!(count("STATE_DELTA") > 50 && count("patchboard.rejected") > 5, "{}", report["counts"]);
    if flags.is_empty() {
        assert_eq!(count("STEP_STARTED"), count("STEP_FINISHED"), "{}", report["counts"]);
    }
    // One initial snapshot, and those for the path that some clients cannot patch. Some of these were in flight when
    // the connection ended; a reconnecting client is not sent again what it has.
    assert!(count("STATE_SNAPSHOT") <= 1 + 2 * ROUNDS as u64, "{}", report["counts"]);
    report["broken"].as_u64().expect("a number")
}

#[tokio::test]
#[ignore = "full tier: packages from registries"]
async fn the_client_makes_the_document_of_the_stream() {
    let Some(client) = Client::find("agui") else { return };
    follows(client, &[]).await;
}

#[tokio::test]
#[ignore = "full tier: packages from registries"]
async fn the_client_goes_on_where_its_connection_ended() {
    let Some(client) = Client::find("agui") else { return };
    let broken = follows(client, &["--break", "7"]).await;
    assert!(broken > 5, "{broken}");
}
