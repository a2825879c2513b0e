//! File edits: checks against the read set, the recorded edit history, and the attempt that continues.

use crate::played::Played;
use crate::played::files::{by, change, create, external, hash, path, read};
use patchboard_kernel::board::{Board, Input, Outcome, RememberedOutcome};
use patchboard_kernel::files::{Edit, EditAttempt, FileChange, FileEntry, FileRead};
use patchboard_kernel::id::{IdempotencyKey, InvocationId};
use patchboard_kernel::record::{Body, Cause, End, Ended, Kind};
use patchboard_kernel::rejection::{Code, Rejection, Stage};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

/// Returns a board with two engineers that work on one directory.
fn shop(workspace: Value) -> Played {
    let engineer = json!({"agent": "llm", "limits": {"timeout": "10m"},
        "files": {"view": ["**"], "edit": ["src/**"]}, "writes": [{"path": "/list/-"}]});
    let mut spec = json!({"dir": "code"});
    spec.as_object_mut().expect("an object").extend(workspace.as_object().expect("an object").clone());
    let mut played = Played::new(json!({
        "workspace": spec,
        "workers": {"ada": engineer, "bob": engineer},
        "rules": [
            {"name": "a", "trigger": "start", "run": "ada"},
            {"name": "b", "trigger": "start", "run": "bob"},
        ],
    }));
    assert_eq!(played.calls.len(), 2);
    let files = [("src/a.py", "1\n2\n3\n4\n5\n6\n7\n8\n"), ("src/b.py", "b\n"), ("setup.py", "s\n")];
    let changes = files.map(|(path, text)| create(path, text)).to_vec();
    let outcome = played.give(Input::Edit(Edit { changes, ..external() })).outcome;
    assert!(matches!(outcome, Some(Outcome::Committed { .. })), "{outcome:?}");
    played
}

fn edit(played: &mut Played, worker: &str, reads: &[FileRead], change: FileChange) -> Outcome {
    let edit = by(played, worker, reads, vec![change]);
    played.give(Input::Edit(edit)).outcome.expect("an outcome")
}

fn committed(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
}

fn refused(outcome: Outcome) -> Rejection {
    match outcome {
        Outcome::Rejected { rejection, .. } | Outcome::RejectedUnrecorded(rejection) => rejection,
        other => panic!("it was {other:?}"),
    }
}

fn entry(played: &Played, at: &str) -> FileEntry {
    FileEntry::load(played.board.state(), &path(at)).expect("an entry")
}

const A: &str = "1\n2\n3\n4\n5\n6\n7\n8\n";

#[test]
fn an_edit_makes_a_version_and_its_author_goes_on() {
    let mut played = shop(json!({}));
    let (first, text) = change("src/a.py", A, 2, "2\n", "two\nzwei\n");
    committed(&edit(&mut played, "ada", &[read("src/a.py", 1, None)], first));
    let known = entry(&played, "src/a.py");
    assert_eq!((known.version, known.lines, known.hash), (2, 9, hash(&text)));
    assert_eq!((known.writer.as_str(), known.intent.as_str()), ("ada", "a reason"));
    let (second, _) = change("src/a.py", &text, 9, "8\n", "eight\n");
    committed(&edit(&mut played, "ada", &[read("src/a.py", 2, None)], second));
    assert_eq!(entry(&played, "src/a.py").version, 3);
    // The task itself is still open, and ends with a proposal as usual.
    assert!(matches!(
        played.answer(json!([{"op": "add", "path": "/list/-", "value": "done"}]), None),
        Outcome::Committed { .. }
    ));
    let (late, _) = change("src/b.py", "b\n", 1, "b\n", "c\n");
    let of = Some(EditAttempt { invocation: InvocationId(1), attempt: 1 });
    let late = Edit { of, intent: Some("late".to_owned()), changes: vec![late], ..external() };
    let outcome = played.give(Input::Edit(late)).outcome.expect("an outcome");
    assert_eq!(refused(outcome).code, Code::InvocationClosed);
    assert_eq!(played.count(Kind::Rejected), 0, "nobody waits for it, and nothing is recorded");
    played.holds();
}

