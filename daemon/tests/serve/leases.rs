//! Remote workers: calls are leased, renewed and answered; late answers are recorded and rejected.

use serde_json::{Value, json};

use crate::daemon::{Daemon, remote_steps};

/// Further lines of a remote walker with time for three attempts.
pub(crate) const PATIENT: &str = "\n    limits: {timeout: 1h, attempts: 3}";

/// Creates a board with a remote walker.
async fn board(daemon: &Daemon) -> String {
    let remote = remote_steps(PATIENT);
    let made = daemon.post("/v1/boards", &json!({ "source": remote })).await.expect_status(201);
    made["board"].as_str().expect("an id").to_owned()
}

async fn lease(daemon: &Daemon, board: &str, seconds: u64) -> Value {
    let wanted = json!({"worker": "walker", "seconds": seconds, "wait": 30});
    daemon.post(&format!("/v1/boards/{board}/leases"), &wanted).await.expect_status(200)
}

fn step(value: u32) -> Value {
    json!({"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": value}],
        "usage": {"prompt": 7, "completion": 5}})
}

#[tokio::test]
async fn a_call_is_leased_and_answered_like_any_workers() {
    let daemon = Daemon::new();
    let board = board(&daemon).await;
    let leased = lease(&daemon, &board, 60).await;
    assert_eq!(
        (&leased["lease"], &leased["worker"], &leased["board"]),
        (&json!("1:1"), &json!("walker"), &json!(board))
    );
    assert_eq!(leased["shown"], json!({"/steps": []}));
    assert_eq!(leased["trigger"], json!({"kind": "start", "rule": "begin"}));
    assert!(leased["view"].as_str().is_some_and(|view| view.contains("/steps")), "{leased}");
    let expires = |lease: &Value| lease["expires"].as_i64().expect("a time");
    assert!(expires(&leased) < leased["deadline"].as_i64().expect("a time"));
    // The schema of the answer accepts exactly the patches that the contract does.
    let schema = jsonschema::validator_for(&leased["schema"]).expect("a schema");
    let reply = |value: u32| json!({"patch": step(value)["patch"]});
    assert!(schema.is_valid(&reply(9)) && !schema.is_valid(&reply(10)), "{leased}");
    // No other client gets the call.
    let path = format!("/v1/boards/{board}/leases");
    assert_eq!(daemon.post(&path, &json!({"worker": "walker"})).await.status, 204);
    let listed = daemon.get(&path).await.expect_status(200);
    assert_eq!((&listed["calls"][0]["lease"], &listed["calls"][0]["attempt"]), (&json!("1:1"), &json!(1)));
    let renewed = daemon
        .post(&format!("{path}/1:1/renew"), &json!({"worker": "walker", "seconds": 600}))
        .await
        .expect_status(200);
    assert!(expires(&renewed) > expires(&leased));

    let answer = format!("{path}/1:1/answer");
    let refused = daemon.post(&answer, &step(10)).await.expect_problem(422, "value_not_granted");
    assert_eq!(refused["stage"], "authorization");
    // The view of the next attempt shows the rejection.
    let leased = lease(&daemon, &board, 60).await;
    assert_eq!(leased["lease"], "1:2");
    assert!(leased["view"].as_str().is_some_and(|view| view.contains("value_not_granted")), "{leased}");
    let answer = format!("{path}/1:2/answer");
    let committed = daemon.post(&answer, &step(2)).await;
    assert_eq!(committed.expect_status(200)["outcome"], "committed");
    let again = daemon.post(&answer, &step(2)).await;
    assert!(again.is_replayed(), "{}", again.text);
    assert_eq!(again.expect_status(200)["seq"], committed.json()["seq"]);
    daemon.post(&answer, &step(3)).await.expect_problem(409, "token_conflict");
    assert_eq!(
        daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200)["state"],
        json!({"steps": [2]})
    );
    assert_eq!(daemon.get(&path).await.expect_status(200)["calls"], json!([]));
    let cost = daemon.get(&format!("/v1/boards/{board}/cost")).await.expect_status(200).to_string();
    assert!(cost.contains("24"), "two attempts of twelve tokens: {cost}");
}

