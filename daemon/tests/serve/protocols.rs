//! Handoffs, workflows and artefacts over HTTP: the shipped blueprints, with external processes as agents.

use reqwest::Method;
use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon};

async fn made(daemon: &Daemon, blueprint: &Value, request: &Value) -> String {
    let made = daemon.post("/v1/boards", &json!({"blueprint": blueprint, "request": request})).await.expect_status(201);
    format!("/v1/boards/{}", made["board"].as_str().expect("an id"))
}

/// Leases the next call of a worker.
async fn lease(daemon: &Daemon, board: &str, worker: &str) -> Value {
    let wanted = json!({"worker": worker, "wait": 20});
    daemon.post(&format!("{board}/leases"), &wanted).await.expect_status(200)["lease"].clone()
}

#[tokio::test]
async fn work_is_handed_over_and_pending_handoffs_outlive_a_kill() {
    let mut daemon = Daemon::new();
    let mut blueprint = daemon.shipped("handoff.yaml", &["ada", "bob", "cyd"]);
    blueprint["state"]["initial"]["tasks"]["other"] = json!({"owner": "ada", "notes": []});
    let board = made(&daemon, &blueprint, &json!({"ticket": "Why?"})).await;
    let handoffs = format!("{board}/handoffs");
    let ask = |id: &str, task: &str, priority: i32| {
        json!({"worker": "ada", "request_id": id, "reason": "It is about an invoice.", "capabilities_required": ["billing"],
            "priority": priority, "timeout_ms": 3_600_000, "task": task,
            "context": {"content_type": "text/plain", "content": "March"}})
    };
    let mut first = ask("calm", "other", 1);
    first["lease"] = lease(&daemon, &board, "ada").await;
    assert_eq!(daemon.post(&handoffs, &first).await.expect_status(200)["outcome"], "committed");
    lease(&daemon, &board, "bob").await;
    assert_eq!(daemon.post(&handoffs, &ask("urgent", "ticket", 5)).await.expect_status(200)["outcome"], "committed");
    // A worker cannot ask in another's name, or for another's task.
    let mut other = ask("other", "ticket", 9);
    other["worker"] = "cyd".into();
    daemon.post(&handoffs, &other).await.expect_status(422);
    // Unknown tasks and reused ids are rejected.
    daemon.post(&handoffs, &ask("other", "nothing", 9)).await.expect_problem(422, "handoff_unknown_task");
    daemon.post(&handoffs, &ask("calm", "other", 9)).await.expect_problem(409, "handoff_illegal_move");

    let seen = daemon.get(&format!("{handoffs}/calm")).await.expect_status(200);
    assert_eq!((&seen["state"], &seen["to"], &seen["priority"]), (&json!("PENDING"), &json!("bob"), &json!(1)));
    daemon.get(&format!("{handoffs}/calm?agent=bob")).await.expect_status(200);
    daemon.get(&format!("{handoffs}/calm?agent=cyd")).await.expect_problem(404, "handoff_unknown");
    daemon.get(&format!("{handoffs}/none")).await.expect_problem(404, "handoff_unknown");
    daemon.get(&format!("{handoffs}?agent=dan")).await.expect_problem(404, "no_such_worker");

    let waits = async |daemon: &Daemon, agent: &str| -> Vec<String> {
        let page = daemon.get(&format!("{handoffs}?agent={agent}")).await.expect_status(200);
        let of = |handoff: &Value| handoff["request_id"].as_str().expect("an id").to_owned();
        page["handoffs"].as_array().expect("a list").iter().map(of).collect()
    };
    // The second call is dispatched when the second handoff is offered.
    lease(&daemon, &board, "bob").await;
    assert_eq!(waits(&daemon, "bob").await, ["urgent", "calm"], "the more urgent first");
    assert!(waits(&daemon, "cyd").await.is_empty());
    daemon.kill();
    daemon.start();
    assert_eq!(waits(&daemon, "bob").await, ["urgent", "calm"], "also after a restart");
    let accept = |id: &str| format!("{handoffs}/{id}/accept");
    // A caller without read access gets the same answer as for an unknown handoff.
    daemon.post(&accept("calm"), &json!({"worker": "cyd"})).await.expect_problem(404, "handoff_unknown");
    daemon.post(&accept("calm"), &json!({"worker": "ada"})).await.expect_problem(409, "handoff_not_addressed");
    daemon.post(&accept("none"), &json!({"worker": "bob"})).await.expect_problem(404, "handoff_unknown");
    daemon.post(&accept("calm"), &json!({"worker": "dan"})).await.expect_problem(404, "no_such_worker");
    for silent in [json!({"worker": "bob", "reason": " "}), json!({"worker": "bob"})] {
        daemon.post(&format!("{handoffs}/urgent/reject"), &silent).await.expect_problem(422, "handoff_reason_missing");
    }
    let no = json!({"worker": "bob", "reason": "That contract is none of mine."});
    let reject = format!("{handoffs}/urgent/reject");
    assert_eq!(daemon.post_once(&reject, &no, "bob:no:1").await.expect_status(200)["outcome"], "committed");
    assert!(daemon.post_once(&reject, &no, "bob:no:1").await.is_replayed(), "a repetition is told the first outcome");
    daemon.post(&reject, &no).await.expect_problem(409, "handoff_terminal");

    // The handoff is routed to cyd, who accepts it.
    let accepted = json!({"worker": "cyd", "lease": lease(&daemon, &board, "cyd").await});
    assert_eq!(waits(&daemon, "cyd").await, ["urgent.2"]);
    assert_eq!(
        daemon.post(&format!("{handoffs}/urgent.2/accept"), &accepted).await.expect_status(200)["outcome"],
        "committed"
    );
    // The next commit makes cyd the owner, and from then on only cyd may write to the task.
    let answers = lease(&daemon, &board, "cyd").await;
    let answer = json!([{"op": "add", "path": "/tasks/ticket/answer", "value": "It was cancelled."}]);
    let late = json!({"worker": "ada", "patch": answer});
    daemon.post(&format!("{board}/proposals"), &late).await.expect_problem(422, "condition_not_met");
    let path = format!("{board}/leases/{}/answer", answers.as_str().expect("a lease"));
    daemon.post(&path, &json!({"worker": "cyd", "patch": answer})).await.expect_status(200);
    let state = daemon.get(&format!("{board}/state")).await.expect_status(200);
    assert_eq!(state["state"]["tasks"]["ticket"]["owner"], "cyd");

    let plain = daemon.board().await;
    let path = format!("/v1/boards/{plain}/handoffs");
    daemon.get(&format!("{path}/calm")).await.expect_problem(404, "no_handoffs");
}

