//! Counting of votes; public test vectors are in `tests/it/sw4rm.rs`.

use serde_json::json;

use super::*;

fn vote(critic: &str, score: f64, confidence: f64) -> Vote {
    let vote = json!({"critic_id": critic, "score": score, "confidence": confidence, "passed": true, "voted_at": 1});
    serde_json::from_value(vote).expect("what is not known is left out of account")
}

fn asked(critics: &[&str]) -> Vec<String> {
    critics.iter().map(|critic| (*critic).to_owned()).collect()
}

fn decided(requested: &[&str], votes: &[Vote], policy: &Policy) -> Decision {
    decide(&asked(requested), votes, true, policy).expect("votes are in range").expect("time is over")
}

#[test]
fn only_the_first_vote_of_each_requested_critic_counts() {
    let votes = [vote("a", 9.0, 0.9), vote("x", 0.0, 0.1), vote("a", 0.0, 0.1), vote("b", 8.0, 0.8)];
    let decision = decided(&["a", "b"], &votes, &Policy::default());
    assert_eq!((decision.outcome, decision.votes_received, decision.votes_expected), (Outcome::Approved, 2, 2));
    assert_eq!((decision.foreign_votes, decision.repeated_votes), (asked(&["x"]), asked(&["a"])));
    assert_eq!(decision.aggregated.map(|scores| scores.vote_count), Some(2));
    assert_eq!(decision.reason, "score 8.5294, confidence 0.85, 100 % passed, deviation 0.5");
}

#[test]
fn nothing_is_decided_before_all_have_voted_or_time_is_over() {
    let votes = [vote("a", 9.0, 0.9)];
    let of = |votes: &[Vote], is_over| {
        decide(&asked(&["a", "b", "c"]), votes, is_over, &Policy::default()).expect("in range")
    };
    assert_eq!(of(&votes, false), None);
    let late = of(&votes, true).expect("time is over");
    assert_eq!((late.outcome, late.quorum_met), (Outcome::EscalatedToHitl, false));
    assert_eq!(late.escalation_triggers, [EscalationTrigger::PolicyTimeout]);
    assert_eq!(late.reason, "1 of 3 critics have voted, and 2 are needed");
    assert_eq!(late.unavailable_critics, asked(&["b", "c"]));
    // Two votes meet the quorum, but the third is awaited until the deadline.
    let two = [vote("a", 9.0, 0.9), vote("b", 9.0, 0.9)];
    assert_eq!(of(&two, false), None);
    assert_eq!(of(&two, true).expect("time is over").outcome, Outcome::Approved);
}

#[test]
fn an_abstention_is_no_vote_and_is_not_waited_for() {
    let silent = Vote { abstain: true, ..vote("b", 0.0, 0.0) };
    let votes = [vote("a", 9.0, 0.9), silent.clone()];
    let decision =
        decide(&asked(&["a", "b"]), &votes, false, &Policy::default()).expect("in range").expect("all were heard");
    assert_eq!((decision.outcome, decision.abstained), (Outcome::Approved, asked(&["b"])));
    assert_eq!((decision.votes_received, decision.unavailable_critics.len()), (1, 0));
    let all = decided(&["b"], &[silent], &Policy::default());
    assert_eq!((all.outcome, all.aggregated), (Outcome::EscalatedToHitl, None));
    // No quorum approves an artefact without any votes.
    let mut anybody = Policy::default();
    anybody.quorum.rule = QuorumRule::RequireAll(false);
    assert_eq!(decided(&["a"], &[], &anybody).outcome, Outcome::EscalatedToHitl);
}

#[test]
fn escalation_triggers_precede_approval_in_their_fixed_order() {
    let mut votes = vec![vote("a", 10.0, 0.2), vote("b", 1.0, 0.9)];
    votes[1].recommendations = vec!["Escalate: two minds.".to_owned()];
    let decision = decided(&["a", "b", "c", "d", "e"], &votes, &Policy::default());
    let all = [
        EscalationTrigger::VoteConfidence,
        EscalationTrigger::StdDev,
        EscalationTrigger::CriticRequested,
        EscalationTrigger::PolicyTimeout,
    ];
    assert_eq!(decision.escalation_triggers, all);
    assert_eq!(
        decision.reason,
        "less than 0.3 sure: a; scores deviate by 4.5, more than 3; asked for by b; 2 of 5 critics have voted, and 3 are needed"
    );
}

