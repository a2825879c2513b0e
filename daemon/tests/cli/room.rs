//! A negotiation room on a board: artefacts are proposed, voted on, decided, revised, or ruled on by a person.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, shipped};

/// Returns a room: its author proposes the first artefact at once, and another for each requested revision. Each list
/// has one critic's votes in order; null is an invalid answer.
fn room(critics: &[(&str, Vec<Value>)], policy: &Value) -> Sandbox {
    let sandbox = Sandbox::new();
    let fragment = fs::read_to_string(shipped("fragments/room.yaml")).expect("the fragment can be read");
    sandbox.write("fragments/room.yaml", fragment);
    let propose = |n: usize| {
        let mut value = json!({"artifact_type": "PLAN", "artifact": format!("draft {n}"), "producer": "author"});
        if n == 1 {
            // Additional members of SW4RM.
            value["producer_id"] = json!("author");
            value["negotiation_room_id"] = json!("room-1");
            value["created_at"] = json!("2026-11-24T08:00:00Z");
        } else {
            value["revises"] = json!(format!("plan-{}", n - 1));
        }
        json!([{"op": "add", "path": format!("/room/proposals/plan-{n}"), "value": value}])
    };
    let mut workers = json!({"author": {
        "agent": "script", "reads": ["/room/decisions", "/room/rulings"],
        "writes": [{"path": "/room/proposals/*", "ops": ["add"]}],
        "script": [propose(1), propose(2), propose(3)],
    }});
    for (name, votes) in critics {
        let patch = |vote: &Value| match vote.is_null() {
            true => json!([]),
            false => json!([{"op": "add", "path": "/room/votes/-", "value": vote}]),
        };
        let script: Vec<Value> = votes.iter().map(patch).collect();
        workers[*name] = json!({
            "agent": "script", "group": "critics", "reads": ["/room/ballots"], "script": script,
            "writes": [{"path": "/room/votes/-", "ops": ["add"], "value": {"properties": {"critic_id": {"const": name}}}}],
        });
    }
    let initial =
        json!({"policy": policy, "proposals": {}, "ballots": {}, "votes": [], "decisions": [], "rulings": []});
    let blueprint = json!({
        "blueprint": 1, "name": "room", "description": "A room.", "use": ["fragments/room.yaml"], "request": {"type": "object"},
        "state": {
            "schema": {"type": "object", "properties": {"request": true, "room": {"$ref": "#/$defs/room"}}, "$defs": {}},
            "initial": {"room": initial},
        },
        "workers": workers,
        "rules": [
            {"name": "begin", "trigger": "start", "run": "author"},
            {"name": "revise", "trigger": {"op": "add", "path": "/room/decisions/*"},
                "when": "value.outcome == 'REVISION_REQUESTED'", "run": "author"},
            {"name": "ruled", "trigger": {"op": "add", "path": "/room/rulings/*"},
                "when": "value.outcome == 'REVISION_REQUESTED'", "run": "author"},
        ],
        "done": {"when": "state.room.decisions.exists(d, d.outcome == 'APPROVED') || state.room.rulings.exists(r, r.outcome == 'APPROVED')"},
    });
    sandbox.write("room.json", blueprint.to_string());
    sandbox
}

fn vote(critic: &str, artifact: &str, score: f64, confidence: f64) -> Value {
    json!({"artifact_id": artifact, "critic_id": critic, "score": score, "confidence": confidence, "passed": score >= 7.0})
}

