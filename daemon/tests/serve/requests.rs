//! Malformed and oversized requests, and requests for missing resources: rejected with a code, and nothing changes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::daemon::{Daemon, STEPS};

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn invalid_requests_are_rejected_with_a_code() {
    let daemon = Daemon::new();
    let board = daemon.board().await;
    let head = daemon.until(&board, "quiescent").await["head"].clone();
    let proposals = format!("/v1/boards/{board}/proposals");
    let signals = format!("/v1/boards/{board}/signals");
    let deep = format!("{{\"name\":\"more\",\"value\":{}{}}}", "[".repeat(80), "]".repeat(80));
    let large = format!("{{\"name\":\"more\",\"value\":\"{}\"}}", "x".repeat(9 << 20));
    let patch = r#"{"worker":"walker","patch":[{"op":"add","path":"/steps/-","path":"/steps/-","value":1}]}"#;
    for (path, body, status, code) in [
        (&proposals, "", 400, "invalid_json"),
        (&proposals, "{", 400, "invalid_json"),
        (&proposals, "null", 422, "bad_body"),
        (&proposals, "{}", 422, "bad_body"),
        (&proposals, patch, 400, "duplicate_key"),
        (&proposals, r#"{"worker":"nobody","patch":[]}"#, 422, "wrong_worker"),
        (&proposals, r#"{"worker":"walker","patch":{}}"#, 422, "not_a_patch"),
        (&proposals, r#"{"worker":"walker","patch":[],"more":1}"#, 422, "bad_body"),
        (&signals, r#"{"name":1}"#, 422, "bad_body"),
        (&signals, r#"{"name":"more","value":1e999}"#, 400, "number_out_of_range"),
        (&signals, &deep, 400, "too_deep"),
        (&signals, &large, 413, "body_too_large"),
    ] {
        let answer = daemon.request(Method::POST, path, &[JSON], Some(body.to_owned())).await;
        answer.expect_problem(status, code);
    }
    let head_now = daemon.get(&format!("/v1/boards/{board}")).await.expect_status(200)["head"].clone();
    let refused = head_now["seq"].as_u64().expect("a number") - head["seq"].as_u64().expect("a number");
    // Only proposals that the kernel has judged are recorded.
    assert_eq!(refused, 2);
    assert_eq!(daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200)["version"], 1);
}

/// Sends the head of a request and, later, its body; returns the head of the answer.
fn in_two_parts(stream: &mut TcpStream, head: &str, body: &str) -> String {
    let length = body.len();
    let head =
        format!("{head}\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it is open");
    std::thread::sleep(Duration::from_millis(100));
    stream.write_all(body.as_bytes()).expect("it is open");
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).expect("it is open");
        assert!(read > 0, "the connection was closed after {text:?}");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if length.is_none_or(|length| body.len() >= length) {
            return head.to_owned();
        }
    }
}

#[tokio::test]
async fn a_connection_takes_the_next_request_after_a_body_that_no_route_reads() {
    let daemon = Daemon::new();
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    let address = daemon.address().to_owned();
    let answers = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        let small = " ".repeat(60_000);
        [
            in_two_parts(&mut stream, &format!("POST /v1/boards/{board}/pause HTTP/1.1"), "{}"),
            in_two_parts(&mut stream, &format!("POST /v1/boards/{board}/resume HTTP/1.1"), &small),
            in_two_parts(&mut stream, "POST /v1/nowhere HTTP/1.1", "{}"),
            in_two_parts(&mut stream, "GET /v1/boards HTTP/1.1", "{}"),
        ]
    });
    let answers = answers.await.expect("no panic");
    let statuses = answers.each_ref().map(|head| &head[9..12]);
    assert_eq!(statuses, ["200", "200", "404", "200"], "{answers:?}");
}

#[tokio::test]
async fn a_body_is_as_large_as_its_route_and_the_memory_for_its_value_allow() {
    let daemon = Daemon::new();
    let board = daemon.board().await;
    let text = |bytes: usize| json!({"worker": "x".repeat(bytes)}).to_string();
    let retry = format!("/v1/boards/{board}/retry");
    let large =
        daemon.request(Method::POST, &retry, &[JSON], Some(text(70_000))).await.expect_problem(413, "body_too_large");
    assert!(large["detail"].as_str().is_some_and(|detail| detail.contains("65536 bytes")), "{large}");
    daemon.request(Method::POST, &retry, &[JSON], Some(text(60_000))).await.expect_problem(409, "nothing_given_up");
    // Small values that take far more memory: `{"":0}` takes about 900 bytes.
    let proposals = format!("/v1/boards/{board}/proposals");
    for (small, times) in [("{\"\":0}", 1_000_000), ("[]", 2_000_000), ("0", 4_000_000)] {
        let body = format!("{{\"worker\":\"walker\",\"patch\":[{}]}}", vec![small; times].join(","));
        let refused = daemon.request(Method::POST, &proposals, &[JSON], Some(body)).await;
        let refused = refused.expect_problem(413, "body_too_large");
        assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("MiB of memory")), "{refused}");
    }
    let one_text =
        json!({"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": "x".repeat(7 << 20)}]});
    daemon.post(&proposals, &one_text).await.expect_problem(422, "too_large");
}