#[tokio::test]
async fn a_reply_leases_the_next_call_too() {
    let daemon = Daemon::new();
    let board = board(&daemon).await;
    let path = format!("/v1/boards/{board}");
    assert_eq!(lease(&daemon, &board, 60).await["lease"], "1:1");
    let step = |value: u32, wait: u64| {
        let mut step = step(value);
        step["next"] = json!({"wait": wait, "seconds": 60});
        step
    };
    // Nothing is decided on an invalid request, and a rejection has no next call.
    let answer = |lease: &str| format!("{path}/leases/{lease}/answer");
    daemon.post(&answer("1:1"), &step(1, 61)).await.expect_problem(422, "bad_body");
    daemon.post(&answer("1:1"), &step(10, 0)).await.expect_problem(422, "value_not_granted");
    daemon.post(&format!("{path}/signals"), &json!({"name": "more"})).await.expect_status(202);
    assert_eq!(lease(&daemon, &board, 60).await["lease"], "1:2");
    let first = daemon.post_once(&answer("1:2"), &step(2, 30), "k").await.expect_status(200);
    assert_eq!((&first["outcome"], &first["next"]["lease"]), (&json!("committed"), &json!("2:1")));
    assert!(first["next"]["view"].as_str().is_some_and(|view| view.contains("/steps")), "{first}");
    let again = daemon.post_once(&answer("1:2"), &step(2, 30), "k").await;
    assert!(again.is_replayed(), "{}", again.text);
    assert_eq!((&again.json()["seq"], &again.json()["next"]["lease"]), (&first["seq"], &json!("2:1")));
    let last = daemon.post(&answer("2:1"), &step(3, 0)).await.expect_status(200);
    assert_eq!((&last["outcome"], last.get("next")), (&json!("committed"), Some(&Value::Null)));
    // The end of the board is no error of the reply.
    daemon.post(&format!("{path}/signals"), &json!({"name": "more"})).await.expect_status(202);
    assert_eq!(lease(&daemon, &board, 60).await["lease"], "3:1");
    let (third, body) = (answer("3:1"), step(4, 30));
    let (answered, _) = tokio::join!(daemon.post(&third, &body), async {
        daemon.until(&board, "quiescent").await;
        daemon.post(&format!("{path}/cancel"), &json!({})).await.expect_status(200);
    });
    let answered = answered.expect_status(200);
    assert_eq!((&answered["outcome"], answered.get("next")), (&json!("committed"), Some(&Value::Null)));
}

#[tokio::test]
async fn an_expired_lease_is_given_to_another_and_the_late_answer_recorded() {
    let daemon = Daemon::new();
    let board = board(&daemon).await;
    assert_eq!(lease(&daemon, &board, 1).await["lease"], "1:1");
    // Waits until the first lease has expired.
    assert_eq!(lease(&daemon, &board, 60).await["lease"], "1:2");
    let path = format!("/v1/boards/{board}/leases");
    daemon.post(&format!("{path}/1:1/renew"), &json!({"worker": "walker"})).await.expect_problem(409, "lease_over");
    daemon.post(&format!("{path}/1:1/failure"), &json!({"worker": "walker"})).await.expect_problem(409, "lease_over");
    daemon.post(&format!("{path}/1:1/answer"), &step(1)).await.expect_problem(409, "invocation_closed");
    assert_eq!(daemon.post(&format!("{path}/1:2/answer"), &step(2)).await.expect_status(200)["outcome"], "committed");
    let records = daemon.get(&format!("/v1/boards/{board}/journal?kind=failed,late")).await.expect_status(200);
    let codes: Vec<_> = records["records"].as_array().expect("records").iter().map(|it| &it["code"]).collect();
    assert_eq!(codes, ["lease_expired", "invocation_closed"], "{records}");
}

