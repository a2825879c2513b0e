//! Every scope at every route: who may, who hears no, and who hears that there is nothing.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::daemon::{Daemon, STEPS};

/// What a request needs, in the columns: nobody, a token that was revoked, read, the board, another board, the walker's seat,
/// another seat of the board, the walker's seat on another board, admin. `y` may, `u` is unknown (401), `f` is forbidden
/// (403), `n` hears that there is no such board (404).
const ADMINISTER: &str = "uuffffffy";
const SEE_ALL: &str = "uuyfffffy";
const KNOWN: &str = "uuyyyyyyy";
const SEE: &str = "uuyynffny";
const ACT: &str = "uufynffny";
const SEE_SEAT: &str = "uuyynyfny";
const SIT: &str = "uufynyfny";
const JOIN: &str = "uufynyyny";

/// Every route, a body that it takes, and what it needs.
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
    ("GET", "/v1/boards/{board}/denials", "", SEE),
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
    ("POST", "/v1/boards/{board}/approvals/{seq}", r#"{"agrees":true,"digest":"00"}"#, JOIN),
    ("GET", "/metrics", "", SEE_ALL),
    ("GET", "/v1/tokens", "", ADMINISTER),
    ("POST", "/v1/tokens", r#"{"scope":"read"}"#, ADMINISTER),
    ("DELETE", "/v1/tokens/{id}", "", ADMINISTER),
    ("POST", "/v1/boards/{board}/pause", "", ACT),
    ("POST", "/v1/boards/{board}/resume", "", ACT),
    ("POST", "/v1/boards/{board}/retry", "{}", ACT),
    ("POST", "/v1/boards/{board}/cancel", "", ACT),
    // The board has ended now.
    ("POST", "/v1/boards/{board}/archive", "", ADMINISTER),
    ("POST", "/v1/boards/{board}/restore", "", ADMINISTER),
    ("DELETE", "/v1/boards/{board}", "", ADMINISTER),
];

#[tokio::test]
async fn every_route_opens_to_the_scopes_that_it_says_and_to_no_other() {
    let mut daemon = Daemon::at_rest(&["--require-tokens"]);
    daemon.configure("[serve.limits]\nfailures_per_minute = 10000\n");
    let admin = daemon.token("admin");
    daemon.start();
    let admin_header = format!("Bearer {admin}");
    let as_admin = [("authorization", admin_header.as_str()), ("content-type", "application/json")];
    let mut boards = Vec::new();
    for _ in 0..2 {
        let body = serde_json::json!({ "source": STEPS }).to_string();
        let made = daemon.request(Method::POST, "/v1/boards", &as_admin, Some(body)).await.is(201);
        boards.push(made["board"].as_str().expect("an id").to_owned());
    }
    let revoked = daemon.token("admin");
    let listed = daemon.request(Method::GET, "/v1/tokens", &as_admin, None).await.is(200);
    let id = listed["tokens"].as_array().and_then(|tokens| tokens.last()).expect("two tokens")["id"].clone();
    let ended = daemon.request(Method::DELETE, &format!("/v1/tokens/{id}"), &as_admin, None).await;
    assert_eq!(ended.status, 204);
    let [here, there] = [&boards[0], &boards[1]];
    let tokens = [
        None,
        Some(revoked),
        Some(daemon.token("read")),
        Some(daemon.token(&format!("board:{here}"))),
        Some(daemon.token(&format!("board:{there}"))),
        Some(daemon.token(&format!("seat:{here}/walker"))),
        Some(daemon.token(&format!("seat:{here}/other"))),
        Some(daemon.token(&format!("seat:{there}/walker"))),
        Some(admin),
    ];
    let described = daemon.request(Method::GET, "/v1/openapi.json", &as_admin, None).await.is(200);
    assert_eq!(operations(&described), MATRIX.iter().map(|(method, path, ..)| (*method, *path)).map(owned).collect());
    for (method, path, body, expected) in MATRIX {
        let named =
            [("{board}", here.as_str()), ("{worker}", "walker"), ("{seq}", "1"), ("{id}", "0"), ("{lease}", "1:1")];
        let path = named.iter().fold((*path).to_owned(), |path, (name, value)| path.replace(name, value));
        let path = match path.rsplit('/').next() {
            Some("why") => format!("{path}?pointer="),
            Some("handoffs") if *method == "GET" => format!("{path}?agent=walker"),
            _ => path,
        };
        let (mut seen, mut unread) = (String::new(), String::new());
        for token in &tokens {
            let given = token.as_ref().map(|token| format!("Bearer {token}"));
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(given.as_ref().map(|given| ("authorization", given.as_str())));
            let method: Method = method.parse().expect("a method");
            if !body.is_empty() {
                unread.push(answered(&daemon, method.clone(), &path, &headers, "{").await);
            }
            seen.push(answered(&daemon, method, &path, &headers, body).await);
        }
        assert_eq!(seen, *expected, "{method} {path}");
        // Of who may not, no body is read. Whose seat it is may be said in it.
        let by_path = expected.replace(SIT, if path.contains("/walker") { SIT } else { JOIN });
        assert!(body.is_empty() || unread == by_path, "{method} {path}: {unread}, and not {by_path}");
    }
}

/// What a request came to, without waiting for the end of a stream.
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
    let daemon = Daemon::at_rest(&[]);
    let refused = daemon.command(&["serve", "--listen", "0.0.0.0:0"]).output().expect("the binary can be run");
    assert_eq!(refused.status.code(), Some(2));
    let told: Value = serde_json::from_slice(&refused.stderr).expect("JSON");
    assert_eq!(told["error"]["code"], "no_tokens");
}

