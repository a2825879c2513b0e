//! MCP access to a worker's seat: authorization, rejections, cancellation, and the stdio proxy. The end-to-end test
//! with a third-party client is in `clients/mcp.rs`.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon, STEPS};

/// Returns a daemon that requires tokens, a board with a remote walker, and an admin token.
async fn board(settings: &str) -> (Daemon, String, String) {
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    std::fs::write(daemon.path().join("patchboard.toml"), settings).expect("a file can be written");
    let admin = daemon.token("admin");
    daemon.start();
    let remote = STEPS.replace(
        "agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]",
        "agent: remote\n    limits: {timeout: 1h, attempts: 3}\n    clarify: {by: owner}",
    );
    assert_ne!(remote, STEPS);
    let remote = remote.replace("  other:", "  owner: {agent: human}\n  other:");
    let bearer = format!("Bearer {admin}");
    let made = daemon
        .post_with("/v1/boards", &json!({ "source": remote }), &[("authorization", &bearer)])
        .await
        .expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    (daemon, board, admin)
}

async fn send(daemon: &Daemon, token: &str, path: &str, body: String, headers: &[(&str, &str)]) -> Answer {
    let bearer = format!("Bearer {token}");
    let mut all = vec![("authorization", bearer.as_str())];
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        all.push(("content-type", "application/json"));
    }
    all.extend_from_slice(headers);
    daemon.request(Method::POST, path, &all, Some(body)).await
}

