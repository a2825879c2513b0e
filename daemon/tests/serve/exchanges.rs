//! The API as recorded requests and answers: every byte that clients send and receive, except that ids, digests, times
//! and secrets are replaced by numbers in order of appearance. Each answer is as the API describes it.
//!
//! Renaming or rewording code changes none of these files; a change of the API shows in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::{fs, io};

use regex::{Captures, Regex};
use reqwest::Method;
use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon, STEPS, remote_steps};
use crate::described::Description;
use crate::leases::PATIENT;
use crate::people::{approved_steps, clarified_steps};

/// Response headers that are part of the API.
const HEADERS: [&str; 7] =
    ["content-type", "location", "etag", "allow", "idempotency-replayed", "www-authenticate", "link"];

/// A daemon and its recorded exchanges.
struct Recorder {
    daemon: Daemon,
    masks: Masks,
    text: String,
    /// Header of an admin token, where one is required.
    admin: Option<String>,
    /// Description of the API, once it was asked for.
    description: Option<Description>,
}

impl Recorder {
    fn new(daemon: Daemon) -> Self {
        Self { daemon, masks: Masks::new(), text: String::new(), admin: None, description: None }
    }

    /// Waits, without recording, until a board satisfies `is_so`.
    async fn until(&self, board: &str, status: &str) {
        let headers: Vec<_> = self.admin.iter().map(|admin| ("authorization", admin.as_str())).collect();
        self.daemon.until_with(board, status, &headers).await;
    }

    /// Sends a request and records it with its answer. `template` is the route; `places` holds the values of its
    /// parameters.
    async fn ask(&mut self, method: Method, template: &str, places: &[&str], body: Option<&Value>) -> Answer {
        self.ask_with(method, template, places, body, &[]).await
    }

    async fn ask_with(
        &mut self,
        method: Method,
        template: &str,
        places: &[&str],
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut path = template.to_owned();
        for place in places {
            let (begin, end) = (path.find('{').expect("a place"), path.find('}').expect("its end"));
            path.replace_range(begin..=end, place);
        }
        assert!(!path.contains('{'), "{path}: each place has a value");
        let sent: Vec<_> = headers.iter().copied().chain(body.map(|_| ("content-type", "application/json"))).collect();
        let answer = self.daemon.request(method.clone(), &path, &sent, body.map(Value::to_string)).await;
        let route = template.split('?').next().expect("a path");
        if self.description.is_none() {
            let headers: Vec<_> = self.admin.iter().map(|admin| ("authorization", admin.as_str())).collect();
            self.description = Some(Description::of(&self.daemon, &headers).await);
        }
        self.description.iter().for_each(|description| description.check(&method, route, &answer));
        let mut exchange = format!("### {method} {route}\n\n{method} {path}\n");
        for (name, value) in headers.iter().filter(|(name, _)| *name != "authorization") {
            writeln!(exchange, "{name}: {value}").expect("a string takes it");
        }
        if let Some(body) = body {
            let mut shown = body.clone();
            if let Some(blueprint) = shown.get_mut("blueprint") {
                *blueprint = format!("{{blueprint {}}}", blueprint["name"].as_str().expect("a name")).into();
            }
            writeln!(exchange, "{shown:#}").expect("a string takes it");
        }
        writeln!(exchange, "\n{}", answer.status.as_u16()).expect("a string takes it");
        for name in HEADERS {
            if let Some(value) = answer.headers.get(name) {
                writeln!(exchange, "{name}: {}", value.to_str().expect("a text")).expect("a string takes it");
            }
        }
        let kind = answer.headers.get("content-type").map_or("", |kind| kind.to_str().expect("a text"));
        let shown = if kind.ends_with("json") {
            let mut body = stable(answer.json());
            // The board may advance while the answer is made.
            if matches!(answer.status.as_u16(), 201 | 202) && body.get("head").is_some() {
                for name in ["head", "live", "status", "version"] {
                    if let Some(member) = body.get_mut(name) {
                        *member = "{now}".into();
                    }
                }
                // Only a board that has ended already has a cause.
                body.as_object_mut().expect("an answer about a board").remove("cause");
            }
            format!("{body:#}")
        } else {
            lines(&answer.text)
        };
        writeln!(exchange, "{shown}\n").expect("a string takes it");
        self.text.push_str(&self.masks.mask(&exchange, self.daemon.path().to_str().expect("a text")));
        answer
    }

