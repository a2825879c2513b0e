//! Checks votes, decisions, negotiations, workflow order and results, handoffs and idempotency keys against public
//! vectors of SW4RM.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use patchboard_agents::config::{Config, Environment};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::idempotency;
use patchboard_kernel::record::{Body, Record};
use patchboard_kernel::state::State;
use patchboard_lint::source::Source;
use patchboard_protocols::PLANS;
use patchboard_protocols::handoff::{self, Context, Handoff, HandoffCode};
use patchboard_protocols::negotiation::{self, Event, EventKind};
use patchboard_protocols::room::{
    self, Aggregation, ArtifactType, EscalationTrigger, Outcome, Policy, Quorum, Scores, Vote,
};
use patchboard_protocols::workflow::engine::{self, WorkflowEvent};
use patchboard_protocols::workflow::{self, Definition, Status, TriggerType};
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal as _;
use patchboard_storage::sqlite::SqliteJournal;
use serde_json::{Value, json};

use crate::shared;

const TOLERANCE: f64 = 1e-9;

fn read(name: &str) -> Option<Value> {
    let path = shared::find(&format!("vectors/sw4rm/{name}"))?;
    Some(serde_json::from_slice(&fs::read(path).expect("it can be read")).expect("it is JSON"))
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no list {name}"))
}

/// Completes votes with the members that the vectors leave out, each with a critic of its own.
fn votes(values: &[Value]) -> Vec<Vote> {
    let vote = |(at, value): (usize, &Value)| {
        let mut vote = json!({"critic_id": format!("c{at}"), "score": 0, "confidence": 1, "passed": true});
        for (name, member) in value.as_object().expect("a vote") {
            vote[name] = member.clone();
        }
        serde_json::from_value(vote).expect("a vote")
    };
    values.iter().enumerate().map(vote).collect()
}

fn of_scores(scores: &[Value]) -> Vec<Vote> {
    votes(&scores.iter().map(|score| json!({"score": score})).collect::<Vec<_>>())
}

fn all(votes: &[Vote]) -> Vec<&Vote> {
    votes.iter().collect()
}

fn is_near(found: f64, expected: &Value) -> bool {
    (found - expected.as_f64().expect("a number")).abs() <= TOLERANCE
}

fn assert_scores(id: &Value, found: &Scores, expected: &Value) {
    for (name, found) in [
        ("mean", found.mean),
        ("min_score", found.min_score),
        ("max_score", found.max_score),
        ("std_dev", found.std_dev),
        ("weighted_mean", found.weighted_mean),
    ] {
        assert!(is_near(found, &expected[name]), "{id}: {name} is {found}, not {}", expected[name]);
    }
    assert_eq!(json!(found.vote_count), expected["vote_count"], "{id}");
}

/// Runs the vectors of one aggregation, and returns their number.
fn aggregated(vectors: &[Value], aggregation: Aggregation) -> usize {
    for vector in vectors {
        let votes = votes(list(vector, "votes"));
        match (room::aggregate(&all(&votes), aggregation), vector.get("error")) {
            (Ok(scores), None) => assert_scores(&vector["id"], &scores, &vector["expected"]),
            (Err(room::VoteError::Empty), Some(error)) => assert_eq!(error, "empty-votes"),
            (other, _) => panic!("{}: {other:?}", vector["id"]),
        }
    }
    vectors.len()
}

