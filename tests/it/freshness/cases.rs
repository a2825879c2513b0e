//! The smallest cases of what the oracle and the kernel once disagreed on, each by hand.

use std::collections::BTreeMap;

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Board, Effect, From, Genesis, Input, Outcome, Proposal, ReplyBody, Step};
use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp};
use patchboard_kernel::plan::Own;
use patchboard_kernel::rejection::{Code, Rejection, Stage};
use serde_json::{Value, json};

/// A board with workers of which each is woken by a signal of its name: `aim` with `target`, `whole` with `reads`.
struct Case {
    board: Board,
    now: Timestamp,
    /// The attempt under way, by worker.
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
        let genesis = Genesis { salt, ..Genesis::new(BoardId::from("case"), blueprint, request, Timestamp(0)) };
        let (board, _) = Board::create(genesis, &Own).expect("the board can be made");
        Self { board, now: Timestamp(0), calls: BTreeMap::new() }
    }

    /// Wakes a worker, who sees the board as it is now.
    fn ask(&mut self, worker: &str) {
        self.step(Input::Signal { name: worker.to_owned(), value: Value::Null, token: None });
    }

    fn answer(&mut self, worker: &str, patch: Value) -> Outcome {
        let (invocation, attempt) = self.calls.remove(worker).expect("it was asked");
        self.propose(worker, From::Attempt { invocation, attempt }, patch)
    }

    /// Somebody from outside commits.
    fn meanwhile(&mut self, patch: Value) {
        let outcome = self.propose("rival", From::Direct { token: None, base: None }, patch);
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }

    fn propose(&mut self, worker: &str, from: From, patch: Value) -> Outcome {
        let proposal = Proposal { from, worker: worker.into(), reply: ReplyBody::Json(patch), usage: None, raw: None };
        self.step(Input::Propose(proposal)).outcome.expect("a proposal has an outcome")
    }

    fn step(&mut self, input: Input) -> Step {
        self.now = self.now.plus_ms(1);
        let step = self.board.step_ungated(self.now, input);
        for effect in &step.effects {
            if let Effect::Call { invocation, attempt, worker, .. } = effect {
                self.calls.insert(worker.to_string(), (*invocation, *attempt));
            }
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

/// A worker whose removal would shift a kept place was asked again at once, only to be refused again.
#[test]
fn who_would_shift_a_kept_place_waits_for_it() {
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

/// An append made the place anew that was kept for somebody.
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

/// Writing over an element and putting another before it was taken for nothing but the patch's own affair.
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

/// A place that was neither there then nor is there now was called stale because something before it had gone.
#[test]
fn what_never_was_is_not_stale() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "remove", "path": "/list/0"}]));
    let rejection = refused(case.answer("aim", json!([{"op": "replace", "path": "/list/7", "value": "h"}])));
    assert_eq!(rejection.stage, Stage::Application);
    let rejection = refused(case.answer("aim", json!([{"op": "add", "path": "/list/9", "value": "h"}])));
    assert_eq!(rejection.stage, Stage::Application);
}

/// An index at which there was an element names that element. When the array is shorter, adding there would append.
#[test]
fn an_index_that_an_element_had_is_no_append() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "remove", "path": "/list/0"}]));
    // Meant before "d", and would come after it.
    let rejection = refused(case.answer("aim", json!([{"op": "add", "path": "/list/3", "value": "before d"}])));
    assert_eq!((rejection.code, rejection.violations[0].pointer.as_str()), (Code::StaleTarget, "/list/3"));
    let again = case.answer("aim", json!([{"op": "add", "path": "/list/2", "value": "before d"}]));
    assert!(matches!(again, Outcome::Committed { .. }), "{again:?}");
}

/// Of a member that is gone, the last commit that took any member of its object was named.
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

/// Of an element that was shifted and then written over, the shift was named.
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

/// Of an element that was shifted, the shift is named, and no later patch that put elements behind it.
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

/// The operations after one that cannot be applied were traced as if it had been.
#[test]
fn what_could_not_be_applied_shifts_nothing() {
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

/// A move of an element that is not there any more was traced as if it made room: it was refused for the place behind
/// the one it names.
#[test]
fn a_move_of_nothing_shifts_nothing() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "remove", "path": "/list/3"}, {"op": "remove", "path": "/list/2"}]));
    let rejection = refused(case.answer("aim", json!([{"op": "move", "from": "/list/2", "path": "/list/3"}])));
    let places: Vec<&str> = rejection.violations.iter().map(|violation| violation.pointer.as_str()).collect();
    assert_eq!((rejection.code, places), (Code::StaleTarget, vec!["/list/2", "/list/3"]), "{rejection:?}");
}

/// What came and went while a worker was thinking is not in the way of what it adds.
#[test]
fn a_place_that_is_vacant_again_is_vacant() {
    let mut case = Case::new(list());
    case.ask("aim");
    case.meanwhile(json!([{"op": "add", "path": "/map/new", "value": 1}]));
    case.meanwhile(json!([{"op": "remove", "path": "/map/new"}]));
    let added = case.answer("aim", json!([{"op": "add", "path": "/map/new", "value": 2}]));
    assert!(matches!(added, Outcome::Committed { .. }), "{added:?}");
}

/// A move onto a member whose name begins the name of the moved one ended the process.
#[test]
fn a_name_that_begins_with_another_is_not_below_it() {
    let mut case = Case::new(json!({"list": [], "map": {"k1": 1, "k10": 2}}));
    case.meanwhile(json!([{"op": "move", "from": "/map/k10", "path": "/map/k1"}]));
    assert_eq!(case.board.state().root().to_value(), json!({"list": [], "map": {"k1": 2}}));
}