#[tokio::test]
async fn a_failure_ends_the_attempt_and_a_restart_the_lease() {
    let mut daemon = Daemon::new();
    let board = board(&daemon).await;
    let path = format!("/v1/boards/{board}/leases");
    assert_eq!(lease(&daemon, &board, 60).await["lease"], "1:1");
    let failure = |code: &str| json!({"worker": "walker", "code": code, "message": "out of ink"});
    daemon.post(&format!("{path}/1:1/failure"), &failure("lost")).await.expect_problem(422, "bad_body");
    daemon.post(&format!("{path}/1:2/failure"), &failure("crashed")).await.expect_problem(409, "lease_over");
    daemon.post(&format!("{path}/1:1/failure"), &failure("crashed")).await.expect_status(200);
    assert_eq!(lease(&daemon, &board, 60).await["lease"], "1:2");
    daemon.kill();
    daemon.start();
    assert_eq!(lease(&daemon, &board, 60).await["lease"], "1:3");
    daemon.post(&format!("{path}/1:2/answer"), &step(1)).await.expect_problem(409, "invocation_closed");
    assert_eq!(daemon.post(&format!("{path}/1:3/answer"), &step(1)).await.expect_status(200)["outcome"], "committed");
    // The same key returns the same lease, for a client that missed the response.
    daemon.post(&format!("/v1/boards/{board}/signals"), &json!({"name": "more"})).await.expect_status(202);
    let wanted = json!({"worker": "walker", "wait": 30});
    let first = daemon.post_once(&path, &wanted, "k").await.expect_status(200);
    assert_eq!(daemon.post_once(&path, &wanted, "k").await.expect_status(200)["lease"], first["lease"]);
    // An ended board has no more calls, and waiting clients learn that.
    let (waited, _) = tokio::join!(daemon.post(&path, &wanted), async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        daemon.post(&format!("/v1/boards/{board}/cancel"), &json!({})).await.expect_status(200);
    });
    waited.expect_problem(409, "board_over");
    for (path, body) in [("x", json!({"worker": "walker"})), ("01:1", json!({"worker": "walker"}))] {
        daemon.post(&format!("/v1/boards/{board}/leases/{path}/renew"), &body).await.expect_problem(400, "bad_path");
    }
    daemon.post(&path, &json!({"worker": "other"})).await.expect_problem(409, "not_remote");
    daemon.post(&path, &json!({"worker": "nobody"})).await.expect_problem(404, "no_such_worker");
    daemon.post(&path, &json!({"worker": "walker", "seconds": 0})).await.expect_problem(422, "bad_body");
    daemon.post(&path, &json!({"worker": "walker", "wait": 61})).await.expect_problem(422, "bad_body");
}

#[tokio::test]
async fn a_lease_request_at_a_resting_board_waits_without_adding_records() {
    let mut daemon = Daemon::not_started(&[]);
    std::fs::write(daemon.path().join("patchboard.toml"), "[serve]\nrest_after = \"200ms\"\n").expect("a file");
    daemon.start();
    let board = board(&daemon).await;
    assert_eq!(lease(&daemon, &board, 60).await["lease"], "1:1");
    let path = format!("/v1/boards/{board}");
    daemon.post(&format!("{path}/leases/1:1/answer"), &step(1)).await.expect_status(200);
    let head = async || daemon.get(&path).await.expect_status(200)["head"]["seq"].clone();
    let mut shown = daemon.until(&board, "quiescent").await;
    while shown.get("live").is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        shown = daemon.get(&path).await.expect_status(200);
    }
    let before = head().await;
    let wanted = json!({"worker": "walker", "wait": 1});
    assert_eq!(daemon.post(&format!("{path}/leases"), &wanted).await.status, 204);
    assert_eq!(head().await, before);
    let more = json!({"name": "more"});
    let (leased, _) = tokio::join!(lease(&daemon, &board, 60), async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        daemon.post(&format!("{path}/signals"), &more).await.expect_status(202);
    });
    assert_eq!(leased["lease"], "2:1");
}

/// A remote worker that replies in the expert's format.
const EXPERT: &str = r"
blueprint: 1
name: expert
state: {schema: {type: object}, initial: {board: {public: []}}}
workers:
  expert:
    agent: remote
    format: expert
    pass: true
    reads: [/board]
    writes: [{path: /board/public/-, ops: [add]}]
    limits: {timeout: 1h}
rules:
  - {name: begin, trigger: start, run: expert}
  - {name: again, trigger: manual, run: expert}
";