    async fn get(&mut self, template: &str, places: &[&str]) -> Answer {
        self.ask(Method::GET, template, places, None).await
    }

    async fn post(&mut self, template: &str, places: &[&str], body: &Value) -> Answer {
        self.ask(Method::POST, template, places, Some(body)).await
    }

    /// Creates a board and returns its id.
    async fn board(&mut self, body: &Value) -> String {
        let made = self.post("/v1/boards", &[], body).await.expect_status(201);
        made["board"].as_str().expect("an id").to_owned()
    }

    /// Waits for a worker's call and leases it.
    async fn lease(&mut self, board: &str, worker: &str) -> String {
        let wanted = json!({"worker": worker, "wait": 30});
        let leased = self.post("/v1/boards/{board}/leases", &[board], &wanted).await.expect_status(200);
        leased["lease"].as_str().expect("a lease").to_owned()
    }
}

/// Masks for values that differ from run to run; the seen values of each kind are numbered.
struct Masks {
    pattern: Regex,
    seen: BTreeMap<&'static str, Vec<String>>,
}

impl Masks {
    fn new() -> Self {
        let pattern = Regex::new(
            r"(?x)
            (?P<id> [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})
            | (?P<token> pb_[0-9A-Za-z_-]{20,})
            | (?P<time> \b1[78]\d{11}\b | \b20\d\d-\d\d-\d\dT[0-9:.]+Z)
            | (?P<digest> \b[0-9a-f]{32,128}\b)
            ",
        );
        Self { pattern: pattern.expect("a pattern"), seen: BTreeMap::new() }
    }

    fn mask(&mut self, text: &str, directory: &str) -> String {
        let text = text.replace(directory, "{directory}");
        let seen = &mut self.seen;
        let number = |captures: &Captures<'_>| {
            for kind in ["id", "token", "digest"] {
                if let Some(found) = captures.name(kind) {
                    let seen = seen.entry(kind).or_default();
                    let at = seen.iter().position(|known| known == found.as_str()).unwrap_or_else(|| {
                        seen.push(found.as_str().to_owned());
                        seen.len() - 1
                    });
                    return format!("{{{kind} {}}}", at + 1);
                }
            }
            "{time}".to_owned()
        };
        self.pattern.replace_all(&text, number).into_owned()
    }
}

/// Masks machine-dependent members of an answer: measured times and the operating system's user.
fn stable(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            if members.get("kind").is_some_and(|kind| kind == "user") {
                members.insert("name".to_owned(), "{user}".into());
            }
            for (name, member) in members.iter_mut() {
                *member = if name == "running_ms" { "{measured}".into() } else { stable(member.take()) };
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| *element = stable(element.take())),
        _ => (),
    }
    value
}