#[test]
fn votes_are_aggregated_as_published() {
    let (Some(scores), Some(borda), Some(own)) = (
        read("upstream/score_aggregation_vectors.json"),
        read("upstream/borda_vectors.json"),
        read("vectors/sw4rm.json"),
    ) else {
        return;
    };
    let own = &own["aggregation"];
    let mut cases = aggregated(list(&scores, "vectors"), Aggregation::ConfidenceWeighted);
    cases += aggregated(list(own, "confidence_weighted"), Aggregation::ConfidenceWeighted);
    cases += aggregated(list(&borda, "vectors"), Aggregation::Borda);
    for vector in list(own, "majority") {
        let passed: Vec<Value> =
            list(vector, "passed").iter().map(|passed| json!({"score": 5, "passed": passed})).collect();
        let found = room::aggregate(&all(&votes(&passed)), Aggregation::Majority).expect("votes");
        assert!(is_near(found.weighted_mean, &vector["weighted_mean"]), "{vector}: {found:?}");
        cases += 1;
    }
    for vector in list(own, "entropy_5_equal_bins_over_0_10") {
        let found = room::entropy(&all(&of_scores(list(vector, "scores")))).expect("votes");
        assert!(is_near(found, &vector["bits"]), "{vector}: {found}");
        cases += 1;
    }
    for vector in list(&own["consensus"], "cases") {
        let given: Vec<Value> =
            list(vector, "votes").iter().map(|vote| json!({"score": vote[0], "passed": vote[1] == 1})).collect();
        let threshold = vector.get("threshold").map_or(0.8, |threshold| threshold.as_f64().expect("a number"));
        match (room::is_consensus(&all(&votes(&given)), threshold), vector.get("expected")) {
            (Ok(found), Some(expected)) => assert_eq!(json!(found), *expected, "{vector}"),
            (Err(_), None) => {}
            (other, _) => panic!("{vector}: {other:?}"),
        }
        cases += 1;
    }
    for vector in list(&own["polarization"], "cases") {
        let found = room::is_polarised(&all(&of_scores(list(vector, "scores")))).expect("votes");
        assert_eq!(json!(found), vector["expected"], "{vector}");
        cases += 1;
    }
    shared::ran("sw4rm aggregation", cases, 30);
}

#[test]
fn votes_out_of_range_and_no_votes_are_errors_as_published() {
    let Some(own) = read("vectors/sw4rm.json") else { return };
    let own = &own["vote_validation"];
    let mut cases = 0;
    for (member, range) in [("score", "score_range_inclusive"), ("confidence", "confidence_range_inclusive")] {
        let [least, most] = list(own, range) else { panic!("{range} is no range") };
        let (least, most) = (least.as_f64().expect("a number"), most.as_f64().expect("a number"));
        for (value, is_sound) in [(least, true), (most, true), (least - 0.01, false), (most + 0.01, false)] {
            let given = votes(&[json!({member: value})]);
            let found = room::aggregate(&all(&given), Aggregation::Mean);
            assert_eq!((found.is_err(), &own["out_of_range"]), (!is_sound, &json!("error")), "{member} {value}");
            cases += 1;
        }
    }
    let none = room::aggregate(&[], Aggregation::Mean).is_err();
    assert_eq!((none, &own["empty_vote_list"]), (true, &json!("error")));
    shared::ran("sw4rm validation of votes", cases + 1, 9);
}

/// Returns the names of an enumeration, except for the unspecified one.
fn names<'v>(own: &'v Value, name: &str) -> BTreeSet<&'v str> {
    let names = own["enums"][name].as_object().unwrap_or_else(|| panic!("no enumeration {name}")).keys();
    names.map(String::as_str).filter(|name| *name != "UNSPECIFIED").collect()
}

#[test]
fn enumerations_have_the_published_names() {
    let Some(own) = read("vectors/sw4rm.json") else { return };
    let states: BTreeSet<&str> = handoff::HandoffState::ALL.iter().map(|state| state.as_str()).collect();
    assert_eq!(states, names(&own, "HandoffStatus"));
    let statuses: BTreeSet<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
    assert_eq!(statuses, names(&own, "NodeStatus"));
    let is_read = |name: &str, reads: &dyn Fn(Value) -> Option<Value>| {
        for member in names(&own, name) {
            assert_eq!(reads(json!(member)), Some(json!(member)), "{name}");
        }
        assert_eq!(reads(json!("UNSPECIFIED")), None, "{name}");
        names(&own, name).len()
    };
    let read = [
        is_read("TriggerType", &|value| serde_json::from_value::<TriggerType>(value).ok().map(|read| json!(read))),
        is_read("DecisionOutcome", &|value| serde_json::from_value::<Outcome>(value).ok().map(|read| json!(read))),
        is_read("ArtifactType", &|value| serde_json::from_value::<ArtifactType>(value).ok().map(|read| json!(read))),
    ];
    let terminal: BTreeSet<Status> = Status::ALL.iter().copied().filter(|status| status.is_terminal()).collect();
    let published: BTreeSet<Status> =
        list(&own["workflow"], "node_terminal").iter().filter_map(|name| Status::from_name(name.as_str()?)).collect();
    assert_eq!((terminal.len(), &terminal), (list(&own["workflow"], "node_terminal").len(), &published));
    shared::ran("sw4rm enumerations", states.len() + statuses.len() + read.iter().sum::<usize>() + terminal.len(), 25);
}