#[tokio::test]
async fn a_request_of_the_protocol_names_its_agent_and_may_say_more() {
    let daemon = Daemon::new();
    let blueprint = daemon.shipped("handoff.yaml", &["ada", "bob", "cyd"]);
    let board = made(&daemon, &blueprint, &json!({"ticket": "Why?"})).await;
    let request = json!({"from_agent": "ada", "request_id": "h1", "reason": "It is about an invoice.", "timeout_ms": 3_600_000,
        "task": "ticket", "context": {"content_type": "text/plain", "content": "March", "schema": 1}, "x-trace": "7"});
    assert_eq!(daemon.post(&format!("{board}/handoffs"), &request).await.expect_status(200)["outcome"], "committed");
    let seen = daemon.get(&format!("{board}/handoffs/h1")).await.expect_status(200);
    assert_eq!((&seen["from_agent"], &seen["x-trace"]), (&json!("ada"), &Value::Null));
    let unaddressed = json!({"request_id": "h2"});
    daemon.post(&format!("{board}/handoffs"), &unaddressed).await.expect_problem(422, "bad_body");
    // Both names may be given if their values agree.
    let asks = |id: &str, changes: Value| {
        let mut asked = request.clone();
        asked["request_id"] = id.into();
        asked.as_object_mut().expect("an object").extend(changes.as_object().expect("members").clone());
        asked
    };
    let path = format!("{board}/handoffs");
    daemon.post(&path, &asks("h2", json!({"worker": "bob"}))).await.expect_problem(422, "bad_body");
    let mut snapshot = asks("h2", json!({"worker": "ada"}));
    let context = snapshot.as_object_mut().expect("an object").remove("context").expect("it is there");
    snapshot["context_snapshot"] = context;
    daemon.post(&path, &snapshot).await.expect_status(200);
    assert_eq!(daemon.get(&format!("{path}/h2")).await.expect_status(200)["context"]["content"], "March");
    // The content is checked before anything is recorded.
    let with = |id: &str, content_type: &str, content: Value| {
        asks(id, json!({"context": {"content_type": content_type, "content": content}}))
    };
    for (content_type, content) in [("image/png", json!("%")), ("text/plain", json!({}))] {
        daemon.post(&path, &with("h3", content_type, content)).await.expect_problem(422, "handoff_bad_context");
    }
    daemon.post(&path, &with("h3", "image/png", json!("aGk="))).await.expect_status(200);
    daemon.post(&path, &with("h4", "application/problem+json", json!([]))).await.expect_status(200);
}

