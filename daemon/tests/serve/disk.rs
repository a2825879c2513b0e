//! Storage that temporarily rejects writes: the daemon reports it, and its boards resume by themselves afterwards.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;

use crate::daemon::{Daemon, STEPS};

#[tokio::test]
async fn boards_that_storage_has_interrupted_go_on_by_themselves() {
    let daemon = Daemon::new();
    let remote = STEPS.replace("agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]", "agent: remote");
    let made = daemon.post("/v1/boards", &json!({ "source": remote })).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    daemon.get("/readyz").await.expect_status(200);
    let holder = Connection::open(daemon.path().join("boards/patchboard.db")).expect("it can be opened");
    holder.execute_batch("BEGIN IMMEDIATE;").expect("nobody else writes");
    let signals = format!("/v1/boards/{board}/signals");
    let unheard = daemon.post(&signals, &json!({"name": "more"})).await;
    assert!(unheard.status.is_server_error(), "{}", unheard.status);
    while daemon.get("/readyz").await.status.is_success() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let answer = daemon.get("/readyz").await;
    answer.expect_problem(503, "not_ready");
    assert!(answer.text.contains("locked by another program"), "{}", answer.text);
    daemon.get("/healthz").await.expect_status(200);
    holder.execute_batch("ROLLBACK;").expect("it is held");
    while !daemon.get("/readyz").await.status.is_success() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The board resumes without a request for it.
    while daemon.get(&format!("/v1/boards/{board}")).await.expect_status(200)["status"] == "interrupted" {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    daemon.post(&signals, &json!({"name": "more"})).await.expect_status(202);
    let lease = json!({"worker": "walker", "wait": 10});
    assert_eq!(daemon.post(&format!("/v1/boards/{board}/leases"), &lease).await.expect_status(200)["attempt"], 2);
}
