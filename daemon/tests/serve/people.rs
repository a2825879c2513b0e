//! Questions to persons over HTTP: listed, answered once, and through a kill of the daemon.

use serde_json::{Value, json};

use crate::daemon::{Daemon, STEPS};

/// A board whose worker needs a person's word for a step.
async fn asking(daemon: &Daemon) -> (String, Value) {
    let asking = STEPS
        .replace("value: {maximum: 9}}]", "value: {maximum: 9}, approval: {by: editor, expires: 1h}}]")
        .replace("rules:\n", "  editor: {agent: human}\nrules:\n");
    let made = daemon.post("/v1/boards", &json!({ "source": asking })).await.is(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    daemon.until(&board, "waiting").await;
    let inbox = daemon.get("/v1/inbox").await.is(200);
    let questions = inbox["questions"].as_array().expect("a list");
    let question = questions.iter().find(|question| question["board"] == board.as_str()).expect("it is asked").clone();
    (board, question)
}

#[tokio::test]
async fn a_question_is_answered_once_for_exactly_what_was_shown() {
    let mut daemon = Daemon::new();
    let (board, question) = asking(&daemon).await;
    assert_eq!(question["patch"], json!([{"op": "add", "path": "/steps/-", "value": 1}]));
    daemon.kill();
    daemon.start();
    daemon.until(&board, "waiting").await;
    assert_eq!(daemon.get("/v1/inbox").await.is(200)["questions"], json!([question]));
    let path = format!("/v1/boards/{board}/approvals/{}", question["seq"]);
    let answer = |by: &str, digest: &Value| json!({"agrees": true, "digest": digest, "by": by, "reason": "seen"});
    let other = json!("0".repeat(64));
    daemon.post(&path, &answer("walker", &question["digest"])).await.refuses(422, "wrong_approver");
    daemon.post(&path, &answer("editor", &other)).await.refuses(422, "approval_mismatch");
    daemon.post(&path, &answer("editor", &json!("x"))).await.refuses(422, "bad_body");
    let elsewhere = format!("/v1/boards/{board}/approvals/0");
    daemon.post(&elsewhere, &answer("editor", &question["digest"])).await.refuses(409, "not_pending");
    let right = answer("editor", &question["digest"]);
    let committed = daemon.post(&path, &right).await.is(200);
    assert_eq!(committed["outcome"], "committed");
    // The same answer again, and another one.
    let again = daemon.post(&path, &right).await.is(200);
    assert_eq!((&again["outcome"], &again["seq"]), (&committed["outcome"], &committed["seq"]));
    let mut changed = right;
    changed["agrees"] = false.into();
    daemon.post(&path, &changed).await.refuses(409, "not_pending");
    assert_eq!(daemon.get("/v1/inbox").await.is(200)["questions"], json!([]));
    assert_eq!(daemon.get(&format!("/v1/boards/{board}/state")).await.is(200)["state"], json!({"steps": [1]}));
}
