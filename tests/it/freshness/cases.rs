//! Collects minimal cases on which the oracle and the kernel once disagreed, each written by hand.

use std::collections::BTreeMap;

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Board, Input, NewBoard, Outcome, Proposal, ProposalSource, ReplyBody, Step};
use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp};
use patchboard_kernel::rejection::{Code, Rejection, Stage};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

/// Board of workers that are each triggered by a signal of their name: `aim` with freshness `target`, `whole` with
/// `reads`.
struct Case {
    board: Board,
    now: Timestamp,
    /// Open attempt by worker.
    calls: BTreeMap<String, (InvocationId, u32)>,
}

impl Case {
    fn new(initial: Value) -> Self {
        let ops = json!(["add", "replace", "insert", "remove", "move", "copy"]);
        let worker = |mode: &str| {
            json!({
                "agent": "script", "script": [[]], "reads": ["/list", "/map"], "freshness": mode,
                "writes": [{"path": "/*/**", "ops": ops}],
            })
        };
        let value = json!({
            "blueprint": 1, "name": "case",
            "state": {"schema": {"type": "object"}, "initial": initial},
            "workers": {"aim": worker("target"), "rival": worker("target"), "whole": worker("reads")},
            "rules": [
                {"name": "aim", "trigger": {"signal": "aim"}, "run": "aim"},
                {"name": "rival", "trigger": {"signal": "rival"}, "run": "rival"},
                {"name": "whole", "trigger": {"signal": "whole"}, "run": "whole"},
            ],
        });
        let blueprint: Blueprint = serde_json::from_value(value).expect("the blueprint is one");
        let (request, salt) = (Value::Null, Salt([2; 32]));
        let genesis = NewBoard { salt, ..NewBoard::new(BoardId::from("case"), blueprint, request, Timestamp(0)) };
        let (board, _) = Board::create(genesis, &PLANS).expect("the board can be made");
        Self { board, now: Timestamp(0), calls: BTreeMap::new() }
    }

    /// Triggers a worker, with a view of the present board.
    fn ask(&mut self, worker: &str) {
        self.step(Input::Signal { name: worker.to_owned(), value: Value::Null, key: None });
    }

    fn answer(&mut self, worker: &str, patch: Value) -> Outcome {
        let (invocation, attempt) = self.calls.remove(worker).expect("it was asked");
        self.propose(worker, ProposalSource::Attempt { invocation, attempt }, patch)
    }

    /// Commits a patch of an external caller.
    fn meanwhile(&mut self, patch: Value) {
        let outcome = self.propose("rival", ProposalSource::Direct { key: None, base: None }, patch);
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }

    fn propose(&mut self, worker: &str, from: ProposalSource, patch: Value) -> Outcome {
        let proposal = Proposal { from, worker: worker.into(), reply: ReplyBody::Json(patch), usage: None, raw: None };
        self.step(Input::Propose(proposal)).outcome.expect("a proposal has an outcome")
    }

    fn step(&mut self, input: Input) -> Step {
        self.now = self.now.plus_ms(1);
        let step = self.board.step_ungated(self.now, input);
        for call in &step.effects.calls {
            self.calls.insert(call.worker.to_string(), (call.invocation, call.attempt));
        }
        step
    }
}

fn refused(outcome: Outcome) -> Rejection {
    match outcome {
        Outcome::Rejected { rejection, .. } => rejection,
        other => panic!("it was not refused: {other:?}"),
    }
}

fn list() -> Value {
    json!({"list": ["a", "b", "c", "d"], "map": {"x": 1, "y": 2, "z": 3}})
}

/// Regression: a worker with a removal that would shift a reserved place was called again at once, only to be rejected
/// again.
#[test]
fn a_worker_that_would_shift_a_reserved_place_waits_for_it() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "replace", "path": "/list/2", "value": "C"}]));
    case.ask("rival");
    let first = refused(case.answer("aim", json!([{"op": "replace", "path": "/list/2", "value": "cc"}])));
    assert_eq!(first.code, Code::StaleTarget);
    let second = refused(case.answer("rival", json!([{"op": "remove", "path": "/list/0"}])));
    assert_eq!(second.code, Code::Reserved);
    assert!(!case.calls.contains_key("rival"), "it is asked again while /list/2 is kept");
    let kept = case.answer("aim", json!([{"op": "replace", "path": "/list/2", "value": "cc"}]));
    assert!(matches!(kept, Outcome::Committed { .. }), "{kept:?}");
    assert!(case.calls.contains_key("rival"), "it is asked again once nothing is in its way");
}

/// Regression: an append recreated a place that was reserved for another invocation.
#[test]
fn an_append_does_not_take_a_kept_place() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "remove", "path": "/list/3"}]));
    case.ask("rival");
    let first = refused(case.answer("aim", json!([{"op": "replace", "path": "/list/3", "value": "D"}])));
    assert_eq!(first.code, Code::StaleTarget);
    let second = refused(case.answer("rival", json!([{"op": "add", "path": "/list/-", "value": "e"}])));
    assert_eq!((second.code, second.violations[0].pointer.as_str()), (Code::Reserved, "/list/3"));
}

/// Regression: replacing an element and inserting another before it was treated as a change within the patch alone.
#[test]
fn an_insertion_before_what_the_patch_wrote_over_still_shifts() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "replace", "path": "/list/3", "value": "D"}]));
    case.ask("rival");
    refused(case.answer("aim", json!([{"op": "replace", "path": "/list/3", "value": "dd"}])));
    let patch = json!([
        {"op": "replace", "path": "/list/1", "value": "B"}, {"op": "add", "path": "/list/1", "value": "new"},
    ]);
    let second = refused(case.answer("rival", patch));
    assert_eq!((second.code, second.violations[0].op), (Code::Reserved, Some(1)));
}

