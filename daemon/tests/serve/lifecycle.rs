//! Boards across stops, kills and starts of their daemon.

use serde_json::json;

use crate::daemon::Daemon;

#[tokio::test]
async fn a_board_is_made_runs_and_can_be_looked_at() {
    let daemon = Daemon::new();
    let board = daemon.board().await;
    let shown = daemon.until(&board, "quiescent").await;
    assert_eq!((shown["version"].as_u64(), &shown["cause"]), (Some(1), &json!("nothing_to_do")));
    let state = daemon.get(&format!("/v1/boards/{board}/state")).await;
    let document = state.expect_status(200);
    assert_eq!(document["state"], json!({"steps": [1]}));
    assert_eq!(state.headers["etag"], format!("\"{}\"", document["state_hash"].as_str().expect("a text")).as_str());
    assert_eq!(
        daemon.get(&format!("/v1/boards/{board}/state?at=0")).await.expect_status(200)["state"],
        json!({"steps": []})
    );
    let journal = daemon.get(&format!("/v1/boards/{board}/journal?limit=2")).await.expect_status(200);
    assert_eq!((journal["records"][0]["kind"].as_str(), journal["next"].as_u64()), (Some("created"), Some(1)));
    let commits = daemon.get(&format!("/v1/boards/{board}/journal?kind=committed,ended")).await.expect_status(200);
    let kinds: Vec<_> = commits["records"].as_array().expect("a list").iter().map(|it| it["kind"].clone()).collect();
    assert_eq!(kinds, ["committed", "ended"]);
    assert!(commits.get("next").is_none());
    let why = daemon.get(&format!("/v1/boards/{board}/why?pointer=/steps/0")).await.expect_status(200);
    assert_eq!((why["worker"].as_str(), why["version"].as_u64()), (Some("walker"), Some(1)), "{why}");
}

