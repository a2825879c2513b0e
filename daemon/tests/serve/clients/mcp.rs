//! The official Python SDK works in a worker's seat, over HTTP and through `patchboard mcp`, in both protocol versions.

use std::time::Duration;

use serde_json::{Value, json};

use super::Client;
use crate::daemon::Daemon;

/// Time limit of the client.
const TIME: Duration = Duration::from_secs(120);

/// Works in the writer's seat of a new board; returns the negotiated protocol version.
async fn sits(client: Client, way: &str, mode: &str, has_wide_token: bool) -> String {
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    let admin = format!("Bearer {}", daemon.token("admin"));
    daemon.start();
    // Longer than the view budget.
    let notes: Vec<String> = (0..6).map(|note| format!("{}the end of note {note}", "word ".repeat(140))).collect();
    let source = include_str!("mcp.yaml").replace("NOTES", &notes.join(", "));
    let as_admin = [("authorization", admin.as_str())];
    let made = daemon.post_with("/v1/boards", &json!({ "source": source }), &as_admin).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    let token = match has_wide_token {
        true => daemon.token(&format!("board:{board}")),
        false => daemon.token(&format!("seat:{board}/writer")),
    };
    let url = format!("http://{}", daemon.address());
    let arguments = match (way, has_wide_token) {
        ("http", true) => vec![format!("{url}/mcp/{board}/writer")],
        ("http", false) => vec![format!("{url}/mcp")],
        (_, is_named) => {
            let mut command = vec![env!("CARGO_BIN_EXE_patchboard").to_owned(), "mcp".into(), "--url".into(), url];
            if is_named {
                command.extend(["--board".into(), board.clone(), "--worker".into(), "writer".into()]);
            }
            command
        }
    };
    let (way, mode) = (way.to_owned(), mode.to_owned());
    let sitting = tokio::task::spawn_blocking(move || {
        let arguments: Vec<&str> =
            [way.as_str(), mode.as_str()].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        client.run_with("mcp_seat.py", &arguments, &[("PATCHBOARD_TOKEN", &token)], TIME)
    });
    let report: Value = serde_json::from_str(&sitting.await.expect("it ends")).expect("JSON");
    let state = daemon
        .request(reqwest::Method::GET, &format!("/v1/boards/{board}/state"), &as_admin, None)
        .await
        .expect_status(200);
    assert_eq!(state["state"]["steps"], report["state"]);
    assert_eq!(report["state"], json!([2, 4]));
    report["version"].as_str().expect("a text").to_owned()
}

#[tokio::test]
#[ignore = "full tier: packages from registries"]
async fn an_agent_sits_over_http() {
    let Some(client) = Client::find("mcp") else { return };
    assert_eq!(sits(client, "http", "auto", false).await, "2026-07-28");
}

#[tokio::test]
#[ignore = "full tier: packages from registries"]
async fn an_agent_of_an_older_protocol_sits_over_http() {
    let Some(client) = Client::find("mcp") else { return };
    assert_eq!(sits(client, "http", "legacy", true).await, "2025-11-25");
}

#[tokio::test]
#[ignore = "full tier: packages from registries"]
async fn an_agent_sits_through_a_program() {
    let Some(client) = Client::find("mcp") else { return };
    assert_eq!(sits(client, "stdio", "auto", true).await, "2026-07-28");
}

#[tokio::test]
#[ignore = "full tier: packages from registries"]
async fn an_agent_of_an_older_protocol_sits_through_a_program() {
    let Some(client) = Client::find("mcp") else { return };
    assert_eq!(sits(client, "stdio", "legacy", false).await, "2025-11-25");
}
