//! Places that a patch writes, and the description of changes in a rejection.

use serde_json::json;

use super::*;
use crate::blueprint::PatchLimits;
use crate::digest::{Hasher, Salt};
use crate::patch;
use crate::state::ResultLimits;
use crate::targets::Targets;

const LIMITS: ResultLimits = ResultLimits { bytes: 1 << 20, depth: 64 };

struct NoCommits;

impl CommitLookup for NoCommits {
    fn commit_of(&self, version: Version) -> Option<(Seq, WorkerName)> {
        Some((Seq(version.0 * 10), "rival".into()))
    }
}

fn apply(state: &State, patch: Value) -> State {
    let mut candidate = state.candidate();
    for op in patch::parse(&patch, &PatchLimits::default()).expect("a patch") {
        candidate.apply(&op, LIMITS).expect("it applies");
    }
    candidate.into_state()
}

fn targets(state: &State, patch: Value) -> Vec<Target> {
    let (mut candidate, mut targets) = (state.candidate(), Targets::default());
    for (index, op) in patch::parse(&patch, &PatchLimits::default()).expect("a patch").iter().enumerate() {
        targets.note(index, op, &candidate.effect(op), &candidate);
        candidate.apply(op, LIMITS).expect("it applies");
    }
    targets.as_slice().to_vec()
}

fn start() -> State {
    State::new(
        &json!({"l": [{"n": 0}, {"n": 1}, {"n": 2}], "o": {"a": 1, "b": [1]}, "t": "one two three"}),
        &Hasher::new(&Salt::ZERO),
    )
}

/// Judges a patch whose author has read `reads` of the state `before`.
fn judged(mode: Freshness, before: &State, now: &State, reads: &[&str], patch: Value) -> Conflict {
    let contract = crate::contract::Contract::compile(
        &serde_json::from_value(json!({"agent": "script", "reads": ["/l", "/o", "/t"]})).expect("a worker"),
        &json!(true),
        &crate::expressions::ExpressionCompiler::new(crate::pattern::PathSyntax::Plain),
    );
    let pointer = |text: &&str| PointerBuf::parse(*text).expect("a pointer");
    let basis = ReadSet { state: before.clone(), reads: reads.iter().map(pointer).collect(), members: Vec::new() };
    let context = ProposalContext {
        expansions_left: 0,
        base: before.version(),
        basis: Some(&basis),
        invocation: Some(InvocationId(1)),
        reservations: &Reservations::default(),
        commits: &NoCommits,
    };
    let inputs =
        Inputs { mode, wants_seen: true, contract: &contract.expect("a contract"), state: now, context: &context };
    judge(&inputs, &targets(now, patch), &mut Allowance::new())
}

fn codes(conflict: &Conflict) -> Vec<(Code, &str)> {
    conflict.violations.iter().map(|violation| (violation.code, violation.pointer.as_str())).collect()
}

#[test]
fn targets_are_what_the_places_were_called_before_the_patch() {
    let found = |patch| {
        let targets = targets(&start(), patch).into_iter();
        targets.map(|target| (target.op, target.place.to_string(), target.action)).collect::<Vec<_>>()
    };
    let place = |op: usize, place: &str, action| (op, place.to_owned(), action);
    use TargetAction::{Appends, Copies, Creates, Inserts, Overwrites, Removes};
    // After the first element is removed, the second takes its index.
    let patch = json!([{"op": "remove", "path": "/l/0"}, {"op": "replace", "path": "/l/0/n", "value": 7}]);
    assert_eq!(found(patch), [place(0, "/l/0", Removes), place(1, "/l/1/n", Overwrites)]);
    // Values that the patch itself created cannot conflict.
    let patch = json!([
        {"op": "add", "path": "/l/1", "value": {"n": 9}},
        {"op": "replace", "path": "/l/1/n", "value": 7},
        {"op": "replace", "path": "/l/3/n", "value": 7},
        {"op": "add", "path": "/l/-", "value": 0},
        {"op": "replace", "path": "/l/4", "value": 1},
    ]);
    let expected = [place(0, "/l/1", Inserts), place(2, "/l/2/n", Overwrites), place(3, "/l/-", Appends)];
    assert_eq!(found(patch), expected);
    let patch = json!([
        {"op": "move", "from": "/l/0", "path": "/l/2"},
        {"op": "copy", "from": "/l/2", "path": "/o/c"},
        {"op": "copy", "from": "/l/0", "path": "/o/d"},
        {"op": "add", "path": "/o/a", "value": 2},
        {"op": "test", "path": "/t", "value": "one two three"},
    ]);
    let expected = [
        place(0, "/l/0", Removes),
        place(0, "/l/-", Appends),
        place(1, "/o/c", Creates),
        place(2, "/l/1", Copies),
        place(2, "/o/d", Creates),
        place(3, "/o/a", Overwrites),
    ];
    assert_eq!(found(patch), expected);
}

#[test]
fn appends_make_only_members_reads_and_overwrites_stale() {
    let before = start();
    let now = apply(&before, json!([{"op": "add", "path": "/l/-", "value": {"n": 3}}]));
    let judge = |mode, patch| judged(mode, &before, &now, &["/l", "/o"], patch);
    let append = json!([{"op": "add", "path": "/l/-", "value": 4}]);
    assert_eq!(codes(&judge(Freshness::Reads, append.clone())), []);
    assert_eq!(codes(&judge(Freshness::Members, append)), [(Code::StaleRead, "/l")]);
    let replace = json!([{"op": "replace", "path": "/l", "value": []}]);
    assert_eq!(codes(&judge(Freshness::Target, replace)), [(Code::StaleTarget, "/l")]);
    let remove = json!([{"op": "remove", "path": "/l/1"}]);
    assert_eq!(codes(&judge(Freshness::Reads, remove)), []);
}

