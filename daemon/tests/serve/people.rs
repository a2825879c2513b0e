//! Questions to persons over HTTP: listed, answered once, and through a kill of the daemon.

use serde_json::{Value, json};

use crate::daemon::{Daemon, STEPS};

/// A board whose worker needs a person's word for a step.
pub(crate) async fn asking(daemon: &Daemon) -> (String, Value) {
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

/// A board whose walker asks the guide how far to go.
pub(crate) async fn lost(daemon: &Daemon) -> (String, Value) {
    let lost = STEPS
        .replace(
            "    script: [[{op: add",
            "    clarify: {by: guide}\n    script: [{clarify: {question: How far?}}, [{op: add",
        )
        .replace("rules:\n", "  guide: {agent: human}\nrules:\n");
    let made = daemon.post("/v1/boards", &json!({ "source": lost })).await.is(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    daemon.until(&board, "waiting").await;
    let inbox = daemon.get("/v1/inbox").await.is(200);
    (board, inbox["questions"][0].clone())
}

#[tokio::test]
async fn a_worker_is_told_what_it_has_asked_through_a_kill() {
    let mut daemon = Daemon::new();
    let (board, question) = lost(&daemon).await;
    assert_eq!(question["clarify"]["question"], "How far?");
    daemon.kill();
    daemon.start();
    daemon.until(&board, "waiting").await;
    let path = format!("/v1/boards/{board}/approvals/{}", question["seq"]);
    let mut answer = json!({"agrees": true, "digest": question["digest"], "by": "guide"});
    daemon.post(&path, &answer).await.refuses(422, "answer_not_offered");
    answer["text"] = "as far as you like".into();
    let told = daemon.post(&path, &answer).await.is(200);
    assert_eq!(told["outcome"], "answered");
    assert_eq!(daemon.post(&path, &answer).await.is(200), told, "the same answer once more");
    answer["text"] = "no further".into();
    daemon.post(&path, &answer).await.refuses(409, "not_pending");
    daemon.until(&board, "quiescent").await;
    assert_eq!(daemon.get(&format!("/v1/boards/{board}/state")).await.is(200)["state"], json!({"steps": [1]}));
}

#[tokio::test]
async fn the_command_line_answers_over_http_with_a_token_that_may() {
    let mut daemon = Daemon::at_rest(&["--require-tokens"]);
    let (admin, read) = (daemon.token("admin"), daemon.token("read"));
    daemon.start();
    let as_admin = format!("Bearer {admin}");
    let lost = STEPS
        .replace(
            "    script: [[{op: add",
            "    clarify: {by: guide}\n    script: [{clarify: {question: How far?}}, [{op: add",
        )
        .replace("value: {maximum: 9}}]", "value: {maximum: 9}, approval: {by: guide}}]")
        .replace("rules:\n", "  guide: {agent: human}\nrules:\n");
    let headers = [("authorization", as_admin.as_str()), ("content-type", "application/json")];
    let body = json!({ "source": lost }).to_string();
    let made = daemon.request(reqwest::Method::POST, "/v1/boards", &headers, Some(body)).await.is(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    let url = format!("http://{}", daemon.address());
    let run = |arguments: &[&str], token: &str| {
        let mut command = daemon.command(&[arguments, &["--quiet", "--url", &url]].concat());
        let ran = command.env("PATCHBOARD_TOKEN", token).output().expect("the binary can be run");
        let text = if ran.status.success() { ran.stdout } else { ran.stderr };
        let told: Value = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
        (ran.status.code().expect("a code"), told)
    };
    let asked = || loop {
        let (code, inbox) = run(&["inbox"], &admin);
        assert_eq!(code, 0, "{inbox}");
        if let Some(question) = inbox["questions"].as_array().and_then(|questions| questions.first()) {
            break question["seq"].to_string();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let first = asked();
    assert_eq!(run(&["inbox"], "").1["error"]["code"], "unauthorized");
    let (code, told) = run(&["answer", &board, &first, "--text", "to the end"], &read);
    assert_eq!((code, &told["error"]["code"]), (2, &json!("forbidden")));
    assert_eq!(run(&["answer", &board, &first], &admin).1["error"]["code"], "answer_missing");
    assert_eq!(run(&["answer", &board, "999", "--text", "x"], &admin).1["error"]["code"], "not_pending");
    assert_eq!(run(&["answer", &board, &first, "--text", "to the end"], &admin).1["outcome"], "answered");
    let second = asked();
    assert_ne!(first, second);
    assert_eq!(run(&["deny", &board, &second, "--reason", "no"], &admin), (0, json!({"outcome": "rejected"})));
    let third = asked();
    assert_eq!(run(&["approve", &board, &third], &admin).1["outcome"], "committed");
}