#[test]
fn a_quorum_is_counted_as_published() {
    let Some(vectors) = read("upstream/quorum_vectors.json") else { return };
    let vectors = list(&vectors, "vectors");
    for vector in vectors {
        let requested: Vec<String> = serde_json::from_value(vector["requested"].clone()).expect("critics");
        let voters: Vec<String> =
            list(vector, "votes").iter().map(|vote| vote["critic_id"].as_str().expect("an id").to_owned()).collect();
        let rule = json!({vector["rule"]["kind"].as_str().expect("a kind"): vector["rule"]["value"]});
        let quorum = json!({"rule": rule, "on_failure": vector["on_failure"]});
        let quorum: Quorum = serde_json::from_value(quorum).expect("a quorum");
        let mut found = json!(room::quorum(&requested, &voters, quorum));
        let injected = found["injected"].as_array().map_or(0, Vec::len);
        found["all_vote_count"] = json!(voters.len() + injected);
        assert_eq!(found, vector["expected"], "{}", vector["id"]);
    }
    shared::ran("sw4rm quorum", vectors.len(), 7);
}

#[test]
fn decisions_follow_the_published_thresholds_and_their_order() {
    let Some(own) = read("vectors/sw4rm.json") else { return };
    let vectors = list(&own["auto_decision_policy"], "vectors");
    let policy = Policy::default();
    for vector in vectors {
        let (id, expected) = (&vector["id"], &vector["expected"]);
        let mut votes = votes(list(vector, "votes"));
        if vector["context"]["escalation_requested"] == true {
            votes[0].recommendations.push("Escalate to a person.".to_owned());
        }
        let mut requested: Vec<String> = votes.iter().map(|vote| vote.critic_id.clone()).collect();
        if vector["context"]["timeout_before_sufficient"] == true {
            requested.extend(["late".to_owned(), "later".to_owned()]);
        }
        let found = room::decide(&requested, &votes, true, &policy).expect("votes are in range").expect("it is time");
        assert_scores(id, &found.aggregated.expect("there are votes"), &expected["aggregated"]);
        assert!(is_near(found.avg_confidence, &expected["avg_confidence"]), "{id}");
        assert!(is_near(found.pass_ratio, &expected["pass_ratio"]), "{id}");
        assert_eq!(json!(found.approval_conditions), expected["approval_conditions"], "{id}");
        // The vectors' trigger names contain the numbers of the default policy.
        let triggers: Vec<&str> = found
            .escalation_triggers
            .iter()
            .map(|trigger| match trigger {
                EscalationTrigger::VoteConfidence => "vote_confidence_below_0.3",
                EscalationTrigger::StdDev => "std_dev_above_3.0",
                EscalationTrigger::CriticRequested => "critic_requested_escalation",
                EscalationTrigger::PolicyTimeout => "policy_timeout",
            })
            .collect();
        assert_eq!(json!(triggers), expected["escalation_triggers"], "{id}");
        assert_eq!(json!(found.outcome), expected["outcome"], "{id}");
        assert_eq!(found.policy_version, policy.version());
    }
    assert_eq!(json!(Outcome::EscalatedToHitl), "ESCALATED_TO_HITL");
    let defaults = &own["defaults"];
    let approval = &defaults["auto_approval"];
    assert!(is_near(policy.min_score_threshold, &approval["min_score_threshold"]));
    assert!(is_near(policy.min_confidence_threshold, &approval["min_confidence_threshold"]));
    assert!(is_near(policy.min_pass_ratio, &approval["min_pass_ratio"]));
    assert!(is_near(policy.max_std_dev, &approval["max_std_dev"]));
    assert!(is_near(policy.escalate_confidence_below, &defaults["auto_escalation"]["vote_confidence_below"]));
    assert!(is_near(policy.escalate_std_dev_above, &defaults["auto_escalation"]["std_dev_above"]));
    assert_eq!(json!(policy.window_s), defaults["vote_collection_timeout_s"]);
    shared::ran("sw4rm decisions", vectors.len(), 18);
}