/// Regression: a place that existed neither then nor now was reported stale because an element before it was removed.
#[test]
fn places_that_never_existed_are_inapplicable_rather_than_stale() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "remove", "path": "/list/0"}]));
    let rejection = refused(case.answer("aim", json!([{"op": "replace", "path": "/list/7", "value": "h"}])));
    assert_eq!(rejection.stage, Stage::Application);
    let rejection = refused(case.answer("aim", json!([{"op": "add", "path": "/list/9", "value": "h"}])));
    assert_eq!(rejection.stage, Stage::Application);
}

/// An index that had an element names that element. If the array is shorter now, adding there would append.
#[test]
fn an_index_that_an_element_had_is_no_append() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "remove", "path": "/list/0"}]));
    // Intended before "d", but would be placed after it.
    let rejection = refused(case.answer("aim", json!([{"op": "add", "path": "/list/3", "value": "before d"}])));
    assert_eq!((rejection.code, rejection.violations[0].pointer.as_str()), (Code::StaleTarget, "/list/3"));
    let again = case.answer("aim", json!([{"op": "add", "path": "/list/2", "value": "before d"}]));
    assert!(matches!(again, Outcome::Committed { .. }), "{again:?}");
}

/// Regression: for a removed member, the last commit that removed any member of its object was reported.
#[test]
fn a_member_that_is_gone_was_taken_by_who_took_it() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "remove", "path": "/map/x"}]));
    case.meanwhile(json!([{"op": "remove", "path": "/map/y"}]));
    let rejection = refused(case.answer("aim", json!([{"op": "replace", "path": "/map/x", "value": 4}])));
    let stale = rejection.violations[0].stale.as_ref().expect("it may be read");
    assert_eq!((rejection.code, stale.now.0), (Code::StaleTarget, 1));
}

/// Regression: for an element that was shifted and then replaced, the shift was reported.
#[test]
fn an_element_changed_last_when_it_was_written_over() {
    let mut case = Case::new(list());
    case.ask("whole");
    case.meanwhile(json!([{"op": "remove", "path": "/list/0"}]));
    case.meanwhile(json!([{"op": "replace", "path": "/list/1", "value": "C"}]));
    let rejection = refused(case.answer("whole", json!([{"op": "replace", "path": "/list/1", "value": "x"}])));
    let stale = rejection.violations[0].stale.as_ref().expect("it may be read");
    assert_eq!((rejection.code, stale.now.0), (Code::StaleTarget, 2));
}

/// For a shifted element, the shift must be reported, not a later patch that inserted elements behind it.
#[test]
fn an_element_was_moved_by_what_came_or_went_before_it() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "remove", "path": "/list/0"}]));
    case.meanwhile(
        json!([{"op": "add", "path": "/list/3", "value": "y"}, {"op": "add", "path": "/list/3", "value": "x"}]),
    );
    let rejection = refused(case.answer("aim", json!([{"op": "add", "path": "/list/3", "value": "before d"}])));
    let stale = rejection.violations[0].stale.as_ref().expect("it may be read");
    assert_eq!((rejection.code, stale.now.0), (Code::StaleTarget, 1));
}

/// Regression: the operations after an inapplicable one were traced as if it had been applied.
#[test]
fn inapplicable_operations_shift_no_later_places() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "replace", "path": "/list/2", "value": "C"}]));
    let patch = json!([
        {"op": "remove", "path": "/map/nothing"},
        {"op": "remove", "path": "/list/0"},
        {"op": "replace", "path": "/list/1", "value": "B"},
    ]);
    let rejection = refused(case.answer("aim", patch));
    assert_eq!(rejection.stage, Stage::Application, "{rejection:?}");
}

/// Regression: a move of a missing element was traced as if it made room, and was rejected for the place behind the
/// one that it names.
#[test]
fn a_move_of_nothing_shifts_nothing() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "remove", "path": "/list/3"}, {"op": "remove", "path": "/list/2"}]));
    let rejection = refused(case.answer("aim", json!([{"op": "move", "from": "/list/2", "path": "/list/3"}])));
    let places: Vec<&str> = rejection.violations.iter().map(|violation| violation.pointer.as_str()).collect();
    assert_eq!((rejection.code, places), (Code::StaleTarget, vec!["/list/2", "/list/3"]), "{rejection:?}");
}

/// A place that was filled and vacated during an attempt does not conflict with an addition there.
#[test]
fn a_place_that_is_vacant_again_is_vacant() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "add", "path": "/map/new", "value": 1}]));
    case.meanwhile(json!([{"op": "remove", "path": "/map/new"}]));
    let added = case.answer("aim", json!([{"op": "add", "path": "/map/new", "value": 2}]));
    assert!(matches!(added, Outcome::Committed { .. }), "{added:?}");
}

/// Regression: a move onto a member ended the process if its name was a prefix of the moved one's.
#[test]
fn a_name_that_begins_with_another_is_not_below_it() {
    let mut case = Case::new(json!({"list": [], "map": {"k1": 1, "k10": 2}}));
    case.meanwhile(json!([{"op": "move", "from": "/map/k10", "path": "/map/k1"}]));
    assert_eq!(case.board.state().root().to_value(), json!({"list": [], "map": {"k1": 2}}));
}