#[test]
fn unchanged_lines_stay_fresh_when_they_move() {
    let mut played = shop(json!({}));
    let (first, text) = change("src/a.py", A, 2, "2\n", "two\nzwei\n");
    committed(&edit(&mut played, "ada", &[read("src/a.py", 1, Some((1, 3)))], first));
    // Bob read lines 6 to 8 of version 1, which are 7 to 9 now.
    let (second, text) = change("src/a.py", &text, 8, "7\n", "seven\n");
    committed(&edit(&mut played, "bob", &[read("src/a.py", 1, Some((6, 8)))], second));
    // Ada has not read line 7, which Bob changed.
    let (third, _) = change("src/a.py", &text, 4, "3\n", "three\n");
    committed(&edit(&mut played, "ada", &[read("src/a.py", 2, Some((1, 4)))], third));
    // Bob's read of the whole file is stale.
    let (fourth, _) = change("src/b.py", "b\n", 1, "b\n", "c\n");
    let reads = [read("src/a.py", 2, None), read("src/b.py", 1, None)];
    let rejection = refused(edit(&mut played, "bob", &reads, fourth));
    assert_eq!((rejection.stage, rejection.code), (Stage::Freshness, Code::StaleRead));
    let violation = &rejection.violations[0];
    assert_eq!(violation.pointer, "/files/src~1a.py");
    let stale = violation.stale.as_ref().expect("what changed");
    assert_eq!((stale.read_at.0, stale.now.0, stale.changed_by.as_str()), (2, 4, "ada"));
    played.holds();
}

#[test]
fn with_whole_files_any_change_is_a_conflict() {
    let mut played = shop(json!({"granularity": "file"}));
    let (first, text) = change("src/a.py", A, 2, "2\n", "two\n");
    committed(&edit(&mut played, "ada", &[read("src/a.py", 1, Some((2, 2)))], first));
    let (second, _) = change("src/a.py", &text, 7, "7\n", "seven\n");
    let rejection = refused(edit(&mut played, "bob", &[read("src/a.py", 1, Some((7, 7)))], second));
    assert_eq!(rejection.code, Code::StaleTarget);
    played.holds();
}

#[test]
fn edits_of_unread_lines_are_rejected() {
    let mut played = shop(json!({}));
    let (first, _) = change("src/a.py", A, 2, "2\n", "two\n");
    assert_eq!(refused(edit(&mut played, "ada", &[], first.clone())).code, Code::UnseenTarget);
    let elsewhere = [read("src/a.py", 1, Some((4, 8)))];
    assert_eq!(refused(edit(&mut played, "ada", &elsewhere, first)).code, Code::UnseenTarget);
    // An insertion between two lines requires that one of them was read.
    let (insert, text) = change("src/a.py", A, 4, "", "between\n");
    committed(&edit(&mut played, "ada", &elsewhere, insert));
    let (behind, _) = change("src/a.py", &text, 10, "", "behind\n");
    let rejection = refused(edit(&mut played, "ada", &[read("src/a.py", 2, Some((1, 3)))], behind));
    assert_eq!(rejection.code, Code::UnseenTarget);
    played.holds();
}

#[test]
fn a_file_is_made_once_and_a_deleted_one_has_changed() {
    let mut played = shop(json!({}));
    committed(&edit(&mut played, "ada", &[], create("src/new.py", "n\n")));
    assert_eq!(entry(&played, "src/new.py").version, 1);
    let rejection = refused(edit(&mut played, "bob", &[], create("src/new.py", "m\n")));
    assert_eq!(rejection.code, Code::FileExists, "nobody was faster who had not looked");
    let gone = FileChange { path: path("src/new.py"), from: hash("n\n"), hash: None, lines: 0, bytes: 0, hunks: None };
    committed(&edit(&mut played, "bob", &[read("src/new.py", 1, None)], gone));
    let known = entry(&played, "src/new.py");
    assert_eq!((known.version, known.exists()), (2, false));
    // Ada depends on it, and on a search that found no file of a name.
    let (other, _) = change("src/b.py", "b\n", 1, "b\n", "c\n");
    let reads = [read("src/new.py", 1, None), read("src/b.py", 1, None)];
    assert_eq!(refused(edit(&mut played, "ada", &reads, other.clone())).code, Code::StaleRead);
    committed(&edit(&mut played, "ada", &[], create("src/new.py", "again\n")));
    assert_eq!(entry(&played, "src/new.py").version, 3, "no number is used twice");
    let reads = [read("src/new.py", 0, None), read("src/b.py", 1, None)];
    assert_eq!(refused(edit(&mut played, "bob", &reads, other)).code, Code::StaleRead);
    played.holds();
}