#[tokio::test]
async fn a_list_shows_no_board_that_is_anothers() {
    let daemon = Daemon::new();
    let (mine, other) = (daemon.board().await, daemon.board().await);
    let token = format!("Bearer {}", daemon.token(&format!("board:{mine}")));
    let listed = daemon.request(Method::GET, "/v1/boards", &[("authorization", &token)], None).await.is(200);
    let ids: Vec<&Value> = listed["boards"].as_array().expect("a list").iter().map(|board| &board["board"]).collect();
    assert_eq!(ids, [mine.as_str()]);
    // What comes after a board says nothing of one that is another's.
    for after in [other.as_str(), "0199"] {
        let path = format!("/v1/boards?after={after}");
        let listed = daemon.request(Method::GET, &path, &[("authorization", &token)], None).await.is(200);
        assert_eq!(listed["boards"].as_array().map(Vec::len), Some(1), "{after}");
    }
    let wrong = daemon.request(Method::GET, "/v1/boards", &[("authorization", "Bearer pb_wrong")], None).await;
    wrong.refuses(401, "unauthorized");
    assert_eq!(wrong.headers["www-authenticate"], "Bearer");
}

#[tokio::test]
async fn what_a_token_opened_ends_with_it() {
    let daemon = Daemon::new();
    let remote = STEPS.replace("agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]", "agent: remote");
    let made = daemon.post("/v1/boards", &json!({ "source": remote })).await.is(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    let leases = format!("/v1/boards/{board}/leases");
    // The only call is another's.
    daemon.post(&leases, &json!({"worker": "walker", "wait": 30})).await.is(200);
    let made = |expires: Value| {
        let wanted = json!({"scope": format!("board:{board}"), "expires": expires});
        let daemon = &daemon;
        async move {
            let made = daemon.post("/v1/tokens", &wanted).await.is(201);
            (made["id"].clone(), format!("Bearer {}", made["token"].as_str().expect("a text")))
        }
    };
    // By the API, by another process, and by itself.
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
                "revoke" => drop(daemon.request(Method::DELETE, &format!("/v1/tokens/{id}"), &[], None).await.is(204)),
                "delete" => {
                    let done = daemon.command(&["token", "delete", &id.to_string()]).status();
                    assert!(done.is_ok_and(|status| status.success()));
                }
                _ => {}
            }
        };
        let soon = std::time::Duration::from_secs(30);
        let both = async { tokio::join!(stream.text(), waiting, end) };
        let (text, waited, ()) = tokio::time::timeout(soon, both).await.expect("both end with the token");
        assert!(text.is_ok(), "a stream ends as streams end: {text:?}");
        waited.refuses(401, "unauthorized");
        let listed = daemon.get("/v1/tokens").await.is(200);
        let is_listed = listed["tokens"].as_array().expect("a list").iter().any(|token| token["id"] == id);
        assert_eq!(is_listed, ending != "delete");
    }
}