/// Masks the lines of a stream: the JSON of each message like other answers.
fn lines(text: &str) -> String {
    let line = |line: &str| match line.split_once("data: ") {
        Some(("", data)) => match serde_json::from_str::<Value>(data) {
            Ok(data) => format!("data: {}", stable(data)),
            Err(_) => line.to_owned(),
        },
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn boards() {
    let mut api = Recorder::new(Daemon::new());
    api.get("/healthz", &[]).await.expect_status(200);
    api.get("/readyz", &[]).await.expect_status(200);
    api.get("/nowhere", &[]).await.expect_status(404);
    api.ask(Method::PUT, "/v1/boards", &[], None).await.expect_status(405);
    api.post("/v1/blueprints/check", &[], &json!({"source": STEPS})).await.expect_status(200);
    api.post("/v1/blueprints/check", &[], &json!({"source": "blueprint: 1\nname: x\n"})).await.expect_status(200);
    api.post("/v1/blueprints/check", &[], &json!({"sauce": ""})).await.expect_status(422);
    api.post("/v1/boards", &[], &json!({"source": "blueprint: 1\nname: x\n"})).await.expect_status(422);
    let once = [("idempotency-key", "made-once")];
    let founding = json!({"source": STEPS, "request": {"walk": true}});
    let made = api.ask_with(Method::POST, "/v1/boards", &[], Some(&founding), &once).await.expect_status(201);
    let board = made["board"].as_str().expect("an id");
    api.until(board, "quiescent").await;
    assert!(api.ask_with(Method::POST, "/v1/boards", &[], Some(&founding), &once).await.is_replayed());
    api.get("/v1/boards", &[]).await.expect_status(200);
    api.get("/v1/boards?limit=0", &[]).await.expect_status(400);
    api.get("/v1/boards/{board}", &[board]).await.expect_status(200);
    api.get("/v1/boards/{board}", &["01990000-0000-7000-8000-000000000000"]).await.expect_status(404);
    let add = |value: u32| json!({"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": value}]});
    let proposals = "/v1/boards/{board}/proposals";
    api.post(proposals, &[board], &add(3)).await.expect_status(200);
    api.post(proposals, &[board], &add(10)).await.expect_status(422);
    api.post(proposals, &[board], &json!({"worker": "dan", "patch": []})).await.expect_status(422);
    let stale = json!({"worker": "walker", "basis": 0, "patch": [{"op": "replace", "path": "/steps", "value": []}]});
    api.post(proposals, &[board], &stale).await.expect_status(422);
    let once = [("idempotency-key", "step-once")];
    api.ask_with(Method::POST, proposals, &[board], Some(&add(4)), &once).await.expect_status(200);
    assert!(api.ask_with(Method::POST, proposals, &[board], Some(&add(4)), &once).await.is_replayed());
    api.ask_with(Method::POST, proposals, &[board], Some(&add(5)), &once).await.expect_status(409);
    api.get("/v1/boards/{board}/state", &[board]).await.expect_status(200);
    api.get("/v1/boards/{board}/state?at=0", &[board]).await.expect_status(200);
    api.get("/v1/boards/{board}/views/{worker}", &[board, "walker"]).await.expect_status(200);
    api.get("/v1/boards/{board}/views/{worker}", &[board, "dan"]).await.expect_status(404);
    api.get("/v1/boards/{board}/why?pointer=/steps/0", &[board]).await.expect_status(200);
    api.get("/v1/boards/{board}/why?pointer=/nothing", &[board]).await.expect_status(404);
    api.get("/v1/boards/{board}/cost", &[board]).await.expect_status(200);
    api.get("/v1/boards/{board}/rejections", &[board]).await.expect_status(200);
    api.post("/v1/boards/{board}/pause", &[board], &json!({})).await.expect_status(200);
    api.post("/v1/boards/{board}/resume", &[board], &json!({})).await.expect_status(200);
    api.post("/v1/boards/{board}/retry", &[board], &json!({})).await;
    api.post("/v1/boards/{board}/agui", &[board], &json!({"threadId": "t", "runId": "r", "messages": []})).await;
    api.get("/v1/boards/{board}/leases", &[board]).await.expect_status(200);
    api.post("/v1/boards/{board}/cancel", &[board], &json!({})).await.expect_status(200);
    api.post(proposals, &[board], &add(6)).await;
    api.get("/v1/boards/{board}/journal", &[board]).await.expect_status(200);
    api.get("/v1/boards/{board}/journal?limit=2&after=1", &[board]).await.expect_status(200);
    api.get("/v1/boards/{board}/journal?kind=committed,rejected", &[board]).await.expect_status(200);
    api.get("/v1/boards/{board}/events", &[board]).await;
    api.get("/v1/boards/{board}/agui", &[board]).await;
    insta::assert_snapshot!("boards", api.text);
}