#[test]
fn a_recommendation_asks_for_a_person_unless_it_says_that_it_does_not() {
    let asks = |text: &str| Vote { recommendations: vec![text.to_owned()], ..vote("a", 9.0, 0.9) }.requests_human();
    for text in [
        "escalate",
        "ESCALATE: security",
        "Please escalate to a human.",
        "escalation needed",
        "Not sure. Escalate!",
        "Do not approve - escalate to a person",
        "I can't decide \u{2013} please escalate",
        "No objection, well, no time but escalate",
        "I cannot judge so escalate",
        "not for me (escalate)",
        "Cannot be approved without escalation",
        "It must not, as it is, be approved without an escalation.",
        "Never merge this with no escalation",
        "Do not hesitate to escalate",
        "If not fixed escalate",
        "If not escalate to a person",
        "It would be wrong not to escalate",
        "Do not approve unless it is escalated",
        "HITL",
        " Human review! ",
        "escalated_to_hitl",
        "ESCALATED_TO_HITL",
        "I request human review",
        "needs human review",
        "Please send this to a human reviewer.",
        "Human review is required before it is deployed",
        "Flag for HITL",
        "Can't be shipped without human review",
    ] {
        assert!(asks(text), "{text}");
    }
    for text in [
        "no need to escalate",
        "No need for an escalation",
        "Don\u{2019}t escalate",
        "do not escalate",
        "Not great. Do not escalate, though",
        "never escalate",
        "add tests",
        "",
        "without any escalation",
        "Approve with no escalation",
        "Add a step for human review",
        "Human review is not needed",
        "does not need human review",
        "no need for human review",
        "No human review needed",
        "I do not request human review",
    ] {
        assert!(!asks(text), "{text}");
    }
}

#[test]
fn only_abstentions_omit_the_numbers_of_a_vote() {
    let read = |vote: serde_json::Value| serde_json::from_value::<Vote>(vote).map_err(|why| why.to_string());
    let silent = json!({"critic_id": "a", "abstain": true});
    let vote = read(silent.clone()).expect("an abstention");
    assert_eq!(decided(&["a"], std::slice::from_ref(&vote), &Policy::default()).abstained, asked(&["a"]));
    assert_eq!(json!(vote), silent, "none are made up");
    for (missing, given) in [
        ("score", json!({"critic_id": "a", "confidence": 1, "passed": true})),
        ("confidence", json!({"critic_id": "a", "score": 1, "passed": true})),
        ("passed", json!({"critic_id": "a", "score": 1, "confidence": 1, "abstain": false})),
    ] {
        assert_eq!(
            read(given),
            Err(format!("the vote of a has no `{missing}`; only who abstains (`abstain: true`) leaves it out"))
        );
    }
    assert_eq!(read(json!({"critic_id": "", "abstain": true})), Err("the `critic_id` of a vote is empty".to_owned()));
}

