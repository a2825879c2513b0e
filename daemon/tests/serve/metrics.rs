//! Values of `/metrics` after a known amount of work, and after a restart.

use std::time::Duration;

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::json;

use crate::clients::Client;
use crate::daemon::{Daemon, STEPS};

/// Returns the value of a series; 0 if it is missing.
fn value(text: &str, series: &str) -> f64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    rest.map_or(0.0, |value| value.parse().expect("a number"))
}

async fn metrics(daemon: &Daemon) -> String {
    let answer = daemon.get("/metrics").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4");
    answer.text
}

fn assert_values(text: &str, expected: &[(&str, f64)]) {
    for (series, expected) in expected {
        let found = value(text, series);
        assert!((found - expected).abs() < f64::EPSILON, "{series} is {found}, not {expected}:\n{text}");
    }
}

#[tokio::test]
async fn durable_records_are_counted_once_across_a_restart() {
    let mut daemon = Daemon::new();
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    let proposals = format!("/v1/boards/{board}/proposals");
    let propose = |patch| json!({"worker": "walker", "patch": patch});
    let step = propose(json!([{"op": "add", "path": "/steps/-", "value": 3}]));
    daemon.post_once(&proposals, &step, "a").await.expect_status(200);
    daemon.post_once(&proposals, &step, "a").await.expect_status(200);
    let remove = propose(json!([{"op": "remove", "path": "/steps/0"}]));
    daemon.post(&proposals, &remove).await.expect_problem(422, "path_not_granted");
    daemon.post(&proposals, &propose(json!("x"))).await.expect_problem(422, "not_a_patch");
    daemon.get("/v1/boards/nothing").await.expect_problem(404, "no_such_board");
    daemon.get("/nothing/here").await.expect_problem(404, "no_such_route");
    let text = metrics(&daemon).await;
    assert_values(
        &text,
        &[
            ("patchboard_commits_total", 2.0),
            (r#"patchboard_rejections_total{code="path_not_granted",stage="authorization"}"#, 1.0),
            (r#"patchboard_rejections_total{code="not_a_patch",stage="syntax"}"#, 1.0),
            ("patchboard_duplicates_total", 1.0),
            (r#"patchboard_records_total{kind="created"}"#, 1.0),
            (r#"patchboard_records_total{kind="committed"}"#, 2.0),
            (r#"patchboard_records_total{kind="invoked"}"#, 1.0),
            (r#"patchboard_failures_total{code="timeout"}"#, 0.0),
            ("patchboard_commit_duration_seconds_count", 2.0),
            (r#"patchboard_invocation_duration_seconds_count{outcome="committed"}"#, 1.0),
            (r#"patchboard_boards{status="quiescent"}"#, 1.0),
            (r#"patchboard_boards{status="running"}"#, 0.0),
            (r#"patchboard_invocations{state="running"}"#, 0.0),
            ("patchboard_journal_queue", 0.0),
            (r#"patchboard_http_requests_total{method="POST",route="/v1/boards",status="201"}"#, 1.0),
            (r#"patchboard_http_requests_total{method="POST",route="/v1/boards/{board}/proposals",status="422"}"#, 2.0),
            (r#"patchboard_http_requests_total{method="GET",route="none",status="404"}"#, 1.0),
        ],
    );
    // The proposal triggered each idle board again, so each ended twice.
    assert!(value(&text, r#"patchboard_boards_ended_total{end="quiescent"}"#) >= 1.0, "{text}");
    assert!(value(&text, "patchboard_commit_duration_seconds_sum") > 0.0);
    assert!(value(&text, "process_start_time_seconds") > 1.7e9);
    assert!(text.contains(&format!("patchboard_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"))));
    // Labels contain no ids, no worker names and no client-chosen paths.
    assert!(!text.contains(&board) && !text.contains("walker") && !text.contains("/nothing"), "{text}");
    daemon.kill();
    daemon.start();
    daemon.post_once(&proposals, &step, "a").await.expect_status(200);
    assert_values(
        &metrics(&daemon).await,
        &[
            ("patchboard_commits_total", 0.0),
            ("patchboard_duplicates_total", 1.0),
            (r#"patchboard_records_total{kind="created"}"#, 0.0),
            (r#"patchboard_records_total{kind="epoch"}"#, 1.0),
            (r#"patchboard_boards{status="quiescent"}"#, 1.0),
        ],
    );
}

#[tokio::test]
async fn stopped_branches_and_waiting_boards_are_seen_at_the_moment_of_asking() {
    let daemon = Daemon::new();
    let stubborn = STEPS.replace("path: /steps/-, value: 1}", "path: /steps/-, value: 10}")
        + "circuit:\n  rejections: {limit: 1, then: stop_branch}\n";
    let made = daemon.post("/v1/boards", &json!({ "source": stubborn })).await.expect_status(201);
    daemon.until(made["board"].as_str().expect("an id"), "stopped").await;
    let asking = STEPS
        .replace("value: {maximum: 9}}]", "value: {maximum: 9}, approval: {by: editor, expires: 1h}}]")
        .replace("rules:\n", "  editor: {agent: human}\nrules:\n");
    let made = daemon.post("/v1/boards", &json!({ "source": asking })).await.expect_status(201);
    let asking = made["board"].as_str().expect("an id").to_owned();
    daemon.until(&asking, "waiting").await;
    let paused = daemon.board().await;
    daemon.until(&paused, "quiescent").await;
    daemon.post(&format!("/v1/boards/{paused}/pause"), &json!({})).await.expect_status(200);
    daemon.post(&format!("/v1/boards/{paused}/signals"), &json!({"name": "more"})).await.expect_status(202);
    assert_values(
        &metrics(&daemon).await,
        &[
            (r#"patchboard_breaker_branches{state="open"}"#, 1.0),
            (r#"patchboard_breaker_branches{state="half_open"}"#, 0.0),
            (r#"patchboard_breaker_moves_total{change="opened",reason="rejections"}"#, 1.0),
            (r#"patchboard_boards{status="waiting"}"#, 1.0),
            (r#"patchboard_boards{status="paused"}"#, 1.0),
            (r#"patchboard_invocations{state="pending"}"#, 1.0),
            (r#"patchboard_invocations{state="queued"}"#, 1.0),
            (r#"patchboard_invocation_duration_seconds_count{outcome="approval"}"#, 1.0),
        ],
    );
}

#[tokio::test]
async fn tokens_are_counted_by_what_they_were_for() {
    let patch = r#"[{"op":"add","path":"/steps/-","value":1}]"#;
    let endpoint =
        Endpoint::new(vec![ScriptedResponse::answer("no JSON", 70, 5), ScriptedResponse::answer(patch, 90, 11)]);
    let mut daemon = Daemon::not_started(&[]);
    daemon.configure(&format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n", endpoint.url));
    daemon.start();
    let made = daemon.post("/v1/boards", &json!({ "source": by_a_model() })).await.expect_status(201);
    daemon.until(made["board"].as_str().expect("an id"), "quiescent").await;
    assert_values(
        &metrics(&daemon).await,
        &[
            (r#"patchboard_tokens_total{component="worker",kind="prompt"}"#, 70.0),
            (r#"patchboard_tokens_total{component="worker",kind="completion"}"#, 5.0),
            (r#"patchboard_tokens_total{component="retry",kind="prompt"}"#, 90.0),
            (r#"patchboard_tokens_total{component="retry",kind="completion"}"#, 11.0),
            (r#"patchboard_tokens_total{component="architect",kind="prompt"}"#, 0.0),
            (r#"patchboard_rejections_total{code="invalid_json",stage="syntax"}"#, 1.0),
        ],
    );
}

/// Returns [`STEPS`] with a model in the walker's seat.
pub(crate) fn by_a_model() -> String {
    STEPS.replacen("agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]", "agent: llm", 1)
}

/// The official parser in another language reads the metrics.
#[tokio::test]
async fn prometheus_own_parser_reads_it_and_sees_counters_move() {
    let Some(client) = Client::find("prometheus") else { return };
    let daemon = Daemon::new();
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    let url = format!("http://{}", daemon.address());
    let said = client.run("prometheus.py", &[&url, &board], Duration::from_secs(60));
    assert!(said.contains("families"), "{said}");
}