#[tokio::test]
async fn missing_resources_and_bad_queries_have_a_status_and_a_code() {
    let daemon = Daemon::new();
    let board = daemon.board().await;
    for (path, status, code) in [
        ("/v1/boards/0199", 404, "no_such_board"),
        ("/v1/boards/0199/state", 404, "no_such_board"),
        ("/v1/boards/0199/events", 404, "no_such_board"),
        ("/v1/boards/0199/journal", 404, "no_such_board"),
        ("/v1/boards/BOARD/state?at=99", 404, "no_such_version"),
        ("/v1/boards/BOARD/state?at=x", 400, "bad_query"),
        ("/v1/boards/BOARD/state?to=1", 400, "bad_query"),
        ("/v1/boards/BOARD/journal?kind=nothing", 400, "bad_query"),
        ("/v1/boards/BOARD/journal?limit=0", 400, "bad_query"),
        ("/v1/boards?limit=1001", 400, "bad_query"),
        ("/v1/boards/BOARD/views/nobody", 404, "no_such_worker"),
        ("/v1/boards/BOARD/views/walker?expand=steps", 400, "bad_pointer"),
        ("/v1/boards/BOARD/views/walker?expand=/none", 422, "path_not_granted"),
        ("/v1/boards/BOARD/views/walker?expand=/steps/9", 404, "path_not_found"),
        ("/v1/boards/BOARD/why?pointer=steps", 400, "bad_pointer"),
        ("/v1/boards/BOARD/why?pointer=/none", 404, "no_such_place"),
        ("/v1/boards/BOARD/why", 400, "bad_query"),
        ("/v1/boards/%ff", 400, "bad_path"),
        ("/v1/nothing", 404, "no_such_route"),
    ] {
        daemon.get(&path.replace("BOARD", &board)).await.expect_problem(status, code);
    }
    let page = daemon.get(&format!("/v1/boards/{board}/journal?after={}", i64::MAX)).await.expect_status(200);
    assert_eq!(page["records"], json!([]));
    // Numbers outside the range of records.
    for number in ["9223372036854775808", "18446744073709551615"] {
        daemon.get(&format!("/v1/boards/{board}/journal?after={number}")).await.expect_problem(400, "bad_query");
        let answer = json!({"agrees": true, "digest": "0".repeat(64)});
        daemon
            .post(&format!("/v1/boards/{board}/approvals/{number}"), &answer)
            .await
            .expect_problem(409, "not_pending");
    }
    daemon.request(Method::PUT, "/v1/boards", &[], None).await.expect_problem(405, "no_such_method");
    let text = daemon.request(Method::POST, "/v1/boards", &[("content-type", "text/plain")], Some("{}".into())).await;
    text.expect_problem(415, "not_json");
    let event =
        daemon.request(Method::GET, &format!("/v1/boards/{board}/events"), &[("last-event-id", "x")], None).await;
    event.expect_problem(400, "bad_event_id");
    for key in ["", "ä", &"k".repeat(129)] {
        let headers = [JSON, ("idempotency-key", key)];
        let answer =
            daemon.request(Method::POST, "/v1/boards", &headers, Some(json!({"source": STEPS}).to_string())).await;
        answer.expect_problem(400, "bad_key");
    }
}

#[tokio::test]
async fn a_blueprint_is_checked_and_trusted_with_nothing() {
    let daemon = Daemon::new();
    let checked = daemon.post("/v1/blueprints/check", &json!({"source": STEPS})).await.expect_status(200);
    assert_eq!(checked["ok"], true);
    let wrong = STEPS.replace("run: walker", "run: nobody");
    let checked = daemon.post("/v1/blueprints/check", &json!({"source": wrong})).await.expect_status(200);
    assert_eq!(checked["ok"], false);
    let finding = &checked["findings"][0];
    assert!(finding["line"].is_u64() && finding["code"].is_string(), "{checked}");
    daemon.post("/v1/boards", &json!({"source": wrong})).await.expect_problem(422, "blueprint_refused");
    daemon.post("/v1/boards", &json!({"source": STEPS, "blueprint": {}})).await.expect_problem(422, "bad_body");
    daemon.post("/v1/blueprints/check", &json!({"blueprint": true})).await.expect_problem(422, "bad_body");
    // Files, programs and models belong to the operator.
    let fragment = format!("{STEPS}use: [other.yaml]\n");
    daemon.post("/v1/boards", &json!({"source": fragment})).await.expect_problem(422, "blueprint_refused");
    let script = "    agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]\n";
    for seat in [
        "    agent: command\n    program: [touch, made]\n",
        "    agent: llm\n",
        "    agent: command\n    command: rm\n",
    ] {
        let inline = STEPS.replacen(script, seat, 1);
        daemon.post("/v1/boards", &json!({"source": inline})).await.expect_problem(422, "not_configured");
    }
    assert!(!daemon.path().join("made").exists());
    assert_eq!(daemon.get("/v1/boards").await.expect_status(200)["boards"], json!([]));
}

#[tokio::test]
async fn a_page_elsewhere_cannot_use_a_browser_to_get_in() {
    let daemon = Daemon::new();
    let port = daemon.address().rsplit(':').next().expect("a port").to_owned();
    for (header, value, code, status) in [
        ("host", "evil.example", "unknown_host", 421),
        ("origin", "https://evil.example", "unknown_origin", 403),
        ("origin", "null", "unknown_origin", 403),
    ] {
        daemon.request(Method::GET, "/v1/boards", &[(header, value)], None).await.expect_problem(status, code);
    }
    let own = format!("http://127.0.0.1:{port}");
    daemon.request(Method::GET, "/v1/boards", &[("origin", &own)], None).await.expect_status(200);
}