#[test]
fn workflows_are_ordered_as_published_and_cycles_named() {
    let Some(own) = read("vectors/sw4rm.json") else { return };
    let vectors = list(&own["workflow"], "dag");
    for vector in vectors {
        let (id, expected) = (&vector["id"], &vector["expected"]);
        let definition: Definition = serde_json::from_value(json!({"nodes": vector["nodes"]})).expect("a definition");
        match (workflow::check(&definition), expected["valid"].as_bool()) {
            (Ok(found), Some(true)) => {
                let found = json!(found);
                for (name, there) in
                    [("roots", "roots"), ("leaves", "leaves"), ("stages", "stages"), ("order", "deterministic_order")]
                {
                    assert_eq!(found[name], expected[there], "{id}");
                }
            }
            (Err(problems), Some(false)) => {
                let cycle = problems.iter().find_map(workflow::WorkflowError::cycle);
                if let Some(code) = expected.get("error_code") {
                    assert_eq!(
                        (json!(problems[0].code().as_str()), json!(cycle)),
                        (code.clone(), expected["cycle_nodes"].clone()),
                        "{id}"
                    );
                } else {
                    // The vectors have no codes for these.
                    let ours = match id.as_str().expect("an id") {
                        "self-loop" => "workflow_self_dependency",
                        "unknown-dependency" => "workflow_unknown_dependency",
                        "empty-workflow" => "workflow_empty",
                        other => panic!("{other} has no code: {problems:?}"),
                    };
                    let codes: Vec<&str> = problems.iter().map(|problem| problem.code().as_str()).collect();
                    assert_eq!(codes, [ours], "{id}");
                }
            }
            (other, _) => panic!("{id}: {other:?}"),
        }
    }
    shared::ran("sw4rm workflows", vectors.len(), 13);
}

/// Returns the nodes in the order in which they ran, and the final document; `outputs` are the workers' results by
/// node.
fn played(vector: &Value, outputs: &Value) -> (Vec<String>, Value) {
    let definition: Definition = serde_json::from_value(json!({
        "nodes": vector["nodes"],
        "data": vector.get("initial_data").cloned().unwrap_or_else(|| json!({})),
    }))
    .expect("a definition");
    let mut document = json!({"workflow": workflow::expand(&definition, false).initial()});
    for (node, status) in vector["given_statuses"].as_object().into_iter().flatten() {
        document["workflow"]["nodes"][node]["status"] = status.clone();
    }
    let (mut run, mut is_over) = (Vec::new(), Vec::new());
    let mut happened = WorkflowEvent::Start { from_request: false };
    loop {
        let state = State::new(&document, &Hasher::new(&Salt::ZERO));
        let turn = engine::compute_turn(&definition, state.root(), happened).expect("it is no refusal");
        if let Some(turn) = &turn {
            let patch: json_patch::Patch = serde_json::from_value(turn.patch.clone().into()).expect("a patch");
            json_patch::patch(&mut document, &patch).expect("it applies");
            run.extend(turn.moves.iter().filter(|moved| moved.to == Status::Running).map(|moved| moved.node.clone()));
        }
        happened = WorkflowEvent::Progress;
        if turn.is_some_and(|turn| turn.more) {
            continue;
        }
        // The first running node without an outcome gets its outcome.
        let Some(node) = run.iter().find(|node| !is_over.contains(*node)).cloned() else { return (run, document) };
        match &outputs[&node] {
            failure if failure["$fail"].is_string() => {
                is_over.push(node);
                happened = WorkflowEvent::Abandoned(is_over.last().expect("it was put there"));
            }
            output => {
                let output = if output.is_null() { json!({}) } else { output.clone() };
                document["workflow"]["nodes"][&node]["output"] = output;
                is_over.push(node);
            }
        }
    }
}