#[tokio::test]
async fn a_workflow_is_checked_run_waited_for_and_resumed() {
    let daemon = Daemon::new();
    let cyclic = json!({"nodes": {"a": {"dependencies": ["b"]}, "b": {"dependencies": ["a"]}}});
    let refused = daemon.post("/v1/workflows/check", &json!({"workflow": cyclic})).await.expect_status(200);
    assert_eq!((&refused["valid"], &refused["error_code"]), (&json!(false), &json!("workflow_cycle_detected")));
    assert_eq!(refused["cycle"], json!(["a", "b"]));
    let sound = json!({"nodes": {"a": {}, "b": {"dependencies": ["a"]}}});
    let checked = daemon.post("/v1/workflows/check", &json!({"workflow": sound})).await.expect_status(200);
    assert_eq!((&checked["valid"], &checked["stages"]), (&json!(true), &json!([["a"], ["b"]])));
    daemon.post("/v1/workflows/check", &json!({"workflow": {"nodes": 1}})).await.expect_problem(422, "bad_body");

    // A cyclic workflow is rejected before anything is stored.
    let worker = |script: Value| json!({"agent": "script", "script": script});
    let blueprint = |workflow: &Value, workers: Value| json!({"blueprint": 1, "name": "w", "description": "A workflow.", "workflow": workflow, "workers": workers});
    let broken = blueprint(&cyclic, json!({"a": worker(json!([[]])), "b": worker(json!([[]]))}));
    let problem =
        daemon.post("/v1/boards", &json!({"blueprint": broken})).await.expect_problem(422, "blueprint_refused");
    assert_eq!(problem["findings"][0]["code"], "workflow_cycle_detected", "{problem}");
    assert_eq!(daemon.get("/v1/boards").await.expect_status(200)["boards"], json!([]));

    let board = made(&daemon, &daemon.shipped("etl.yaml", &[]), &json!({})).await;
    let over = daemon.get(&format!("{board}/workflow?wait=30")).await.expect_status(200);
    assert_eq!((&over["status"], &over["nodes"]["inspect"]["status"]), (&json!("COMPLETED"), &json!("SKIPPED")));
    assert_eq!(over["data"]["total"], 5);

    // The worker's first attempt produces no output.
    let output = |node: &str| json!([{"op": "add", "path": format!("/workflow/nodes/{node}/output"), "value": {}}]);
    let workers = json!({"a": worker(json!([[], output("a")])), "b": worker(json!([output("b")]))});
    let board = made(&daemon, &blueprint(&sound, workers), &Value::Null).await;
    let failed = daemon.get(&format!("{board}/workflow?wait=30")).await.expect_status(200);
    assert_eq!((&failed["status"], &failed["nodes"]["a"]["status"]), (&json!("FAILED"), &json!("FAILED")));
    assert!(failed["nodes"]["a"]["error"].is_string() && failed["nodes"]["b"]["status"] == "PENDING", "{failed}");
    daemon.until(board.rsplit('/').next().expect("an id"), "quiescent").await;
    let resume = format!("{board}/workflow/resume");
    daemon.post(&resume, &json!({"node": "c"})).await.expect_problem(422, "workflow_unknown_node");
    daemon.post_once(&resume, &json!({"node": "a"}), "again").await.expect_status(202);
    assert!(daemon.post_once(&resume, &json!({"node": "a"}), "again").await.is_replayed());
    daemon.until(board.rsplit('/').next().expect("an id"), "done").await;
    let done = daemon.get(&format!("{board}/workflow")).await.expect_status(200);
    assert_eq!((&done["status"], &done["nodes"]["b"]["status"]), (&json!("COMPLETED"), &json!("COMPLETED")));

    let plain = daemon.board().await;
    daemon.get(&format!("/v1/boards/{plain}/workflow")).await.expect_problem(404, "no_workflow");
    let before = daemon.get(&format!("/v1/boards/{plain}")).await.expect_status(200)["head"].clone();
    let resumed = daemon.post(&format!("/v1/boards/{plain}/workflow/resume"), &json!({"node": "a"})).await;
    resumed.expect_problem(404, "no_workflow");
    assert_eq!(
        daemon.get(&format!("/v1/boards/{plain}")).await.expect_status(200)["head"],
        before,
        "nothing was recorded"
    );
}