#[tokio::test]
async fn leases() {
    let mut api = Recorder::new(Daemon::new());
    let board = api.board(&json!({"source": remote_steps(PATIENT)})).await;
    let board = board.as_str();
    let lease = api.lease(board, "walker").await;
    api.post("/v1/boards/{board}/leases", &[board], &json!({"worker": "walker"})).await.expect_status(204);
    api.post("/v1/boards/{board}/leases", &[board], &json!({"worker": "dan"})).await.expect_status(404);
    api.get("/v1/boards/{board}/leases", &[board]).await.expect_status(200);
    let signal = json!({"name": "more", "value": {"steps": 2}});
    api.post("/v1/boards/{board}/signals", &[board], &signal).await.expect_status(202);
    api.post("/v1/boards/{board}/signals", &[board], &json!({"name": "other"})).await.expect_status(422);
    let renew = "/v1/boards/{board}/leases/{lease}/renew";
    api.post(renew, &[board, &lease], &json!({"worker": "walker", "seconds": 600})).await.expect_status(200);
    let failure = "/v1/boards/{board}/leases/{lease}/failure";
    let failed = json!({"worker": "walker", "code": "crashed", "message": "out of paper"});
    api.post(failure, &[board, &lease], &failed).await.expect_status(200);
    api.post(renew, &[board, &lease], &json!({"worker": "walker"})).await.expect_status(409);
    let lease = api.lease(board, "walker").await;
    let answer = "/v1/boards/{board}/leases/{lease}/answer";
    let step = |value: u32| {
        json!({"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": value}],
            "usage": {"prompt": 7, "completion": 5}})
    };
    api.post(answer, &[board, &lease], &step(10)).await.expect_status(422);
    // The view of the next attempt shows the rejection.
    let lease = api.lease(board, "walker").await;
    let mut with_next = step(2);
    with_next["next"] = json!({"wait": 30});
    api.post(answer, &[board, &lease], &with_next).await.expect_status(200);
    assert!(api.post(answer, &[board, &lease], &step(2)).await.is_replayed());
    api.post(answer, &[board, &lease], &step(3)).await.expect_status(409);
    api.get("/v1/boards/{board}/journal", &[board]).await.expect_status(200);
    insta::assert_snapshot!("leases", api.text);
}

#[tokio::test]
async fn people() {
    let mut api = Recorder::new(Daemon::new());
    let board = api.board(&json!({"source": approved_steps()})).await;
    let board = board.as_str();
    api.until(board, "waiting").await;
    let inbox = api.get("/v1/inbox", &[]).await.expect_status(200);
    let question = &inbox["questions"][0];
    let (seq, digest) = (question["seq"].to_string(), &question["digest"]);
    let approvals = "/v1/boards/{board}/approvals/{seq}";
    api.post(approvals, &[board, &seq], &json!({"agrees": true, "digest": "0".repeat(64)})).await.expect_status(422);
    api.post(approvals, &[board, "0"], &json!({"agrees": true, "digest": digest})).await.expect_status(409);
    let agreed = json!({"agrees": true, "digest": digest, "reason": "seen"});
    api.post(approvals, &[board, &seq], &agreed).await.expect_status(200);
    api.get("/v1/inbox", &[]).await.expect_status(200);
    let board = api.board(&json!({"source": clarified_steps()})).await;
    let board = board.as_str();
    api.until(board, "waiting").await;
    let inbox = api.get("/v1/inbox", &[]).await.expect_status(200);
    let question = &inbox["questions"][0];
    let said = json!({"agrees": true, "digest": question["digest"], "text": "Three steps."});
    api.post(approvals, &[board, &question["seq"].to_string()], &said).await.expect_status(200);
    api.until(board, "quiescent").await;
    api.get("/v1/boards/{board}/journal", &[board]).await.expect_status(200);
    insta::assert_snapshot!("people", api.text);
}