#[test]
fn a_rejected_worker_is_next_at_its_file() {
    let mut played = shop(json!({}));
    let (first, text) = change("src/a.py", A, 2, "2\n", "two\n");
    committed(&edit(&mut played, "ada", &[read("src/a.py", 1, None)], first));
    let (second, after) = change("src/a.py", &text, 2, "two\n", "zwei\n");
    assert_eq!(refused(edit(&mut played, "bob", &[read("src/a.py", 1, None)], second.clone())).code, Code::StaleTarget);
    let (third, _) = change("src/a.py", &text, 8, "8\n", "acht\n");
    let rejection = refused(edit(&mut played, "ada", &[read("src/a.py", 2, None)], third));
    assert_eq!((rejection.code, rejection.violations.len()), (Code::Reserved, 1));
    committed(&edit(&mut played, "bob", &[read("src/a.py", 2, None)], second));
    let (fourth, _) = change("src/a.py", &after, 8, "8\n", "acht\n");
    committed(&edit(&mut played, "ada", &[read("src/a.py", 3, None)], fourth));
    played.holds();
}

#[test]
fn external_changes_are_recorded_and_make_readers_stale() {
    let mut played = shop(json!({}));
    let (outside, text) = change("src/a.py", A, 5, "5\n", "fünf\n");
    let outcome = played.give(Input::Edit(Edit { changes: vec![outside], ..external() })).outcome;
    committed(&outcome.expect("an outcome"));
    assert_eq!(entry(&played, "src/a.py").writer, "external");
    let (first, _) = change("src/a.py", &text, 2, "2\n", "two\n");
    let stale = edit(&mut played, "ada", &[read("src/a.py", 1, Some((1, 5)))], first.clone());
    assert_eq!(refused(stale).code, Code::StaleTarget);
    committed(&edit(&mut played, "ada", &[read("src/a.py", 1, Some((1, 4)))], first));
    // A change without line information affects every line.
    let text = text.replace("2\n", "two\n");
    let unknown =
        FileChange { path: path("src/a.py"), from: hash(&text), hash: hash("x\n"), lines: 1, bytes: 2, hunks: None };
    let formatter = Edit { name: Some("black".to_owned()), changes: vec![unknown], ..external() };
    committed(&played.give(Input::Edit(formatter)).outcome.expect("an outcome"));
    let known = entry(&played, "src/a.py");
    assert_eq!((known.writer.as_str(), known.edits[&4].moves.as_ref()), ("black", None));
    played.holds();
}