fn assert_execution(vector: &Value, run: &[String], workflow: &Value) {
    let (id, expected, nodes) = (&vector["id"], &vector["expected"], &workflow["nodes"]);
    for (node, input) in expected["node_inputs"].as_object().into_iter().flatten() {
        assert_eq!(nodes[node]["input"], *input, "{id}: {node}");
    }
    for (node, status) in expected["statuses"].as_object().into_iter().flatten() {
        assert_eq!(nodes[node]["status"], *status, "{id}: {node}");
    }
    if let Some(data) = expected.get("final_data") {
        assert_eq!(workflow["data"], *data, "{id}");
    }
    if let Some(order) = expected.get("executed_in_order") {
        assert_eq!(json!(run), *order, "{id}");
    }
    for node in expected["not_executed"].as_array().into_iter().flatten() {
        assert!(!run.iter().any(|run| node == run), "{id}: {node}");
    }
    if expected["c_executed"] == false {
        assert!(!run.iter().any(|run| run == "c"), "{id}");
    }
}

#[test]
fn workflows_are_executed_as_published() {
    let Some(own) = read("vectors/sw4rm.json") else { return };
    let vectors = list(&own["workflow"], "execution");
    for vector in vectors {
        let (run, document) = played(vector, &vector["node_outputs"]);
        assert_execution(vector, &run, &document["workflow"]);
        // Initially runnable are the nodes that ran if no outcome lets others follow.
        if let Some(runnable) = vector["expected"].get("runnable") {
            let fail = |node: &String| (node.clone(), json!({"$fail": "no"}));
            let nodes = vector["nodes"].as_object().expect("nodes");
            let (run, _) = played(vector, &nodes.keys().map(fail).collect::<serde_json::Map<_, _>>().into());
            assert_eq!(json!(run), *runnable, "{}", vector["id"]);
        }
    }
    shared::ran("sw4rm workflows executed", vectors.len(), 8);
}

/// Runs the vectors also as boards: scripts are the workers of the nodes, and the kernel and its rules decide.
#[tokio::test]
async fn workflows_come_to_the_same_on_boards() {
    let Some(own) = read("vectors/sw4rm.json") else { return };
    let mut boards = 0;
    for vector in list(&own["workflow"], "execution").iter().filter(|vector| vector["node_outputs"].is_object()) {
        let outputs = &vector["node_outputs"];
        let worker = |node: &String| {
            let place = format!("/workflow/nodes/{node}/output");
            let reply = match &outputs[node] {
                failure if failure["$fail"].is_string() => json!({"fail": "refused", "message": failure["$fail"]}),
                output if output.is_null() => json!([{"op": "add", "path": place, "value": {}}]),
                output => json!([{"op": "add", "path": place, "value": output}]),
            };
            (node.clone(), json!({"agent": "script", "script": [reply]}))
        };
        let workers: BTreeMap<_, _> = vector["nodes"].as_object().expect("nodes").keys().map(worker).collect();
        let workflow = json!({"nodes": vector["nodes"], "data": vector["initial_data"]});
        let blueprint = json!({"blueprint": 1, "name": "vector", "workers": workers, "workflow": workflow});
        let mut none = |_: &str| Err::<String, _>("there are no files".to_owned());
        let source =
            patchboard_protocols::resolve(Source::from_value("vector", blueprint), &mut none).expect("it is sound");
        let report = patchboard_protocols::check(&source);
        assert_eq!(report.findings, [], "{}", vector["id"]);

        let directory = tempfile::tempdir().expect("a directory can be made");
        let journal = Arc::new(SqliteJournal::open(directory.path()).expect("a journal can be opened"));
        let seats =
            AgentRegistry::new(Config::default(), &Environment::from_iter([("PATH", "")]), InlinePrograms::Denied);
        let runtime = Runtime::start(Arc::clone(&journal) as Arc<_>, Options::new(Arc::new(seats)), PLANS)
            .await
            .expect("it starts");
        let blueprint = report.blueprint.expect("no finding refuses it");
        let board = runtime.create(blueprint, json!({}), None).await.expect("a board can be made");
        board.wait_for_end().await.expect("it ends, or stands still");
        let document = board.status().state.root().to_value();
        let records = wait(journal.records(board.id(), None, usize::MAX)).expect("they can be read");
        runtime.shutdown().await;
        let called = |record: &Record| match record.body().expect("it can be read") {
            Body::Invoked(invoked) if invoked.worker.as_str() != "workflow" => Some(invoked.worker.to_string()),
            _ => None,
        };
        let run: Vec<String> = records.iter().filter_map(called).collect();
        assert_execution(vector, &run, &document["workflow"]);
        patchboard_kernel::replay::replay(&records, None, &PLANS).expect("it is derived again");
        boards += 1;
    }
    shared::ran("sw4rm workflows as boards", boards, 5);
}