#[tokio::test]
async fn rooms() {
    let mut api = Recorder::new(Daemon::new());
    let blueprint = api.daemon.shipped("approval-room.yaml", &["author", "feasibility", "completeness", "risk"]);
    let board = api.board(&json!({"blueprint": blueprint, "request": {"goal": "Bake bread."}})).await;
    let board = board.as_str();
    let lease = api.lease(board, "author").await;
    let plan = json!({"worker": "author", "lease": lease, "artifact_id": "plan-1", "artifact_type": "PLAN",
        "artifact": ["Knead.", "Bake."], "artifact_content_type": "application/json"});
    api.post("/v1/boards/{board}/room/proposals", &[board], &plan).await.expect_status(200);
    let decision = "/v1/boards/{board}/room/decisions/{artifact}";
    api.get(decision, &[board, "plan-1"]).await.expect_status(204);
    api.get(decision, &[board, "plan-2"]).await.expect_status(404);
    let votes = "/v1/boards/{board}/room/votes";
    for (critic, confidence) in [("feasibility", 0.9), ("completeness", 0.9), ("risk", 0.8)] {
        let lease = api.lease(board, critic).await;
        let vote = json!({"worker": critic, "lease": lease, "artifact_id": "plan-1", "score": 9,
            "confidence": confidence, "passed": true});
        api.post(votes, &[board], &vote).await.expect_status(200);
    }
    api.post(
        votes,
        &[board],
        &json!({"worker": "risk", "artifact_id": "plan-2", "score": 1, "confidence": 1, "passed": false}),
    )
    .await;
    api.get("/v1/boards/{board}/room/decisions/{artifact}?wait=30", &[board, "plan-1"]).await.expect_status(200);
    insta::assert_snapshot!("rooms", api.text);
}

#[tokio::test]
async fn handoffs() {
    let mut api = Recorder::new(Daemon::new());
    let blueprint = api.daemon.shipped("handoff.yaml", &["ada", "bob", "cyd"]);
    let board = api.board(&json!({"blueprint": blueprint, "request": {"ticket": "Why?"}})).await;
    let board = board.as_str();
    let handoffs = "/v1/boards/{board}/handoffs";
    let lease = api.lease(board, "ada").await;
    let asked = json!({"worker": "ada", "lease": lease, "request_id": "h1", "reason": "It is about an invoice.",
        "capabilities_required": ["billing"], "priority": 5, "timeout_ms": 3_600_000, "task": "ticket",
        "context": {"content_type": "text/plain", "content": "March"}});
    api.post(handoffs, &[board], &asked).await.expect_status(200);
    let mut unknown = asked.clone();
    unknown["request_id"] = "h2".into();
    unknown["task"] = "nothing".into();
    unknown.as_object_mut().expect("an object").remove("lease");
    api.post(handoffs, &[board], &unknown).await.expect_status(422);
    api.get("/v1/boards/{board}/handoffs?agent=bob", &[board]).await.expect_status(200);
    api.get("/v1/boards/{board}/handoffs?agent=dan", &[board]).await.expect_status(404);
    let handoff = "/v1/boards/{board}/handoffs/{handoff}";
    api.get(handoff, &[board, "h1"]).await.expect_status(200);
    api.get(handoff, &[board, "h9"]).await.expect_status(404);
    let (accept, reject) =
        ("/v1/boards/{board}/handoffs/{handoff}/accept", "/v1/boards/{board}/handoffs/{handoff}/reject");
    api.post(reject, &[board, "h1"], &json!({"worker": "bob"})).await.expect_status(422);
    api.post(reject, &[board, "h1"], &json!({"worker": "bob", "reason": "Not mine."})).await.expect_status(200);
    let lease = api.lease(board, "cyd").await;
    api.post(accept, &[board, "h1.2"], &json!({"worker": "cyd", "lease": lease})).await.expect_status(200);
    api.post(accept, &[board, "h1.2"], &json!({"worker": "cyd"})).await.expect_status(409);
    api.get("/v1/boards/{board}/state", &[board]).await.expect_status(200);
    insta::assert_snapshot!("handoffs", api.text);
}

