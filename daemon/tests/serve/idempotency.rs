//! Requests with an `Idempotency-Key` take effect once, also across kills of the daemon.

use std::sync::Arc;

use patchboard_agents::script::Script;
use patchboard_kernel::digest::sha256;
use patchboard_kernel::id::BoardId;
use patchboard_lint::source::Source;
use patchboard_protocols::PLANS;
use patchboard_runtime::options::{CreateOptions, Options};
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::sqlite::SqliteJournal;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Builder;

use crate::daemon::{Daemon, STEPS};
use crate::held::holding;

#[tokio::test]
async fn a_repeated_request_does_nothing_again_also_after_a_kill() {
    let mut daemon = Daemon::new();
    let body = json!({"source": STEPS, "request": {"n": 1}});
    let made = daemon.post_once("/v1/boards", &body, "make").await;
    let board = made.expect_status(201)["board"].as_str().expect("an id").to_owned();
    daemon.until(&board, "quiescent").await;
    let (signals, proposals) = (format!("/v1/boards/{board}/signals"), format!("/v1/boards/{board}/proposals"));
    let signal = json!({"name": "more", "value": 1});
    let proposal = json!({"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": 3}]});
    let refused = json!({"worker": "walker", "patch": [{"op": "remove", "path": "/steps/0"}]});
    daemon.post_once(&signals, &signal, "tell").await.expect_status(202);
    daemon.until(&board, "quiescent").await;
    let committed = daemon.post_once(&proposals, &proposal, "add").await.expect_status(200);
    assert_eq!(committed["outcome"], "committed");
    let first = daemon.post_once(&proposals, &refused, "take").await.expect_problem(422, "path_not_granted");
    for is_killed in [false, true] {
        if is_killed {
            daemon.kill();
            daemon.start();
        }
        let again = daemon.post_once("/v1/boards", &body, "make").await;
        assert_eq!(again.expect_status(200)["board"], board.as_str());
        assert!(again.is_replayed());
        let again = daemon.post_once(&signals, &signal, "tell").await;
        again.expect_status(202);
        assert!(again.is_replayed());
        let again = daemon.post_once(&proposals, &proposal, "add").await;
        assert_eq!(again.expect_status(200), committed);
        assert!(again.is_replayed());
        let again = daemon.post_once(&proposals, &refused, "take").await.expect_problem(422, "path_not_granted");
        assert_eq!(again["seq"], first["seq"]);
        // A key that was used for another request.
        let other = json!({"source": STEPS, "request": {"n": 2}});
        daemon.post_once("/v1/boards", &other, "make").await.expect_problem(409, "token_conflict");
        let other = json!({"source": STEPS, "request": {"n": 1}, "seed": 5});
        daemon.post_once("/v1/boards", &other, "make").await.expect_problem(409, "token_conflict");
        let other = json!({"name": "more", "value": 2});
        daemon.post_once(&signals, &other, "tell").await.expect_problem(409, "token_conflict");
        daemon.post_once(&proposals, &refused, "add").await.expect_problem(409, "token_conflict");
    }
    assert_eq!(
        daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200)["state"]["steps"],
        json!([1, 1, 3])
    );
    assert_eq!(daemon.get("/v1/boards").await.expect_status(200)["boards"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn requests_with_one_key_at_the_same_time_make_one_board() {
    let daemon = Daemon::new();
    let body = json!({"source": STEPS});
    let made = futures_util::future::join_all((0..8).map(|_| daemon.post_once("/v1/boards", &body, "one"))).await;
    let new = made.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(new, 1, "{made:?}");
    assert!(made.iter().all(|answer| answer.json()["board"] == made[0].json()["board"]));
    assert_eq!(daemon.get("/v1/boards").await.expect_status(200)["boards"].as_array().map(Vec::len), Some(1));
}

/// Returns the value of a response header.
fn said<'a>(answer: &'a crate::daemon::Answer, name: &str) -> Option<&'a str> {
    answer.headers.get(name).map(|value| value.to_str().expect("a text"))
}

