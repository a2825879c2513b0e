//! The SDK of SW4RM's authors, as a second opinion on votes and on the order of workflows.
//!
//! Functions that contradict the specification are not compared: its Borda count does not depend on scores, and its
//! coordinator decides by other rules (`docs/rooms.md`).

use std::time::Duration;

use patchboard_protocols::room::{self, Aggregation, Vote};
use patchboard_protocols::workflow::{self, Definition, WorkflowError};
use serde_json::{Value, json};

use super::Client;

const CASES: usize = 1000;
const TOLERANCE: f64 = 1e-9;

fn is_near(found: &Value, expected: &Value) -> bool {
    let number = |value: &Value| value.as_f64().expect("a number");
    (number(found) - number(expected)).abs() <= TOLERANCE
}

fn votes_agree(case: &Value) {
    let votes: Vec<Vote> = serde_json::from_value(case["votes"].clone()).expect("votes");
    let votes: Vec<&Vote> = votes.iter().collect();
    for (name, aggregation) in [
        ("mean", Aggregation::Mean),
        ("confidence_weighted", Aggregation::ConfidenceWeighted),
        ("majority", Aggregation::Majority),
    ] {
        let found = json!(room::aggregate(&votes, aggregation).expect("they are in range"));
        for (score, expected) in case[name].as_object().expect("scores") {
            assert!(is_near(&found[score], expected), "{name}, {score}: {found} in {case}");
        }
    }
    assert!(is_near(&json!(room::entropy(&votes).expect("votes")), &case["entropy"]), "{case}");
    assert_eq!(json!(room::is_consensus(&votes, 0.8).expect("votes")), case["consensus"], "{case}");
    assert_eq!(json!(room::is_polarised(&votes).expect("votes")), case["polarised"], "{case}");
}

/// Compares the order of a workflow; returns true if there is one.
fn orders_agree(case: &Value) -> bool {
    let definition: Definition = serde_json::from_value(json!({"nodes": case["nodes"]})).expect("a definition");
    match workflow::check(&definition) {
        Ok(found) => {
            let found = json!(found);
            assert_eq!((&found["order"], &found["stages"]), (&case["order"], &case["stages"]), "{case}");
            true
        }
        Err(problems) => {
            assert!(case.get("cycle").is_some(), "{problems:?} in {case}");
            let [WorkflowError::Cycle { nodes }] = problems.as_slice() else { panic!("{problems:?}") };
            for (at, node) in nodes.iter().enumerate() {
                let before = &nodes[(at + nodes.len() - 1) % nodes.len()];
                assert!(definition.nodes[node].dependencies.contains(before), "{nodes:?} is no cycle of {case}");
            }
            false
        }
    }
}

#[test]
#[ignore = "full tier: packages from registries"]
fn the_sdk_of_sw4rm_agrees_on_a_thousand_cases() {
    let Some(client) = Client::find("sw4rm") else { return };
    let printed = client.run("sw4rm_sdk.py", &[&CASES.to_string(), "7"], Duration::from_secs(120));
    let cases: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(cases.len(), CASES);
    let (of_votes, of_workflows): (Vec<&Value>, Vec<&Value>) =
        cases.iter().partition(|case| case.get("votes").is_some());
    of_votes.iter().for_each(|case| votes_agree(case));
    let sound = of_workflows.iter().filter(|case| orders_agree(case)).count();
    // Both kinds occur often enough.
    assert!((100..400).contains(&sound) && of_votes.len() == 500, "{sound} of {} are sound", of_workflows.len());
}
