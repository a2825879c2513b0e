//! Questions to persons over HTTP: listed, answered once, and preserved across a kill of the daemon.

use reqwest::Method;
use serde_json::{Value, json};

use crate::daemon::{Daemon, STEPS};

/// Returns [`STEPS`] where a person approves each step.
pub(crate) fn approved_steps() -> String {
    STEPS
        .replace("value: {maximum: 9}}]", "value: {maximum: 9}, approval: {by: editor, expires: 1h}}]")
        .replace("rules:\n", "  editor: {agent: human}\nrules:\n")
}

/// Returns [`STEPS`] where the walker asks a person first.
pub(crate) fn clarified_steps() -> String {
    STEPS
        .replace(
            "    script: [[{op: add",
            "    clarify: {by: guide}\n    script: [{clarify: {question: How far?}}, [{op: add",
        )
        .replace("rules:\n", "  guide: {agent: human}\nrules:\n")
}

/// Creates a board with a worker that needs a person's approval of a step.
pub(crate) async fn asking(daemon: &Daemon) -> (String, Value) {
    let made = daemon.post("/v1/boards", &json!({ "source": approved_steps() })).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    daemon.until(&board, "waiting").await;
    let inbox = daemon.get("/v1/inbox").await.expect_status(200);
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
    assert_eq!(daemon.get("/v1/inbox").await.expect_status(200)["questions"], json!([question]));
    let path = format!("/v1/boards/{board}/approvals/{}", question["seq"]);
    let answer = |digest: &Value| json!({"agrees": true, "digest": digest, "reason": "seen"});
    let other = json!("0".repeat(64));
    let mut named = answer(&question["digest"]);
    named["by"] = "editor".into();
    daemon.post(&path, &named).await.expect_problem(422, "bad_body");
    daemon.post(&path, &answer(&other)).await.expect_problem(422, "approval_mismatch");
    daemon.post(&path, &answer(&json!("x"))).await.expect_problem(422, "bad_body");
    let elsewhere = format!("/v1/boards/{board}/approvals/0");
    daemon.post(&elsewhere, &answer(&question["digest"])).await.expect_problem(409, "not_pending");
    let right = answer(&question["digest"]);
    let committed = daemon.post(&path, &right).await.expect_status(200);
    assert_eq!(committed["outcome"], "committed");
    // The same answer again, and a different one.
    let again = daemon.post(&path, &right).await.expect_status(200);
    assert_eq!((&again["outcome"], &again["seq"]), (&committed["outcome"], &committed["seq"]));
    let mut changed = right;
    changed["agrees"] = false.into();
    daemon.post(&path, &changed).await.expect_problem(409, "not_pending");
    assert_eq!(daemon.get("/v1/inbox").await.expect_status(200)["questions"], json!([]));
    assert_eq!(
        daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200)["state"],
        json!({"steps": [1]})
    );
}

/// Creates a board with a walker that asks the guide how far to go.
pub(crate) async fn lost(daemon: &Daemon) -> (String, Value) {
    let made = daemon.post("/v1/boards", &json!({ "source": clarified_steps() })).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    daemon.until(&board, "waiting").await;
    let inbox = daemon.get("/v1/inbox").await.expect_status(200);
    (board, inbox["questions"][0].clone())
}

#[tokio::test]
async fn a_worker_learns_what_it_has_asked_through_a_kill() {
    let mut daemon = Daemon::new();
    let (board, question) = lost(&daemon).await;
    assert_eq!(question["clarify"]["question"], "How far?");
    daemon.kill();
    daemon.start();
    daemon.until(&board, "waiting").await;
    let path = format!("/v1/boards/{board}/approvals/{}", question["seq"]);
    let mut answer = json!({"agrees": true, "digest": question["digest"]});
    daemon.post(&path, &answer).await.expect_problem(422, "answer_not_offered");
    answer["text"] = "as far as you like".into();
    let answered = daemon.post(&path, &answer).await.expect_status(200);
    assert_eq!(answered["outcome"], "answered");
    assert_eq!(daemon.post(&path, &answer).await.expect_status(200), answered, "the same answer once more");
    answer["text"] = "no further".into();
    daemon.post(&path, &answer).await.expect_problem(409, "not_pending");
    daemon.until(&board, "quiescent").await;
    assert_eq!(
        daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200)["state"],
        json!({"steps": [1]})
    );
}