#[tokio::test]
async fn a_workflow_is_not_resumed_from_what_is_running() {
    let daemon = Daemon::new();
    let worker = json!({"agent": "remote", "limits": {"timeout": "1h"}});
    let blueprint = json!({"blueprint": 1, "name": "w", "description": "A workflow.",
        "workflow": {"nodes": {"a": {}, "b": {"dependencies": ["a"]}}}, "workers": {"a": worker, "b": worker}});
    let board = made(&daemon, &blueprint, &Value::Null).await;
    let resume = format!("{board}/workflow/resume");
    let does = async |node: &str| {
        let lease = lease(&daemon, &board, node).await;
        let patch = json!([{"op": "add", "path": format!("/workflow/nodes/{node}/output"), "value": {}}]);
        let path = format!("{board}/leases/{}/answer", lease.as_str().expect("a lease"));
        daemon.post(&path, &json!({"worker": node, "patch": patch})).await.expect_status(200);
    };
    does("a").await;
    let first = lease(&daemon, &board, "b").await;
    let before = daemon.get(&board).await.expect_status(200);
    assert!(before["head"].is_object(), "{before}");
    // `b` is RUNNING, and resuming `a` would run `b` again.
    for node in ["a", "b"] {
        daemon.post(&resume, &json!({"node": node})).await.expect_problem(409, "workflow_illegal_move");
        daemon.post_once(&resume, &json!({"node": node}), node).await.expect_problem(409, "workflow_illegal_move");
    }
    assert_eq!(daemon.get(&board).await.expect_status(200)["head"], before["head"], "nothing was recorded");
    let path = format!("{board}/leases/{}/failure", first.as_str().expect("a lease"));
    let failed = json!({"worker": "b", "code": "refused", "message": "not today"});
    daemon.post(&path, &failed).await.expect_status(200);
    daemon.until(board.rsplit('/').next().expect("an id"), "quiescent").await;
    // A rejected request may be retried under its idempotency key; a repetition returns the first outcome.
    daemon.post_once(&resume, &json!({"node": "b"}), "b").await.expect_status(202);
    lease(&daemon, &board, "b").await;
    assert!(daemon.post_once(&resume, &json!({"node": "b"}), "b").await.is_replayed(), "although it is RUNNING");
}

