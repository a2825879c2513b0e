//! Boards of a daemon that is killed while they wait for an unavailable model.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::{Value, json};

use crate::daemon::{Daemon, STEPS};

/// Boards that wait for one model.
const BOARDS: usize = 5;

/// A model that is unavailable until a test restores it, and its number of answers.
struct Provider {
    endpoint: Endpoint,
    is_back: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
}

impl Provider {
    fn away() -> Self {
        let (is_back, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (back, answers) = (Arc::clone(&is_back), Arc::clone(&answered));
        let endpoint = Endpoint::serving(move |_| match back.load(Ordering::Relaxed) {
            false => ScriptedResponse::Say(503, "", "away".into()),
            true => {
                answers.fetch_add(1, Ordering::Relaxed);
                ScriptedResponse::answer(r#"[{"op":"add","path":"/steps/-","value":1}]"#, 9, 9)
            }
        });
        Self { endpoint, is_back, answered }
    }
}

/// Creates boards while the provider is away, kills the daemon twice within `outage`, and starts it again.
async fn killed_while_away(outage: Duration, patience: Duration) {
    let provider = Provider::away();
    let mut daemon = Daemon::not_started(&[]);
    daemon.configure(&format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n", provider.endpoint.url));
    daemon.start();
    let source =
        STEPS.replacen("agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]\n", "agent: llm\n", 1);
    let mut boards = Vec::new();
    let began = Instant::now();
    for _ in 0..BOARDS {
        let made = daemon.post("/v1/boards", &json!({ "source": source })).await.expect_status(201);
        boards.push(made["board"].as_str().expect("an id").to_owned());
    }
    for _ in 0..2 {
        waits(&daemon, &boards).await;
        tokio::time::sleep(outage / 3).await;
        daemon.kill();
        daemon.start();
    }
    tokio::time::sleep(outage.saturating_sub(began.elapsed())).await;
    provider.is_back.store(true, Ordering::Relaxed);
    let back = Instant::now();
    for board in &boards {
        loop {
            let shown = daemon.get(&format!("/v1/boards/{board}")).await.expect_status(200);
            if shown["status"] == "quiescent" {
                break;
            }
            assert!(back.elapsed() < patience, "{shown}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert_eq!(provider.answered.load(Ordering::Relaxed), BOARDS, "one call for one commit");
    daemon.stop();
    for board in &boards {
        let lines = |arguments: &[&str]| {
            let output = daemon.command(arguments).output().expect("the binary can be run");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("text")
        };
        let log = lines(&["log", board]);
        let kinds: Vec<Value> =
            log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["kind"].clone()).collect();
        let count = |kind: &str| kinds.iter().filter(|known| *known == kind).count();
        assert_eq!((count("committed"), count("failed"), count("paused")), (1, 0, 0), "{log}");
        lines(&["replay", board]);
        lines(&["verify", board]);
    }
}

/// Waits until every board has a queued or open call.
async fn waits(daemon: &Daemon, boards: &[String]) {
    let begun = Instant::now();
    for board in boards {
        loop {
            let shown = daemon.get(&format!("/v1/boards/{board}")).await.expect_status(200);
            if shown["live"]["open"].as_u64() == Some(1) || shown["live"]["queued"].as_u64() == Some(1) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{shown}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_killed_while_its_model_is_away_goes_on_and_asks_once_for_each_commit() {
    killed_while_away(Duration::from_secs(3), Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "full tier: the model is away for 90 s"]
async fn a_long_outage_and_kills_lose_nothing() {
    killed_while_away(Duration::from_secs(90), Duration::from_secs(400)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_daemon_waits_until_the_provider_allows_calls() {
    let endpoint = Endpoint::serving(|_| ScriptedResponse::Say(429, "retry-after: 600\r\n", "slow down".into()));
    let mut daemon = Daemon::not_started(&[]);
    daemon.configure(&format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n", endpoint.url));
    daemon.start();
    let source =
        STEPS.replacen("agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]\n", "agent: llm\n", 1);
    let mut boards = Vec::new();
    for _ in 0..12 {
        let made = daemon.post("/v1/boards", &json!({ "source": source })).await.expect_status(201);
        boards.push(made["board"].as_str().expect("an id").to_owned());
        // The first board notices the outage; the calls of the others are never sent, and their journals do not mention
        // it.
        let begun = Instant::now();
        while daemon.get(&format!("/v1/boards/{}", boards[0])).await.expect_status(200)["live"]["provider"].is_null() {
            assert!(begun.elapsed() < Duration::from_secs(30));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    waits(&daemon, &boards).await;
    assert_eq!(endpoint.bodies().len(), 1);
    daemon.kill();
    daemon.start();
    let begun = Instant::now();
    for board in &boards {
        // Every board asks the gate and reports the reason for waiting.
        while daemon.get(&format!("/v1/boards/{board}")).await.expect_status(200)["live"]["provider"]["reason"]
            != "rate_limited"
        {
            assert!(begun.elapsed() < Duration::from_secs(30));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert_eq!(endpoint.bodies().len(), 1, "nobody asks before");
    // An operator can override the wait.
    let pause = format!("/v1/boards/{}/pause", boards[0]);
    daemon.post(&pause, &json!({})).await.expect_status(200);
    daemon.post(&format!("/v1/boards/{}/resume", boards[0]), &json!({})).await.expect_status(200);
    let begun = Instant::now();
    while endpoint.bodies().len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(30), "resume asks at once");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_board_of_a_daemon_is_resumed_and_retried_by_command() {
    let step = || ScriptedResponse::answer(r#"[{"op":"add","path":"/steps/-","value":1}]"#, 9, 9);
    let refused = ScriptedResponse::Say(401, "", r#"{"error":{"message":"Incorrect API key provided"}}"#.into());
    let endpoint = Endpoint::new(vec![refused, ScriptedResponse::answer("[", 9, 9), step()]);
    let mut daemon = Daemon::not_started(&[]);
    daemon.configure(&format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n", endpoint.url));
    daemon.start();
    let seat = "agent: llm\n    limits: {attempts: 1}\n";
    let source = STEPS.replacen("agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]\n", seat, 1);
    let made = daemon.post("/v1/boards", &json!({ "source": source })).await.expect_status(201);
    let board = made["board"].as_str().expect("an id");
    let url = format!("http://{}", daemon.address());
    let printed = |command: &str| {
        let output = daemon.command(&[command, board]).output().expect("the binary can be run");
        assert!(String::from_utf8_lossy(&output.stderr).contains("--url"), "the refusal names the way: {output:?}");
        let output = daemon.command(&[command, board, "--url", &url]).output().expect("the binary can be run");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")["board"].clone()
    };
    daemon.until(board, "paused").await;
    assert_eq!(printed("resume"), board);
    daemon.until(board, "quiescent").await;
    assert_eq!(printed("retry"), board);
    for _ in 0..300 {
        if daemon.get(&format!("/v1/boards/{board}")).await.expect_status(200)["version"] == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the retry came to nothing: {}", daemon.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_board_that_was_stopped_works_at_its_directory_again() {
    let edit = |old: &str, new: &str| {
        let with = json!({"path": "a.txt", "old_str": old, "new_str": new, "intent": "count"}).to_string();
        ScriptedResponse::call_tools(&[("c1", "str_replace", &with)], 10, 5)
    };
    let view = || ScriptedResponse::call_tools(&[("c0", "view", r#"{"path":"a.txt"}"#)], 10, 5);
    let patch = ScriptedResponse::answer(r#"[{"op":"replace","path":"/answer","value":"counted"}]"#, 20, 2);
    let acts = vec![view(), edit("one", "two"), view(), edit("two", "three"), view(), edit("three", "four"), patch];
    let endpoint = Endpoint::new(acts);
    let mut daemon = Daemon::not_started(&[]);
    daemon.configure(&format!(
        "[models.default]\nurl = \"{}\"\nmodel = \"m\"\n[workspaces.code]\ndir = \"code\"\n",
        endpoint.url
    ));
    std::fs::create_dir_all(daemon.path().join("code")).expect("a directory");
    std::fs::write(daemon.path().join("code/a.txt"), "one\n").expect("a file");
    daemon.start();
    let blueprint = json!({
        "blueprint": 1, "name": "edit", "workspace": {"dir": "code"}, "limits": {"edits": 1},
        "state": {"schema": {"type": "object", "properties": {"answer": {"type": "string"}}}, "initial": {"answer": ""}},
        "workers": {"a": {"agent": "llm", "role": "Edit.", "writes": [{"path": "/answer", "ops": ["replace"]}],
            "files": {"view": ["**"], "edit": ["**"]}}},
        "rules": [{"name": "go", "trigger": "start", "run": "a"}],
        "done": {"when": "state.answer != \"\""},
    });
    let made = daemon.post("/v1/boards", &json!({ "source": blueprint.to_string() })).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    daemon.until(&board, "stopped").await;
    let retry = format!("/v1/boards/{board}/retry");
    for body in [json!(["writer"]), json!([]), json!({"worker": "writer", "invocation": 1})] {
        daemon.post(&retry, &body).await.expect_problem(422, "bad_body");
    }
    // In the process that stopped the board, and in the next one.
    daemon.post(&retry, &json!({"limits": {"edits": 2}})).await.expect_status(200);
    daemon.until(&board, "stopped").await;
    daemon.kill();
    daemon.start();
    daemon.post(&retry, &json!({"limits": {"edits": 9}})).await.expect_status(200);
    daemon.until(&board, "done").await;
    let text = std::fs::read_to_string(daemon.path().join("code/a.txt")).expect("a file");
    assert_eq!(text, "four\n");
}
