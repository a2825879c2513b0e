//! AG-UI runs over HTTP: their beginning, their end, and answers to their questions.

use reqwest::Method;
use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon};
use crate::people::{asking, lost};

/// Returns the events of an ended stream with their ids.
fn events(answer: &Answer) -> Vec<(Option<u64>, Value)> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let all = answer.text.split("\n\n").filter(|event| !event.is_empty() && !event.starts_with(':'));
    let field = |event: &str, name: &str| {
        event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned)
    };
    all.map(|event| {
        let id = field(event, "id").map(|id| id.parse().expect("a number"));
        (id, serde_json::from_str(&field(event, "data").expect("data")).expect("JSON"))
    })
    .collect()
}

fn kinds(events: &[(Option<u64>, Value)]) -> Vec<&str> {
    events.iter().map(|(_, event)| event["type"].as_str().expect("a text")).collect()
}

#[tokio::test]
async fn a_run_begins_from_what_the_client_has_and_ends_where_the_board_rests() {
    let mut daemon = Daemon::new();
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    let path = format!("/v1/boards/{board}/agui");
    let input = |state: Value| json!({"threadId": "t", "runId": "r", "messages": [], "state": state, "tools": []});
    // The second time, the board is evicted and only in the journal.
    for _ in 0..2 {
        for state in [json!({}), json!(null), json!({"steps": [2]})] {
            let all = events(&daemon.post(&path, &input(state)).await);
            assert_eq!(kinds(&all), ["RUN_STARTED", "STATE_SNAPSHOT", "RUN_FINISHED"]);
            assert_eq!((&all[0].1["threadId"], &all[0].1["runId"]), (&json!("t"), &json!("r")));
            assert_eq!(all[1].1["snapshot"], json!({"steps": [1]}));
            assert_eq!(
                (&all[2].1["outcome"]["type"], &all[2].1["result"]["end"]),
                (&json!("success"), &json!("quiescent"))
            );
        }
        let all = events(&daemon.post(&path, &input(json!({"steps": []}))).await);
        let deltas: Vec<&Value> =
            all.iter().filter(|(_, event)| event["type"] == "STATE_DELTA").map(|(_, it)| it).collect();
        assert_eq!(deltas.len(), 1, "{all:?}");
        assert_eq!(deltas[0]["delta"], json!([{"op": "add", "path": "/steps/-", "value": 1}]));
        let all = events(&daemon.post(&path, &input(json!({"steps": [1]}))).await);
        assert!(!kinds(&all).iter().any(|kind| kind.starts_with("STATE")), "{all:?}");
        // Like a browser's `EventSource`.
        let whole = events(&daemon.get(&path).await);
        let last = whole.iter().filter_map(|(id, _)| *id).next_back().expect("a document").to_string();
        let more = events(&daemon.request(Method::GET, &path, &[("last-event-id", "0")], None).await);
        assert!(kinds(&more).contains(&"STEP_FINISHED") && kinds(&more).contains(&"STATE_DELTA"), "{more:?}");
        let none = events(&daemon.request(Method::GET, &path, &[("last-event-id", &last)], None).await);
        assert_eq!(kinds(&none), ["RUN_STARTED", "RUN_FINISHED"]);
        // The client's document differs: it decides, not the event id.
        let headers = [("last-event-id", last.as_str()), ("content-type", "application/json")];
        let body = input(json!({"steps": [7]})).to_string();
        let whole = events(&daemon.request(Method::POST, &path, &headers, Some(body)).await);
        assert_eq!(kinds(&whole)[1], "STATE_SNAPSHOT");
        daemon.kill();
        daemon.start();
    }
    daemon.request(Method::GET, &path, &[("last-event-id", "x")], None).await.expect_problem(400, "bad_event_id");
    daemon.post(&path, &json!({"runId": "r"})).await.expect_problem(422, "bad_body");
    daemon.post("/v1/boards/none/agui", &input(json!({}))).await.expect_problem(404, "no_such_board");
}