#[tokio::test]
async fn a_worker_is_stepped_while_the_daemon_has_its_board() {
    let daemon = Daemon::new();
    let source = include_str!("steps.yaml").replacen("agent: script\n    script: [[]]", "agent: remote", 1);
    let source = format!("{source}  - {{name: ask, trigger: start, run: other}}\n");
    let made = daemon.post("/v1/boards", &json!({"source": source})).await.expect_status(201);
    let board = made["board"].as_str().expect("an id");
    let steps = || async {
        daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200)["state"]["steps"].clone()
    };
    while steps().await != json!([1]) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let journal = daemon.get(&format!("/v1/boards/{board}/journal?kind=committed,invoked")).await.expect_status(200);
    let seq = |kind: &str, worker: &str| {
        let records = journal["records"].as_array().expect("a list").iter();
        let found = records.filter(|it| it["kind"] == kind).find(|it| it.to_string().contains(worker));
        found.expect("a record")["seq"].to_string()
    };
    let step = |seq: &str, worker: &str| {
        let mut command = daemon.command(&["step", board, "--at", seq, "--worker", worker]);
        let ran = command.output().expect("the binary can be run");
        (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr))
    };
    let (code, printed) = step(&seq("committed", "walker"), "walker");
    assert!(code == Some(0) && printed.contains(r#""same":true"#), "{printed}");
    let (code, printed) = step(&seq("invoked", "other"), "other");
    assert!(code == Some(2) && printed.contains("nobody_to_ask") && printed.contains("--reply"), "{printed}");
    // A dry run is no proposal: the board's state is unchanged, and it accepts more.
    assert_eq!(steps().await, json!([1]));
    daemon.post(&format!("/v1/boards/{board}/signals"), &json!({"name": "more"})).await.expect_status(202);
    while steps().await != json!([1, 1]) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn every_board_goes_on_where_it_was_after_a_stop_and_after_a_kill() {
    let mut daemon = Daemon::new();
    let (at_rest, paused) = (daemon.board().await, daemon.board().await);
    for board in [&at_rest, &paused] {
        daemon.until(board, "quiescent").await;
    }
    daemon.post(&format!("/v1/boards/{paused}/pause"), &json!({})).await.expect_status(200);
    daemon.post(&format!("/v1/boards/{paused}/signals"), &json!({"name": "more"})).await.expect_status(202);
    assert_eq!(daemon.stop(), Some(0));
    daemon.start();
    daemon.until(&paused, "paused").await;
    daemon.post(&format!("/v1/boards/{at_rest}/signals"), &json!({"name": "more"})).await.expect_status(202);
    assert_eq!(daemon.until(&at_rest, "quiescent").await["version"], 2);
    daemon.kill();
    daemon.start();
    daemon.until(&paused, "paused").await;
    daemon.post(&format!("/v1/boards/{paused}/resume"), &json!({})).await.expect_status(200);
    assert_eq!(daemon.until(&paused, "quiescent").await["version"], 2);
    let listed = daemon.get("/v1/boards?status=quiescent").await.expect_status(200);
    assert_eq!(listed["boards"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn a_board_that_was_cancelled_stays_so() {
    let daemon = Daemon::new();
    let board = daemon.board().await;
    let cancel = format!("/v1/boards/{board}/cancel");
    assert_eq!(daemon.post(&cancel, &json!({})).await.expect_status(200)["status"], "cancelled");
    assert!(daemon.post(&cancel, &json!({})).await.is_replayed());
    daemon
        .post(&format!("/v1/boards/{board}/signals"), &json!({"name": "more"}))
        .await
        .expect_problem(409, "board_over");
    daemon.post(&format!("/v1/boards/{board}/pause"), &json!({})).await.expect_problem(409, "board_over");
}

/// A board with one worker, whose view is smaller than its read grants.
const READER: &str = include_str!("../reading.yaml");

#[tokio::test]
async fn view_shortages_are_reported_by_checks_and_by_live_or_resting_boards() {
    let mut daemon = Daemon::not_started(&[]);
    std::fs::write(daemon.path().join("patchboard.toml"), "[serve]\nrest_after = \"300ms\"\n").expect("a file");
    daemon.start();
    let request = json!({"documents": vec!["word ".repeat(560); 5]});
    let checked =
        daemon.post("/v1/blueprints/check", &json!({"source": READER, "request": request})).await.expect_status(200);
    assert_eq!((&checked["ok"], &checked["findings"][0]["code"]), (&json!(true), &json!("view_shortage")), "{checked}");
    let checked = daemon.post("/v1/blueprints/check", &json!({"source": READER})).await.expect_status(200);
    assert_eq!(checked["findings"], json!([]));
    let wrong = json!({"source": READER, "request": {"documents": 3}});
    daemon.post("/v1/blueprints/check", &wrong).await.expect_problem(422, "bad_request");

    let made = daemon.post("/v1/boards", &json!({"source": READER, "request": request})).await.expect_status(201);
    let board = made["board"].as_str().expect("an id");
    let shown = daemon.until(board, "done").await;
    let unshown = shown["unshown"].clone();
    assert_eq!((&unshown[0]["worker"], &unshown[0]["of"]), (&json!("researcher"), &json!(5)), "{shown}");
    for _ in 0..500 {
        let shown = daemon.get(&format!("/v1/boards/{board}")).await.expect_status(200);
        assert_eq!(shown["unshown"], unshown);
        if shown.get("live").is_none() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("it never rested");
}

#[tokio::test]
async fn a_board_that_has_ended_is_let_go_and_comes_back_when_it_is_wanted() {
    let mut daemon = Daemon::not_started(&[]);
    std::fs::write(daemon.path().join("patchboard.toml"), "[serve]\nrest_after = \"300ms\"\n").expect("a file");
    daemon.start();
    let (board, key) = (daemon.board().await, "once");
    daemon.until(&board, "quiescent").await;
    let signals = format!("/v1/boards/{board}/signals");
    let rests = async || {
        for _ in 0..500 {
            let shown = daemon.get(&format!("/v1/boards/{board}")).await.expect_status(200);
            if shown.get("live").is_none() {
                return shown;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("it never rested");
    };
    assert_eq!(rests().await["version"], 1);
    // The evicted board resumes for the request, handles it once, and is evicted again.
    let signal = json!({"name": "more"});
    daemon.post_once(&signals, &signal, key).await.expect_status(202);
    daemon.until(&board, "quiescent").await;
    assert_eq!(rests().await["version"], 2);
    assert!(daemon.post_once(&signals, &signal, key).await.is_replayed());
    assert_eq!(rests().await["version"], 2);
}