#[test]
fn invalid_edits_are_rejected_with_the_reason() {
    let mut played = shop(json!({}));
    let reads = [read("src/a.py", 1, None), read("setup.py", 1, None)];
    let (good, _) = change("src/a.py", A, 2, "2\n", "two\n");
    let (setup, _) = change("setup.py", "s\n", 1, "s\n", "t\n");
    let with = |played: &Played, alter: &dyn Fn(&mut Edit)| {
        let mut edit = by(played, "ada", &reads, vec![good.clone()]);
        alter(&mut edit);
        edit
    };
    let far = |edit: &mut Edit| edit.changes[0].hunks.as_mut().expect("hunks")[0].at = 9;
    let open = |edit: &mut Edit| "two".clone_into(&mut edit.changes[0].hunks.as_mut().expect("hunks")[0].now);
    let cases: Vec<(Edit, Code)> = vec![
        (with(&played, &|edit| edit.intent = None), Code::IntentMissing),
        (with(&played, &|edit| edit.intent = Some("  ".to_owned())), Code::IntentMissing),
        (with(&played, &|edit| edit.intent = Some("x\ny".to_owned())), Code::TooLarge),
        (with(&played, &|edit| edit.changes.clear()), Code::NotAPatch),
        (with(&played, &|edit| edit.changes.push(good.clone())), Code::NotAPatch),
        (with(&played, &|edit| edit.changes = vec![setup.clone()]), Code::PathNotGranted),
        (with(&played, &|edit| edit.name = Some("bob".to_owned())), Code::WrongWorker),
        (with(&played, &|edit| edit.name = Some("external".to_owned())), Code::WrongWorker),
        (with(&played, &|edit| edit.name = Some("a b".to_owned())), Code::NotAPatch),
        (with(&played, &|edit| edit.changes[0].lines = 3), Code::NotAPatch),
        (with(&played, &far), Code::NotAPatch),
        (with(&played, &open), Code::NotAPatch),
        (with(&played, &|edit| edit.changes[0].from = hash("else")), Code::TestFailed),
    ];
    for (edit, code) in cases {
        let case = format!("{edit:?}");
        let rejection = refused(played.give(Input::Edit(edit)).outcome.expect("an outcome"));
        assert_eq!(rejection.code, code, "{case}");
    }
    let state = played.board.state().digest();
    let direct =
        refused(played.direct("ada", r#"[{"op":"replace","path":"/files/src~1a.py/version","value":9}]"#).clone());
    assert_eq!((direct.code, played.board.state().digest()), (Code::PathNotGranted, state));
    played.holds();
}

#[test]
fn a_repeated_edit_is_made_once() {
    let mut played = shop(json!({}));
    let (change, _) = change("src/a.py", A, 2, "2\n", "two\n");
    let token = Some(IdempotencyKey::from("one"));
    let edit = Edit { token, ..by(&played, "ada", &[read("src/a.py", 1, None)], vec![change]) };
    committed(&played.give(Input::Edit(edit.clone())).outcome.expect("an outcome"));
    let again = played.give(Input::Edit(edit.clone()));
    assert!(matches!(again.outcome, Some(Outcome::Duplicate(_))) && again.records.is_empty(), "{:?}", again.outcome);
    let first = edit.clone();
    let other = Edit { intent: Some("another".to_owned()), ..edit };
    let outcome = played.give(Input::Edit(other)).outcome.expect("an outcome");
    assert_eq!(refused(outcome).code, Code::TokenConflict);
    played.answer(json!([]), None);
    let late = played.give(Input::Edit(first));
    assert!(matches!(late.outcome, Some(Outcome::Duplicate(_))), "the task is over, and what was done in it is done");
    played.holds();
}

#[test]
fn an_edit_that_leaves_every_file_as_it_is_makes_no_version() {
    let mut played = shop(json!({}));
    let same = |at: &str, text: &str| FileChange { from: hash(text), hunks: Some(Vec::new()), ..create(at, text) };
    let state = played.board.state().digest();
    // The edit is checked like any other.
    assert_eq!(refused(edit(&mut played, "ada", &[], same("src/a.py", A))).code, Code::UnseenTarget);
    let nothing = Edit {
        token: Some(IdempotencyKey::from("one")),
        ..by(&played, "ada", &[read("src/a.py", 1, None)], vec![same("src/a.py", A)])
    };
    let outcome = played.give(Input::Edit(nothing.clone())).outcome;
    assert!(matches!(outcome, Some(Outcome::NoOp { .. })), "{outcome:?}");
    let again = played.give(Input::Edit(nothing)).outcome;
    assert!(matches!(again, Some(Outcome::Duplicate(RememberedOutcome::NoOp { .. }))), "{again:?}");
    // An external change is reported a second time.
    let happened = Edit { changes: vec![same("src/a.py", A), same("setup.py", "s\n")], ..external() };
    let outcome = played.give(Input::Edit(happened)).outcome;
    assert!(matches!(outcome, Some(Outcome::NoOp { .. })), "{outcome:?}");
    assert_eq!((played.board.state().digest(), played.count(Kind::NoOp)), (state, 2));

    // An edit that changes another file leaves this one at its version, so readers are not stale.
    let (other, _) = change("src/b.py", "b\n", 1, "b\n", "c\n");
    let reads = [read("src/a.py", 1, None), read("src/b.py", 1, None)];
    let both = by(&played, "ada", &reads, vec![same("src/a.py", A), other]);
    committed(&played.give(Input::Edit(both)).outcome.expect("an outcome"));
    assert_eq!((entry(&played, "src/a.py").version, entry(&played, "src/b.py").version), (1, 2));
    let (first, text) = change("src/a.py", A, 2, "2\n", "two\n");
    committed(&edit(&mut played, "bob", &[read("src/a.py", 1, None)], first));

    // A rejected worker that then leaves the file unchanged gives up its reservation.
    let (late, _) = change("src/a.py", A, 8, "8\n", "acht\n");
    assert_eq!(refused(edit(&mut played, "ada", &[read("src/a.py", 1, None)], late)).code, Code::StaleTarget);
    let (next, _) = change("src/a.py", &text, 4, "4\n", "vier\n");
    let reads = [read("src/a.py", 2, None)];
    assert_eq!(refused(edit(&mut played, "bob", &reads, next.clone())).code, Code::Reserved);
    let outcome = edit(&mut played, "ada", &reads, same("src/a.py", &text));
    assert!(matches!(outcome, Outcome::NoOp { .. }), "{outcome:?}");
    committed(&edit(&mut played, "bob", &reads, next));
    let recovered = Board::recover(&played.records, &PLANS).expect("recovered");
    assert_eq!(recovered.snapshot_digest(), played.board.snapshot_digest());
    played.holds();
}

#[test]
fn reads_older_than_what_is_remembered_are_stale_if_anything_changed() {
    let mut played = shop(json!({}));
    let mut text = A.to_owned();
    for turn in 0..40_u64 {
        let was = text.split_inclusive('\n').next().expect("a line").to_owned();
        let (next, after) = change("src/a.py", &text, 1, &was, &format!("{turn}\n"));
        committed(&edit(&mut played, "ada", &[read("src/a.py", turn + 1, None)], next));
        text = after;
    }
    let known = entry(&played, "src/a.py");
    assert_eq!((known.version, known.edits.len(), known.edits.keys().next()), (41, 32, Some(&10)));
    let (last, _) = change("src/a.py", &text, 8, "8\n", "eight\n");
    let old = edit(&mut played, "bob", &[read("src/a.py", 8, Some((5, 8)))], last.clone());
    assert_eq!(refused(old).code, Code::StaleTarget);
    committed(&edit(&mut played, "bob", &[read("src/a.py", 9, Some((5, 8)))], last));
    played.holds();
}

#[test]
fn soft_isolation_records_and_checks_nothing() {
    let mut played = shop(json!({"isolation": "soft"}));
    let (first, text) = change("src/a.py", A, 2, "2\n", "two\n");
    committed(&edit(&mut played, "ada", &[], first));
    let (second, _) = change("src/a.py", &text, 2, "two\n", "zwei\n");
    committed(&edit(&mut played, "bob", &[read("src/a.py", 1, None)], second));
    played.holds();
}

#[test]
fn rules_see_what_edits_do_and_a_board_is_rebuilt_with_them() {
    let mut played = Played::new(json!({
        "workspace": {"dir": "code"},
        "workers": {
            "ada": {"agent": "llm", "files": {"edit": ["**"]}},
            "reviewer": {"agent": "llm", "reads": ["/files"]},
        },
        "rules": [
            {"name": "a", "trigger": "start", "run": "ada"},
            {"name": "review", "trigger": {"op": "replace", "path": "/files/*/version"}, "run": "reviewer"},
        ],
        "invariants": [{"name": "small", "for": "/files/*", "expr": "self.bytes < 100"}],
    }));
    let changes = vec![create("a.py", "1\n")];
    committed(&played.give(Input::Edit(Edit { changes, ..external() })).outcome.expect("an outcome"));
    let (second, _) = change("a.py", "1\n", 1, "1\n", "2\n");
    committed(&edit(&mut played, "ada", &[read("a.py", 1, None)], second));
    assert_eq!(played.calls.last().expect("a call").2, "reviewer");
    assert!(played.view().contains("a.py"), "{}", played.view());
    let large = create("b.py", &"x\n".repeat(60));
    let rejection = refused(edit(&mut played, "ada", &[], large));
    assert_eq!((rejection.stage, rejection.code), (Stage::Invariant, Code::InvariantViolated));
    let kinds: Vec<_> =
        played.bodies().filter(|body| matches!(body, Body::Committed(it) if it.by.edit.is_some())).collect();
    assert_eq!(kinds.len(), 2);
    let recovered = Board::recover(&played.records, &PLANS).expect("recovered");
    assert_eq!(recovered.snapshot_digest(), played.board.snapshot_digest());
    played.holds();
}

fn delete(at: &str, text: &str) -> FileChange {
    FileChange { path: path(at), from: hash(text), hash: None, lines: 0, bytes: 0, hunks: None }
}

#[test]
fn files_that_are_gone_make_room_and_no_version_comes_again() {
    let mut played = shop(json!({"max_files": 6}));
    for name in ["src/c.py", "src/d.py", "src/e.py"] {
        committed(&edit(&mut played, "ada", &[], create(name, "1\n")));
    }
    let full = refused(edit(&mut played, "ada", &[], create("src/f.py", "1\n")));
    assert_eq!((full.stage, full.code), (Stage::Syntax, Code::ResultTooLarge));
    // Bob has read the first version; Ada deletes the fourth, and then a file that was never edited.
    for turn in 1..=3 {
        let (before, after) = (format!("{turn}\n"), format!("{}\n", turn + 1));
        let (next, _) = change("src/d.py", &before, 1, &before, &after);
        committed(&edit(&mut played, "ada", &[read("src/d.py", turn, None)], next));
    }
    committed(&edit(&mut played, "ada", &[read("src/d.py", 4, None)], delete("src/d.py", "4\n")));
    committed(&edit(&mut played, "ada", &[read("src/c.py", 1, None)], delete("src/c.py", "1\n")));
    // The limit leaves room for one more, so the oldest deleted entry is dropped.
    committed(&edit(&mut played, "ada", &[], create("src/f.py", "1\n")));
    let known = |played: &Played, at: &str| FileEntry::load(played.board.state(), &path(at));
    assert_eq!((known(&played, "src/d.py"), known(&played, "src/c.py").map(|it| it.version)), (None, Some(2)));
    assert_eq!(entry(&played, "src/f.py").version, 1, "nothing of its name was forgotten");
    let (other, _) = change("src/b.py", "b\n", 1, "b\n", "c\n");
    for version in 1..=5 {
        let reads = [read("src/d.py", version, Some((1, 1))), read("src/b.py", 1, None)];
        assert_eq!(refused(edit(&mut played, "bob", &reads, other.clone())).code, Code::StaleRead, "{version}");
    }
    // The file is created again, and earlier reads of it remain stale.
    committed(&edit(&mut played, "ada", &[read("src/f.py", 1, None)], delete("src/f.py", "1\n")));
    committed(&edit(&mut played, "ada", &[], create("src/d.py", "1\n")));
    assert_eq!(
        (entry(&played, "src/d.py").version, known(&played, "src/c.py")),
        (6, None),
        "above all that was forgotten"
    );
    for version in 0..=5 {
        let reads = [read("src/d.py", version, Some((1, 1))), read("src/b.py", 1, None)];
        assert_eq!(refused(edit(&mut played, "bob", &reads, other.clone())).code, Code::StaleRead, "{version}");
    }
    // An edit that deletes one file and creates another does not evict the entry that it deletes itself.
    let swap =
        by(&played, "ada", &[read("src/e.py", 1, None)], vec![delete("src/e.py", "1\n"), create("src/g.py", "1\n")]);
    committed(&played.give(Input::Edit(swap)).outcome.expect("an outcome"));
    assert_eq!((known(&played, "src/f.py"), entry(&played, "src/g.py").version), (None, 6));
    let recovered = Board::recover(&played.records, &PLANS).expect("recovered");
    assert_eq!(recovered.snapshot_digest(), played.board.snapshot_digest());
    played.holds();
}

#[test]
fn an_administrator_does_not_write_what_is_known_of_files() {
    let mut played = shop(json!({}));
    let state = played.board.state().digest();
    for at in ["/files/src~1a.py/version", "/files/src~1a.py", "/files", ""] {
        let outcome = played.give(Input::Amend { path: at.to_owned(), value: json!({}) }).outcome.expect("an outcome");
        assert_eq!(refused(outcome).code, Code::PathNotGranted, "{at}");
    }
    assert_eq!(played.board.state().digest(), state);
    committed(&played.give(Input::Amend { path: "/list".to_owned(), value: json!([1]) }).outcome.expect("an outcome"));
    played.holds();
}

#[test]
fn edits_have_a_limit_of_their_own() {
    let engineer = json!({"agent": "llm", "files": {"edit": ["**"]}, "writes": [{"path": "/list/-"}]});
    let play = |limits: Value| {
        let mut played = Played::new(json!({
            "workspace": {"dir": "code"}, "limits": limits, "workers": {"ada": engineer},
            "rules": [{"name": "a", "trigger": "start", "run": "ada"}],
        }));
        for name in ["a.py", "b.py", "c.py"] {
            let outcome = edit(&mut played, "ada", &[], create(name, "1\n"));
            if !matches!(outcome, Outcome::Committed { .. }) {
                return (played.board.ended(), refused(outcome).code);
            }
        }
        played.answer(json!([{"op": "add", "path": "/list/-", "value": "done"}]), None);
        played.holds();
        (played.board.ended(), Code::TestFailed)
    };
    let ended = |cause| Some(Ended { end: End::Stopped, cause });
    assert_eq!(play(json!({"commits": 1})).0, ended(Cause::Commits), "edits are none");
    assert_eq!(play(json!({"edits": 2})), (ended(Cause::Edits), Code::InvocationClosed));
    assert_ne!(play(json!({"commits": 2, "edits": 4})).0.map(|ended| ended.end), Some(End::Stopped));
}