#[tokio::test]
async fn a_request_has_three_identifiers_and_a_repetition_is_said_to_be_one() {
    let daemon = Daemon::new();
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    let path = format!("/v1/boards/{board}/proposals");
    let proposal = json!({"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": 3}]});
    let refused = json!({"worker": "walker", "patch": [{"op": "remove", "path": "/steps/0"}]});
    let token = "walker:walk:e09d48d3d73fad94";
    let send = async |message: &str, key: &str, body: &serde_json::Value| {
        let headers = [("message-id", message), ("correlation-id", "walk-1"), ("idempotency-key", key)];
        daemon.post_with(&path, body, &headers).await
    };
    let first = send("m1", token, &proposal).await;
    let again = send("m2", token, &proposal).await;
    assert_eq!(
        (said(&first, "idempotency-status"), said(&again, "idempotency-status")),
        (None, Some("DUPLICATE_DETECTED"))
    );
    assert_eq!(first.expect_status(200), again.expect_status(200), "the first outcome");
    for (answer, message) in [(&first, "m1"), (&again, "m2")] {
        assert_eq!((said(answer, "in-reply-to"), said(answer, "correlation-id")), (Some(message), Some("walk-1")));
    }
    let (one, other) = (said(&first, "message-id").expect("an id"), said(&again, "message-id").expect("an id"));
    assert!(one != other && uuid::Uuid::parse_str(one).is_ok_and(|id| id.get_version_num() == 4), "{one} {other}");
    // Rejections are deduplicated, too; a new key makes a new request.
    let first = send("m3", "t3", &refused).await;
    let again = send("m4", "t3", &refused).await;
    assert_eq!(
        first.expect_problem(422, "path_not_granted")["seq"],
        again.expect_problem(422, "path_not_granted")["seq"]
    );
    assert_eq!(
        (said(&first, "idempotency-status"), said(&again, "idempotency-status")),
        (None, Some("DUPLICATE_DETECTED"))
    );
    let other = send("m5", "t5", &proposal).await;
    assert_eq!((other.status.as_u16(), said(&other, "idempotency-status")), (200, None));
    // A request without these headers gets only the response's own id back. An invalid id is rejected before the
    // proposal is judged.
    let plain = daemon.get("/v1/boards").await;
    assert!(said(&plain, "message-id").is_some() && said(&plain, "correlation-id").is_none());
    let state = format!("/v1/boards/{board}/state");
    let before = daemon.get(&state).await.expect_status(200);
    let longest = "x".repeat(128);
    let answer = daemon.request(Method::GET, "/v1/boards", &[("correlation-id", &longest)], None).await;
    assert_eq!(said(&answer, "correlation-id"), Some(longest.as_str()));
    for (name, value) in [("correlation-id", format!("{longest}x")), ("message-id", "a b".to_owned())] {
        let answer = daemon.post_with(&path, &proposal, &[(name, &value)]).await;
        answer.expect_problem(400, "bad_identifier");
        assert!(said(&answer, "message-id").is_some() && said(&answer, "correlation-id").is_none());
    }
    assert_eq!(daemon.get(&state).await.expect_status(200), before);
}

#[tokio::test]
async fn a_repetition_of_what_a_person_is_asked_is_in_progress() {
    let daemon = Daemon::new();
    let asked = STEPS
        .replace("value: {maximum: 9}}]", "value: {maximum: 9}, approval: {by: guide}}]")
        .replace("rules:\n", "  guide: {agent: human}\nrules:\n");
    let board = daemon.post("/v1/boards", &json!({"source": asked})).await.expect_status(201)["board"].clone();
    let path = format!("/v1/boards/{}/proposals", board.as_str().expect("an id"));
    let proposal = json!({"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": 3}]});
    let first = daemon.post_once(&path, &proposal, "t").await;
    assert_eq!(
        (&first.expect_status(200)["outcome"], said(&first, "idempotency-status")),
        (&json!("awaiting_approval"), None)
    );
    let again = daemon.post_once(&path, &proposal, "t").await;
    assert_eq!(again.expect_status(200), first.expect_status(200));
    assert_eq!(said(&again, "idempotency-status"), Some("ALREADY_IN_PROGRESS"));
}

