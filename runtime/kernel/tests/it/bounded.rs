//! Maximum number of records per step, for any number of triggered rules.

use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::record::{Body, Kind, Resource, Retried};
use patchboard_kernel::rejection::Code;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::played::Played;

/// Maximum number of invocations triggered by one commit.
const WOKEN_MAX: usize = 4096;

/// Maximum number of abandoned invocations that a board keeps.
const KEPT_MAX: usize = 1024;

/// Returns a board with rules that trigger a checker for each of many notes, and then a reporter.
fn notes(rules: usize, invocations: u32) -> Played {
    let each = |number| json!({"name": format!("check-{number}"), "trigger": {"op": "add", "path": "/notes/{note}"}, "run": "checker"});
    let mut all = vec![json!({"name": "write", "trigger": "start", "run": "writer"})];
    all.extend((0..rules).map(each));
    let names: Vec<String> = (0..rules).map(|number| format!("check-{number}")).collect();
    all.push(json!({"name": "report", "trigger": {"after": names}, "run": "reporter"}));
    Played::new(json!({
        "blueprint": 2, "state": {"schema": {}, "initial": {"notes": {}}},
        "workers": {
            "writer": {"agent": "llm", "writes": [{"path": "/notes"}, {"path": "/notes/*", "ops": ["add"]}],
                "patch": {"max_bytes": 1_000_000}},
            "checker": {"agent": "llm", "reads": ["/notes/{note}"], "writes": [{"path": "/notes/{note}/ok"}],
                "limits": {"invocations": invocations}},
            "reporter": {"agent": "llm", "reads": ["/notes"], "writes": [{"path": "/report"}]},
        },
        "rules": all,
    }))
}

/// Returns a patch that writes this many notes.
fn patch(count: usize) -> Value {
    let notes: Map<String, Value> = (0..count).map(|number| (format!("n{number}"), json!({}))).collect();
    json!([{"op": "replace", "path": "/notes", "value": notes}])
}

#[test]
fn a_commit_that_triggers_too_many_invocations_is_rejected_with_the_reason() {
    let mut played = notes(1, 1_000_000);
    let rejection = played.rejection("writer", patch(WOKEN_MAX + 1));
    assert_eq!(rejection.code, Code::TooLarge);
    assert!(rejection.violations[0].message.contains("write fewer elements at once"), "{rejection:?}");
    let before = played.records.len();
    let outcome = played.direct("writer", &patch(WOKEN_MAX).to_string());
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    let scheduled = played.records[before..].iter().filter(|record| record.kind == Kind::Scheduled).count();
    assert_eq!(scheduled, WOKEN_MAX);
    played.holds();
}

#[test]
fn invocations_beyond_the_kept_number_are_one_record_and_block_their_join() {
    let mut played = notes(1, 2);
    played.answer(patch(3000), None);
    let beyond = |body: &Body| matches!(body, Body::Budget(budget) if budget.resource == Resource::Invocations);
    assert_eq!(played.bodies().filter(beyond).count(), KEPT_MAX + 1);
    assert_eq!(played.board.given_up().len(), KEPT_MAX);
    // Every kept invocation is retried, and the report is still blocked: the remaining invocations were not kept.
    let retried = Retried { worker: Some("checker".into()), ..Retried::default() };
    played.give(Input::Retry(retried));
    while !played.calls.is_empty() {
        played.answer(json!([]), None);
    }
    assert!(played.bodies().all(|body| !matches!(body, Body::Scheduled(of) if of.worker.as_str() == "reporter")));
    played.holds();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn a_step_makes_a_bounded_number_of_records(count in 0..2500_usize, rules in 1..4_usize, invocations in 1..3000_u32) {
        let mut played = notes(rules, invocations);
        let before = played.records.len();
        played.direct("writer", &patch(count).to_string());
        let made = played.records.len() - before;
        prop_assert!(made <= WOKEN_MAX + 2 * KEPT_MAX + 10 * rules + 10, "{made} records of {count} notes");
        prop_assert_eq!(played.board.ended(), None);
        played.holds();
    }
}