#[test]
fn a_stale_rejection_reports_each_change_and_its_author() {
    let before = start();
    let now = apply(&before, json!([{"op": "replace", "path": "/t", "value": "one 2 three"}]));
    let now = apply(&now, json!([{"op": "replace", "path": "/l/1/n", "value": 5}, {"op": "remove", "path": "/o/a"}]));
    let patch = json!([{"op": "replace", "path": "/l/0/n", "value": 1}]);
    let conflict = judged(Freshness::Reads, &before, &now, &["/l", "/o", "/t"], patch.clone());
    let expected = [(Code::StaleRead, "/l/1/n"), (Code::StaleRead, "/o"), (Code::StaleRead, "/t")];
    assert_eq!(codes(&conflict), expected);
    let [number, object, text] = conflict.violations.as_slice() else { panic!("three violations") };
    assert_eq!((number.found.clone(), number.diff.clone()), (Some(json!(5)), Some(json!({"was": 1}))));
    assert_eq!(object.diff, Some(json!({"was": {"a": 1, "b": [1]}})));
    assert_eq!(text.diff, Some(json!({"at": 4, "removed": "two", "added": "2"})));
    let stale = text.stale.as_ref().expect("it says when");
    assert_eq!(
        (stale.read_at, stale.now, stale.seq, stale.changed_by.as_str()),
        (Version(0), Version(1), Seq(10), "rival")
    );
    let contested: Vec<_> = conflict.contested.iter().map(ToString::to_string).collect();
    assert_eq!(contested, ["/l/0/n", "/l/1/n", "/o", "/t"]);
    assert_eq!(codes(&judged(Freshness::Target, &before, &now, &["/l"], patch.clone())), []);
    assert_eq!(codes(&judged(Freshness::None, &before, &now, &["/l"], patch)), []);
}

#[test]
fn overwriting_an_unseen_place_is_rejected() {
    let before = start();
    let patch = json!([{"op": "replace", "path": "/o", "value": {}}]);
    assert_eq!(
        codes(&judged(Freshness::Reads, &before, &before, &["/o/b"], patch.clone())),
        [(Code::UnseenTarget, "/o")]
    );
    assert_eq!(codes(&judged(Freshness::Reads, &before, &before, &["/o"], patch)), []);
    // A worker without read access was not shown a summary either.
    let patch = json!([{"op": "add", "path": "/hidden", "value": 1}, {"op": "add", "path": "/o/c", "value": 1}]);
    assert_eq!(codes(&judged(Freshness::Reads, &before, &before, &[], patch)), []);
}

#[test]
fn the_payload_is_bounded() {
    let long: Vec<String> = (0..30).map(|index| format!("{index}{}", "x".repeat(1000))).collect();
    let before = State::new(&json!({"l": long}), &Hasher::new(&Salt::ZERO));
    let ops: Vec<_> = (0..30)
        .map(|index| json!({"op": "replace", "path": format!("/l/{index}"), "value": "y".repeat(1000)}))
        .collect();
    let mut now = before.clone();
    for op in ops {
        now = apply(&now, json!([op]));
    }
    let conflict = judged(Freshness::Reads, &before, &now, &["/l"], json!([{"op": "add", "path": "/l/-", "value": 1}]));
    assert_eq!(conflict.violations.len(), VIOLATIONS_MAX);
    let shown: u64 =
        conflict.violations.iter().filter_map(|violation| Some(crate::json::size(violation.found.as_ref()?))).sum();
    assert!(shown > 4000 && shown <= PAYLOAD_BYTES_MAX, "{shown}");
}

#[test]
fn a_difference_of_texts_is_the_part_in_which_they_differ() {
    assert_eq!(text_difference("é aä b", "é aö b"), json!({"at": 2, "removed": "aä", "added": "aö"}));
    assert_eq!(
        text_difference("a fox jumps.", "a fox leaps."),
        json!({"at": 6, "removed": "jumps.", "added": "leaps."})
    );
    assert_eq!(text_difference("a fox", "a quick fox"), json!({"at": 2, "removed": "", "added": "quick "}));
    assert_eq!(text_difference("a quick fox", "a fox"), json!({"at": 2, "removed": "quick ", "added": ""}));
    assert_eq!(text_difference("aaa", "aa"), json!({"at": 0, "removed": "aaa", "added": "aa"}));
    let (long, longer) = ("ä".repeat(3000), "ä".repeat(3001));
    assert_eq!(text_difference(&long, &longer)["added"], "ä".repeat(25));
    assert_eq!(text_difference("", "x"), json!({"at": 0, "removed": "", "added": "x"}));
}

#[test]
fn a_numeric_member_name_is_treated_as_a_member() {
    let table = |members: Value| State::new(&json!({ "o": members }), &Hasher::new(&Salt::ZERO));
    let before = table(json!({"5": "old", "x": "old"}));
    let now = apply(&before, json!([{"op": "remove", "path": "/o/5"}, {"op": "remove", "path": "/o/x"}]));
    for place in ["/o/x", "/o/5"] {
        let patch = json!([{"op": "add", "path": place, "value": "new"}]);
        let conflict = judged(Freshness::Target, &before, &now, &["/o"], patch);
        assert_eq!(codes(&conflict), [(Code::StaleTarget, place)], "it was taken away meanwhile");
    }
}