#[tokio::test]
async fn workflows() {
    let mut api = Recorder::new(Daemon::new());
    let cyclic = json!({"nodes": {"a": {"dependencies": ["b"]}, "b": {"dependencies": ["a"]}}});
    api.post("/v1/workflows/check", &[], &json!({"workflow": cyclic})).await.expect_status(200);
    let sound = json!({"nodes": {"a": {}, "b": {"dependencies": ["a"]}}});
    api.post("/v1/workflows/check", &[], &json!({"workflow": sound})).await.expect_status(200);
    api.post("/v1/workflows/check", &[], &json!({"workflow": {"nodes": 1}})).await.expect_status(422);
    let worker = json!({"agent": "remote", "limits": {"timeout": "1h"}});
    let blueprint = json!({"blueprint": 1, "name": "w", "description": "A workflow.", "workflow": sound,
        "workers": {"a": worker, "b": worker}});
    let board = api.board(&json!({"blueprint": blueprint})).await;
    let board = board.as_str();
    let lease = api.lease(board, "a").await;
    api.get("/v1/boards/{board}/workflow", &[board]).await.expect_status(200);
    let patch = json!([{"op": "add", "path": "/workflow/nodes/a/output", "value": {"rows": 3}}]);
    let answer = json!({"worker": "a", "patch": patch});
    api.post("/v1/boards/{board}/leases/{lease}/answer", &[board, &lease], &answer).await.expect_status(200);
    let lease = api.lease(board, "b").await;
    let resume = "/v1/boards/{board}/workflow/resume";
    api.post(resume, &[board], &json!({"node": "b"})).await.expect_status(409);
    api.post(resume, &[board], &json!({"node": "c"})).await.expect_status(422);
    let failed = json!({"worker": "b", "code": "refused", "message": "not today"});
    api.post("/v1/boards/{board}/leases/{lease}/failure", &[board, &lease], &failed).await.expect_status(200);
    api.until(board, "quiescent").await;
    api.get("/v1/boards/{board}/workflow", &[board]).await.expect_status(200);
    api.post(resume, &[board], &json!({"node": "b"})).await.expect_status(202);
    api.lease(board, "b").await;
    insta::assert_snapshot!("workflows", api.text);
}

#[tokio::test]
async fn negotiations() {
    let mut api = Recorder::new(Daemon::new());
    let blueprint = api.daemon.shipped("negotiation.yaml", &["seller", "buyer", "arbiter"]);
    let board = api.board(&json!({"blueprint": blueprint, "request": {"topic": "steel", "corr": "c-7"}})).await;
    let board = board.as_str();
    let (events, negotiation) = ("/v1/boards/{board}/negotiation/events", "/v1/boards/{board}/negotiation");
    let draft = |kind: &str, from: &str, price: u32| json!({"kind": kind, "ts": 1, "from": from, "ct": "application/json", "payload": {"price": price, "days": 10}});
    let lease = api.lease(board, "seller").await;
    api.post(events, &[board], &json!({"worker": "buyer", "event": draft("propose", "seller", 120)}))
        .await
        .expect_status(422);
    let proposed = json!({"worker": "seller", "lease": lease, "event": draft("propose", "seller", 120)});
    api.post(events, &[board], &proposed).await.expect_status(200);
    let evaluation =
        |score: f64| json!({"kind": "evaluate", "ts": "2", "from": "arbiter", "score": score, "notes": "so"});
    let lease = api.lease(board, "arbiter").await;
    api.post(events, &[board], &json!({"worker": "arbiter", "lease": lease, "event": evaluation(0.2)}))
        .await
        .expect_status(200);
    let lease = api.lease(board, "buyer").await;
    api.get(negotiation, &[board]).await.expect_status(200);
    let artifacts = "/v1/boards/{board}/artifacts";
    let kept = json!({"worker": "seller", "kind": "contract", "name": "contract.json",
        "content_type": "application/json", "content": {"price": 120}});
    api.post(artifacts, &[board], &kept).await.expect_status(200);
    let mut unsound = kept.clone();
    unsound["content_type"] = "image/png".into();
    api.post(artifacts, &[board], &unsound).await.expect_status(422);
    let counter = json!({"worker": "buyer", "lease": lease, "event": draft("counter", "buyer", 90)});
    api.post(events, &[board], &counter).await.expect_status(200);
    let lease = api.lease(board, "arbiter").await;
    api.post(events, &[board], &json!({"worker": "arbiter", "lease": lease, "event": evaluation(0.9)}))
        .await
        .expect_status(200);
    api.get("/v1/boards/{board}/negotiation?wait=30", &[board]).await.expect_status(200);
    insta::assert_snapshot!("negotiations", api.text);
}