fn message(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

fn call(tool: &str, arguments: &Value) -> String {
    message("tools/call", &json!({"name": tool, "arguments": arguments}))
}

/// Calls a tool in the token's seat; returns its result and whether it is an error.
async fn calls(daemon: &Daemon, token: &str, tool: &str, arguments: Value) -> (Value, bool) {
    let answer = send(daemon, token, "/mcp", call(tool, &arguments), &[]).await.expect_status(200);
    let result = &answer["result"];
    (result["structuredContent"].clone(), result["isError"].as_bool().unwrap_or_else(|| panic!("{answer}")))
}

async fn does(daemon: &Daemon, token: &str, tool: &str, arguments: Value) -> Value {
    let (content, is_error) = calls(daemon, token, tool, arguments).await;
    assert!(!is_error, "{tool}: {content}");
    content
}

async fn refuses(daemon: &Daemon, token: &str, tool: &str, arguments: Value, code: &str) {
    let (content, is_error) = calls(daemon, token, tool, arguments).await;
    assert!(is_error && content["code"] == code, "{tool}: {content}");
}

fn step(value: u32) -> Value {
    json!([{"op": "add", "path": "/steps/-", "value": value}])
}

#[tokio::test]
async fn a_token_opens_its_own_seat_and_a_wider_one_the_seat_that_is_named() {
    let (daemon, board, admin) = board("").await;
    let walker = daemon.token(&format!("seat:{board}/walker"));
    let read = daemon.token("read");
    let seat = format!("/mcp/{board}/walker");
    let hello = message(
        "initialize",
        &json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
    );
    for (token, path) in [(&walker, "/mcp"), (&walker, seat.as_str()), (&admin, seat.as_str())] {
        let answer = send(&daemon, token, path, hello.clone(), &[]).await;
        assert!(!answer.headers.contains_key("mcp-session-id"), "there are no sessions");
        let answer = answer.expect_status(200);
        assert_eq!(answer["result"]["serverInfo"]["name"], "patchboard", "{answer}");
        assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
        assert!(answer["result"]["capabilities"]["resources"].get("subscribe").is_none(), "{answer}");
    }
    for token in [&admin, &read] {
        send(&daemon, token, "/mcp", hello.clone(), &[]).await.expect_problem(400, "bad_path");
    }
    send(&daemon, &read, &seat, hello.clone(), &[]).await.expect_problem(403, "forbidden");
    send(&daemon, &walker, &format!("/mcp/{board}/other"), hello.clone(), &[]).await.expect_problem(403, "forbidden");
    send(&daemon, &walker, "/mcp/another/walker", hello.clone(), &[]).await.expect_problem(404, "no_such_board");
    send(&daemon, &admin, "/mcp/another/walker", hello.clone(), &[]).await.expect_problem(404, "no_such_board");
    send(&daemon, "pb_wrong", "/mcp", hello.clone(), &[]).await.expect_problem(401, "unauthorized");
    // The blueprint does not define this worker.
    let answer = send(&daemon, &admin, &format!("/mcp/{board}/nobody"), call("read_view", &json!({})), &[])
        .await
        .expect_status(200);
    assert_eq!(answer["result"]["structuredContent"]["code"], "no_such_worker", "{answer}");
    // A worker with an agent in the daemon has no calls to lease.
    let other = daemon.token(&format!("seat:{board}/other"));
    assert_eq!(does(&daemon, &other, "read_view", json!({})).await["asked"], false);
    refuses(&daemon, &other, "propose_patch", json!({"patch": step(1), "base": 0}), "path_not_granted").await;
    refuses(&daemon, &other, "propose_patch", json!({"patch": step(1), "lease": "1:1"}), "not_remote").await;
    // A revoked token loses access at once.
    let as_admin = [("authorization", format!("Bearer {admin}"))];
    let as_admin = [(as_admin[0].0, as_admin[0].1.as_str())];
    let listed = daemon.request(Method::GET, "/v1/tokens", &as_admin, None).await.expect_status(200);
    let scope = format!("seat:{board}/walker");
    let tokens = listed["tokens"].as_array().expect("a list");
    let id = &tokens.iter().find(|token| token["scope"] == scope).expect("it is listed")["id"];
    daemon.request(Method::DELETE, &format!("/v1/tokens/{id}"), &as_admin, None).await;
    send(&daemon, &walker, "/mcp", call("read_view", &json!({})), &[]).await.expect_problem(401, "unauthorized");
}

#[tokio::test]
async fn invalid_messages_are_rejected_with_a_code() {
    let (daemon, board, _) = board("").await;
    let token = daemon.token(&format!("seat:{board}/walker"));
    let ping = message("ping", &json!({}));
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let large = call("read_view", &json!({"x": "x".repeat(9 << 20)}));
    let twice = r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#;
    let none: &[(&str, &str)] = &[];
    for (body, headers, status, code) in [
        ("", none, 400, "invalid_json"),
        (twice, none, 400, "duplicate_key"),
        (deep.as_str(), none, 400, "too_deep"),
        (large.as_str(), none, 413, "body_too_large"),
        ("[]", none, 422, "bad_body"),
        ("{}", none, 422, "bad_body"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, none, 422, "bad_body"),
        (&ping, &[("content-type", "text/plain")], 415, "not_json"),
        (&ping, &[("mcp-protocol-version", "1999-01-01")], 400, "bad_body"),
        (&ping, &[("origin", "https://evil.example")], 403, "unknown_origin"),
        (&ping, &[("host", "evil.example")], 421, "unknown_host"),
    ] {
        send(&daemon, &token, "/mcp", body.to_owned(), headers).await.expect_problem(status, code);
    }
    let bearer = format!("Bearer {token}");
    for method in [Method::GET, Method::DELETE] {
        daemon.request(method, "/mcp", &[("authorization", &bearer)], None).await.expect_problem(405, "no_such_method");
    }
    let batch = send(&daemon, &token, "/mcp", format!("[{ping}]"), &[]).await;
    assert!(batch.text.contains("batches are not taken"), "{}", batch.text);
    let error =
        |body| async { send(&daemon, &token, "/mcp", body, &[]).await.expect_status(200)["error"]["code"].clone() };
    assert_eq!(error(message("no/such", &json!({}))).await, -32601);
    assert_eq!(error(message("tools/call", &json!({}))).await, -32602);
    assert_eq!(error(message("resources/read", &json!({}))).await, -32602);
    assert_eq!(error(message("prompts/get", &json!({"name": "x"}))).await, -32601);
    assert_eq!(error(message("resources/subscribe", &json!({"uri": "patchboard://board/log"}))).await, -32601);
    // Arguments are parsed strictly, and a rejected call changes nothing.
    for (tool, arguments) in [
        ("read_view", json!({"seconds": 0})),
        ("read_view", json!({"seconds": 3601})),
        ("read_view", json!({"wait": -1})),
        ("read_view", json!({"wait": 61})),
        ("propose_patch", json!({"base": 0})),
        ("propose_patch", json!({"patch": [], "base": 0, "lease": "1:1"})),
        ("propose_patch", json!({"patch": [], "base": "0"})),
        ("expand", json!({"paths": []})),
        ("expand", json!({"paths": [7]})),
        ("clarify", json!({"question": "?"})),
    ] {
        refuses(&daemon, &token, tool, arguments, "bad_body").await;
    }
    refuses(&daemon, &token, "expand", json!({"paths": ["steps"]}), "bad_pointer").await;
    refuses(&daemon, &token, "explain_rejection", json!({"code": "x".repeat(1 << 20)}), "unknown_code").await;
    let log = send(&daemon, &token, "/mcp", message("resources/read", &json!({"uri": "patchboard://board/log"})), &[])
        .await
        .expect_status(200);
    let log = log["result"]["contents"][0]["text"].as_str().expect("a text");
    let log: Value = serde_json::from_str(log).expect("JSON");
    let kinds: Vec<&Value> = log["entries"].as_array().expect("a list").iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds, ["invoked"], "{log}");
}

