//! The negotiation room: one decision for each artefact, based on the votes at that time.

use patchboard_protocols::room::{self, Policy, Vote};
use patchboard_runtime::agent::Call;
use serde_json::{Value, json};

use super::{Play, Protocol, blueprint, in_all_worlds, shipped, shown};
use crate::plans::Shared;
use crate::say;

/// Vote of each critic on each plan: the first is sent back, the second splits the critics, the third is good.
fn vote(critic: &str, artifact: &str) -> Value {
    let (score, confidence) = match (artifact, critic) {
        ("plan-1", _) => (5.0, 0.9),
        ("plan-2", "risk") => (1.0, 0.9),
        ("plan-2", _) => (9.5, 0.8),
        (_, "risk") => (8.0, 0.8),
        _ => (9.0, 0.9),
    };
    json!({"artifact_id": artifact, "critic_id": critic, "score": score, "confidence": confidence, "passed": score > 6.0})
}

fn seats(call: &Call) -> Value {
    if call.worker.as_str() == "author" {
        let plans = shown(&call.context, "/room/proposals").as_object().map_or(0, serde_json::Map::len);
        let value = json!({"artifact_type": "PLAN", "artifact": ["Do it."], "artifact_content_type": "application/json",
            "producer": "author"});
        return json!([{"op": "add", "path": format!("/room/proposals/plan-{}", plans + 1), "value": value}]);
    }
    let woken_at = call.context.trigger_place().expect("a critic may read what wakes it");
    let artifact = woken_at.split('/').nth(3).expect("a ballot").to_owned();
    json!([{"op": "add", "path": "/room/votes/-", "value": vote(call.worker.as_str(), &artifact)}])
}

/// Returns the decision on each artefact, and the rulings of persons.
fn outcome(play: &Play<'_>) -> Value {
    let state = play.state();
    let of = |list: &str| -> Vec<Value> {
        let entries = state["room"][list].as_array().expect("a list").iter();
        entries.map(|entry| json!([entry["artifact_id"], entry["outcome"]])).collect()
    };
    json!([of("decisions"), of("rulings")])
}

/// Checks that every decision is the only one on its artefact, and follows from the votes it has seen.
fn holds(play: &Play<'_>) {
    let state = play.state();
    let room = &state["room"];
    let decisions = room["decisions"].as_array().expect("a list");
    for decision in decisions {
        let artifact = &decision["artifact_id"];
        let same = decisions.iter().filter(|other| other["artifact_id"] == *artifact).count();
        assert_eq!(same, 1, "SEED={}: {artifact} is decided {same} times", play.seed);
        let seen = usize::try_from(decision["votes_seen"].as_u64().expect("a number")).expect("few");
        let votes = room["votes"].as_array().expect("a list").iter().take(seen);
        let votes: Vec<Vote> = votes
            .filter(|vote| vote["artifact_id"] == *artifact)
            .map(|vote| serde_json::from_value(vote.clone()).expect("a vote"))
            .collect();
        let critics = room["ballots"][artifact.as_str().expect("an id")]["critics"].clone();
        let critics: Vec<String> = serde_json::from_value(critics).expect("names");
        let expected = room::decide(&critics, &votes, true, &Policy::default()).expect("votes").expect("time is over");
        assert_eq!(decision["outcome"], json!(expected.outcome), "SEED={}: {room}", play.seed);
        assert_eq!(decision["votes_received"], json!(expected.votes_received), "SEED={}", play.seed);
    }
    for ruling in room["rulings"].as_array().expect("a list") {
        let is_escalated = |decision: &&Value| {
            decision["artifact_id"] == ruling["artifact_id"] && decision["outcome"] == "ESCALATED_TO_HITL"
        };
        assert!(decisions.iter().any(|decision| is_escalated(&decision)), "SEED={}: {room}", play.seed);
    }
}

#[test]
fn a_negotiation_room_decides_the_same_whatever_dies() {
    let protocol = Protocol {
        blueprint: blueprint(&shipped("approval-room.yaml", &[])),
        request: json!({"goal": "simulate"}),
        seats: Box::new(seats),
        person: Box::new(|_| "REVISION_REQUESTED".to_owned()),
        signals: Vec::new(),
        plans: Shared::default(),
    };
    let played = in_all_worlds(&protocol, 50, outcome, holds);
    played.is_enough(played.boards);
    let calm = super::play(&protocol, super::World::Calm, 0);
    let expected = json!([
        [["plan-1", "REVISION_REQUESTED"], ["plan-2", "ESCALATED_TO_HITL"], ["plan-3", "APPROVED"]],
        [["plan-2", "REVISION_REQUESTED"]],
    ]);
    assert_eq!(outcome(&calm), expected);
    assert_eq!(calm.board.ended().map(|ended| ended.end.to_string()).as_deref(), Some("done"));
    say(&format!("simulated negotiation rooms, {played:?}"));
}
