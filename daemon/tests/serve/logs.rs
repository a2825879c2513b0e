//! The daemon's log, and secrets that must never be in it.

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::metrics::by_a_model;

const KEY: &str = "hush-key-0123456789abcdef";
const HEADER: &str = "hush-header-0123456789";
const REQUEST: &str = "hush-request-0123456789";
const REPLY: &str = "hush-reply-0123456789";
const SIGNAL: &str = "hush-signal-0123456789";

/// Runs a daemon with full logging in this format through many operations; returns it with its log.
async fn noisy(format: &str) -> (Daemon, Vec<String>) {
    let patch = r#"{"patch":[{"op":"add","path":"/steps/-","value":1}],"intent":"hush-reply-0123456789"}"#;
    let acts = vec![
        ScriptedResponse::Say(
            429,
            "retry-after-ms: 10\r\n",
            format!(r#"{{"error": {{"message": "slow down, {KEY}"}}}}"#),
        ),
        ScriptedResponse::answer(REPLY, 70, 5),
        ScriptedResponse::answer(patch, 90, 11),
    ];
    let endpoint = Endpoint::new(acts);
    let mut daemon = Daemon::not_started(&["--require-tokens", "--log-format", format]);
    daemon.configure(&format!(
        "[models.default]\nurl = \"{}\"\nmodel = \"m\"\napi_key_env = \"HUSH_KEY\"\nheaders = {{ X-Title = \"{HEADER}\" }}\n",
        endpoint.url
    ));
    daemon.set("HUSH_KEY", KEY);
    daemon.set("RUST_LOG", "trace");
    let mut secrets: Vec<String> = [KEY, HEADER, REQUEST, REPLY, SIGNAL].map(str::to_owned).to_vec();
    let token = daemon.token("admin");
    let bearer = format!("Bearer {token}");
    let auth = ("authorization", bearer.as_str());
    secrets.push(token.clone());
    daemon.start();
    let body = json!({"source": by_a_model() + "signals: {heard: {}}\n", "request": {"secret": REQUEST}});
    let made = daemon.post_with("/v1/boards", &body, &[auth]).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    for _ in 0..1000 {
        let shown = daemon
            .request(reqwest::Method::GET, &format!("/v1/boards/{board}"), &[auth], None)
            .await
            .expect_status(200);
        if shown["status"] == "quiescent" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let signal = json!({"name": "heard", "value": SIGNAL});
    daemon
        .post_with(&format!("/v1/boards/{board}/signals"), &signal, &[auth, ("idempotency-key", "k")])
        .await
        .expect_status(202);
    let other = daemon.post_with("/v1/tokens", &json!({"scope": "read"}), &[auth]).await.expect_status(201);
    secrets.push(other["token"].as_str().expect("a text").to_owned());
    daemon.get("/v1/boards").await.expect_problem(401, "unauthorized");
    let wrong = [("authorization", "Bearer pb_wrong-0123456789")];
    daemon.request(reqwest::Method::GET, "/v1/boards", &wrong, None).await.expect_problem(401, "unauthorized");
    secrets.push("pb_wrong-0123456789".to_owned());
    let state = daemon
        .request(reqwest::Method::GET, &format!("/v1/boards/{board}/state"), &[auth], None)
        .await
        .expect_status(200);
    assert_eq!(state["state"]["steps"], json!([1]), "the model was asked again");
    assert_eq!(daemon.stop(), Some(0));
    (daemon, secrets)
}

#[tokio::test]
async fn nothing_secret_is_logged_at_any_level() {
    for format in ["text", "json"] {
        let (daemon, secrets) = noisy(format).await;
        let log = daemon.log();
        // The log is long enough to contain a leak.
        assert!(log.lines().count() > 40 && log.contains("answered") && log.contains("TRACE"), "{log}");
        for secret in &secrets {
            let line = log.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{secret} is logged as {format}");
        }
    }
}

#[tokio::test]
async fn json_logs_are_one_object_a_line_whatever_happens() {
    let (daemon, _) = noisy("json").await;
    let log = daemon.log();
    for line in log.lines() {
        let read: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(read["timestamp"].is_string() && read["level"].is_string() && read["target"].is_string(), "{line}");
    }
    // Fatal errors are logged as JSON, too.
    let refused = daemon.command(&["serve", "--listen", "0.0.0.0:0", "--log-format", "json", "--config", "none.toml"]);
    let mut refused = refused;
    let refused = refused.output().expect("the binary can be run");
    assert_eq!(refused.status.code(), Some(2));
    for line in String::from_utf8_lossy(&refused.stderr).lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[tokio::test]
async fn the_daemon_logs_board_events_and_logs_requests_only_when_asked() {
    let mut daemon = Daemon::not_started(&["--log-format", "json"]);
    daemon.start();
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    daemon.post(&format!("/v1/boards/{board}/pause"), &json!({})).await.expect_status(200);
    daemon.post(&format!("/v1/boards/{board}/signals"), &json!({"name": "more"})).await.expect_status(202);
    daemon.kill();
    daemon.start();
    daemon.until(&board, "paused").await;
    assert_eq!(daemon.stop(), Some(0));
    let lines: Vec<Value> = daemon.log().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of_board: Vec<&str> = lines
        .iter()
        .filter(|line| line["board"] == board.as_str())
        .filter_map(|line| line["message"].as_str())
        .collect();
    assert_eq!(of_board, ["the board was made", "the board ended", "the board goes on"]);
    assert!(lines.iter().all(|line| line["message"] != "answered"), "requests are told with -v");
    assert!(lines.iter().any(|line| line["message"] == "boards are recovered" && line["boards"] == 1));
}
