//! Access matrix: every scope at every route, with its expected status (allowed, 401, 403 or 404).

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::daemon::{Daemon, STEPS};

/// Kinds of callers, in the order of the columns below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// No token.
    None,
    /// A header without a token.
    Malformed,
    /// A token that was never created.
    Unknown,
    Revoked,
    Expired,
    Read,
    Board,
    OtherBoard,
    Walker,
    OtherSeat,
    WalkerElsewhere,
    Person,
    Admin,
}

impl Kind {
    const ALL: [Self; 13] = [
        Self::None,
        Self::Malformed,
        Self::Unknown,
        Self::Revoked,
        Self::Expired,
        Self::Read,
        Self::Board,
        Self::OtherBoard,
        Self::Walker,
        Self::OtherSeat,
        Self::WalkerElsewhere,
        Self::Person,
        Self::Admin,
    ];
}

/// Expected answers by kind of caller: `y` allowed, `u` unknown (401), `f` forbidden (403), `n` no such board (404).
const ADMINISTER: &str = "uuuuufffffffy";
const SEE_ALL: &str = "uuuuuyffffffy";
const KNOWN: &str = "uuuuuyyyyyyyy";
const SEE: &str = "uuuuuyynffnny";
const ACT: &str = "uuuuufynffnny";
const SEE_SEAT: &str = "uuuuuyynyfnny";
const SIT: &str = "uuuuufynyfnny";
const BE: &str = "uuuuufynyynny";
/// Before the body is read, a person may belong to any board, even one that does not exist.
const JOIN: &str = "uuuuufynyynyy";