#[tokio::test]
async fn a_worker_with_a_form_of_its_own_answers_in_it() {
    let daemon = Daemon::new();
    let made = daemon.post("/v1/boards", &json!({ "source": EXPERT })).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    let path = format!("/v1/boards/{board}/leases");
    let wanted = json!({"worker": "expert", "wait": 30});
    let leased = daemon.post(&path, &wanted).await.expect_status(200);
    let schema = jsonschema::validator_for(&leased["schema"]).expect("a schema");
    assert!(
        schema.is_valid(&json!({"reasoning": "x", "output": "x"})) && !schema.is_valid(&json!({"patch": []})),
        "{leased}"
    );
    assert!(leased["system"].as_str().is_some_and(|system| system.contains("\"output\"")), "{leased}");
    let said = |reply: Value| json!({"worker": "expert", "patch": reply});
    let refused = daemon.post(&format!("{path}/1:1/answer"), &said(json!({"outpt": "It is 7."}))).await;
    let refused = refused.expect_problem(422, "not_a_patch");
    assert!(refused.to_string().contains("cannot be read"), "{refused}");
    daemon.post(&path, &wanted).await.expect_status(200);
    let answer = format!("{path}/1:2/answer");
    let committed = daemon.post(&answer, &said(json!({"output": "It is 7."}))).await;
    assert_eq!(committed.expect_status(200)["outcome"], "committed");
    let again = daemon.post(&answer, &said(json!({"output": "It is 7."}))).await;
    assert_eq!(again.expect_status(200)["seq"], committed.json()["seq"]);
    daemon.post(&answer, &said(json!({"output": "It is 8."}))).await.expect_problem(409, "token_conflict");
    // A reply may be plain text, and may be a pass.
    daemon.post(&format!("/v1/boards/{board}/signals"), &json!({"name": "again"})).await.expect_status(202);
    let leased = daemon.post(&path, &wanted).await.expect_status(200);
    let answer = format!("{path}/{}/answer", leased["lease"].as_str().expect("a lease"));
    let waits = said(json!("I am waiting for more information."));
    let passed = daemon.post(&answer, &waits).await;
    assert_eq!(passed.expect_status(200)["outcome"], "no_op");
    assert_eq!(daemon.post(&answer, &waits).await.expect_status(200)["seq"], passed.json()["seq"]);
    let public = json!([{"from": "expert", "kind": "expertise", "text": "It is 7."}]);
    let state = daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200);
    assert_eq!(state["state"]["board"]["public"], public);
    let records = daemon.get(&format!("/v1/boards/{board}/journal?kind=committed,no_op")).await.expect_status(200);
    let kept: Vec<_> = records["records"].as_array().expect("records").iter().map(|it| &it["written"]).collect();
    assert_eq!(kept, ["{\"output\":\"It is 7.\"}", "I am waiting for more information."], "{records}");
    assert_eq!(records["records"][1]["pass"], "I am waiting for more information.");
}

/// Names that `serde_json` reads as its own if a feature of it is on.
const RESERVED_NAMES: [&str; 2] = ["$serde_json::private::RawValue", "$serde_json::private::Number"];

#[tokio::test]
async fn values_with_names_that_a_library_reserves_are_kept_as_they_are() {
    let mut daemon = Daemon::new();
    let source = "\
blueprint: 2
name: open
state: {schema: {type: object}, initial: {}}
workers: {walker: {agent: remote, role: Add values., writes: [{path: /*, ops: [add]}]}}
rules: [{name: begin, trigger: start, run: walker}]
";
    let made = daemon.post("/v1/boards", &json!({ "source": source })).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    let names = RESERVED_NAMES.map(|name| json!([{ name: "[1]" }, { name: 7 }, { name: "1", "z": 2 }]));
    let patch = json!([
        {"op": "add", "path": "/a", "value": names[0]},
        {"op": "add", "path": "/b", "value": names[1]},
        {"op": "add", "path": "/$serde_json::private::RawValue", "value": "[1]"},
    ]);
    lease(&daemon, &board, 60).await;
    let path = format!("/v1/boards/{board}/leases/1:1/answer");
    daemon.post(&path, &json!({"worker": "walker", "patch": patch})).await.expect_status(200);
    let kept = json!({"a": names[0], "b": names[1], RESERVED_NAMES[0]: "[1]"});
    for _ in 0..2 {
        let state = daemon.get(&format!("/v1/boards/{board}/state")).await.expect_status(200);
        assert_eq!(state["state"], kept);
        daemon.kill();
        daemon.start();
    }
}