#[test]
fn a_proposal_sent_back_is_revised_until_approved() {
    let votes = |critic: &str| vec![vote(critic, "plan-1", 6.0, 0.9), vote(critic, "plan-2", 9.0, 0.9)];
    let sandbox = room(&[("ann", votes("ann")), ("bob", votes("bob")), ("cem", votes("cem"))], &json!({}));
    let ran = sandbox.run(&["--output", "json", "run", "room.json", "--request", "{}"]).expect_exit(0).json();
    let room = &ran["state"]["room"];
    let outcomes: Vec<&Value> =
        ["/decisions/0", "/decisions/1"].map(|at| room.pointer(at).expect("a decision")).to_vec();
    assert_eq!(
        (&outcomes[0]["artifact_id"], &outcomes[0]["outcome"]),
        (&json!("plan-1"), &json!("REVISION_REQUESTED"))
    );
    assert_eq!((&outcomes[1]["artifact_id"], &outcomes[1]["outcome"]), (&json!("plan-2"), &json!("APPROVED")));
    let mean = outcomes[1]["aggregated"]["weighted_mean"].as_f64().expect("a number");
    assert!((mean - 9.0).abs() < 1e-9, "{room}");
    assert_eq!(outcomes[1]["aggregated"]["vote_count"], 3, "{room}");
    assert_eq!(room["ballots"]["plan-1"]["critics"], json!(["ann", "bob", "cem"]));
    assert_eq!(room["ballots"]["plan-1"]["window_ms"], 600_000, "plans have ten minutes");
    assert_eq!(outcomes[0]["policy_version"], room["ballots"]["plan-1"]["policy_version"]);
    // `room decide` gives the same result for these votes from a file.
    let of_second: Vec<&Value> =
        room["votes"].as_array().expect("votes").iter().filter(|vote| vote["artifact_id"] == "plan-2").collect();
    sandbox.write("votes.json", json!(of_second).to_string());
    let decided = sandbox.run(&["room", "decide", "votes.json"]).expect_exit(0).json();
    assert_eq!((&decided["decision"], &decided["reason"]), (&json!("APPROVED"), &outcomes[1]["reason"]));
    let agreeing = ["entropy", "consensus", "polarised"].map(|name| decided[name].to_string());
    assert_eq!(agreeing, ["0.0", "true", "false"], "{decided}");
    let decision = sandbox.run(&["room", "decide", "votes.json", "--requested", "dora"]).expect_exit(0).json();
    assert!(["entropy", "consensus", "polarised"].into_iter().all(|name| decision[name].is_null()), "{decision}");
    sandbox.run(&["replay", "last"]).expect_exit(0);
    sandbox.run(&["verify", "last"]).expect_exit(0);
}