#[tokio::test]
async fn a_lease_is_its_holders_and_goes_with_the_daemon() {
    let (mut daemon, board, admin) = board("").await;
    let scope = format!("seat:{board}/walker");
    let (one, other) = (daemon.token(&scope), daemon.token(&scope));
    assert_eq!(does(&daemon, &one, "read_view", json!({"wait": 30})).await["lease"], "1:1");
    assert_eq!(does(&daemon, &other, "read_view", json!({})).await["asked"], false);
    assert_eq!(does(&daemon, &one, "read_view", json!({})).await["lease"], "1:1");
    daemon.kill();
    daemon.start();
    assert_eq!(does(&daemon, &other, "read_view", json!({"wait": 30})).await["lease"], "1:2");
    refuses(&daemon, &one, "propose_patch", json!({"patch": step(1), "lease": "1:1"}), "invocation_closed").await;
    // A clarification answers the call, and the person's reply triggers another call.
    let asked =
        does(&daemon, &other, "clarify", json!({"question": "which?", "choices": ["3", "4"], "lease": "1:2"})).await;
    assert_eq!(asked["outcome"], "awaiting_approval", "{asked}");
    let bearer = format!("Bearer {admin}");
    let as_admin = [("authorization", bearer.as_str())];
    let inbox = daemon.request(Method::GET, "/v1/inbox", &as_admin, None).await.expect_status(200);
    let question = &inbox.as_object().and_then(|inbox| inbox.values().find_map(Value::as_array)).expect("a list")[0];
    let reply = json!({"agrees": true, "text": "4", "digest": question["digest"]});
    let path = format!("/v1/boards/{board}/approvals/{}", question["seq"]);
    let as_owner = format!("Bearer {}", daemon.token("person:owner"));
    daemon.post_with(&path, &reply, &[("authorization", &as_owner)]).await.expect_status(200);
    let view = does(&daemon, &other, "read_view", json!({"wait": 30})).await;
    assert!(view["view"].as_str().is_some_and(|view| view.contains("which?")), "{view}");
    let answer = json!({"patch": step(4), "lease": view["lease"]});
    let committed = does(&daemon, &other, "propose_patch", answer.clone()).await;
    assert_eq!(committed["outcome"], "committed");
    // A repeated answer returns the first result.
    assert_eq!(does(&daemon, &other, "propose_patch", answer).await["seq"], committed["seq"]);

    // A client that has disconnected is leased nothing.
    let waiting = send(&daemon, &one, "/mcp", call("read_view", &json!({"wait": 60})), &[]);
    assert!(tokio::time::timeout(Duration::from_millis(500), waiting).await.is_err(), "nobody asks");
    tokio::time::sleep(Duration::from_millis(200)).await;
    daemon
        .post_with(&format!("/v1/boards/{board}/signals"), &json!({"name": "more"}), &as_admin)
        .await
        .expect_status(202);
    assert_eq!(does(&daemon, &other, "read_view", json!({"wait": 30})).await["asked"], true);
    daemon.post_with(&format!("/v1/boards/{board}/cancel"), &json!({}), &as_admin).await.expect_status(200);
    refuses(&daemon, &other, "read_view", json!({}), "board_over").await;
    refuses(&daemon, &other, "propose_patch", json!({"patch": step(1), "base": 1}), "board_not_running").await;
}

