//! Rate limits of a caller, and their isolation from other callers.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon, STEPS, remote_steps};
use crate::leases::PATIENT;
use crate::requests::JSON;

/// Returns a daemon with these settings of `[serve.limits]`.
fn limited(limits: &str, arguments: &[&str]) -> Daemon {
    let daemon = Daemon::not_started(arguments);
    let config = format!("[serve.limits]\n{limits}\n");
    std::fs::write(daemon.path().join("patchboard.toml"), config).expect("a file can be written");
    daemon
}

fn started(limits: &str) -> Daemon {
    let mut daemon = limited(limits, &[]);
    daemon.start();
    daemon
}

async fn as_holder(daemon: &Daemon, token: &str) -> Answer {
    let header = format!("Bearer {token}");
    daemon.request(Method::GET, "/v1/boards", &[("authorization", &header)], None).await
}

/// Sends a request on its own connection and reads until the daemon closes it.
fn raw(daemon: &Daemon, request: &str) -> String {
    let mut stream = TcpStream::connect(daemon.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    stream.write_all(request.as_bytes()).expect("it is open");
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while let Ok(read) = stream.read(&mut buffer)
        && read > 0
    {
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        if text.contains("\r\n\r\n") && text.contains('}') {
            break;
        }
    }
    text
}

#[tokio::test]
async fn a_reply_that_waits_for_the_next_call_holds_no_memory() {
    // One caller may take half of it, and each body takes more than half of that.
    let daemon = started("body_memory_mib = 8");
    let made = daemon.post("/v1/boards", &json!({ "source": remote_steps(PATIENT) })).await.expect_status(201);
    let board = made["board"].as_str().expect("an id");
    let path = format!("/v1/boards/{board}");
    let lease = json!({"worker": "walker", "wait": 30});
    assert_eq!(daemon.post(&format!("{path}/leases"), &lease).await.expect_status(200)["lease"], "1:1");
    let padded = |body: Value| Some(format!("{body}{}", " ".repeat(3 << 20)));
    let patch = json!([{"op": "add", "path": "/steps/-", "value": 1}]);
    let reply = padded(json!({"worker": "walker", "patch": patch, "next": {"wait": 60}}));
    let answer = format!("{path}/leases/1:1/answer");
    let waiting = daemon.request(Method::POST, &answer, &[JSON], reply);
    let proposing = async {
        daemon.until(board, "quiescent").await;
        let proposals = format!("{path}/proposals");
        let mut tries = 0;
        let proposed = loop {
            let proposal = padded(json!({"worker": "walker", "patch": []}));
            let proposed = daemon.request(Method::POST, &proposals, &[JSON], proposal).await;
            tries += 1;
            if proposed.status != 429 || tries == 5 {
                break proposed;
            }
            // The commit comes a moment before the release.
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        daemon.post(&format!("{path}/cancel"), &json!({})).await.expect_status(200);
        proposed
    };
    let (answered, proposed) = tokio::join!(waiting, proposing);
    assert_eq!(answered.expect_status(200)["next"], Value::Null);
    assert_ne!(proposed.status, 429, "{}", proposed.text);
}

#[tokio::test]
async fn a_connection_that_waits_for_no_answer_gives_its_place_to_a_new_one() {
    // Requests that wait for processor time arrive all at once.
    let daemon = started("connections = 4\nprocessor_percent = 100");
    let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let answered = || raw(&daemon, request).starts_with("HTTP/1.1 200");
    // Silent connections, connections with an unfinished head, and answered ones that are kept alive.
    for begun in ["", "GET /healthz HTTP/1.1\r\nX: ", request] {
        let mut held: Vec<TcpStream> = (0..12)
            .map(|_| {
                let mut stream = TcpStream::connect(daemon.address()).expect("it listens");
                // A connection that was already closed rejects the write.
                let _ = stream.write_all(begun.as_bytes());
                stream.set_nonblocking(true).expect("a socket");
                stream
            })
            .collect();
        // The daemon accepts connections in any order.
        let since = Instant::now();
        while held.len() > 4 && since.elapsed() < Duration::from_secs(30) {
            held.retain_mut(|stream| match stream.read(&mut [0; 1024]) {
                Ok(read) => read > 0,
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            });
        }
        assert_eq!(held.len(), 4, "{begun:?}");
        for _ in 0..6 {
            assert!(answered(), "{begun:?}");
        }
        drop(held);
    }
    // A connection that waits for an answer keeps its slot.
    let board = daemon.board().await;
    daemon.post(&format!("/v1/boards/{board}/pause"), &json!({})).await.expect_status(200);
    let mut streams = Vec::new();
    for _ in 0..4 {
        let stream = daemon.send(Method::GET, &format!("/v1/boards/{board}/events"), &[], None).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    let begun = Instant::now();
    for _ in 0..20 {
        assert!(!answered(), "there are four already");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "who finds no place is told at once");
    drop(streams);
}

#[tokio::test]
async fn a_caller_above_its_rate_is_rejected_and_others_are_served() {
    let mut daemon = limited("requests_per_second = 1\nrequests_burst = 5", &["--require-tokens"]);
    let (one, other) = (daemon.token("read"), daemon.token("read"));
    daemon.start();
    let mut refused = None;
    for _ in 0..20 {
        let answer = as_holder(&daemon, &one).await;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("twenty requests are too many");
    refused.expect_problem(429, "too_many_requests");
    assert_eq!(refused.headers["retry-after"], "1");
    as_holder(&daemon, &other).await.expect_status(200);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    as_holder(&daemon, &one).await.expect_status(200);
}

#[tokio::test]
async fn tokens_cannot_be_guessed_at_speed() {
    let mut daemon = limited("failures_per_minute = 3", &["--require-tokens"]);
    let right = daemon.token("read");
    daemon.start();
    for _ in 0..3 {
        as_holder(&daemon, "pb_wrong").await.expect_problem(401, "unauthorized");
    }
    let answer = as_holder(&daemon, "pb_wrong").await;
    answer.expect_problem(429, "too_many_failures");
    let wait: u64 = answer.headers["retry-after"].to_str().expect("a text").parse().expect("a number");
    assert!((1..=20).contains(&wait), "{wait}");
    // Other callers at this address are not affected.
    as_holder(&daemon, &right).await.expect_status(200);
    daemon.get("/healthz").await.expect_status(200);
}

#[tokio::test]
async fn one_caller_has_so_many_streams() {
    let daemon = started("streams = 2");
    let board = daemon.board().await;
    daemon.post(&format!("/v1/boards/{board}/pause"), &json!({})).await.expect_status(200);
    let events = format!("/v1/boards/{board}/events");
    let mut open = Vec::new();
    for _ in 0..2 {
        let stream = daemon.send(Method::GET, &events, &[], None).await;
        assert_eq!(stream.status(), 200);
        open.push(stream);
    }
    daemon.get(&events).await.expect_problem(429, "too_many_streams");
    daemon.get(&format!("/v1/boards/{board}/agui")).await.expect_problem(429, "too_many_streams");
    drop(open.pop());
    let begun = Instant::now();
    while daemon.send(Method::GET, &events, &[], None).await.status() != 200 {
        assert!(begun.elapsed() < Duration::from_secs(30), "a place was left");
        // The daemon notices at the next heartbeat or record.
        daemon.post(&format!("/v1/boards/{board}/signals"), &json!({"name": "more"})).await.expect_status(202);
    }
}

#[test]
fn a_request_has_its_time_and_its_size() {
    let daemon = started("request_seconds = 1\nhead_bytes = 8192");
    let slow =
        "POST /v1/boards HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let begun = Instant::now();
    let answer = raw(&daemon, slow);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("timed_out"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    let long = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(20_000));
    assert!(raw(&daemon, &long).starts_with("HTTP/1.1 431"));
    let usual = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(2000));
    assert!(raw(&daemon, &usual).starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_token_is_made_and_shown_once() {
    let daemon = Daemon::new();
    let wanted = json!({"scope": "read", "name": "ci"});
    let made = daemon.post_once("/v1/tokens", &wanted, "one").await.expect_status(201);
    let again = daemon.post_once("/v1/tokens", &wanted, "one").await.expect_problem(409, "already_shown");
    assert_eq!(again["id"], made["id"]);
    assert_eq!(daemon.get("/v1/tokens").await.expect_status(200)["tokens"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_page_of_records_has_a_bounded_size() {
    let daemon = Daemon::new();
    let large = STEPS
        .replace("items: {type: integer}", "items: {}")
        .replace("ops: [add], value: {maximum: 9}}]", "ops: [add]}]\n    patch: {max_bytes: 4000000}");
    let made = daemon.post("/v1/boards", &json!({ "source": large })).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    for _ in 0..5 {
        let patch = json!([{"op": "add", "path": "/steps/-", "value": "x".repeat(3_000_000)}]);
        daemon
            .post(&format!("/v1/boards/{board}/proposals"), &json!({"worker": "walker", "patch": patch}))
            .await
            .expect_status(200);
    }
    let (mut after, mut seen) = (String::new(), Vec::new());
    loop {
        let page = daemon.get(&format!("/v1/boards/{board}/journal?limit=1000{after}")).await;
        assert!(page.text.len() < 12_000_000, "{}", page.text.len());
        let page = page.expect_status(200);
        seen.extend(page["records"].as_array().expect("a list").iter().map(|record| record["seq"].clone()));
        match page["next"].as_u64() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, (0..seen.len()).map(|seq| json!(seq)).collect::<Vec<_>>());
    assert!(seen.len() > 5 && !after.is_empty());
}
