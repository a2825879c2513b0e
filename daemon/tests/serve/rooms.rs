//! The shipped approval room on a daemon: a remote author and critics, votes, long polls for the decision, and a
//! person.

use reqwest::Method;
use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon};

const BLUEPRINT: &str = include_str!("../../../blueprints/approval-room.yaml");
const FRAGMENT: &str = include_str!("../../../blueprints/fragments/room.yaml");

/// A board of the room with remote workers, and tokens of the administrator and of the author's seat.
struct Room {
    daemon: Daemon,
    board: String,
    admin: String,
    author: String,
}

impl Room {
    async fn open() -> Self {
        Self::open_with(|blueprint| blueprint).await
    }

    async fn open_with(change: impl FnOnce(String) -> String) -> Self {
        let mut daemon = Daemon::not_started(&["--require-tokens"]);
        let admin = daemon.token("admin");
        std::fs::create_dir_all(daemon.path().join("fragments")).expect("a directory can be made");
        let remote = change(BLUEPRINT.replace("agent: llm", "agent: remote"));
        std::fs::write(daemon.path().join("room.yaml"), remote).expect("a file can be written");
        std::fs::write(daemon.path().join("fragments/room.yaml"), FRAGMENT).expect("a file can be written");
        let whole = daemon.command(&["check", "--whole", "room.yaml"]).output().expect("the binary can be run");
        assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));
        let blueprint: Value = serde_json::from_slice(&whole.stdout).expect("JSON");
        daemon.start();
        let mut room = Self { daemon, board: String::new(), admin, author: String::new() };
        let made = room.post("/v1/boards", &json!({"blueprint": blueprint, "request": {"goal": "Bake bread."}})).await;
        room.board = made.expect_status(201)["board"].as_str().expect("an id").to_owned();
        room.author = room.daemon.token(&format!("seat:{}/author", room.board));
        room
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.daemon.post_with(path, body, &[("authorization", &format!("Bearer {}", self.admin))]).await
    }

    /// Leases the next call of a worker.
    async fn lease(&self, worker: &str) -> Value {
        let path = format!("/v1/boards/{}/leases", self.board);
        self.post(&path, &json!({"worker": worker, "wait": 20})).await.expect_status(200)["lease"].clone()
    }

    /// Sends a request to the room as the answer to the worker's next call.
    async fn works(&self, part: &str, mut body: Value) {
        body["lease"] = self.lease(body["worker"].as_str().expect("a worker")).await;
        let answer = self.post(&format!("/v1/boards/{}/room/{part}", self.board), &body).await.expect_status(200);
        assert_eq!(answer["outcome"], "committed");
    }

    async fn votes(&self, critic: &str, confidence: f64) {
        self.works("votes", vote(critic, confidence)).await;
    }

    /// Requests the decision on a plan as its author.
    async fn decision(&self, artifact: &str, query: &str) -> Answer {
        let path = format!("/v1/boards/{}/room/decisions/{artifact}?worker=author{query}", self.board);
        self.daemon.request(Method::GET, &path, &[("authorization", &format!("Bearer {}", self.author))], None).await
    }
}

fn vote(critic: &str, confidence: f64) -> Value {
    json!({"worker": critic, "artifact_id": "plan-1", "score": 9, "confidence": confidence, "passed": true})
}