#[test]
fn a_person_rules_over_what_the_votes_do_not_decide() {
    let sure = |critic: &str| vec![vote(critic, "plan-1", 9.0, 0.9), vote(critic, "plan-2", 9.0, 0.1)];
    let mut doubts = vote("bob", "plan-1", 9.0, 0.2);
    doubts["weaknesses"] = json!(["nobody has tried it"]);
    doubts["recommendations"] = json!(["ask the baker"]);
    let unsure = vec![doubts, vote("bob", "plan-2", 9.0, 0.9)];
    let sandbox = room(&[("ann", sure("ann")), ("bob", unsure)], &json!({}));
    let waiting = sandbox.run(&["--output", "json", "run", "room.json", "--request", "{}"]).expect_exit(5).json();
    let question = &waiting["questions"][0];
    assert_eq!(question["approver"], "arbiter", "{waiting}");
    let asked = sandbox.run(&["--output", "json", "inbox"]).expect_exit(0).json();
    let clarify = &asked["questions"][0]["clarify"];
    let mut lines: Vec<&str> = clarify["question"].as_str().expect("a question").lines().collect();
    // Votes are in commit order.
    lines[1..3].sort_unstable();
    // The arbiter sees the artefact and its votes.
    assert_eq!(
        lines,
        [
            "What becomes of plan-1 (PLAN)? The votes do not decide it: less than 0.3 sure: bob.",
            "ann: score 9, confidence 0.9, passed",
            "bob: score 9, confidence 0.2, passed; weaknesses: nobody has tried it; recommendations: ask the baker",
            "The artefact: draft 1"
        ]
    );
    assert_eq!(clarify["choices"], json!(["APPROVED", "REVISION_REQUESTED"]));
    let again = |ran: &Value, text: &str, code: i32| {
        let seq = ran["questions"][0]["seq"].to_string();
        sandbox.run(&["--output", "json", "answer", "last", &seq, "--text", text]).expect_exit(code).json()
    };
    // The person requests a revision; the revised artefact is proposed and escalated again.
    let second = again(&waiting, "REVISION_REQUESTED", 5);
    let done = again(&second, "APPROVED", 0);
    let rulings = &done["state"]["room"]["rulings"];
    let expected = json!([
        {"artifact_id": "plan-1", "outcome": "REVISION_REQUESTED", "by": "arbiter"},
        {"artifact_id": "plan-2", "outcome": "APPROVED", "by": "arbiter"},
    ]);
    assert_eq!(*rulings, expected);
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn an_expired_ruling_requests_a_revision() {
    let votes = vec![vote("ann", "plan-1", 9.0, 0.2), vote("ann", "plan-2", 9.0, 0.9)];
    let sandbox = room(&[("ann", votes)], &json!({}));
    let fragment = fs::read_to_string(shipped("fragments/room.yaml")).expect("the fragment can be read");
    assert!(fragment.contains("expires: 30d"));
    sandbox.write("fragments/room.yaml", fragment.replace("expires: 30d", "expires: 1s"));
    sandbox.run(&["run", "room.json", "--request", "{}"]).expect_exit(5);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let done = sandbox.run(&["--output", "json", "resume", "last"]).expect_exit(0).json();
    let room = &done["state"]["room"];
    let ruling = json!({"artifact_id": "plan-1", "outcome": "REVISION_REQUESTED", "by": "deadline",
        "reason": "no person has ruled over it in time"});
    assert_eq!(room["rulings"], json!([ruling]));
    assert_eq!(room["decisions"][1]["outcome"], "APPROVED", "its author was woken: {room}");
    let waited = sandbox.run(&["room", "wait", "last", "plan-1", "--ruled"]).expect_exit(0).json();
    assert_eq!((&waited["outcome"], &waited["ruling"]), (&json!("REVISION_REQUESTED"), &ruling));
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn room_decisions_are_immutable() {
    let votes = vec![vote("ann", "plan-1", 6.0, 0.9), vote("ann", "plan-2", 9.0, 0.9)];
    let sandbox = room(&[("ann", votes)], &json!({}));
    let text = fs::read_to_string(sandbox.path().join("room.json")).expect("it can be read");
    let mut blueprint: Value = serde_json::from_str(&text).expect("JSON");
    blueprint["workers"]["forger"] = json!({
        "agent": "script", "reads": ["/room/decisions"], "limits": {"attempts": 2},
        "writes": [{"path": "/room/decisions/*", "ops": ["remove"]}, {"path": "/room/decisions/*/reason", "ops": ["replace"]}],
        "script": [
            [{"op": "replace", "path": "/room/decisions/0/reason", "value": "It was good."}],
            [{"op": "remove", "path": "/room/decisions/0"}],
        ],
    });
    let rule = json!({"name": "forge", "trigger": {"op": "add", "path": "/room/decisions/*"},
        "when": "value.outcome == 'REVISION_REQUESTED'", "run": "forger"});
    blueprint["rules"].as_array_mut().expect("rules").insert(0, rule);
    sandbox.write("room.json", blueprint.to_string());
    let done = sandbox.run(&["--output", "json", "run", "room.json", "--request", "{}"]).expect_exit(0).json();
    assert_eq!(done["state"]["room"]["decisions"][0]["reason"], "score 6 is below 7; 0 % passed it, fewer than 80 %");
    let log = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
    assert_eq!(log.matches("room-decisions-stay").count(), 2, "{log}");
}

#[test]
fn abstaining_critics_give_no_scores_and_others_must() {
    let silent = json!({"artifact_id": "plan-1", "critic_id": "bob", "abstain": true});
    let short = json!({"artifact_id": "plan-1", "critic_id": "cem", "score": 9});
    let critics = [
        ("ann", vec![vote("ann", "plan-1", 9.0, 0.9)]),
        ("bob", vec![silent.clone()]),
        ("cem", vec![short, vote("cem", "plan-1", 8.0, 0.9)]),
    ];
    let sandbox = room(&critics, &json!({}));
    let done = sandbox.run(&["--output", "json", "run", "room.json", "--request", "{}"]).expect_exit(0).json();
    let room = &done["state"]["room"];
    assert_eq!(
        (&room["decisions"][0]["outcome"], &room["decisions"][0]["abstained"]),
        (&json!("APPROVED"), &json!(["bob"]))
    );
    let votes = room["votes"].as_array().expect("votes");
    assert!(votes.len() == 3 && votes.contains(&silent), "{room}");
}

#[test]
fn a_policy_that_cannot_be_meant_is_found_by_check() {
    let critics = || [("ann", vec![vote("ann", "plan-1", 9.0, 0.9)])];
    for (policy, says) in [
        (json!({"quorum": {"rule": "bogus"}}), "/room/policy/quorum/rule"),
        (json!({"quorum": {"minimum_fraction": 7}}), "`minimum_fraction`"),
        (json!({"quorum": {"rule": {"minimum_fraction": 7}}}), "/room/policy/quorum/rule/minimum_fraction"),
        (json!({"quorum": {"rule": {"require_all": true, "minimum_votes": 1}}}), "/room/policy/quorum/rule"),
        (json!({"quorum": {"rule": {}}}), "/room/policy/quorum/rule"),
        (json!({"quorum": {"on_failure": "shrug"}}), "/room/policy/quorum/on_failure"),
        (json!({"min_pass_ratio": 80}), "/room/policy/min_pass_ratio"),
        (json!({"window_s": {"PLAN": -1}}), "/room/policy/window_s/PLAN"),
    ] {
        let found = room(&critics(), &policy).run(&["check", "room.json"]).expect_exit(2);
        assert!(found.stdout.contains("invalid_initial_state") && found.stdout.contains(says), "{}", found.stdout);
    }
    let meant = json!({"quorum": {"rule": {"minimum_votes": 1}, "on_failure": "fail_with_abstain"}});
    room(&critics(), &meant).run(&["check", "room.json"]).expect_exit(0);
}

#[test]
fn when_the_window_is_over_the_votes_that_are_there_decide() {
    // One of three critics never answers.
    let votes = |critic: &str| vec![vote(critic, "plan-1", 9.0, 0.9)];
    let critics = [("ann", votes("ann")), ("bob", votes("bob")), ("cem", vec![Value::Null])];
    let policy = json!({"version": "fast", "window_s": {"PLAN": 1}});
    let sandbox = room(&critics, &policy);
    let done = sandbox.run(&["--output", "json", "run", "room.json", "--request", "{}"]).expect_exit(0).json();
    let decision = &done["state"]["room"]["decisions"][0];
    assert_eq!((&decision["outcome"], &decision["policy_version"]), (&json!("APPROVED"), &json!("fast")));
    assert_eq!((&decision["votes_received"], &decision["votes_expected"]), (&json!(2), &json!(3)));
    assert_eq!(decision["unavailable_critics"], json!(["cem"]));
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_second_decision_and_a_vote_on_a_missing_artifact_are_rejected() {
    let votes = |critic: &str| vec![vote(critic, "nothing", 9.0, 0.9), vote(critic, "plan-1", 9.0, 0.9)];
    let sandbox = room(&[("ann", votes("ann")), ("bob", votes("bob"))], &json!({}));
    let done = sandbox.run(&["--output", "json", "run", "room.json", "--request", "{}"]).expect_exit(0).json();
    assert_eq!(done["state"]["room"]["votes"].as_array().map(Vec::len), Some(2));
    let log = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
    assert_eq!(log.matches("room-votes-are-on-something").count(), 2, "{log}");
}

#[test]
fn the_shipped_blueprint_is_found_to_be_sound() {
    let sandbox = Sandbox::new();
    let report = sandbox.run(&["--output", "json", "check", &shipped("approval-room.yaml")]).expect_exit(0).json();
    assert_eq!(report["findings"], json!([]), "{report}");
}