#[tokio::test]
async fn a_key_is_apart_for_each_scope_and_its_records_are_found_by_it() {
    let daemon = Daemon::new();
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    let (proposals, journal) = (format!("/v1/boards/{board}/proposals"), format!("/v1/boards/{board}/journal?key=one"));
    let bearer = |scope: String| format!("Bearer {}", daemon.token(&scope));
    let (admin, seat) = (bearer("admin".to_owned()), bearer(format!("seat:{board}/walker")));
    let reader = bearer(format!("board:{board}"));
    let proposal = json!({"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": 3}]});
    let mut found = Vec::new();
    for token in [&admin, &seat] {
        let headers = [("authorization", token.as_str()), ("idempotency-key", "one")];
        let first = daemon.post_with(&proposals, &proposal, &headers).await;
        assert!(first.expect_status(200)["outcome"] == "committed" && !first.is_replayed());
        assert!(daemon.post_with(&proposals, &proposal, &headers).await.is_replayed());
        found.push(first.json()["seq"].clone());
    }
    let by_key = async |token: &str| {
        let page = daemon.request(Method::GET, &journal, &[("authorization", token)], None).await.expect_status(200);
        page["records"].as_array().expect("records").iter().map(|record| record["seq"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(by_key(&admin).await, found[..1]);
    assert_eq!(by_key(&reader).await, [Value::Null; 0]);
    let headers = [("authorization", admin.as_str())];
    let signal = json!({"name": "more"});
    let keyed = [headers[0], ("idempotency-key", "two")];
    daemon.post_with(&format!("/v1/boards/{board}/signals"), &signal, &keyed).await.expect_status(202);
    let path = format!("/v1/boards/{board}/journal?key=two");
    let page = daemon.request(Method::GET, &path, &headers, None).await.expect_status(200);
    assert_eq!((&page["records"][0]["kind"], &page["records"][1]), (&json!("signal"), &Value::Null));
    let path = format!("/v1/boards/{board}/journal?key=a%20b");
    daemon.request(Method::GET, &path, &headers, None).await.expect_problem(400, "bad_key");
}

#[tokio::test]
async fn idempotency_keys_appear_in_no_file() {
    const KEY: &str = "Quisquilius-1979";
    let mut daemon = Daemon::new();
    let body = json!({"source": STEPS});
    let made = daemon.post_once("/v1/boards", &body, KEY).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    daemon.until(&board, "quiescent").await;
    for (path, body, status) in [
        ("proposals", json!({"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": 3}]}), 200),
        ("proposals", json!({"worker": "other", "patch": [{"op": "remove", "path": "/steps/0"}]}), 422),
        ("signals", json!({"name": "more"}), 202),
        ("pause", json!({}), 200),
        ("resume", json!({}), 200),
        ("redactions", json!({"places": ["/steps/0"], "replace": 1}), 200),
    ] {
        let key = format!("{KEY}-{path}");
        let answer = daemon.post_once(&format!("/v1/boards/{board}/{path}"), &body, &key).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text);
    }
    daemon.post_once("/v1/tokens", &json!({"scope": "admin", "name": "ci"}), KEY).await.expect_status(201);
    assert!(holding(daemon.path(), &[KEY]).is_empty());
    daemon.kill();
    assert!(holding(daemon.path(), &[KEY]).is_empty());
    daemon.start();
    assert!(daemon.post_once("/v1/boards", &body, KEY).await.is_replayed());
}

#[tokio::test]
async fn a_board_that_a_key_made_before_keys_had_a_secret_is_not_made_again() {
    let mut daemon = Daemon::not_started(&[]);
    let data = daemon.path().join("boards");
    let hash = sha256(b"board\nadmin\norder-7").0;
    let id = Builder::from_custom_bytes(*hash.first_chunk().expect("bytes")).into_uuid().to_string();
    let journal = SqliteJournal::open(&data).expect("a journal");
    let runtime = Runtime::start(Arc::new(journal), Options::new(Arc::new(Script)), PLANS).await.expect("it starts");
    let blueprint =
        patchboard_protocols::check(&Source::read("steps.yaml", STEPS).expect("YAML")).blueprint.expect("it is sound");
    let founding = CreateOptions { id: Some(BoardId::from(id.clone())), ..CreateOptions::default() };
    let board = runtime.create_with(blueprint, Value::Null, founding).await.expect("a board");
    board.wait_for_end().await.expect("it ends");
    runtime.shutdown().await;
    drop(runtime);
    daemon.start();
    let again = daemon.post_once("/v1/boards", &json!({"source": STEPS}), "order-7").await;
    assert_eq!(again.expect_status(200)["board"], id);
    daemon
        .post_once("/v1/boards", &json!({"source": STEPS, "request": {"n": 2}}), "order-7")
        .await
        .expect_problem(409, "token_conflict");
    daemon.request(Method::DELETE, &format!("/v1/boards/{id}"), &[], None).await.expect_status(200);
    daemon.post_once("/v1/boards", &json!({"source": STEPS}), "order-7").await.expect_problem(409, "token_conflict");
}