/// Every vote that three critics and a stranger can cast, with every quorum.
#[test]
fn decisions_keep_their_rules_for_every_combination_of_votes() {
    let kinds = [
        None,
        Some(vote("x", 9.0, 0.9)),
        Some(Vote { passed: false, ..vote("x", 4.0, 0.8) }),
        Some(Vote { abstain: true, ..vote("x", 0.0, 0.0) }),
        Some(Vote { recommendations: vec!["escalate".to_owned()], ..vote("x", 9.0, 0.9) }),
    ];
    let rules = [
        QuorumRule::MinimumFraction(0.5),
        QuorumRule::MinimumVotes(3),
        QuorumRule::RequireAll(true),
        QuorumRule::RequireAll(false),
    ];
    let failures = [OnFailure::FailClosed, OnFailure::FailWithAvailable, OnFailure::FailWithAbstain];
    let policies: Vec<Policy> = rules
        .iter()
        .flat_map(|rule| failures.map(|on_failure| Quorum { rule: *rule, on_failure }))
        .map(|quorum| Policy { quorum, ..Policy::default() })
        .collect();
    let critics = ["a", "b", "c"];
    for case in 0..5_usize.pow(3) {
        let of = |at: usize| {
            let kind = &kinds[case / 5_usize.pow(u32::try_from(at).expect("small")) % 5];
            kind.clone().map(|kind| Vote { critic_id: critics[at].to_owned(), ..kind })
        };
        let own: Vec<Vote> = (0..3).filter_map(of).collect();
        let mut votes = own.clone();
        votes.push(vote("stranger", 0.0, 0.0));
        votes.extend(own.first().map(|first| vote(&first.critic_id, 0.0, 0.0)));
        let counted = own.iter().filter(|vote| !vote.abstain).count();
        for policy in &policies {
            let early = decide(&asked(&critics), &votes, false, policy).expect("in range");
            assert_eq!(early.is_some(), own.len() == 3, "{case}");
            let decision = decided(&critics, &votes, policy);
            assert_eq!(early.unwrap_or_else(|| decision.clone()), decision, "time decides only what is missing");
            assert_eq!(decision.foreign_votes, asked(&["stranger"]));
            assert_eq!(decision.repeated_votes.len(), usize::from(!own.is_empty()));
            assert_eq!((decision.votes_received, decision.votes_expected), (counted, 3));
            assert_eq!(decision.votes_received + decision.abstained.len() + decision.unavailable_critics.len(), 3);
            let is_asked_for = own.iter().any(|vote| !vote.recommendations.is_empty());
            assert_eq!(
                decision.escalation_triggers.contains(&EscalationTrigger::CriticRequested),
                is_asked_for,
                "{case}"
            );
            let is_closed = policy.quorum.on_failure == OnFailure::FailClosed && !decision.quorum_met;
            let is_short = is_closed || counted == 0;
            assert_eq!(decision.escalation_triggers.contains(&EscalationTrigger::PolicyTimeout), is_short, "{case}");
            let expected = match (decision.escalation_triggers.is_empty(), decision.approval_conditions.all()) {
                (false, _) => Outcome::EscalatedToHitl,
                (true, true) => Outcome::Approved,
                (true, false) => Outcome::RevisionRequested,
            };
            assert_eq!(decision.outcome, expected, "{case}");
        }
    }
}

#[test]
fn rounding_errors_leave_decisions_unchanged() {
    let votes: Vec<Vote> = ["a", "b", "c"].iter().map(|critic| vote(critic, 7.0, 0.7)).collect();
    assert_eq!(decided(&["a", "b", "c"], &votes, &Policy::default()).outcome, Outcome::Approved);
    assert_eq!(
        quorum(&asked(&["a"; 10]), &[], Quorum { rule: QuorumRule::MinimumFraction(0.7), ..Quorum::default() })
            .threshold,
        7
    );
}

#[test]
fn every_decision_says_by_which_policy() {
    let named = Policy { version: "2026-11".to_owned(), ..Policy::default() };
    let stricter = Policy { min_score_threshold: 8.0, ..Policy::default() };
    let version = |policy: &Policy| decided(&["a"], &[vote("a", 9.0, 0.9)], policy).policy_version;
    assert_eq!(version(&named), "2026-11");
    assert_eq!(version(&stricter), stricter.version());
    assert_ne!(stricter.version(), Policy::default().version());
    assert_eq!(version(&stricter).len(), 16);
}

#[test]
fn votes_and_policies_out_of_range_are_rejected() {
    for (score, confidence) in [(10.1, 0.5), (-0.1, 0.5), (f64::NAN, 0.5), (5.0, 1.1), (5.0, f64::INFINITY)] {
        assert!(decide(&asked(&["a"]), &[vote("a", 0.0, 0.0)], true, &Policy::default()).is_ok());
        let bad = Vote { score, confidence, ..vote("a", 0.0, 0.0) };
        assert!(decide(&asked(&["a"]), &[bad], true, &Policy::default()).is_err(), "{score} {confidence}");
    }
    let policy = Policy { min_pass_ratio: 8.0, ..Policy::default() };
    assert_eq!(policy.validation_errors(), ["`min_pass_ratio` is 8; it goes from 0 to 1"]);
    for list in [json!({"quorum": []}), json!({"window_s": [1, 2, 3, 4, 5]})] {
        assert!(serde_json::from_value::<Policy>(list.clone()).is_err(), "a list is no object: {list}");
    }
    assert_eq!(Policy::default().validation_errors(), [""; 0]);
}