#[test]
fn tokens_of_repetitions_are_those_that_are_published() {
    let Some(vectors) = read("upstream/idempotency_vectors.json") else { return };
    let vectors = list(&vectors, "vectors");
    for vector in vectors {
        let text = |name: &str| vector[name].as_str().expect("a text");
        let hex = text("canonical_hex");
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits")).collect();
        let found = idempotency::key(text("producer_id"), text("operation"), &bytes).ok();
        let expected = (vector["rejected"] != true).then(|| text("token").to_owned());
        assert_eq!(found, expected, "{}", vector["id"]);
    }
    shared::ran("sw4rm idempotency tokens", vectors.len(), 10);
}

/// Returns a handoff in this state, reached by valid moves.
fn handoff_in(state: handoff::HandoffState) -> Handoff {
    let request = json!({
        "request_id": "h", "from_agent": "a", "to_agent": "b", "reason": "r", "capabilities_required": ["c"], "timeout_ms": 1,
        "context": {"content_type": "text/plain", "content": ""},
    });
    let asked = Handoff::new(serde_json::from_value(request).expect("a request")).offer("b");
    let accepted = || moved(asked.clone(), handoff::HandoffState::Accepted).expect("it may be accepted");
    match state {
        handoff::HandoffState::Pending => asked,
        handoff::HandoffState::Accepted => accepted(),
        handoff::HandoffState::Completed => {
            accepted().moved(handoff::HandoffState::Completed).expect("it may be completed")
        }
        handoff::HandoffState::Rejected | handoff::HandoffState::Expired => {
            moved(asked, state).expect("it may be over")
        }
    }
}

/// Moves a handoff to a state; the initial state has no move to it.
fn moved(from: Handoff, to: handoff::HandoffState) -> Result<Handoff, HandoffCode> {
    let can = BTreeSet::from(["c".to_owned()]);
    let moved = match to {
        handoff::HandoffState::Pending => return handoff::check_transition(from.state, to).map(|()| from),
        handoff::HandoffState::Accepted => from.accept("b", &can),
        handoff::HandoffState::Rejected => from.reject("b", "no"),
        handoff::HandoffState::Completed | handoff::HandoffState::Expired => from.moved(to),
    };
    moved.map_err(|why| why.code)
}