/// Every route, a body that it accepts, and its required access.
const MATRIX: &[(&str, &str, &str, &str)] = &[
    ("POST", "/v1/blueprints/check", r#"{"source":"x"}"#, SEE_ALL),
    ("GET", "/v1/boards", "", KNOWN),
    ("POST", "/v1/boards", r#"{"source":"x"}"#, ADMINISTER),
    ("GET", "/v1/boards/{board}", "", SEE),
    ("GET", "/v1/boards/{board}/state", "", SEE),
    ("GET", "/v1/boards/{board}/views/{worker}", "", SEE_SEAT),
    ("GET", "/v1/boards/{board}/journal", "", SEE),
    ("GET", "/v1/boards/{board}/events", "", SEE),
    ("GET", "/v1/boards/{board}/agui", "", SEE),
    ("POST", "/v1/boards/{board}/agui", r#"{"threadId":"t","runId":"r","messages":[]}"#, SEE),
    ("GET", "/v1/boards/{board}/why", "", SEE),
    ("GET", "/v1/boards/{board}/cost", "", SEE),
    ("GET", "/v1/boards/{board}/rejections", "", SEE),
    ("POST", "/v1/boards/{board}/proposals", r#"{"worker":"walker","patch":[]}"#, SIT),
    ("POST", "/v1/boards/{board}/signals", r#"{"name":"more"}"#, ACT),
    ("GET", "/v1/boards/{board}/leases", "", SEE),
    ("POST", "/v1/boards/{board}/leases", r#"{"worker":"walker"}"#, SIT),
    ("POST", "/v1/boards/{board}/leases/{lease}/renew", r#"{"worker":"walker"}"#, SIT),
    ("POST", "/v1/boards/{board}/leases/{lease}/answer", r#"{"worker":"walker","patch":[]}"#, SIT),
    ("POST", "/v1/boards/{board}/leases/{lease}/failure", r#"{"worker":"walker"}"#, SIT),
    ("POST", "/v1/boards/{board}/leases/{lease}/files", r#"{"worker":"walker","arguments":{"command":"list"}}"#, SIT),
    ("POST", "/v1/boards/{board}/redactions", r#"{"places":["/nowhere"]}"#, ADMINISTER),
    ("POST", "/v1/vacuum", "", ADMINISTER),
    ("GET", "/v1/archive", "", SEE_ALL),
    ("POST", "/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, KNOWN),
    ("POST", "/mcp/{board}/{worker}", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, SIT),
    (
        "POST",
        "/v1/boards/{board}/room/proposals",
        r#"{"worker":"walker","artifact_id":"a","artifact_type":"PLAN","artifact":1}"#,
        SIT,
    ),
    (
        "POST",
        "/v1/boards/{board}/room/votes",
        r#"{"worker":"walker","artifact_id":"a","score":1,"confidence":1,"passed":true}"#,
        SIT,
    ),
    ("GET", "/v1/boards/{board}/room/decisions/{artifact}", "", SEE),
    (
        "POST",
        "/v1/boards/{board}/handoffs",
        r#"{"worker":"walker","request_id":"h","reason":"r","timeout_ms":1,"context":{"content_type":"a/b","content":""},"task":"t"}"#,
        SIT,
    ),
    ("GET", "/v1/boards/{board}/handoffs", "", SEE_SEAT),
    ("GET", "/v1/boards/{board}/handoffs/{handoff}", "", SEE),
    ("POST", "/v1/boards/{board}/handoffs/{handoff}/accept", r#"{"worker":"walker"}"#, SIT),
    ("POST", "/v1/boards/{board}/handoffs/{handoff}/reject", r#"{"worker":"walker","reason":"r"}"#, SIT),
    ("POST", "/v1/workflows/check", r#"{"workflow":{"nodes":{}}}"#, SEE_ALL),
    ("GET", "/v1/boards/{board}/workflow", "", SEE),
    ("POST", "/v1/boards/{board}/workflow/resume", r#"{"node":"a"}"#, ACT),
    ("POST", "/v1/boards/{board}/negotiation/events", r#"{"worker":"walker","event":{"kind":"open"}}"#, SIT),
    ("GET", "/v1/boards/{board}/negotiation", "", SEE),
    (
        "POST",
        "/v1/boards/{board}/artifacts",
        r#"{"worker":"walker","kind":"k","name":"n","content_type":"text/plain","content":""}"#,
        SIT,
    ),
    ("GET", "/v1/inbox", "", KNOWN),
    ("POST", "/v1/boards/{board}/approvals/{seq}", r#"{"agrees":true,"digest":"00"}"#, BE),
    ("GET", "/metrics", "", SEE_ALL),
    ("GET", "/v1/audit-log", "", ADMINISTER),
    ("GET", "/v1/tokens", "", ADMINISTER),
    ("POST", "/v1/tokens", r#"{"scope":"read"}"#, ADMINISTER),
    ("DELETE", "/v1/tokens/{id}", "", ADMINISTER),
    ("POST", "/v1/boards/{board}/pause", "", ACT),
    ("POST", "/v1/boards/{board}/resume", "", ACT),
    ("POST", "/v1/boards/{board}/retry", "{}", ACT),
    ("POST", "/v1/boards/{board}/cancel", "", ACT),
    // The board has ended by now.
    ("POST", "/v1/boards/{board}/archive", "", ADMINISTER),
    ("POST", "/v1/boards/{board}/restore", "", ADMINISTER),
    ("DELETE", "/v1/boards/{board}", "", ADMINISTER),
];

/// A daemon with two boards, and a caller of each kind.
struct Callers {
    daemon: Daemon,
    here: String,
    /// Authorization headers, in the order of [`Kind::ALL`].
    headers: Vec<Option<String>>,
    admin: String,
}

impl Callers {
    async fn new() -> Self {
        let mut daemon = Daemon::not_started(&["--require-tokens"]);
        daemon.configure("[serve.limits]\nfailures_per_minute = 100000\n");
        let admin = daemon.token("admin");
        daemon.start();
        let admin_header = format!("Bearer {admin}");
        let as_admin = [("authorization", admin_header.as_str()), ("content-type", "application/json")];
        let mut boards = Vec::new();
        for _ in 0..2 {
            let body = json!({ "source": STEPS }).to_string();
            let made = daemon.request(Method::POST, "/v1/boards", &as_admin, Some(body)).await.expect_status(201);
            boards.push(made["board"].as_str().expect("an id").to_owned());
        }
        let made = async |wanted: Value| {
            let made = daemon
                .request(Method::POST, "/v1/tokens", &as_admin, Some(wanted.to_string()))
                .await
                .expect_status(201);
            (made["id"].clone(), format!("Bearer {}", made["token"].as_str().expect("a text")))
        };
        let (id, revoked) = made(json!({"scope": "admin"})).await;
        daemon.request(Method::DELETE, &format!("/v1/tokens/{id}"), &as_admin, None).await.expect_status(204);
        let (_, expired) = made(json!({"scope": "admin", "expires": "1ms"})).await;
        let [here, there] = [&boards[0], &boards[1]];
        let mut headers = Vec::new();
        for kind in Kind::ALL {
            let scope = match kind {
                Kind::None => None,
                Kind::Malformed => Some(format!("Basic {admin}")),
                Kind::Unknown => Some(format!("Bearer {admin}x")),
                Kind::Revoked => Some(revoked.clone()),
                Kind::Expired => Some(expired.clone()),
                Kind::Read => Some(made(json!({"scope": "read"})).await.1),
                Kind::Board => Some(made(json!({"scope": format!("board:{here}")})).await.1),
                Kind::OtherBoard => Some(made(json!({"scope": format!("board:{there}")})).await.1),
                Kind::Walker => Some(made(json!({"scope": format!("seat:{here}/walker")})).await.1),
                Kind::OtherSeat => Some(made(json!({"scope": format!("seat:{here}/other")})).await.1),
                Kind::WalkerElsewhere => Some(made(json!({"scope": format!("seat:{there}/walker")})).await.1),
                Kind::Person => Some(made(json!({"scope": "person:boss"})).await.1),
                Kind::Admin => Some(admin_header.clone()),
            };
            headers.push(scope);
        }
        let here = here.clone();
        Self { daemon, here, headers, admin }
    }

    /// Returns the answers of a route to each kind of caller, in the order of [`Kind::ALL`].
    async fn answers(&self, method: &str, path: &str, body: &str) -> String {
        let mut seen = String::new();
        for header in &self.headers {
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(header.as_ref().map(|given| ("authorization", given.as_str())));
            seen.push(answered(&self.daemon, method.parse().expect("a method"), path, &headers, body).await);
        }
        seen
    }
}

/// Returns the path of a request for a route on a board.
fn path_to(method: &str, template: &str, board: &str) -> String {
    let named = [("{board}", board), ("{worker}", "walker"), ("{seq}", "1"), ("{id}", "0"), ("{lease}", "1:1")];
    let path = named.iter().fold(template.to_owned(), |path, (name, value)| path.replace(name, value));
    match path.rsplit('/').next() {
        Some("why") => format!("{path}?pointer="),
        Some("handoffs") if method == "GET" => format!("{path}?agent=walker"),
        _ => path,
    }
}

/// Returns the answers of a route before it has read a body, by kind of caller: the body may name the worker of a seat.
fn unread(template: &str, expected: &str) -> String {
    let expected = expected.replace(BE, JOIN);
    expected.replace(SIT, if template.contains("{worker}") { SIT } else { JOIN })
}

#[tokio::test]
async fn every_route_opens_to_the_scopes_that_it_says_and_to_no_other() {
    let callers = Callers::new().await;
    let header = format!("Bearer {}", callers.admin);
    let as_admin = [("authorization", header.as_str())];
    let described = callers.daemon.request(Method::GET, "/v1/openapi.json", &as_admin, None).await.expect_status(200);
    assert_eq!(operations(&described), MATRIX.iter().map(|(method, path, ..)| (*method, *path)).map(owned).collect());
    for (method, template, body, expected) in MATRIX {
        let path = path_to(method, template, &callers.here);
        if !body.is_empty() {
            // The body of an unauthorized request is not read.
            assert_eq!(callers.answers(method, &path, "{").await, unread(template, expected), "{method} {path}: {{");
        }
        assert_eq!(callers.answers(method, &path, body).await, *expected, "{method} {path}");
    }
}

#[tokio::test]
async fn a_body_of_any_length_is_rejected_before_it_is_read() {
    let callers = Callers::new().await;
    let mut asked = Vec::new();
    for (method, template, body, expected) in MATRIX {
        if body.is_empty() {
            continue;
        }
        let path = path_to(method, template, &callers.here);
        for ((kind, header), expected) in Kind::ALL.iter().zip(&callers.headers).zip(unread(template, expected).chars())
        {
            let header = header.as_ref().map(|header| format!("authorization: {header}\r\n")).unwrap_or_default();
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{header}content-type: application/json\r\n\
                 content-length: 1000000000000\r\n\r\n"
            );
            let status = match expected {
                'u' => "401",
                'f' => "403",
                'n' => "404",
                // An authorized caller gets "too large".
                _ => "413",
            };
            asked.push((format!("{method} {path} of {kind:?}"), head, status));
        }
    }
    let address = callers.daemon.address().to_owned();
    let heads = futures_util::stream::iter(asked.into_iter().map(|(what, head, expected)| {
        let address = address.clone();
        async move {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            stream.write_all(head.as_bytes()).await.expect("it is open");
            let mut answer = [0; 12];
            let read = tokio::time::timeout(Duration::from_secs(30), stream.read_exact(&mut answer)).await;
            read.expect("an answer comes in time").expect("an answer comes");
            assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {expected}"), "{what}");
        }
    }));
    let count = heads.buffer_unordered(128).count().await;
    assert!(count > 300, "{count} requests");
}

#[tokio::test]
async fn a_board_that_may_not_be_known_of_is_answered_for_as_one_that_is_not_there() {
    let callers = Callers::new().await;
    let absent = "01990000-0000-7000-8000-000000000000";
    let mut compared = 0;
    for (method, template, body, expected) in MATRIX {
        for ((kind, header), expected) in Kind::ALL.iter().zip(&callers.headers).zip(expected.chars()) {
            if expected != 'n' {
                continue;
            }
            let header = header.as_ref().expect("a token");
            let headers = [("content-type", "application/json"), ("authorization", header.as_str())];
            let mut answers = Vec::new();
            for board in [callers.here.as_str(), absent] {
                let path = path_to(method, template, board);
                let method = method.parse().expect("a method");
                let answer = callers.daemon.request(method, &path, &headers, Some((*body).to_owned())).await;
                let mut headers: Vec<String> =
                    answer.headers.keys().filter(|name| *name != "date").map(ToString::to_string).collect();
                headers.sort();
                let text = answer.text.replace(board, "BOARD");
                answers.push((answer.status, headers, text));
            }
            assert_eq!(answers[0], answers[1], "{method} {template} of {kind:?}");
            compared += 1;
        }
    }
    assert!(compared > 80, "{compared} pairs");
}

#[tokio::test]
async fn a_header_that_holds_no_whole_token_opens_nothing() {
    let callers = Callers::new().await;
    let admin = &callers.admin;
    for given in [
        String::new(),
        " ".to_owned(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        admin.clone(),
        format!("Bearer{admin}"),
        format!("Bearer\t{admin}"),
        format!("Basic {admin}"),
        format!("Token {admin}"),
        format!("Bearer {}", &admin[..admin.len() - 1]),
        format!("Bearer {admin}x"),
        format!("Bearer {admin} {admin}"),
        format!("Bearer {admin},"),
        format!("Bearer {}", admin.to_uppercase()),
        format!("Bearer {}", "pb_".repeat(4000)),
        "Bearer ' OR '1' = '1".to_owned(),
        "Bearer pb_%00".to_owned(),
    ] {
        let answer = callers.daemon.request(Method::GET, "/v1/tokens", &[("authorization", &given)], None).await;
        answer.expect_problem(401, "unauthorized");
    }
    // With two headers, a valid second one does not help.
    let (wrong, right) = ("Bearer pb_wrong".to_owned(), format!("Bearer {admin}"));
    let both = [("authorization", wrong.as_str()), ("authorization", right.as_str())];
    callers.daemon.request(Method::GET, "/v1/tokens", &both, None).await.expect_problem(401, "unauthorized");
    callers.daemon.request(Method::GET, "/v1/tokens", &both[1..], None).await.expect_status(200);
}

/// Sends a request and returns its answer as a letter of the matrix, without waiting for the end of a stream.
async fn answered(daemon: &Daemon, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> char {
    let response = daemon.send(method, path, headers, Some(body.to_owned())).await;
    match response.status().as_u16() {
        401 => 'u',
        403 => 'f',
        404 => match response.json::<Value>().await.expect("a problem")["code"].as_str() {
            Some("no_such_board") => 'n',
            _ => 'y',
        },
        _ => 'y',
    }
}

fn operations(described: &Value) -> BTreeSet<(String, String)> {
    let paths = described["paths"].as_object().expect("an object");
    let methods = paths.iter().flat_map(|(path, methods)| {
        methods.as_object().expect("an object").keys().map(move |method| (method.to_uppercase(), path.clone()))
    });
    methods.collect()
}

fn owned((method, path): (&str, &str)) -> (String, String) {
    (method.to_owned(), path.to_owned())
}

#[tokio::test]
async fn an_address_that_others_reach_demands_tokens() {
    let daemon = Daemon::not_started(&[]);
    let refused = daemon.command(&["serve", "--listen", "0.0.0.0:0"]).output().expect("the binary can be run");
    assert_eq!(refused.status.code(), Some(2));
    let printed: Value = serde_json::from_slice(&refused.stderr).expect("JSON");
    assert_eq!(printed["error"]["code"], "no_tokens");
}

#[tokio::test]
async fn a_list_shows_no_board_that_is_anothers() {
    let daemon = Daemon::new();
    let (mine, other) = (daemon.board().await, daemon.board().await);
    let token = format!("Bearer {}", daemon.token(&format!("board:{mine}")));
    let listed = daemon.request(Method::GET, "/v1/boards", &[("authorization", &token)], None).await.expect_status(200);
    let ids: Vec<&Value> = listed["boards"].as_array().expect("a list").iter().map(|board| &board["board"]).collect();
    assert_eq!(ids, [mine.as_str()]);
    // Paging after another's board reveals nothing about that board.
    for after in [other.as_str(), "0199"] {
        let path = format!("/v1/boards?after={after}");
        let listed = daemon.request(Method::GET, &path, &[("authorization", &token)], None).await.expect_status(200);
        assert_eq!(listed["boards"].as_array().map(Vec::len), Some(1), "{after}");
    }
    let wrong = daemon.request(Method::GET, "/v1/boards", &[("authorization", "Bearer pb_wrong")], None).await;
    wrong.expect_problem(401, "unauthorized");
    assert_eq!(wrong.headers["www-authenticate"], "Bearer");
}

#[tokio::test]
async fn streams_and_waits_end_with_their_token() {
    let daemon = Daemon::new();
    let remote = STEPS.replace("agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]", "agent: remote");
    let made = daemon.post("/v1/boards", &json!({ "source": remote })).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    let leases = format!("/v1/boards/{board}/leases");
    // Another client holds the only call.
    daemon.post(&leases, &json!({"worker": "walker", "wait": 30})).await.expect_status(200);
    let made = |expires: Value| {
        let wanted = json!({"scope": format!("board:{board}"), "expires": expires});
        let daemon = &daemon;
        async move {
            let made = daemon.post("/v1/tokens", &wanted).await.expect_status(201);
            (made["id"].clone(), format!("Bearer {}", made["token"].as_str().expect("a text")))
        }
    };
    // The token ends through the API, through another process, or by expiry.
    for (expires, ending) in [(Value::Null, "revoke"), (Value::Null, "delete"), (json!("1s"), "wait")] {
        let (id, token) = made(expires).await;
        let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
        let events = format!("/v1/boards/{board}/events");
        let stream = daemon.send(Method::GET, &events, &headers, None).await;
        assert_eq!(stream.status(), 200);
        let wanted = json!({"worker": "walker", "wait": 60}).to_string();
        let waiting = daemon.request(Method::POST, &leases, &headers, Some(wanted));
        let end = async {
            match ending {
                "revoke" => drop(
                    daemon.request(Method::DELETE, &format!("/v1/tokens/{id}"), &[], None).await.expect_status(204),
                ),
                "delete" => {
                    let done = daemon.command(&["token", "delete", &id.to_string()]).status();
                    assert!(done.is_ok_and(|status| status.success()));
                }
                _ => {}
            }
        };
        let soon = Duration::from_secs(30);
        let both = async { tokio::join!(stream.text(), waiting, end) };
        let (text, waited, ()) = tokio::time::timeout(soon, both).await.expect("both end with the token");
        assert!(text.is_ok(), "a stream ends as streams end: {text:?}");
        waited.expect_problem(401, "unauthorized");
        let listed = daemon.get("/v1/tokens").await.expect_status(200);
        let is_listed = listed["tokens"].as_array().expect("a list").iter().any(|token| token["id"] == id);
        assert_eq!(is_listed, ending != "delete");
    }
}

#[tokio::test]
async fn a_lease_ends_with_the_token_that_has_it() {
    let daemon = Daemon::new();
    let remote = STEPS.replace("agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]", "agent: remote");
    for ending in ["revoke", "delete"] {
        let made = daemon.post("/v1/boards", &json!({ "source": remote })).await.expect_status(201);
        let board = made["board"].as_str().expect("an id").to_owned();
        let leases = format!("/v1/boards/{board}/leases");
        let made =
            daemon.post("/v1/tokens", &json!({"scope": format!("seat:{board}/walker")})).await.expect_status(201);
        let token = format!("Bearer {}", made["token"].as_str().expect("a text"));
        let wanted = json!({"worker": "walker", "seconds": 3600, "wait": 30});
        let first = daemon.post_with(&leases, &wanted, &[("authorization", &token)]).await.expect_status(200);
        let id = made["id"].to_string();
        if ending == "revoke" {
            daemon.request(Method::DELETE, &format!("/v1/tokens/{id}"), &[], None).await.expect_status(204);
        } else {
            let done = daemon.command(&["token", "delete", &id]).status();
            assert!(done.is_ok_and(|done| done.success()));
        }
        // Another process gets the next attempt, long before the lease would have expired.
        let next = daemon.post(&leases, &json!({"worker": "walker", "wait": 60})).await.expect_status(200);
        assert_ne!(next["lease"], first["lease"]);
    }
}

#[tokio::test]
async fn administrator_actions_outside_boards_are_in_the_audit_log() {
    let daemon = Daemon::new();
    let admin = daemon.token("admin");
    let bearer = format!("Bearer {admin}");
    let headers = [("authorization", bearer.as_str())];
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    let at = |action: &str| format!("/v1/boards/{board}/{action}");
    daemon.post(&at("cancel"), &json!({})).await.expect_status(200);
    let made = daemon
        .post_with("/v1/tokens", &json!({"scope": "read", "name": "dashboard"}), &headers)
        .await
        .expect_status(201);
    assert_eq!(made["made_by"]["id"], 1, "{made}");
    for action in ["archive", "restore"] {
        daemon.post_with(&at(action), &json!({}), &headers).await.expect_status(200);
    }
    daemon.request(Method::DELETE, &format!("/v1/boards/{board}"), &headers, None).await.expect_status(200);
    daemon.request(Method::DELETE, &format!("/v1/tokens/{}", made["id"]), &headers, None).await.expect_status(204);
    daemon.post("/v1/vacuum", &json!({})).await.expect_status(200);
    let listed = daemon.get("/v1/audit-log").await.expect_status(200);
    let entries: Vec<(&str, &str, &Value)> = listed["entries"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| {
            assert_eq!(entry["done"], true, "{entry}");
            let caller = entry["principal"]["kind"].as_str().expect("a caller");
            (entry["action"].as_str().expect("a text"), caller, &entry["subject"])
        })
        .collect();
    let (first, second, of) = (json!("1"), json!(made["id"].to_string()), json!(board));
    assert_eq!(
        entries,
        [
            ("token_created", "user", &first),
            ("token_created", "token", &second),
            ("board_archived", "token", &of),
            ("board_restored", "token", &of),
            ("board_deleted", "token", &of),
            ("token_revoked", "token", &second),
            ("journal_vacuumed", "address", &Value::Null),
        ]
    );
    let page = daemon.get("/v1/audit-log?after=2&limit=1").await.expect_status(200);
    assert_eq!((&page["entries"][0]["id"], page["entries"].as_array().map(Vec::len)), (&json!(3), Some(1)));
    let printed = daemon.command(&["audit-log", "--after", "4"]).output().expect("the binary can be run");
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.starts_with("{\"id\":5,") && printed.lines().count() == 3, "{printed}");
}
