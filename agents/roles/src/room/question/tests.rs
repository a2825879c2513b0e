//! Content and length of questions.

use patchboard_protocols::room::{Policy, Vote, decide};
use serde_json::{Value, json};

use super::{Escalation, QUESTION_CHARS_MAX};

fn question(artifact: Value, votes: &Value) -> String {
    let votes: Vec<Vote> = serde_json::from_value(votes.clone()).expect("votes");
    let critics: Vec<String> = votes.iter().map(|vote| vote.critic_id.clone()).collect();
    let decision = decide(&critics, &votes, true, &Policy::default()).expect("in range").expect("time is over");
    let kinds = vec!["PLAN".to_owned(), "text/markdown".to_owned()];
    Escalation { artifact_id: "plan-1", kinds, artifact: Some(artifact), decision: &decision, votes }.question()
}

#[test]
fn a_person_learns_what_it_is_about_and_what_critics_said() {
    let votes = json!([
        {"critic_id": "ann", "score": 8.3333, "confidence": 0.2, "passed": true, "weaknesses": ["no tests", "no\nend"],
            "recommendations": ["test it"]},
        {"critic_id": "bob", "abstain": true},
    ]);
    assert_eq!(
        question(json!("# Plan\n\nBake."), &votes),
        "What becomes of plan-1 (PLAN, text/markdown)? The votes do not decide it: less than 0.3 sure: ann.\n\
         ann: score 8.33, confidence 0.2, passed; weaknesses: no tests / no end; recommendations: test it\n\
         bob abstains.\n\
         The artefact: # Plan Bake."
    );
    assert!(question(json!({"steps": ["Bake."]}), &votes).ends_with(r#"The artefact: {"steps":["Bake."]}"#));
}

#[test]
fn however_much_is_said_a_question_is_no_longer_than_one_may_be() {
    let texts = vec!["w".repeat(1000); 16];
    let vote = |n: usize| {
        json!({"critic_id": format!("{}{n}", "c".repeat(190)), "score": 1, "confidence": 0.1,
        "passed": false, "weaknesses": texts, "recommendations": texts})
    };
    let all = Value::Array((0..64).map(vote).collect());
    let long = question(json!("a".repeat(100_000)), &all);
    assert_eq!(long.chars().count(), QUESTION_CHARS_MAX, "{long}");
    assert!(long.contains("further votes left out here.\nThe artefact, cut (it has 100000 characters): aaa"), "{long}");
    assert!(long.matches("confidence 0.1").count() >= 2, "{long}");
    let short = question(json!("a".repeat(100_000)), &json!([]));
    assert!(short.matches('a').count() > 1800, "what votes leave is the artefact's: {short}");
}