#[tokio::test]
async fn streams_are_counted_and_end_with_the_board() {
    let (daemon, board, admin) = board("[serve.limits]\nstreams = 1").await;
    let token = daemon.token(&format!("seat:{board}/walker"));
    let listen = message(
        "subscriptions/listen",
        &json!({
            "notifications": {"resourceSubscriptions": ["patchboard://board/log"]},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        }),
    );
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let bearer = format!("Bearer {token}");
    let mut all = vec![("authorization", bearer.as_str()), ("content-type", "application/json")];
    all.extend(headers);
    let mut first = daemon.send(Method::POST, "/mcp", &all, Some(listen.clone())).await;
    let begun = first.chunk().await.expect("it is open").expect("an event");
    assert!(String::from_utf8_lossy(&begun).contains("notifications/subscriptions/acknowledged"), "{begun:?}");
    let second = send(&daemon, &token, "/mcp", listen, &headers).await;
    assert!(second.text.contains("too_many_streams"), "{}", second.text);
    let as_admin = format!("Bearer {admin}");
    daemon
        .post_with(&format!("/v1/boards/{board}/cancel"), &json!({}), &[("authorization", &as_admin)])
        .await
        .expect_status(200);
    let rest = tokio::time::timeout(Duration::from_secs(30), first.text()).await.expect("it ends").expect("a text");
    assert!(rest.contains("notifications/resources/updated") && rest.contains("\"result\""), "{rest}");
}

/// Two rooms: ann loses her membership in one and keeps it in the other.
const ROOMS: &str = "\
blueprint: 1
name: rooms
state:
  schema: {type: object}
  initial: {vault: {}, rooms: {quelm: {members: [ann], said: [<QUELM>]}, zundov: {members: [ann, bob], said: [<ZUNDOV>]}}}
workers:
  ann:
    agent: remote
    reads: [{path: /rooms/*, where: worker in self.members}]
    writes: [{path: /rooms/*/said/-, ops: [add]}]
  keeper:
    agent: remote
    reads: [/rooms]
    writes: [{path: /rooms/*/members, ops: [replace]}, {path: /rooms/*/said/-, ops: [add]}]
rules: [{name: go, trigger: manual, run: ann}]
";

#[tokio::test]
async fn a_seat_learns_of_rooms_that_it_may_read_now_whenever_it_asks_about() {
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    let admin = daemon.token("admin");
    daemon.start();
    let bearer = format!("Bearer {admin}");
    let as_admin = [("authorization", bearer.as_str())];
    let made = daemon.post_with("/v1/boards", &json!({ "source": ROOMS }), &as_admin).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    let token = daemon.token(&format!("seat:{board}/ann"));
    let own = format!("Bearer {token}");
    let ann = [("authorization", own.as_str())];
    let keep = async |patch: Value| {
        let proposed = json!({"worker": "keeper", "patch": patch});
        daemon.post_with(&format!("/v1/boards/{board}/proposals"), &proposed, &as_admin).await.expect_status(200)
    };
    let read = async |uri: &str| {
        let read = message("resources/read", &json!({"uri": format!("patchboard://board/{uri}")}));
        send(&daemon, &token, "/mcp", read, &[]).await.expect_status(200)["result"]["contents"][0]["text"].to_string()
    };
    let past = format!("/v1/boards/{board}/views/ann?at=0");

    // As a member, ann is rejected because of a later change, and the rejection shows that change.
    daemon
        .post_with(&format!("/v1/boards/{board}/signals"), &json!({"name": "go"}), &as_admin)
        .await
        .expect_status(202);
    let asked = does(&daemon, &token, "read_view", json!({"wait": 30})).await;
    assert!(asked["view"].as_str().is_some_and(|view| view.contains("<QUELM>")), "{asked}");
    keep(json!([{"op": "add", "path": "/rooms/quelm/said/-", "value": "<QUELM> 2"}])).await;
    keep(json!([{"op": "replace", "path": "/rooms/quelm/members", "value": ["ann", "<QUELM> 3"]}])).await;
    let add =
        json!({"patch": [{"op": "add", "path": "/rooms/zundov/said/-", "value": "yes"}], "lease": asked["lease"]});
    let (answer, _) = calls(&daemon, &token, "propose_patch", add).await;
    assert!(answer["code"] == "stale_read" && answer.to_string().contains("<QUELM> 3"), "{answer}");
    for text in [read("state").await, read("log").await, daemon.request(Method::GET, &past, &ann, None).await.text] {
        assert!(text.contains("quelm"), "{text}");
    }
    let asked = does(&daemon, &token, "read_view", json!({"wait": 30})).await;
    let enough = json!({"patch": [], "lease": asked["lease"]});
    assert_eq!(does(&daemon, &token, "propose_patch", enough).await["outcome"], "no_op");

    // After losing membership, ann sees nothing of the room: neither its state, nor its history, nor earlier
    // rejections.
    keep(json!([{"op": "replace", "path": "/rooms/quelm/members", "value": ["bob"]}])).await;
    let then = daemon.request(Method::GET, &past, &as_admin, None).await;
    assert!(then.expect_status(200)["text"].as_str().is_some_and(|view| view.contains("<QUELM>")), "{}", then.text);
    let texts = [
        read("state").await,
        read("log").await,
        does(&daemon, &token, "explain_rejection", json!({})).await.to_string(),
        does(&daemon, &token, "read_view", json!({})).await.to_string(),
        daemon.request(Method::GET, &past, &ann, None).await.text,
    ];
    for (nth, text) in texts.iter().enumerate() {
        assert!(!text.contains("quelm") && !text.contains("QUELM"), "{nth}: {text}");
        assert!(text.contains(if matches!(nth, 1 | 2) { "stale_read" } else { "zundov" }), "{nth}: {text}");
    }
    for view in [past.as_str(), past.split_once('?').expect("a query").0] {
        let own = daemon.request(Method::GET, view, &ann, None).await.expect_status(200);
        assert!(own["items"].to_string().contains("/rooms/") && !own.to_string().contains("vault"), "{own}");
        let all = daemon.request(Method::GET, view, &as_admin, None).await.expect_status(200);
        assert!(all["items"].to_string().contains("/vault"), "{all}");
    }
    let hidden = format!("{past}&expand=/rooms/quelm");
    daemon.request(Method::GET, &hidden, &ann, None).await.expect_problem(422, "path_not_granted");
    daemon.request(Method::GET, &hidden, &as_admin, None).await.expect_status(200);
}

