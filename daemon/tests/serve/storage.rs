//! Redacting values of running boards and reclaiming disk space, while boards continue.

use std::fs;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::daemon::{Daemon, STEPS};
use crate::held::holding;

const SECRET: &str = "Quisquilius, born 1979";

/// Returns true if any file of the data directory contains the secret.
fn is_held(daemon: &Daemon) -> bool {
    !holding(&daemon.path().join("boards"), &[SECRET]).is_empty()
}

async fn board(daemon: &Daemon) -> String {
    let made =
        daemon.post("/v1/boards", &json!({"source": STEPS, "request": {"who": SECRET}})).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    daemon.until(&board, "quiescent").await;
    board
}

#[tokio::test]
async fn a_value_of_a_board_that_runs_is_replaced_and_erased_and_the_board_goes_on() {
    let mut daemon = Daemon::new();
    let board = board(&daemon).await;
    let (other, redactions) = (daemon.board().await, format!("/v1/boards/{board}/redactions"));
    let asked = json!({"places": ["/request/who"]});
    let refused = daemon.post(&redactions, &asked).await.expect_problem(409, "still_in_use");
    assert_eq!(refused["places"], json!(["/request/who"]));
    let replace = json!({"places": ["/request/who"], "replace": "withheld"});
    let done = daemon.post_once(&redactions, &replace, "one").await.expect_status(200);
    assert_eq!((&done["replaced_at"].is_u64(), &done["scrubbed"]), (&true, &json!(true)), "{done}");
    assert!(!is_held(&daemon));
    let again = daemon.post_once(&redactions, &replace, "one").await;
    assert_eq!(again.expect_status(200)["seq"], done["seq"]);
    assert!(again.is_replayed());
    daemon
        .post_once(&redactions, &json!({"places": ["/steps"], "keep": true}), "one")
        .await
        .expect_problem(409, "redaction_conflict");

    let state = daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200);
    assert_eq!(state["state"]["request"]["who"], "withheld");
    let old = daemon.get(&format!("/v1/boards/{board}/state?at=0")).await.expect_status(200);
    assert!(old["state"]["request"]["who"].as_str().is_some_and(|text| text.starts_with("$redacted:")), "{old}");
    for path in ["journal", "why?pointer=/request/who", "cost", "denials", "views/walker"] {
        let answer = daemon.get(&format!("/v1/boards/{board}/{path}")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        assert!(!answer.text.contains(SECRET), "{path}");
    }
    // Both boards continue, also after a kill.
    for id in [&board, &other] {
        let steps = |state: Value| state["state"]["steps"].as_array().map_or(0, Vec::len);
        let before = steps(daemon.get(&format!("/v1/boards/{id}/state")).await.expect_status(200));
        daemon.post(&format!("/v1/boards/{id}/signals"), &json!({"name": "more"})).await.expect_status(202);
        daemon.until(id, "quiescent").await;
        assert_eq!(steps(daemon.get(&format!("/v1/boards/{id}/state")).await.expect_status(200)), before + 1);
    }
    daemon.kill();
    daemon.start();
    daemon.until(&board, "quiescent").await;
    assert!(!is_held(&daemon));
    daemon.stop();
    for command in ["verify", "replay"] {
        let ran = daemon.command(&[command, &board]).output().expect("the binary can be run");
        assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stdout));
    }
}

#[tokio::test]
async fn invalid_redactions_are_rejected_with_their_code() {
    let daemon = Daemon::new();
    let board = board(&daemon).await;
    let path = format!("/v1/boards/{board}/redactions");
    for (body, status, code) in [
        (json!({}), 422, "bad_redaction"),
        (json!({"places": ["who"]}), 400, "bad_pointer"),
        (json!({"records": [0]}), 422, "bad_redaction"),
        (json!({"records": [100_000]}), 422, "bad_redaction"),
        (json!({"places": ["/nowhere"]}), 422, "nothing_to_erase"),
        (json!({"places": ["/steps"], "replace": "no array"}), 422, "replacement_refused"),
        (json!({"places": ["/request/who"], "forget_salt": true}), 409, "still_in_use"),
        (json!({"anything": 1}), 422, "bad_body"),
    ] {
        daemon.post(&path, &body).await.expect_problem(status, code);
    }
    daemon.post("/v1/boards/nobody/redactions", &json!({"places": ["/x"]})).await.expect_problem(404, "no_such_board");
    assert!(is_held(&daemon));
}