#[tokio::test]
async fn files() {
    let mut daemon = Daemon::not_started(&[]);
    daemon.configure("[workspaces.code]\ndir = \"code\"\n");
    std::fs::create_dir(daemon.path().join("code")).expect("a directory can be made");
    std::fs::write(daemon.path().join("code/a.py"), "def one():\n    return 1\n").expect("a file can be written");
    daemon.start();
    let mut api = Recorder::new(daemon);
    let blueprint = json!({"blueprint": 1, "name": "office", "workspace": {"dir": "code"},
        "state": {"schema": {}, "initial": {"notes": []}},
        "workers": {"ada": {"agent": "remote", "files": {"edit": ["**"]}, "limits": {"timeout": "1h"}}},
        "rules": [{"name": "ada", "trigger": "start", "run": "ada"}]});
    let board = api.board(&json!({"blueprint": blueprint})).await;
    let board = board.as_str();
    let lease = api.lease(board, "ada").await;
    for arguments in [
        json!({"command": "list"}),
        json!({"command": "view", "path": "a.py"}),
        json!({"command": "view", "path": "../a.py"}),
        json!({"command": "str_replace", "path": "a.py", "old_str": "return 1", "new_str": "return 11", "intent": "more"}),
        json!({"command": "str_replace", "path": "a.py", "old_str": "return 7", "new_str": "", "intent": "less"}),
        json!({"command": "search", "pattern": "return"}),
    ] {
        let body = json!({"worker": "ada", "arguments": arguments});
        api.post("/v1/boards/{board}/leases/{lease}/files", &[board, &lease], &body).await;
    }
    insta::assert_snapshot!("files", api.text);
}

