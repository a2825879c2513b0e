//! Requests with an `Idempotency-Key`: once, whatever happens to the daemon in between.

use serde_json::json;

use crate::daemon::{Daemon, STEPS};

#[tokio::test]
async fn a_repeated_request_does_nothing_again_also_after_a_kill() {
    let mut daemon = Daemon::new();
    let body = json!({"source": STEPS, "request": {"n": 1}});
    let made = daemon.post_once("/v1/boards", &body, "make").await;
    let board = made.is(201)["board"].as_str().expect("an id").to_owned();
    daemon.until(&board, "quiescent").await;
    let (signals, proposals) = (format!("/v1/boards/{board}/signals"), format!("/v1/boards/{board}/proposals"));
    let signal = json!({"name": "more", "value": 1});
    let proposal = json!({"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": 3}]});
    let refused = json!({"worker": "walker", "patch": [{"op": "remove", "path": "/steps/0"}]});
    daemon.post_once(&signals, &signal, "tell").await.is(202);
    daemon.until(&board, "quiescent").await;
    let committed = daemon.post_once(&proposals, &proposal, "add").await.is(200);
    assert_eq!(committed["outcome"], "committed");
    let first = daemon.post_once(&proposals, &refused, "take").await.refuses(422, "path_not_granted");
    for is_killed in [false, true] {
        if is_killed {
            daemon.kill();
            daemon.start();
        }
        let again = daemon.post_once("/v1/boards", &body, "make").await;
        assert_eq!(again.is(200)["board"], board.as_str());
        assert!(again.is_replayed());
        let again = daemon.post_once(&signals, &signal, "tell").await;
        again.is(202);
        assert!(again.is_replayed());
        let again = daemon.post_once(&proposals, &proposal, "add").await;
        assert_eq!(again.is(200), committed);
        assert!(again.is_replayed());
        let again = daemon.post_once(&proposals, &refused, "take").await.refuses(422, "path_not_granted");
        assert_eq!(again["seq"], first["seq"]);
        // The same key for something else.
        let other = json!({"source": STEPS, "request": {"n": 2}});
        daemon.post_once("/v1/boards", &other, "make").await.refuses(409, "token_conflict");
        let other = json!({"source": STEPS, "request": {"n": 1}, "seed": 5});
        daemon.post_once("/v1/boards", &other, "make").await.refuses(409, "token_conflict");
        let other = json!({"name": "more", "value": 2});
        daemon.post_once(&signals, &other, "tell").await.refuses(409, "token_conflict");
        daemon.post_once(&proposals, &refused, "add").await.refuses(409, "token_conflict");
    }
    assert_eq!(daemon.get(&format!("/v1/boards/{board}/state")).await.is(200)["state"]["steps"], json!([1, 1, 3]));
    assert_eq!(daemon.get("/v1/boards").await.is(200)["boards"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn requests_with_one_key_at_the_same_time_make_one_board() {
    let daemon = Daemon::new();
    let body = json!({"source": STEPS});
    let made = futures_util::future::join_all((0..8).map(|_| daemon.post_once("/v1/boards", &body, "one"))).await;
    let new = made.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(new, 1, "{made:?}");
    assert!(made.iter().all(|answer| answer.json()["board"] == made[0].json()["board"]));
    assert_eq!(daemon.get("/v1/boards").await.is(200)["boards"].as_array().map(Vec::len), Some(1));
}