/// Writes a departments file as left by an earlier run: a row, and the outcome of the call that created it.
fn keep_a_row(daemon: &Daemon) {
    let connection = Connection::open(daemon.path().join("boards/departments.sqlite")).expect("it can be made");
    let outcome = json!({
        "status": "done", "action": "add", "rows": [{"id": 1, "after": {"item": SECRET}}], "count": 1, "verified": true,
    });
    let tables = format!(
        "PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 1;
         CREATE TABLE departments (name TEXT NOT NULL PRIMARY KEY, fields TEXT NOT NULL) STRICT;
         CREATE TABLE outcomes (key TEXT NOT NULL PRIMARY KEY, department TEXT NOT NULL, recorded INTEGER NOT NULL,
            outcome TEXT NOT NULL) STRICT;
         CREATE TABLE department_notes (seq INTEGER PRIMARY KEY, id INTEGER NOT NULL, version INTEGER NOT NULL, item TEXT,
            valid_from INTEGER NOT NULL, valid_to INTEGER, recorded_from INTEGER NOT NULL, recorded_to INTEGER,
            deleted INTEGER NOT NULL, key TEXT NOT NULL) STRICT;
         INSERT INTO departments VALUES ('notes', '{{\"item\":\"string\"}}');
         INSERT INTO outcomes VALUES ('b:1', 'notes', 5, '{outcome}');
         INSERT INTO department_notes VALUES (1, 1, 1, 'about {SECRET}', 5, NULL, 5, NULL, 0, 'b:1');",
        APPLICATION = 0x5042_4450
    );
    connection.execute_batch(&tables).expect("it can be written");
}

#[tokio::test]
async fn rows_of_departments_are_erased_or_kept_as_it_is_said() {
    for (rows, is_held_then) in [("keep", true), ("erase", false)] {
        let daemon = Daemon::new();
        let board = board(&daemon).await;
        keep_a_row(&daemon);
        let path = format!("/v1/boards/{board}/redactions");
        let mut asked = json!({"places": ["/request/who"], "replace": "withheld"});
        let refused = daemon.post(&path, &asked).await.expect_problem(409, "kept_by_departments");
        assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("department notes (1)")), "{refused}");
        asked["departments"] = "whatever".into();
        daemon.post(&path, &asked).await.expect_problem(422, "bad_body");
        asked["departments"] = rows.into();
        let done = daemon.post(&path, &asked).await.expect_status(200);
        assert_eq!(done["departments"], json!({"rows": {"notes": [1]}, "outcomes": 1, "erased": !is_held_then}));
        assert_eq!(is_held(&daemon), is_held_then);
    }
}

#[tokio::test]
async fn a_redaction_fails_while_department_rows_cannot_be_erased() {
    let daemon = Daemon::new();
    let board = board(&daemon).await;
    fs::write(daemon.path().join("boards/departments.sqlite"), "no database ".repeat(1000)).expect("it can be written");
    let path = format!("/v1/boards/{board}/redactions");
    let mut asked = json!({"places": ["/request/who"], "replace": "withheld"});
    for rows in [json!(null), json!("erase")] {
        asked["departments"] = rows;
        daemon.post(&path, &asked).await.expect_problem(500, "departments_not_erased");
    }
    assert!(is_held(&daemon));
    asked["departments"] = "keep".into();
    daemon.post(&path, &asked).await.expect_status(200);
    assert!(!is_held(&daemon));
}

#[tokio::test]
async fn commands_that_rewrite_the_file_are_rejected_while_a_daemon_serves_it() {
    let daemon = Daemon::new();
    let board = board(&daemon).await;
    for arguments in [["redact", &board, "/request/who"].as_slice(), &["vacuum"]] {
        let refused = daemon.command(arguments).output().expect("the binary can be run");
        assert_eq!(refused.status.code(), Some(2));
        let printed: Value = serde_json::from_slice(&refused.stderr).expect("JSON");
        assert_eq!(printed["error"]["code"], "already_served");
    }
    let vacuumed = daemon.post("/v1/vacuum", &json!(null)).await.expect_status(200);
    assert!(vacuumed["bytes_after"].as_u64() > Some(0), "{vacuumed}");
    daemon.post(&format!("/v1/boards/{board}/signals"), &json!({"name": "more"})).await.expect_status(202);
}