/// Returns the lines that the proxy prints for these input lines.
fn passes_on(daemon: &Daemon, arguments: &[&str], token: &str, lines: &[u8]) -> Vec<Value> {
    let mut command = daemon.command(&[&["mcp"], arguments].concat());
    command.env("PATCHBOARD_TOKEN", token).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().expect("the binary can be run");
    child.stdin.take().expect("it is piped").write_all(lines).expect("it reads");
    let done = child.wait_with_output().expect("it ends");
    assert!(done.status.success(), "{}", done.status);
    let text = String::from_utf8(done.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_writes_messages_and_nothing_else() {
    let (mut daemon, board, _) = board("").await;
    let token = daemon.token(&format!("seat:{board}/walker"));
    let url = format!("http://{}", daemon.address());
    let ping = message("ping", &json!({}));
    let lines = format!("\nnot JSON\n{}\n{ping}\n", json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let answers = passes_on(&daemon, &["--url", &url], &token, lines.as_bytes());
    assert_eq!(
        (answers.len(), &answers[0]["error"]["code"], &answers[1]["result"]),
        (2, &json!(-32700), &json!({})),
        "{answers:?}"
    );
    let answers = passes_on(&daemon, &["--url", &url], &token, b"\xff\n");
    assert_eq!(answers[0]["error"]["data"]["code"], "not_json", "{answers:?}");
    let answers = passes_on(&daemon, &["--url", &url], &token, b"[]\n");
    assert_eq!((&answers[0]["error"]["code"], &answers[0]["id"]), (&json!(-32600), &json!(null)), "{answers:?}");
    // The last line may lack a newline.
    assert_eq!(passes_on(&daemon, &["--url", &url], &token, ping.as_bytes())[0]["result"], json!({}));
    let code = |answers: Vec<Value>| answers[0]["error"]["data"]["code"].as_str().expect("a code").to_owned();
    assert_eq!(code(passes_on(&daemon, &["--url", &url], "pb_wrong", ping.as_bytes())), "unauthorized");
    let other = ["--url", url.as_str(), "--board", board.as_str(), "--worker", "other"];
    assert_eq!(code(passes_on(&daemon, &other, &token, ping.as_bytes())), "forbidden");
    // A cancelled request gets no answer and blocks no other request.
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    does(&daemon, &token, "read_view", json!({"wait": 30})).await;
    does(&daemon, &token, "propose_patch", json!({"patch": step(1), "lease": "1:1"})).await;
    let waits = call("read_view", &json!({"wait": 60}));
    assert_eq!(
        passes_on(&daemon, &["--url", &url], &token, format!("{waits}\n{cancel}\n").as_bytes()),
        [json!(null); 0]
    );
    daemon.kill();
    assert_eq!(code(passes_on(&daemon, &["--url", &url], &token, ping.as_bytes())), "daemon_unreachable");
    let refused = daemon.command(&["mcp"]).env_remove("PATCHBOARD_URL").output().expect("the binary can be run");
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stdout.is_empty() && String::from_utf8_lossy(&refused.stderr).contains("no_daemon"));
}