#[tokio::test]
async fn a_run_that_asks_is_gone_on_with_by_the_answer() {
    let daemon = Daemon::new();
    let (board, question) = asking(&daemon).await;
    let path = format!("/v1/boards/{board}/agui");
    let input = |resume: Value| json!({"threadId": "t", "runId": "r", "messages": [], "resume": resume});
    let all = events(&daemon.post(&path, &input(json!([]))).await);
    let (_, finished) = all.last().expect("an end");
    assert_eq!(finished["outcome"]["type"], "interrupt", "{finished}");
    let interrupt = &finished["outcome"]["interrupts"][0];
    assert_eq!(interrupt["metadata"]["patch"], question["patch"]);
    let id = interrupt["id"].as_str().expect("a text");
    let entry = |id: &str, payload: Value| json!([{"interruptId": id, "status": "resolved", "payload": payload}]);
    let other = format!("{}:{}", question["seq"], "0".repeat(64));
    let agrees = json!({"agrees": true, "reason": "seen"});
    for (id, payload, status, code) in [
        ("1", &agrees, 422, "bad_body"),
        (id, &json!({"agree": true}), 422, "bad_body"),
        (&other, &agrees, 422, "approval_mismatch"),
        (&other.replacen(&question["seq"].to_string(), "0", 1), &agrees, 409, "not_pending"),
    ] {
        daemon.post(&path, &input(entry(id, payload.clone()))).await.expect_problem(status, code);
    }
    // A token that may read the board may not answer for the person.
    let token = daemon.token("read");
    let headers = [("authorization", format!("Bearer {token}"))];
    let headers = [("authorization", headers[0].1.as_str())];
    let body = input(entry(id, agrees.clone()));
    daemon.post_with(&path, &body, &headers).await.expect_problem(403, "forbidden");
    // A token with both scopes may. A repeated answer counts once.
    let both = format!("Bearer {}", daemon.token("read+person:editor"));
    for _ in 0..2 {
        let all = events(&daemon.post_with(&path, &body, &[("authorization", &both)]).await);
        assert_eq!(all.last().expect("an end").1["outcome"]["type"], "success", "{all:?}");
    }
    assert_eq!(
        daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200)["state"],
        json!({"steps": [1]})
    );
}

#[tokio::test]
async fn a_question_of_a_worker_is_an_interrupt_that_expects_text() {
    let daemon = Daemon::new();
    let (board, _) = lost(&daemon).await;
    let path = format!("/v1/boards/{board}/agui");
    let input = |resume: Value| json!({"threadId": "t", "runId": "r", "messages": [], "resume": resume});
    let all = events(&daemon.post(&path, &input(json!([]))).await);
    let interrupt = all.last().expect("an end").1["outcome"]["interrupts"][0].clone();
    assert_eq!((&interrupt["message"], &interrupt["reason"]), (&json!("How far?"), &json!("patchboard.clarify")));
    let entry = |payload: Value| json!([{"interruptId": interrupt["id"], "status": "resolved", "payload": payload}]);
    daemon.post(&path, &input(entry(json!({"agrees": true})))).await.expect_problem(422, "answer_not_offered");
    let all = events(&daemon.post(&path, &input(entry(json!({"agrees": true, "text": "home"})))).await);
    assert_eq!(all.last().expect("an end").1["outcome"]["type"], "success", "{all:?}");
    // The answer finishes the asking step before the step with the answer starts.
    let all = events(&daemon.request(Method::GET, &path, &[("last-event-id", "0")], None).await);
    let steps: Vec<&str> = kinds(&all).into_iter().filter(|kind| kind.starts_with("STEP")).collect();
    assert_eq!(steps, ["STEP_STARTED", "STEP_FINISHED", "STEP_STARTED", "STEP_FINISHED"], "{all:?}");
}

#[tokio::test]
async fn a_run_says_that_the_daemon_stops() {
    let mut daemon = Daemon::new();
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    daemon.post(&format!("/v1/boards/{board}/pause"), &json!({})).await.expect_status(200);
    daemon.post(&format!("/v1/boards/{board}/signals"), &json!({"name": "more"})).await.expect_status(202);
    let mut run = daemon.send(Method::GET, &format!("/v1/boards/{board}/agui"), &[], None).await;
    let begun = run.chunk().await.expect("it goes on").expect("a beginning");
    assert!(String::from_utf8_lossy(&begun).contains("RUN_STARTED"));
    assert_eq!(daemon.stop(), Some(0));
    let mut rest = Vec::new();
    while let Ok(Some(chunk)) = run.chunk().await {
        rest.extend_from_slice(&chunk);
    }
    let rest = String::from_utf8_lossy(&rest).into_owned();
    assert!(rest.contains("RUN_ERROR") && rest.contains("interrupted"), "{rest}");
}
