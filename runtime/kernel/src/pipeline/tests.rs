//! Stages of each mode, and concealment: conflicts are shown only as far as the worker may read.

use serde_json::json;

use super::*;
use crate::ablation::{Component, Mode};
use crate::id::{Seq, Version};
use crate::plan::Step;
use crate::rejection::ConflictingChange;

/// Returns a freshness violation before concealment.
fn stale(code: Code, place: &str, message: &str) -> Violation {
    let mut violation = Violation::new(code, place, message);
    violation.found = Some(json!("now"));
    violation.diff = Some(json!({"was": "before"}));
    violation.stale =
        Some(ConflictingChange { read_at: Version(0), now: Version(1), changed_by: "rival".into(), seq: Seq(7) });
    violation
}

#[test]
fn changes_are_reported_as_far_as_the_worker_may_read() {
    let worker = json!({"agent": "script", "reads": ["/shown", "/list/*/text"], "writes": [{"path": "/out"}]});
    let worker = serde_json::from_value(worker).expect("a worker");
    let contract = crate::contract::Contract::compile(
        &worker,
        &json!({}),
        &crate::expressions::ExpressionCompiler::new(crate::pattern::PathSyntax::Plain),
    )
    .expect("a contract");
    let mut violations = vec![
        stale(Code::StaleRead, "/shown", "it was changed"),
        stale(Code::StaleRead, "/list/0", "it is at another index now"),
        stale(Code::StaleTarget, "/list/0/secret", "it was changed"),
        stale(Code::Reserved, "/out", "it is kept for rival"),
    ];
    let sight = Visibility { readable: &contract.readable(&crate::tree::Node::Null), in_view: None, written: &[] };
    mask::mask_violations(Stage::Freshness, &mut violations, &sight);
    let messages: Vec<String> =
        violations.iter().map(|violation| violation.message_with_author().into_owned()).collect();
    assert_eq!(
        messages,
        [
            "it was changed (by rival)",
            // The worker reads its text: the move is no secret, but the other members are.
            "it is at another index now",
            "it is not as it was when you were asked",
            "this place is kept for somebody else for a moment",
        ]
    );
    for (index, violation) in violations.iter().enumerate() {
        let shows = [violation.found.is_some(), violation.diff.is_some(), violation.stale.is_some()];
        assert_eq!(shows, [index == 0; 3], "{violation:?}");
    }
}

#[test]
fn a_mode_runs_the_stages_of_its_components_in_their_order() {
    let of = |mode: &Mode, is_model| {
        Step::of_mode(mode, is_model).iter().map(|step| stages::of_step(*step).0).collect::<Vec<_>>()
    };
    let without = |left_out: &[Stage]| Stage::ALL.iter().copied().filter(|stage| !left_out.contains(stage)).collect();
    let (schema, contracts) = (Mode::without([Component::Schema]), Mode::without([Component::Contracts]));
    let of_schema = [Stage::Schema, Stage::Invariant];
    let unchecked = [Stage::Freshness, Stage::Schema, Stage::Invariant, Stage::Approval];
    let cases: [(&Mode, Vec<Stage>, Vec<Stage>); 5] = [
        (&Mode::default(), without(&[]), without(&[])),
        (&schema, without(&of_schema), without(&of_schema)),
        (&contracts, without(&[Stage::Approval]), without(&[])),
        (&Mode::Structured {}, without(&unchecked), without(&of_schema)),
        (&Mode::Plain {}, without(&unchecked), without(&of_schema)),
    ];
    for (mode, of_models, of_others) in cases {
        assert_eq!((of(mode, true), of(mode, false)), (of_models, of_others), "{mode}");
    }
}
