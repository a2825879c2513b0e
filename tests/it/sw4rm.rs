//! Votes, decisions, negotiations, the order of workflows and tokens of repetitions, held against public vectors of SW4RM.

use std::fs;

use patchboard_kernel::idempotency;
use patchboard_kernel::negotiation::{self, Event, Kind};
use patchboard_kernel::room::{self, Aggregation, Outcome, Policy, Quorum, Scores, Trigger, Vote};
use patchboard_kernel::workflow::{self, Definition};
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

/// Votes with whatever the vectors leave out, each of a critic of its own.
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

/// Runs vectors of one way to aggregate; how many there were.
fn aggregated(vectors: &[Value], aggregation: Aggregation) -> usize {
    for vector in vectors {
        let votes = votes(list(vector, "votes"));
        match (room::aggregate(&all(&votes), aggregation), vector.get("error")) {
            (Ok(scores), None) => assert_scores(&vector["id"], &scores, &vector["expected"]),
            (Err(room::BadVote::Empty), Some(error)) => assert_eq!(error, "empty-votes"),
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
        // There, names of triggers have the numbers of the default policy in them.
        let triggers: Vec<&str> = found
            .escalation_triggers
            .iter()
            .map(|trigger| match trigger {
                Trigger::VoteConfidence => "vote_confidence_below_0.3",
                Trigger::StdDev => "std_dev_above_3.0",
                Trigger::CriticRequested => "critic_requested_escalation",
                Trigger::PolicyTimeout => "policy_timeout",
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
                let cycle = problems.iter().find_map(workflow::Problem::cycle);
                if let Some(code) = expected.get("error_code") {
                    assert_eq!(
                        (json!(problems[0].code().as_str()), json!(cycle)),
                        (code.clone(), expected["cycle_nodes"].clone()),
                        "{id}"
                    );
                }
            }
            (other, _) => panic!("{id}: {other:?}"),
        }
    }
    shared::ran("sw4rm workflows", vectors.len(), 13);
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
        let found = idempotency::token(text("producer_id"), text("operation"), &bytes).ok();
        let expected = (vector["rejected"] != true).then(|| text("token").to_owned());
        assert_eq!(found, expected, "{}", vector["id"]);
    }
    shared::ran("sw4rm idempotency tokens", vectors.len(), 10);
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
    assert_eq!(kinds.len(), Kind::ALL.len());
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
        let read = Event::read(&event).expect("it has what is published");
        assert_eq!(read.kind().as_str(), kind);
        let written = serde_json::to_value(&read).expect("it is JSON");
        for name in event.as_object().expect("an object").keys().filter(|name| *name != "policy") {
            assert_eq!(written[name], event[name], "{kind}: {name} is kept as it came");
        }
        event["unknown"] = json!(1);
        assert_eq!(Event::read(&event), Ok(read), "{kind}: what is not known does not matter");
    }
}