#[tokio::test]
async fn operators() {
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    let admin = format!("Bearer {}", daemon.token("admin"));
    daemon.start();
    let mut api = Recorder::new(daemon);
    api.admin = Some(admin.clone());
    let as_admin = [("authorization", admin.as_str())];
    api.get("/v1/tokens", &[]).await.expect_status(401);
    let wanted = json!({"scope": "read", "name": "reader"});
    let made = api.ask_with(Method::POST, "/v1/tokens", &[], Some(&wanted), &as_admin).await.expect_status(201);
    let reader = format!("Bearer {}", made["token"].as_str().expect("a text"));
    let as_reader = [("authorization", reader.as_str())];
    api.ask_with(Method::POST, "/v1/tokens", &[], Some(&json!({"scope": "everything"})), &as_admin)
        .await
        .expect_status(422);
    api.ask_with(Method::GET, "/v1/tokens", &[], None, &as_reader).await.expect_status(403);
    let founding = json!({"source": STEPS, "request": {"card": "4929"}});
    let made = api.ask_with(Method::POST, "/v1/boards", &[], Some(&founding), &as_admin).await.expect_status(201);
    let board = made["board"].as_str().expect("an id");
    api.until(board, "quiescent").await;
    let seat = format!("Bearer {}", api.daemon.token(&format!("seat:{board}/walker")));
    let as_walker = [("authorization", seat.as_str()), ("accept", "application/json, text/event-stream")];
    let message = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let begin = message(
        "initialize",
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}),
    );
    api.ask_with(Method::POST, "/mcp", &[], Some(&begin), &as_walker).await.expect_status(200);
    api.ask_with(Method::POST, "/mcp", &[], Some(&message("tools/list", json!({}))), &as_walker)
        .await
        .expect_status(200);
    let propose = message(
        "tools/call",
        json!({"name": "propose", "arguments": {"patch": [{"op": "add", "path": "/steps/-", "value": 2}]}}),
    );
    api.ask_with(Method::POST, "/mcp/{board}/{worker}", &[board, "walker"], Some(&propose), &as_walker)
        .await
        .expect_status(200);
    let redactions = "/v1/boards/{board}/redactions";
    let gone = json!({"places": ["/request/card"]});
    api.ask_with(Method::POST, redactions, &[board], Some(&gone), &as_reader).await.expect_status(403);
    api.ask_with(Method::POST, redactions, &[board], Some(&json!({"places": ["/nowhere"]})), &as_admin)
        .await
        .expect_status(422);
    api.ask_with(Method::POST, redactions, &[board], Some(&gone), &as_admin).await.expect_status(409);
    api.ask_with(Method::POST, "/v1/boards/{board}/cancel", &[board], None, &as_admin).await.expect_status(200);
    api.ask_with(Method::POST, redactions, &[board], Some(&gone), &as_admin).await.expect_status(200);
    api.ask_with(Method::POST, "/v1/boards/{board}/archive", &[board], None, &as_admin).await.expect_status(200);
    api.ask_with(Method::GET, "/v1/archive", &[], None, &as_admin).await.expect_status(200);
    api.ask_with(Method::POST, "/v1/boards/{board}/restore", &[board], None, &as_admin).await.expect_status(200);
    api.ask_with(Method::DELETE, "/v1/boards/{board}", &[board], None, &as_admin).await.expect_status(200);
    api.ask_with(Method::DELETE, "/v1/boards/{board}", &[board], None, &as_admin).await.expect_status(404);
    api.ask_with(Method::POST, "/v1/vacuum", &[], None, &as_admin).await.expect_status(200);
    api.ask_with(Method::DELETE, "/v1/tokens/{id}", &["2"], None, &as_admin).await.expect_status(204);
    api.ask_with(Method::GET, "/v1/tokens", &[], None, &as_admin).await.expect_status(200);
    api.ask_with(Method::GET, "/v1/audit-log", &[], None, &as_admin).await.expect_status(200);
    let metrics = api.daemon.request(Method::GET, "/metrics", &as_admin, None).await;
    // Values differ from run to run; names, types and help texts are the API.
    let descriptions: Vec<&str> = metrics.text.lines().filter(|line| line.starts_with('#')).collect();
    writeln!(api.text, "### GET /metrics\n\n200\n{}", descriptions.join("\n")).expect("a string takes it");
    insta::assert_snapshot!("operators", api.text);
}

#[tokio::test]
async fn every_route_is_described_and_among_the_exchanges() {
    let daemon = Daemon::new();
    let described = daemon.get("/v1/openapi.json").await.expect_status(200);
    let snapshots = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/snapshots")).expect("it is there");
    let read = |entry: io::Result<fs::DirEntry>| fs::read_to_string(entry?.path());
    let texts: Vec<String> = snapshots.map(read).collect::<Result<_, _>>().expect("snapshots are text");
    let lines = texts.iter().flat_map(|text| text.lines());
    let recorded: BTreeSet<&str> = lines.filter_map(|line| line.strip_prefix("### ")).collect();
    let mut ids = BTreeSet::new();
    for (path, methods) in described["paths"].as_object().expect("an object") {
        for (method, operation) in methods.as_object().expect("an object") {
            let route = format!("{} {path}", method.to_uppercase());
            assert!(recorded.contains(route.as_str()), "{route} has no recorded exchange");
            let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{route} has no operation id"));
            assert!(ids.insert(id), "{route} and another operation are called {id}");
            let responses = operation["responses"].as_object().expect("an object");
            assert!(responses.contains_key("default"), "{route} does not describe problems");
            for (status, response) in responses {
                let description = response["description"].as_str().unwrap_or_default();
                assert!(!description.is_empty(), "{route}: {status} has no description");
            }
        }
    }
    let body = &described["paths"]["/v1/boards/{board}/leases"]["post"]["requestBody"]["content"]["application/json"];
    assert_eq!(body["schema"]["$ref"], "#/components/schemas/LeaseRequest");
}