#[tokio::test]
async fn a_decision_is_waited_for_and_then_the_person_who_rules() {
    let mut room = Room::open().await;
    let plan = json!({"worker": "author", "artifact_id": "plan-1", "artifact_type": "PLAN",
        "artifact": ["Knead.", "Bake."], "artifact_content_type": "application/json"});
    // A client may wait for a decision on an artefact that does not exist yet.
    let waits = room.daemon.command(&["room", "wait", &room.board, "plan-1", "--timeout", "60s"]);
    let waits = std::thread::spawn(move || {
        let mut waits = waits;
        waits.output()
    });
    room.decision("plan-1", "&wait=1").await.expect_problem(404, "no_such_artifact");
    room.works("proposals", plan).await;
    room.votes("feasibility", 0.9).await;
    assert_eq!(room.decision("plan-1", "").await.expect_status(204), Value::Null, "two are still to vote");
    room.decision("plan-2", "").await.expect_problem(404, "no_such_artifact");
    room.decision("plan-1", "&wait=61").await.expect_problem(400, "bad_query");

    // The room survives a kill of the daemon.
    room.daemon.kill();
    room.daemon.start();
    room.votes("completeness", 0.9).await;
    let (decided, ()) = tokio::join!(room.decision("plan-1", "&wait=30"), room.votes("risk", 0.1));
    let decided = decided.expect_status(200);
    let waited = waits.join().expect("it ends").expect("the binary can be run");
    let waited: Value = serde_json::from_slice(&waited.stdout).expect("JSON");
    assert_eq!(waited["outcome"], "ESCALATED_TO_HITL", "{waited}");
    assert_eq!(decided["outcome"], "ESCALATED_TO_HITL", "{decided}");
    assert_eq!(decided["decision"]["escalation_triggers"], json!(["vote_confidence_below"]));
    assert_eq!((&decided["ruling"], &decided["late_votes"]), (&Value::Null, &json!([])));
    assert_eq!(
        room.decision("plan-1", "&ruled=true").await.expect_status(204),
        Value::Null,
        "a person has still to rule"
    );

    // A late vote is listed and changes nothing.
    room.post(&format!("/v1/boards/{}/room/votes", room.board), &vote("risk", 1.0)).await.expect_status(200);
    let again = room.decision("plan-1", "").await.expect_status(200);
    assert_eq!((&again["decision"], &again["late_votes"]), (&decided["decision"], &json!(["risk"])));

    let bearer = format!("Bearer {}", room.admin);
    let inbox =
        room.daemon.request(Method::GET, "/v1/inbox", &[("authorization", &bearer)], None).await.expect_status(200);
    let question = &inbox["questions"][0];
    let path = format!("/v1/boards/{}/approvals/{}", room.board, question["seq"]);
    let answer = json!({"agrees": true, "digest": question["digest"], "text": "APPROVED"});
    let arbiter = format!("Bearer {}", room.daemon.token("person:arbiter"));
    let as_arbiter = [("authorization", arbiter.as_str())];
    let (ruled, answered) = tokio::join!(
        room.decision("plan-1", "&wait=30&ruled=true"),
        room.daemon.post_with(&path, &answer, &as_arbiter)
    );
    assert_eq!(answered.expect_status(200)["outcome"], "answered");
    let ruled = ruled.expect_status(200);
    assert_eq!((&ruled["outcome"], &ruled["ruling"]["by"]), (&json!("APPROVED"), &json!("arbiter")));
    assert_eq!(ruled["decision"]["outcome"], "ESCALATED_TO_HITL", "it never changes");

    // The command line returns the same ruling, from the daemon and from the data directory.
    let url = format!("http://{}", room.daemon.address());
    let wait = ["room", "wait", &room.board, "plan-1", "--timeout", "5s"];
    for further in [&["--url", &url][..], &[]] {
        let mut command = room.daemon.command(&[&wait[..], further].concat());
        let output = command.env("PATCHBOARD_TOKEN", &room.admin).output().expect("the binary can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(serde_json::from_slice::<Value>(&output.stdout).expect("JSON"), ruled);
    }
}

/// Proposals and votes in SW4RM's format: its member names, extra members without meaning here, and abstentions without
/// numbers.
#[tokio::test]
async fn proposals_and_votes_may_have_the_names_of_sw4rm() {
    let room = Room::open().await;
    let path = |part: &str| format!("/v1/boards/{}/room/{part}", room.board);
    let plan = json!({"producer_id": "author", "artifact_id": "plan-1", "artifact_type": "PLAN", "artifact": ["Bake."],
        "artifact_content_type": "application/json", "negotiation_room_id": "room-1", "created_at": 1});
    assert_eq!(room.post(&path("proposals"), &plan).await.expect_status(200)["outcome"], "committed");
    let votes = async |more: Value| {
        let mut vote = json!({"artifact_id": "plan-1", "room_id": "room-1", "voted_at": "2026-11-24T08:00:00Z"});
        vote.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        room.post(&path("votes"), &vote).await
    };
    votes(json!({"critic_id": "risk", "score": 9})).await.expect_problem(422, "bad_body");
    votes(json!({"abstain": true})).await.expect_problem(422, "bad_body");
    votes(json!({"critic_id": "risk", "worker": "feasibility", "abstain": true})).await.expect_problem(422, "bad_body");
    for more in [
        json!({"critic_id": "risk", "abstain": true}),
        json!({"critic_id": "feasibility", "worker": "feasibility", "score": 9, "confidence": 0.9, "passed": true}),
        json!({"critic_id": "completeness", "score": 9, "confidence": 0.9, "passed": true}),
    ] {
        assert_eq!(votes(more).await.expect_status(200)["outcome"], "committed");
    }
    let decided = room.decision("plan-1", "&wait=30").await.expect_status(200);
    assert_eq!((&decided["outcome"], &decided["decision"]["abstained"]), (&json!("APPROVED"), &json!(["risk"])));
}

/// Four silent critics occupy all four concurrency slots.
#[tokio::test]
async fn a_window_ends_though_all_critics_are_silent() {
    let room = Room::open_with(|blueprint| {
        let fourth = "  cost:
    agent: remote
    group: critics
    reads: *reads
    writes: [{path: /room/votes/-, ops: [add], value: {properties: {critic_id: {const: cost}}}}]
    view: *view
    limits: *limits

rules:
";
        let policy = "room: {policy: {window_s: {PLAN: 2}}, ";
        let changed = blueprint.replace("rules:\n", fourth).replace("room: {policy: {}, ", policy);
        assert!(changed.contains(fourth) && changed.contains(policy));
        changed
    })
    .await;
    let plan = json!({"worker": "author", "artifact_id": "plan-1", "artifact_type": "PLAN",
        "artifact": ["Knead."], "artifact_content_type": "application/json"});
    room.works("proposals", plan).await;
    for critic in ["feasibility", "completeness", "risk", "cost"] {
        room.lease(critic).await;
    }
    let decided = room.decision("plan-1", "&wait=60").await.expect_status(200);
    assert_eq!(decided["outcome"], "ESCALATED_TO_HITL", "{decided}");
    assert_eq!(decided["decision"]["votes_received"], 0, "{decided}");
    assert_eq!(decided["decision"]["escalation_triggers"], json!(["policy_timeout"]), "{decided}");
    let bearer = format!("Bearer {}", room.admin);
    let inbox =
        room.daemon.request(Method::GET, "/v1/inbox", &[("authorization", &bearer)], None).await.expect_status(200);
    assert_eq!(
        inbox["questions"].as_array().map(Vec::len),
        Some(1),
        "whoever asks a person waits for no place either: {inbox}"
    );
}

#[tokio::test]
async fn a_worker_that_may_not_read_the_decisions_gets_none_of_them() {
    let room = Room::open().await;
    let seat = |worker: &str| room.daemon.token(&format!("seat:{}/{worker}", room.board));
    let (risk, author) = (seat("risk"), &room.author);
    let get = async |token: &str, query: &str| {
        let path = format!("/v1/boards/{}/room/decisions/plan-1{query}", room.board);
        room.daemon.request(Method::GET, &path, &[("authorization", &format!("Bearer {token}"))], None).await
    };
    get(author, "").await.expect_problem(403, "forbidden");
    get(&risk, "?worker=author").await.expect_problem(403, "forbidden");
    get(&risk, "?worker=risk").await.expect_problem(403, "forbidden");
    get(author, "?worker=author").await.expect_problem(404, "no_such_artifact");
    let output = room.daemon.command(&["room", "wait", &room.board, "plan-1", "--timeout", "0s"]).output();
    let output = output.expect("the binary can be run");
    let printed: Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!((output.status.code(), &printed["error"]["code"]), (Some(2), &json!("no_such_artifact")));
}