#[tokio::test]
async fn the_command_line_answers_over_http_with_a_token_that_may() {
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    let (admin, read, guide) = (daemon.token("admin"), daemon.token("read"), daemon.token("person:guide"));
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
    let made = daemon.request(Method::POST, "/v1/boards", &headers, Some(body)).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    let url = format!("http://{}", daemon.address());
    let run = |arguments: &[&str], token: &str| {
        let mut command = daemon.command(&[arguments, &["--quiet", "--url", &url]].concat());
        let ran = command.env("PATCHBOARD_TOKEN", token).output().expect("the binary can be run");
        let text = if ran.status.success() { ran.stdout } else { ran.stderr };
        let printed: Value = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
        (ran.status.code().expect("a code"), printed)
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
    let (code, printed) = run(&["answer", &board, &first, "--text", "to the end"], &read);
    assert_eq!((code, &printed["error"]["code"]), (2, &json!("forbidden")));
    // An administrator can read the question and cannot answer for the person.
    let (code, printed) = run(&["answer", &board, &first, "--text", "to the end"], &admin);
    assert_eq!((code, &printed["error"]["code"]), (2, &json!("not_the_person")));
    assert_eq!(run(&["answer", &board, &first], &guide).1["error"]["code"], "answer_missing");
    assert_eq!(run(&["answer", &board, "999", "--text", "x"], &guide).1["error"]["code"], "not_pending");
    assert_eq!(run(&["answer", &board, &first, "--text", "to the end"], &guide).1["outcome"], "answered");
    let second = asked();
    assert_ne!(first, second);
    assert_eq!(run(&["deny", &board, &second, "--reason", "no"], &guide), (0, json!({"outcome": "rejected"})));
    let third = asked();
    assert_eq!(run(&["approve", &board, &third], &guide).1["outcome"], "committed");
}

#[tokio::test]
async fn only_a_persons_own_token_is_the_person_and_the_journal_names_it() {
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    let admin = daemon.token("admin");
    daemon.start();
    let asking =
        STEPS.replace("value: {maximum: 9}}]", "value: {maximum: 9}, approval: {by: editor, expires: 1h}}]").replace(
            "rules:\n",
            "  editor: {agent: human, writes: [{path: /steps/-, ops: [add]}]}\n  second: {agent: human}\nrules:\n",
        );
    let bearer = |token: &str| format!("Bearer {token}");
    let as_admin = bearer(&admin);
    let made = daemon
        .post_with("/v1/boards", &json!({ "source": asking }), &[("authorization", &as_admin)])
        .await
        .expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    let own = daemon.token("person:editor");
    let inbox = |token: String| {
        let daemon = &daemon;
        async move {
            daemon
                .request(Method::GET, "/v1/inbox", &[("authorization", &bearer(&token))], None)
                .await
                .expect_status(200)
        }
    };
    let question = loop {
        match &inbox(own.clone()).await["questions"][0] {
            Value::Null => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            question => break question.clone(),
        }
    };
    let path = format!("/v1/boards/{board}/approvals/{}", question["seq"]);
    let answer = json!({"agrees": true, "digest": question["digest"]});
    let proposal = json!({"worker": "editor", "patch": [{"op": "add", "path": "/steps/-", "value": 7}]});
    let proposals = format!("/v1/boards/{board}/proposals");
    for (scope, status, code) in [
        ("admin".to_owned(), 403, "not_the_person"),
        (format!("board:{board}"), 403, "not_the_person"),
        (format!("seat:{board}/walker"), 403, "not_the_person"),
        ("person:second".to_owned(), 403, "not_the_person"),
        ("read".to_owned(), 403, "forbidden"),
        ("seat:0199/editor".to_owned(), 404, "no_such_board"),
    ] {
        let token = bearer(&daemon.token(&scope));
        let headers = [("authorization", token.as_str())];
        daemon.post_with(&path, &answer, &headers).await.expect_problem(status, code);
        daemon.post_with(&proposals, &proposal, &headers).await.expect_problem(status, code);
    }
    assert_eq!(inbox(daemon.token("person:second")).await["questions"], json!([]));
    let as_editor = bearer(&own);
    daemon.post_with(&proposals, &proposal, &[("authorization", &as_editor)]).await.expect_status(200);
    daemon.post_with(&path, &answer, &[("authorization", &as_editor)]).await.expect_status(200);
    let journal = format!("/v1/boards/{board}/journal");
    let records = daemon.request(Method::GET, &journal, &[("authorization", &as_admin)], None).await.expect_status(200);
    let of_kind = |kind: &str| {
        let records = records["records"].as_array().expect("a list");
        records.iter().find(|record| record["kind"] == kind).expect("it is there")["principal"].clone()
    };
    for (kind, id) in [("created", 1), ("answer", 2)] {
        let caller = of_kind(kind);
        assert_eq!((&caller["id"], &caller["made_by"]["kind"]), (&json!(id), &json!("user")), "{caller}");
    }
}