#[tokio::test]
async fn a_board_that_has_ended_is_archived_restored_and_deleted() {
    let daemon = Daemon::new();
    let board = board(&daemon).await;
    let path = format!("/v1/boards/{board}");
    let unheard = daemon.post(&format!("{path}/signals"), &json!({"name": "nobody"})).await;
    unheard.expect_problem(422, "unknown_signal");
    let heard = daemon.post(&format!("{path}/signals"), &json!({"name": "more"})).await.expect_status(202);
    assert_eq!(heard["wakes"], json!(["more"]), "{heard}");
    daemon.until(&board, "quiescent").await;
    let journal = daemon.get(&format!("{path}/journal")).await.expect_status(200);
    let archived = daemon.post(&format!("{path}/archive"), &json!(null)).await.expect_status(200);
    assert!(archived["archive"].is_string(), "{archived}");
    daemon.get(&path).await.expect_problem(404, "no_such_board");
    assert_eq!(daemon.get("/v1/archive").await.expect_status(200)["boards"][0]["board"], board.as_str());
    daemon.post(&format!("{path}/restore"), &json!(null)).await.expect_status(200);
    assert_eq!(daemon.get(&format!("{path}/journal")).await.expect_status(200), journal);
    let heard = daemon.post(&format!("{path}/signals"), &json!({"name": "more"})).await.expect_status(202);
    assert_eq!((&heard["wakes"], &heard["names"]), (&json!(["more"]), &Value::Null), "{heard}");
    daemon.until(&board, "quiescent").await;
    daemon.request(reqwest::Method::DELETE, &path, &[], None).await.expect_status(200);
    daemon.get(&path).await.expect_problem(404, "no_such_board");
    assert!(!is_held(&daemon));
    daemon.post(&format!("{path}/restore"), &json!(null)).await.expect_problem(404, "no_such_board");
}

#[tokio::test]
async fn expired_boards_are_archived() {
    let mut daemon = Daemon::new();
    let board = board(&daemon).await;
    daemon.stop();
    fs::write(daemon.path().join("patchboard.toml"), "[retention]\nended = \"1ms\"\n").expect("it can be written");
    daemon.start();
    for _ in 0..500 {
        let archived = daemon.get("/v1/archive").await.expect_status(200);
        if archived["boards"][0]["board"] == board.as_str() {
            let file = archived["boards"][0]["archive"].as_str().expect("a path").to_owned();
            assert!(daemon.path().join(file).is_file());
            daemon.get(&format!("/v1/boards/{board}")).await.expect_problem(404, "no_such_board");
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{board} was never taken out");
}

#[tokio::test]
async fn a_repeated_redaction_puts_nothing_over_what_came_since() {
    let daemon = Daemon::new();
    let board = board(&daemon).await;
    let redactions = format!("/v1/boards/{board}/redactions");
    let with = |value: &str| json!({"places": ["/request/who"], "replace": value});
    daemon.post_once(&redactions, &with("first"), "one").await.expect_status(200);
    daemon.post_once(&redactions, &with("second"), "two").await.expect_status(200);
    assert!(daemon.post_once(&redactions, &with("first"), "one").await.is_replayed());
    let state = daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200);
    assert_eq!(state["state"]["request"]["who"], "second");
}

#[tokio::test]
async fn a_board_with_replaced_values_continues_and_keeps_its_readers() {
    let daemon = Daemon::new();
    let board = board(&daemon).await;
    let events = daemon.send(reqwest::Method::GET, &format!("/v1/boards/{board}/events"), &[], None).await;
    let replace = json!({"places": ["/request/who"], "replace": "withheld"});
    daemon.post(&format!("/v1/boards/{board}/redactions"), &replace).await.expect_status(200);
    daemon.post(&format!("/v1/boards/{board}/signals"), &json!({"name": "more"})).await.expect_status(202);
    daemon.until(&board, "quiescent").await;
    let (mut events, mut heard) = (events, String::new());
    while !heard.contains("event: signal") {
        let more = tokio::time::timeout(std::time::Duration::from_secs(10), events.chunk()).await;
        let more = more.expect("it is heard of").expect("the stream goes on").expect("the stream goes on");
        heard.push_str(&String::from_utf8_lossy(&more));
    }
}

#[tokio::test]
async fn idempotency_keys_of_archived_boards_stay_taken() {
    let daemon = Daemon::new();
    let asked = json!({"source": STEPS, "request": {"who": "anybody"}});
    let made = daemon.post_once("/v1/boards", &asked, "key").await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    daemon.post(&format!("/v1/boards/{board}/cancel"), &json!({})).await.expect_status(200);
    daemon.post(&format!("/v1/boards/{board}/archive"), &json!({})).await.expect_status(200);
    daemon.post_once("/v1/boards", &asked, "key").await.expect_problem(409, "token_conflict");
    daemon.post(&format!("/v1/boards/{board}/restore"), &json!({})).await.expect_status(200);
    assert!(daemon.post_once("/v1/boards", &asked, "key").await.is_replayed());
}