#[test]
fn handoffs_move_as_published_and_are_pending_for_their_addressee() {
    let Some(own) = read("vectors/sw4rm.json") else { return };
    let own = &own["handoff"];
    let state = |value: &Value| -> handoff::HandoffState { serde_json::from_value(value.clone()).expect("a state") };
    let (valid, invalid) = (list(own, "valid"), list(own, "invalid"));
    for (vectors, is_legal) in [(valid, true), (invalid, false)] {
        for vector in vectors {
            let (from, to) = (state(&vector["from"]), state(&vector["to"]));
            let (table, done) = (handoff::check_transition(from, to), moved(handoff_in(from), to));
            assert_eq!((table.is_ok(), done.is_ok()), (is_legal, is_legal), "{vector}");
            assert_eq!(table.err(), done.err(), "{vector}");
        }
    }
    assert_eq!(valid.len() + invalid.len(), handoff::HandoffState::ALL.len().pow(2));
    assert_eq!(json!(handoff_in(handoff::HandoffState::Pending).state), own["initial"]);
    let terminal: BTreeSet<handoff::HandoffState> = list(own, "terminal").iter().map(state).collect();
    assert_eq!(terminal, handoff::HandoffState::ALL.iter().copied().filter(|state| state.is_terminal()).collect());

    // Published rules, in order.
    let rules = list(own, "rules");
    let pending = handoff_in(handoff::HandoffState::Pending);
    let none = BTreeSet::new();
    let code =
        |refused: Result<Handoff, handoff::HandoffError>| refused.map_err(|why| why.code).map(|handoff| handoff.state);
    assert_eq!(pending.state, handoff::HandoffState::Pending, "{}", rules[0]);
    for over in [handoff::HandoffState::Accepted, handoff::HandoffState::Rejected] {
        assert!(moved(handoff_in(over), handoff::HandoffState::Accepted).is_err(), "{}", rules[1]);
        assert!(moved(handoff_in(over), handoff::HandoffState::Rejected).is_err(), "{}", rules[1]);
    }
    let unknown = handoff::find(std::slice::from_ref(&pending), "other").map_err(|why| why.code);
    assert_eq!(unknown, Err(HandoffCode::Unknown), "{} {}", rules[1], rules[2]);
    assert_eq!(
        code(pending.clone().moved(handoff::HandoffState::Completed)),
        Err(HandoffCode::IllegalTransition),
        "{}",
        rules[3]
    );
    for answered in [handoff::HandoffState::Accepted, handoff::HandoffState::Rejected] {
        assert!(handoff::pending(&[handoff_in(answered)], "b").is_empty(), "{}", rules[4]);
    }
    let rejected = handoff_in(handoff::HandoffState::Rejected);
    assert_eq!(rejected.rejection.map(|rejection| rejection.reason).as_deref(), Some("no"), "{}", rules[5]);
    // Boards enforce rules[6], that the origin must not continue: `daemon/tests/cli/handoff.rs`.
    assert_eq!(code(pending.clone().accept("b", &none)), Err(HandoffCode::Incapable), "{}", rules[7]);
    let bytes: Vec<u8> = (0..=255).collect();
    let snapshot = Context::from_bytes("application/octet-stream", &bytes).expect("any bytes are");
    assert_eq!(snapshot.bytes().as_ref(), Ok(&bytes), "{}", rules[8]);
    let broken = Context { content: json!("%"), ..snapshot };
    assert_eq!(broken.bytes().map_err(|why| why.code), Err(HandoffCode::BadContext), "{}", rules[8]);

    let vector = &own["pending_vector"];
    let handoffs: Vec<Handoff> = list(vector, "requests")
        .iter()
        .map(|asked| {
            let mut handoff = pending.clone();
            let text = |at: usize| asked[at].as_str().expect("a text").to_owned();
            handoff.request.from_agent = text(0);
            handoff.request.reason = text(2);
            handoff.offer(text(1))
        })
        .collect();
    for (agent, expected) in vector["pending_for"].as_object().expect("agents") {
        let found: Vec<&str> =
            handoff::pending(&handoffs, agent).iter().map(|handoff| handoff.request.reason.as_str()).collect();
        assert_eq!(json!(found), *expected, "{agent}");
    }
    shared::ran("sw4rm handoffs", valid.len() + invalid.len() + rules.len() + 1, 35);
}

#[test]
fn events_of_negotiations_and_the_policy_are_as_published() {
    let Some(own) = read("vectors/sw4rm.json") else { return };
    let mut published = own["defaults"]["negotiation_policy_sdk"].clone();
    let members = published.as_object_mut().expect("a policy");
    let hitl = members.remove("hitl_mode").expect("it says when a person is asked");
    members.insert("hitl".to_owned(), hitl);
    let policy: negotiation::Policy = serde_json::from_value(published).expect("a policy");
    assert_eq!(policy, negotiation::Policy::default());

    let kinds = own["negotiation_events"]["kinds"].as_object().expect("kinds");
    assert_eq!(kinds.len(), EventKind::ALL.len());
    for (kind, members) in kinds {
        let value = |name: &Value| match name.as_str().expect("a name") {
            "kind" => json!(kind),
            "ts" => json!("2026-01-01T00:00:00Z"),
            "score" => json!(0.5),
            "policy" => json!({}),
            _ => json!("eA=="),
        };
        let names = members.as_array().expect("names").iter();
        let mut event: Value = names.map(|name| (name.as_str().expect("a name").to_owned(), value(name))).collect();
        let read = Event::parse(&event).expect("it has what is published");
        assert_eq!(read.kind().as_str(), kind);
        let written = serde_json::to_value(&read).expect("it is JSON");
        for name in event.as_object().expect("an object").keys().filter(|name| *name != "policy") {
            assert_eq!(written[name], event[name], "{kind}: {name} is kept as it came");
        }
        event["unknown"] = json!(1);
        assert_eq!(Event::parse(&event), Ok(read), "{kind}: what is not known does not matter");
    }
}