/// Returns a daemon that requires tokens, a board on it, and an admin token.
async fn guarded(change: impl FnOnce(&Daemon) -> (Value, Value)) -> (Daemon, String, String) {
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    let admin = daemon.token("admin");
    let (blueprint, request) = change(&daemon);
    daemon.start();
    let made = json!({"blueprint": blueprint, "request": request});
    let made = daemon
        .post_with("/v1/boards", &made, &[("authorization", &format!("Bearer {admin}"))])
        .await
        .expect_status(201);
    (daemon, made["board"].as_str().expect("an id").to_owned(), admin)
}

async fn seen(daemon: &Daemon, token: &str, path: &str) -> Answer {
    daemon.request(Method::GET, path, &[("authorization", &format!("Bearer {token}"))], None).await
}

#[tokio::test]
async fn a_seat_gets_the_state_of_a_negotiation() {
    let of_negotiation = |daemon: &Daemon| (daemon.shipped("negotiation.yaml", &[]), json!({"topic": "steel"}));
    let (daemon, board, admin) = guarded(of_negotiation).await;
    let buyer = daemon.token(&format!("seat:{board}/buyer"));
    let path = |query: &str| format!("/v1/boards/{board}/negotiation?wait=30{query}");
    let over = seen(&daemon, &buyer, &path("&worker=buyer")).await.expect_status(200);
    assert_eq!((&over["status"], &over["decision"]["outcome"]), (&json!("DECIDED"), &json!("accepted")), "{over}");
    assert_eq!(over["version"]["content"]["price"], 90);
    assert_eq!(over["end"], Value::Null, "it may not read the events");
    assert_eq!(seen(&daemon, &admin, &path("")).await.expect_status(200)["end"]["kind"], "decide");
    seen(&daemon, &buyer, &path("")).await.expect_problem(403, "forbidden");
    seen(&daemon, &buyer, &path("&worker=seller")).await.expect_problem(403, "forbidden");
    let person = daemon.token(&format!("seat:{board}/person"));
    seen(&daemon, &person, &path("&worker=person")).await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn a_seat_gets_the_state_of_a_workflow() {
    let of_workflow = |_: &Daemon| {
        let output = json!([{"op": "add", "path": "/workflow/nodes/a/output", "value": {}}]);
        let workers = json!({
            "a": {"agent": "script", "script": [output]},
            "clerk": {"agent": "remote", "reads": ["/workflow/status", "/workflow/nodes", "/workflow/data"]},
        });
        let rules = json!([{"name": "look", "trigger": "manual", "run": "clerk"}]);
        let blueprint = json!({"blueprint": 1, "name": "w", "description": "A workflow.", "workflow": {"nodes": {"a": {}}},
            "workers": workers, "rules": rules});
        (blueprint, Value::Null)
    };
    let (daemon, board, _) = guarded(of_workflow).await;
    let seat = |worker: &str| daemon.token(&format!("seat:{board}/{worker}"));
    let path = |query: &str| format!("/v1/boards/{board}/workflow?wait=30{query}");
    let (clerk, doer) = (seat("clerk"), seat("a"));
    let over = seen(&daemon, &clerk, &path("&worker=clerk")).await.expect_status(200);
    assert_eq!((&over["status"], &over["nodes"]["a"]["status"]), (&json!("COMPLETED"), &json!("COMPLETED")));
    seen(&daemon, &clerk, &path("")).await.expect_problem(403, "forbidden");
    seen(&daemon, &doer, &path("&worker=a")).await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn a_negotiation_is_held_by_processes_outside_to_its_decision() {
    let daemon = Daemon::new();
    let blueprint = daemon.shipped("negotiation.yaml", &["seller", "buyer", "arbiter"]);
    let board = made(&daemon, &blueprint, &json!({"topic": "steel", "corr": "c-7"})).await;
    let (events, negotiation) = (format!("{board}/negotiation/events"), format!("{board}/negotiation"));
    let draft = |kind: &str, from: &str, payload: Value| json!({"kind": kind, "ts": 1, "from": from, "ct": "application/json", "payload": payload, "x-offer": 7});
    let says = async |worker: &str, event: Value| {
        let lease = lease(&daemon, &board, worker).await;
        daemon.post(&events, &json!({"worker": worker, "lease": lease, "event": event})).await.expect_status(200)
    };
    let evaluation =
        |score: f64| json!({"kind": "evaluate", "ts": "2", "from": "arbiter", "score": score, "notes": "so"});
    let first = draft("propose", "seller", json!({"price": 120, "days": 10}));
    // The turn is known by then. Parties cannot speak in another's name, and only the negotiator decides.
    let another = json!({"worker": "buyer", "event": first});
    daemon.post(&events, &another).await.expect_problem(422, "value_not_granted");
    let decide = json!({"kind": "decide", "ts": 1, "by": "seller", "ct": "text/plain", "result_b64": ""});
    daemon.post(&events, &json!({"worker": "seller", "event": decide})).await.expect_problem(422, "value_not_granted");
    assert_eq!(says("seller", first).await["outcome"], "committed");
    says("arbiter", evaluation(0.2)).await;
    let offer = lease(&daemon, &board, "buyer").await;
    let open = daemon.get(&negotiation).await.expect_status(200);
    assert_eq!(
        (&open["status"], &open["round"]["n"], &open["round"]["turn"]),
        (&json!("OPEN"), &json!(2), &json!("buyer"))
    );
    assert_eq!((&open["policy"]["policy"]["max_rounds"], &open["end"]), (&json!(4), &Value::Null));
    assert_eq!(open["decision"], Value::Null, "the first round's report is that it goes on");
    // Artefacts of the negotiation are stored beside it.
    let kept = json!({"worker": "seller", "kind": "contract", "name": "contract_v1.json", "content_type": "application/json",
        "content": {"price": 120}});
    assert_eq!(daemon.post(&format!("{board}/artifacts"), &kept).await.expect_status(200)["outcome"], "committed");
    // A repeated answer returns the first outcome.
    let counter = json!({"worker": "buyer", "lease": offer, "event": draft("counter", "buyer", json!({"price": 90, "days": 12}))});
    let outcome = daemon.post(&events, &counter).await.expect_status(200);
    assert_eq!(daemon.post(&events, &counter).await.expect_status(200)["seq"], outcome["seq"]);
    says("arbiter", evaluation(0.9)).await;
    let over = daemon.get(&format!("{negotiation}?wait=30")).await.expect_status(200);
    assert_eq!((&over["status"], &over["decision"]["outcome"]), (&json!("DECIDED"), &json!("accepted")), "{over}");
    assert_eq!((&over["end"]["kind"], &over["end"]["corr"]), (&json!("decide"), &json!("c-7")));
    assert_eq!((&over["version"]["n"], &over["version"]["content"]["price"]), (&json!(2), &json!(90)));
    let state = daemon.get(&format!("{board}/state")).await.expect_status(200);
    assert_eq!(state["state"]["negotiation"]["events"][2]["x-offer"], 7, "what is not known is kept");
    assert_eq!(state["state"]["artifacts"][0]["by"], "seller");
    let plain = daemon.board().await;
    daemon.get(&format!("/v1/boards/{plain}/negotiation")).await.expect_problem(404, "no_negotiation");

    // A person aborts another negotiation before the first draft.
    let board = made(&daemon, &blueprint, &json!({"topic": "steel"})).await;
    lease(&daemon, &board, "seller").await;
    let abort = json!({"kind": "abort", "ts": 1, "from": "person", "reason": "the yard is closed"});
    let events = format!("{board}/negotiation/events");
    // A waiting request also returns the reason, which the next commit records.
    let path = format!("{board}/negotiation?wait=30");
    let aborts = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        daemon.post(&events, &json!({"worker": "person", "event": abort})).await.expect_status(200)
    };
    let (over, aborted) = tokio::join!(daemon.get(&path), aborts);
    assert_eq!(aborted["outcome"], "committed");
    let over = over.expect_status(200);
    assert_eq!(
        (&over["status"], &over["decision"]["stop_reason"], &over["decision"]["decided_by"]),
        (&json!("ABORTED"), &json!("withdrawn"), &json!("hitl")),
        "{over}"
    );
}

#[tokio::test]
async fn an_artifact_is_appended_once_and_in_its_own_name() {
    let daemon = Daemon::new();
    let fragment = include_str!("../../../blueprints/fragments/artifacts.yaml");
    let definitions = patchboard_lint::source::Source::read("artifacts.yaml", fragment).expect("it can be read");
    let definitions = definitions.value()["state"]["schema"]["$defs"].clone();
    let keeper = json!({"agent": "remote", "writes": [
        {"path": "/artifacts/-", "ops": ["add"], "value": {"properties": {"by": {"const": "keeper"}}}}]});
    let blueprint = json!({
        "blueprint": 1, "name": "kept", "description": "Keeps.",
        "state": {
            "schema": {"type": "object", "properties": {"request": true, "artifacts": {"$ref": "#/$defs/artifacts"}}, "$defs": definitions},
            "initial": {"artifacts": []},
        },
        "workers": {"keeper": keeper, "other": {"agent": "remote"}},
        "rules": [{"name": "keep", "trigger": {"signal": "keep"}, "run": "keeper"}],
    });
    let board = made(&daemon, &blueprint, &Value::Null).await;
    let path = format!("{board}/artifacts");
    let report = json!({"worker": "keeper", "kind": "contract", "name": "contract_v1.json", "content_type": "application/json",
        "content": {"price": 3}});
    assert_eq!(daemon.post_once(&path, &report, "keeper:keep:1").await.expect_status(200)["outcome"], "committed");
    assert!(daemon.post_once(&path, &report, "keeper:keep:1").await.is_replayed());
    let mut other = report.clone();
    other["worker"] = "other".into();
    daemon.post(&path, &other).await.expect_problem(422, "path_not_granted");
    // The content must match its declared type, on this route and on every other.
    for (content_type, content, is_sound) in [
        ("text/plain", json!("x"), true),
        ("Text/Plain; charset=utf-8", json!({}), false),
        ("application/problem+json", json!(7), true),
        ("Application/JSON ; charset=utf-8", json!([]), true),
        ("image/png", json!("aGk="), true),
        ("image/png", json!("aGk"), false),
        ("image/png", json!("%"), false),
        ("application/json-seq", json!({}), false),
    ] {
        let value = json!({"by": "keeper", "kind": "k", "name": "n", "content_type": content_type, "content": content});
        let patch = json!([{"op": "add", "path": "/artifacts/-", "value": value}]);
        let mut artifact = value.clone();
        let members = artifact.as_object_mut().expect("an object");
        members.remove("by");
        members.insert("worker".to_owned(), json!("keeper"));
        let appended = daemon.post(&path, &artifact).await;
        let proposed = daemon.post(&format!("{board}/proposals"), &json!({"worker": "keeper", "patch": patch})).await;
        if is_sound {
            appended.expect_status(200);
            proposed.expect_status(200);
        } else {
            appended.expect_problem(422, "bad_content");
            proposed.expect_problem(422, "schema_violation");
        }
    }
    let state = daemon.get(&format!("{board}/state")).await.expect_status(200);
    let mut expected = report;
    let members = expected.as_object_mut().expect("an object");
    let by = members.remove("worker").expect("whose it is");
    members.insert("by".to_owned(), by);
    assert_eq!(state["state"]["artifacts"][0], expected);
}
