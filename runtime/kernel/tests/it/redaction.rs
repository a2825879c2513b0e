//! Redaction: the text is removed from every record that holds it, and the rest of the board stays as it was.

use std::collections::BTreeMap;

use jsonptr::PointerBuf;
use patchboard_kernel::board::{Board, Input, Outcome, Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::digest::{Digest, Hasher, Salt};
use patchboard_kernel::files::{Edit, FileChange, FileEntry};
use patchboard_kernel::id::{Seq, Timestamp};
use patchboard_kernel::record::{Body, Cause, Kind, Record};
use patchboard_kernel::redaction::{self, Redaction, RedactionCode, RedactionError, Request};
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

use crate::played::Played;
use crate::played::files::{by, change, create, external, path, read};

const SECRET: &str = "Ada Lovelace, 36";

fn places(places: &[&str]) -> Request {
    let places = places.iter().map(|place| PointerBuf::parse(*place).expect("a pointer")).collect();
    Request { places, ..Request::default() }
}

fn plan(played: &Played, request: &Request) -> Result<Redaction, RedactionError> {
    redaction::plan(&played.board, &played.records, &mut |_| None, request)
}

/// Returns the redacted records, including the record of the redaction itself.
fn erased(played: &Played, request: &Request) -> Vec<Record> {
    let planned = plan(played, request).expect("something is erased");
    let mut board = played.board.clone();
    let step = board.step(Timestamp(played.now + 1), Input::Redact(planned.body));
    let mut records: BTreeMap<Seq, Record> = played.records.iter().map(|record| (record.seq, record.clone())).collect();
    records.extend(planned.records.into_iter().map(|record| (record.seq, record)));
    records.extend(step.records.into_iter().map(|record| (record.seq, record)));
    records.into_values().collect()
}

fn text(records: &[Record]) -> String {
    records.iter().map(|record| format!("{}\n{}\n", record.header, record.payload)).collect()
}

/// Checks that the hash chain holds, every value matches its commitment, and the board can be recovered and replayed.
fn sound(records: &[Record]) -> Board {
    let mut previous = patchboard_kernel::record::GENESIS;
    let Body::Created(created) = records[0].body().expect("readable") else { panic!("created") };
    let hasher = Hasher::new(&created.salt);
    let mut owed: BTreeMap<Seq, Vec<(Seq, Digest)>> = BTreeMap::new();
    for record in records {
        record.check_chain(previous).expect("the chain holds");
        record.check_values(&hasher).expect("the values are those committed to");
        previous = record.hash;
        if let Some((by, commitment)) = record.replacement(&hasher).expect("readable") {
            owed.entry(by).or_default().push((record.seq, commitment));
        }
        if let Body::Redacted(redacted) = record.body().expect("readable") {
            for pair in owed.remove(&record.seq).unwrap_or_default() {
                assert!(redacted.records.contains(&pair), "{pair:?}");
            }
        }
    }
    assert!(owed.is_empty(), "{owed:?}");
    replay::replay(records, None, &PLANS).expect("what can be derived is derived");
    Board::recover(records, &PLANS).expect("the journal is enough")
}

fn board() -> Played {
    let writer = json!({
        "agent": "script", "role": "r", "reads": ["/list", "/people"],
        "writes": [
            {"path": "/list/-", "ops": ["add"]},
            {"path": "/list/*", "ops": ["insert", "remove", "replace", "move", "copy"]},
            {"path": "/people/*", "ops": ["add", "replace", "remove", "move"]},
            {"path": "/people/*/name", "ops": ["replace"]},
        ],
    });
    let other = json!({"agent": "script", "role": "r", "reads": ["/count"], "writes": [{"path": "/count", "ops": ["replace", "add"]}]});
    let members = json!({
        "state": {"schema": {}, "initial": {"list": [], "people": {}, "count": 0}},
        "workers": {"writer": writer, "other": other},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "writer"}, {"name": "count", "trigger": {"signal": "count"}, "run": "other"}],
    });
    Played::new(members)
}

#[test]
fn a_value_is_redacted_at_every_place_it_had() {
    let mut played = board();
    played.signal();
    played.answer(json!([{"op": "add", "path": "/list/-", "value": {"said": SECRET}}]), None);
    played.signal();
    // The value is copied, then removed from its first place.
    played.answer(json!([{"op": "copy", "from": "/list/0", "path": "/list/-"}]), None);
    played.signal();
    played.answer(
        json!([{"op": "test", "path": "/list/1/said", "value": SECRET}, {"op": "remove", "path": "/list/0"}]),
        None,
    );
    played.give(Input::Cancel);
    let records = erased(&played, &places(&["/list/0"]));
    assert!(!text(&records).contains(SECRET), "{}", text(&records));
    let board = sound(&records);
    assert!(!board.is_exact());
    let shown = serde_json::to_string(board.state().root()).expect("JSON");
    assert!(shown.contains("$redacted:") && !shown.contains(SECRET), "{shown}");
    // Versions before the secret was written are still exact.
    assert!(Board::from_created(&records[0], &PLANS).expect("version 0").is_exact());
}

#[test]
fn a_reply_as_the_model_sent_it_is_erased_with_what_it_says() {
    let mut played = board();
    let mut reply = |reply: Value, raw: &str| {
        played.signal();
        let (invocation, attempt, worker) = played.calls.remove(0);
        let (from, reply) = (ProposalSource::Attempt { invocation, attempt }, ReplyBody::Text(reply.to_string()));
        let proposal = Proposal { from, worker: worker.as_str().into(), reply, usage: None, raw: Some(raw.to_owned()) };
        played.give(Input::Propose(proposal));
    };
    // The secret is in the patch itself, or only in the text around it.
    reply(json!([{"op": "add", "path": "/list/-", "value": {"said": SECRET}}]), "<think>36 it is</think>[]");
    reply(json!([{"op": "add", "path": "/list/-", "value": 1}]), &format!("<think>{SECRET}</think>[]"));
    reply(json!([{"op": "replace", "path": "/count", "value": 1}]), &format!("<think>{SECRET}</think>[]"));
    reply(json!([{"op": "add", "path": "/list/-", "value": 2}]), "<think>something else</think>[]");
    played.give(Input::Cancel);
    let records = erased(&played, &places(&["/list/0"]));
    let text = text(&records);
    assert!(!text.contains(SECRET) && !text.contains("36 it is") && text.contains("something else"), "{text}");
    sound(&records);
}

#[test]
fn moved_values_are_redacted_at_their_source_too() {
    let mut played = board();
    played.signal();
    played.answer(json!([{"op": "add", "path": "/people/anyone", "value": {"name": SECRET}}]), None);
    played.signal();
    played.answer(json!([{"op": "move", "from": "/people/anyone", "path": "/people/someone"}]), None);
    played.give(Input::Cancel);
    let records = erased(&played, &places(&["/people/someone"]));
    assert!(!text(&records).contains(SECRET), "{}", text(&records));
    sound(&records);
}

#[test]
fn names_of_members_go_with_what_they_name() {
    let mut played = board();
    played.signal();
    played.answer(json!([{"op": "add", "path": "/people/Ada Lovelace", "value": {"name": SECRET}}]), None);
    played.signal();
    played.answer(json!([{"op": "replace", "path": "/people/Ada Lovelace/name", "value": "A."}]), None);
    played.signal();
    played.answer(json!([{"op": "add", "path": "/nowhere", "value": "Ada Lovelace"}]), None);
    played.give(Input::Cancel);
    let records = erased(&played, &places(&["/people"]));
    assert!(!text(&records).contains("Lovelace"), "{}", text(&records));
    sound(&records);
}

#[test]
fn a_board_that_can_go_on_lets_nothing_go_that_it_uses() {
    let mut played = board();
    played.signal();
    played.answer(json!([{"op": "add", "path": "/people/x", "value": {"name": SECRET}}]), None);
    let refused = plan(&played, &places(&["/people/x"])).expect_err("it is in use");
    assert_eq!(refused.code, RedactionCode::StillInUse);
    assert_eq!(refused.places, ["/people/x/name"]);
    let amended = played.give(Input::Amend { path: "/people/x".into(), value: json!({"name": "nobody"}) });
    assert!(matches!(amended.outcome, Some(Outcome::Committed { .. })), "{:?}", amended.outcome);
    played.holds();
    let request = Request { keep: true, ..places(&["/people/x"]) };
    let records = erased(&played, &request);
    assert!(!text(&records).contains(SECRET), "{}", text(&records));
    let recovered = sound(&records);
    assert!(recovered.is_exact());
    assert_eq!(recovered.state().digest(), played.board.state().digest());
    // A repeated request finds nothing to erase.
    (played.board, played.records) = (recovered, records);
    let again = played;
    assert_eq!(plan(&again, &request).expect_err("nothing is left").code, RedactionCode::NothingToErase);
}

#[test]
fn rejections_and_failures_are_redacted_too() {
    let mut played = board();
    played.signal();
    played.answer(json!([{"op": "add", "path": "/people/x", "value": {"name": SECRET}}]), None);
    played.signal();
    played.answer(json!([{"op": "add", "path": "/elsewhere", "value": format!("it was {SECRET}")}]), None);
    played.answer(json!([{"op": "test", "path": "/people/x/name", "value": "wrong"}]), None);
    let (invocation, attempt, _) = played.calls.remove(0);
    let message = format!("no parser for {SECRET:?}");
    let code = patchboard_kernel::failure::FailureCode::Protocol;
    played.give(Input::AgentFailed { invocation, attempt, code, message, usage: None });
    played.give(Input::Signal { name: "go".into(), value: json!({"about": SECRET}), key: None });
    played.give(Input::Cancel);
    assert!(text(&played.records).matches(SECRET).count() > 4);
    let records = erased(&played, &places(&["/people/x"]));
    assert!(!text(&records).contains(SECRET), "{}", text(&records));
    sound(&records);
}

#[test]
fn a_record_is_erased_with_the_values_it_brought() {
    let mut played = board();
    played.give(Input::Signal { name: "go".into(), value: json!({"about": SECRET}), key: None });
    played.answer(json!({"patch": [{"op": "add", "path": "/list/-", "value": SECRET}], "intent": "as told"}), None);
    let commit = played.records.iter().rfind(|record| record.kind == Kind::Committed).expect("a commit").seq;
    played.give(Input::Cancel);
    let records = erased(&played, &Request { records: vec![commit], ..Request::default() });
    assert!(!text(&records).contains(SECRET) && !text(&records).contains("as told"), "{}", text(&records));
    sound(&records);
}

#[test]
fn the_same_text_elsewhere_is_reported_and_goes_when_asked() {
    let mut played = board();
    played.signal();
    played.answer(json!([{"op": "add", "path": "/people/x", "value": {"name": SECRET}}]), None);
    played.signal();
    played.answer(json!([{"op": "add", "path": "/list/-", "value": format!("{SECRET} called")}]), None);
    played.give(Input::Cancel);
    let request = places(&["/people/x"]);
    let still = plan(&played, &request).expect("something is erased").remaining;
    assert_eq!(still.iter().map(|still| still.place.as_str()).collect::<Vec<_>>(), ["/list/0"]);
    let records = erased(&played, &Request { everywhere: true, ..request });
    assert!(!text(&records).contains(SECRET), "{}", text(&records));
    sound(&records);
}

#[test]
fn without_its_salt_a_board_has_its_chain() {
    let mut played = board();
    played.signal();
    played.answer(json!([{"op": "add", "path": "/list/-", "value": 7}]), None);
    let salt = Request { forget_salt: true, ..places(&["/list"]) };
    assert_eq!(plan(&played, &salt).expect_err("it can go on").code, RedactionCode::StillInUse);
    played.give(Input::Cancel);
    let records = erased(&played, &salt);
    let Body::Created(created) = records[0].body().expect("readable") else { panic!("created") };
    assert_eq!(created.salt, Salt::ZERO);
    let mut previous = patchboard_kernel::record::GENESIS;
    for record in &records {
        record.check_chain(previous).expect("the chain holds");
        previous = record.hash;
    }
    assert!(Board::recover(&records, &PLANS).is_ok());
}

#[test]
fn invalid_redaction_requests_are_rejected() {
    let mut played = board();
    played.signal();
    let code = |request: &Request| plan(&played, request).expect_err("it is refused").code;
    assert_eq!(code(&Request::default()), RedactionCode::BadRedaction);
    assert_eq!(code(&Request { records: vec![Seq(0)], ..Request::default() }), RedactionCode::BadRedaction);
    assert_eq!(code(&Request { records: vec![Seq(999)], ..Request::default() }), RedactionCode::BadRedaction);
    assert_eq!(code(&places(&["/nothing/here"])), RedactionCode::NothingToErase);
    assert_eq!(code(&places(&["/list"; 65])), RedactionCode::BadRedaction);
}

#[test]
fn a_board_goes_on_as_it_would_have() {
    // After the redaction, the same inputs produce the same records as without it, except for references to earlier
    // records.
    let play = |redact: bool| {
        let mut played = board();
        played.signal();
        played.answer(json!([{"op": "add", "path": "/people/x", "value": {"name": SECRET}}]), None);
        played.give(Input::Amend { path: "/people/x".into(), value: json!({"name": "nobody"}) });
        played.give(Input::Pause { key: Some("t".into()) });
        played.give(Input::Resume { key: None });
        if redact {
            let records = erased(&played, &Request { keep: true, ..places(&["/people/x"]) });
            played.board = Board::recover(&records, &PLANS).expect("the journal is enough");
            played.records = records;
            played.now += 1;
        } else {
            // An input that produces a single record and no effects.
            played.give(Input::Resume { key: Some("u".into()) });
        }
        let from = played.records.len();
        let mut results = Vec::new();
        played.give(Input::Signal { name: "count".into(), value: Value::Null, key: None });
        results
            .push(format!("{:?}", played.answer(json!([{"op": "replace", "path": "/count", "value": 1}]), None)).len());
        played.signal();
        played.answer(json!([{"op": "remove", "path": "/people/x"}]), None);
        let again = played.give(Input::Pause { key: Some("t".into()) });
        results.push(usize::from(matches!(again.outcome, Some(Outcome::Duplicate(_)))));
        let state = played.board.state().digest();
        let kinds: Vec<Kind> = played.records[from..].iter().map(|record| record.kind).collect();
        let payloads: Vec<String> = played.records[from..].iter().map(|record| record.payload.clone()).collect();
        (results, state, kinds, payloads)
    };
    assert_eq!(play(true), play(false));
}

/// Returns a board with two elements. The second gets the value that the first had; only when the first gets it again
/// is there a cycle.
fn circled(elements: [&str; 2], between: impl FnOnce(&mut Played)) -> Played {
    let [first, second] = elements;
    let mut played = Played::new(json!({
        "blueprint": 2,
        "state": {"schema": {}, "initial": {"items": {first: {"turn": 0, "note": ""}, second: {"turn": 0, "note": ""}}}},
        "workers": {
            "caller": {"agent": "script", "writes": [{"path": "/items/*/turn"}]},
            "writer": {
                "agent": "script", "reads": ["/items/{item}"], "writes": [{"path": "/items/{item}/note", "ops": ["replace"]}]}},
        "rules": [{"name": "go", "trigger": {"path": "/items/{item}/turn"}, "run": "writer"}],
        "circuit": {"cycles": {"window": 4, "repeats": 1, "then": "stop_board"}},
    }));
    let write = |played: &mut Played, item: &str, turn: u8, note: &str| {
        let called = json!([{"op": "replace", "path": format!("/items/{item}/turn"), "value": turn}]);
        played.direct("caller", &called.to_string());
        let outcome = played.answer(json!([{"op": "replace", "path": "/items/{item}/note", "value": note}]), None);
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    };
    let cause = |played: &Played| played.board.ended().map(|ended| ended.cause);
    write(&mut played, first, 1, SECRET);
    write(&mut played, first, 2, "another");
    between(&mut played);
    write(&mut played, second, 1, SECRET);
    assert_eq!(cause(&played), Some(Cause::NothingToDo), "of another element it is no circle");
    write(&mut played, first, 1, SECRET);
    assert_eq!(cause(&played), Some(Cause::Cycles));
    played
}

#[test]
fn circles_of_one_element_are_found_whatever_is_erased_of_it() {
    circled(["a", "b"], |played| {
        let records = erased(played, &Request { keep: true, ..places(&["/items/a/note"]) });
        assert!(!text(&records).contains(SECRET));
        played.board = Board::recover(&records, &PLANS).expect("the journal is enough");
        played.records = records;
        played.now += 1;
    });
    // The name is erased after the cycle; the board can still be replayed.
    let played = circled([SECRET, "b"], |_| ());
    let records = erased(&played, &places(&["/items"]));
    assert!(!text(&records).contains(SECRET), "{}", text(&records));
    sound(&records);
}

const KEY: &str = "KEY = 'correct horse battery'\n";
const COMMON: &str = "from __future__ import annotations\n";

/// Applies an edit and returns its outcome.
fn edit(played: &mut Played, edit: Edit) -> Outcome {
    played.give(Input::Edit(edit)).outcome.expect("an outcome")
}

/// Returns a board where a key was written into a file and a stale edit of it was rejected. The file was then renamed,
/// and the key removed.
fn leaked() -> Played {
    let engineer = json!({"agent": "llm", "files": {"edit": ["**"]}});
    let mut played = Played::new(json!({
        "workspace": {"dir": "code"}, "workers": {"ada": engineer, "bob": engineer},
        "rules": [{"name": "a", "trigger": "start", "run": "ada"}, {"name": "b", "trigger": "start", "run": "bob"}],
    }));
    let at_first = vec![create("a.py", "import os\nx\n"), create("b.py", "b\n")];
    let made = |played: &mut Played, edit: Edit| {
        let outcome = played.give(Input::Edit(edit)).outcome;
        assert!(matches!(outcome, Some(Outcome::Committed { .. })), "{outcome:?}");
    };
    made(&mut played, Edit { changes: at_first, ..external() });
    let whole = |at: &str, version| [read(at, version, None)];
    let (writes, text) = change("a.py", "import os\nx\n", 2, "x\n", &format!("{KEY}{COMMON}"));
    let ada = by(&played, "ada", &whole("a.py", 1), vec![writes]);
    made(&mut played, Edit { intent: Some("the key that everything needs".to_owned()), ..ada });
    let (late, _) = change("a.py", "import os\nx\n", 2, "x\n", &format!("{}x = 1\n", KEY.replace("KEY", "  KEY")));
    let late = by(&played, "bob", &whole("a.py", 1), vec![late]);
    assert!(matches!(edit(&mut played, late), Outcome::Rejected { .. }));
    let gone =
        FileChange { hash: None, lines: 0, bytes: 0, hunks: None, ..change("a.py", &text, 1, "import os\n", "").0 };
    made(&mut played, Edit { changes: vec![gone, create("keys.py", &text)], ..external() });
    let (removes, _) = change("keys.py", &text, 2, KEY, "KEY = None\n");
    let bob = by(&played, "bob", &whole("keys.py", 1), vec![removes]);
    made(&mut played, bob);
    let (other, _) = change("b.py", "b\n", 1, "b\n", &format!("{COMMON}b\n"));
    let ada = by(&played, "ada", &whole("b.py", 1), vec![other]);
    made(&mut played, ada);
    played.holds();
    played
}

/// Returns the sequence number of the edit that introduced the key.
fn leak(played: &Played) -> Seq {
    let mut holding = played.records.iter().filter(|record| record.payload.contains("correct horse"));
    holding.next().expect("an edit").seq
}

#[test]
fn edit_texts_are_redacted_in_all_edits_of_the_file_and_work_continues() {
    let played = leaked();
    let request = Request { records: vec![leak(&played)], ..Request::default() };
    let planned = plan(&played, &request).expect("it is erased while the board works");
    assert_eq!(planned.records.len(), 4, "the edit, the refused one, the new name and the removal");
    let still: Vec<&str> = planned.remaining.iter().map(|still| still.place.as_str()).collect();
    assert_eq!(still, ["/files/b.py"], "a line that stands in another file, too, is told");
    let records = erased(&played, &request);
    let written = text(&records);
    assert!(!written.contains("correct horse") && !written.contains("everything needs"), "{written}");
    assert!(written.contains("import annotations") && written.contains("/files/keys.py/hash"), "{written}");
    let mut board = sound(&records);
    assert!(board.is_exact());
    assert_eq!(board.state().digest(), played.board.state().digest());
    assert_eq!(FileEntry::load(board.state(), &path("keys.py")).map(|entry| entry.version), Some(2));
    // Later edits are judged as before, based on the remaining history.
    let text = format!("import os\nKEY = None\n{COMMON}");
    let (next, _) = change("keys.py", &text, 2, "KEY = None\n", "KEY = ask()\n");
    for (version, is_made) in [(1, false), (2, true)] {
        let next = by(&played, "ada", &[read("keys.py", version, None)], vec![next.clone()]);
        let outcome = board.step(Timestamp(played.now + 40_000), Input::Edit(next)).outcome;
        assert_eq!(matches!(outcome, Some(Outcome::Committed { .. })), is_made, "{outcome:?}");
    }
}

#[test]
fn texts_of_edits_without_change_are_redacted_too() {
    let mut played = leaked();
    let text = format!("import os\nKEY = None\n{COMMON}");
    let line = "KEY = None # unmentionable, or so they say\n";
    let (made, text) = change("keys.py", &text, 2, "KEY = None\n", line);
    let ada = by(&played, "ada", &[read("keys.py", 2, None)], vec![made]);
    assert!(matches!(edit(&mut played, ada), Outcome::Committed { .. }));
    let (same, _) = change("keys.py", &text, 2, line, line);
    let ada = by(&played, "ada", &[read("keys.py", 3, None)], vec![same]);
    assert!(matches!(edit(&mut played, ada), Outcome::NoOp { .. }));
    let records = erased(&played, &places(&["/files/keys.py"]));
    assert!(!self::text(&records).contains("unmentionable"), "{}", self::text(&records));
    assert!(sound(&records).is_exact());
}

#[test]
fn all_edits_of_a_file_are_erased_by_its_place() {
    let mut played = leaked();
    let request = places(&["/files/keys.py"]);
    let records = erased(&played, &request);
    assert!(!text(&records).contains("correct horse"), "{}", text(&records));
    assert!(sound(&records).is_exact());
    // The document's current entry for it is still in use.
    let refused = plan(&played, &places(&["/files/keys.py/intent"])).expect_err("it is in use");
    assert_eq!((refused.code, refused.places), (RedactionCode::StillInUse, vec!["/files/keys.py/intent".to_owned()]));
    let planned = plan(&played, &Request { everywhere: true, records: vec![leak(&played)], ..Request::default() });
    assert!(planned.is_ok_and(|planned| planned.records.len() == 5 && planned.remaining.is_empty()));
    played.give(Input::Cancel);
    let records = erased(&played, &places(&["/files"]));
    assert!(!text(&records).contains("correct horse") && !text(&records).contains("a reason"), "{}", text(&records));
    sound(&records);
}

#[test]
fn a_reply_with_a_name_in_its_path_is_about_what_the_name_was_bound_to() {
    let mut played = Played::new(json!({
        "blueprint": 2, "state": {"schema": {}, "initial": {"notes": {}}},
        "workers": {
            "writer": {"agent": "script", "script": [[]], "writes": [{"path": "/notes/*", "ops": ["add", "remove"]}]},
            "checker": {"agent": "llm", "reads": ["/notes/{note}"], "writes": [{"path": "/notes/{note}/text"}]},
        },
        "rules": [{"name": "check", "trigger": {"op": "add", "path": "/notes/{note}"}, "run": "checker"}],
    }));
    let add = json!([{"op": "add", "path": "/notes/a", "value": {"text": SECRET}}]);
    played.direct("writer", &add.to_string());
    // Another version of the value, rejected because of a different operation.
    let other = "Ada L., thirty-six";
    let reply =
        json!([{"op": "add", "path": "/notes/{note}/text", "value": other}, {"op": "add", "path": "/x", "value": 1}]);
    assert!(matches!(played.answer(reply, None), Outcome::Rejected { .. }));
    let (invocation, attempt, worker) = played.calls[0].clone();
    let done = json!([{"op": "add", "path": "/notes/{note}/text", "value": "fine"}]);
    assert!(matches!(played.answer(done, None), Outcome::Committed { .. }));
    let late = json!([{"op": "add", "path": "/notes/{note}/text", "value": other}]);
    let from = ProposalSource::Attempt { invocation, attempt };
    let reply = ReplyBody::Text(late.to_string());
    let proposal = Proposal { from, worker: worker.as_str().into(), reply, usage: None, raw: None };
    played.give(Input::Propose(proposal));
    played.direct("writer", r#"[{"op": "remove", "path": "/notes/a"}]"#);
    let records = erased(&played, &places(&["/notes/a/text"]));
    let text = text(&records);
    assert!(!text.contains(SECRET) && !text.contains(other), "{text}");
    sound(&records);
}

/// Returns a board where `Ada Lovelace` is the name of a member, bound by a rule, written twice, and quoted in a
/// rejection.
fn named() -> Played {
    let mut played = Played::new(json!({
        "blueprint": 2, "state": {"schema": {}, "initial": {"notes": {"plain": {"text": "x"}}, "seen": {}}},
        "workers": {
            "writer": {"agent": "script", "script": [[]],
                "writes": [{"path": "/notes/*", "ops": ["add", "replace", "remove"]}, {"path": "/seen/*", "ops": ["add"]}]},
            "checker": {"agent": "llm", "reads": ["/notes/{note}"], "writes": [{"path": "/notes/{note}/text"}]},
        },
        "rules": [{"name": "check", "trigger": {"op": "add", "path": "/notes/{note}"}, "run": "checker"}],
    }));
    played.direct("writer", r#"[{"op": "add", "path": "/notes/Ada Lovelace", "value": {"text": "born 1815"}}]"#);
    played.answer(json!([{"op": "add", "path": "/elsewhere", "value": "Ada Lovelace"}]), None);
    let fine = json!([{"op": "add", "path": "/notes/{note}/text", "value": "fine"}]);
    assert!(matches!(played.answer(fine, None), Outcome::Committed { .. }));
    played
}

#[test]
fn the_name_that_a_place_ends_in_goes_with_its_value_unless_it_is_used() {
    const PLACE: &str = "/notes/Ada Lovelace";
    let mut played = named();
    played.give(Input::Cancel);
    let records = erased(&played, &places(&[PLACE]));
    assert!(!text(&records).contains("Lovelace"), "{}", text(&records));
    let recovered = sound(&records);
    let names: Vec<String> =
        recovered.state().root().to_value()["notes"].as_object().expect("notes").keys().cloned().collect();
    assert!(
        names.len() == 2 && patchboard_kernel::placeholder::is_placeholder(&names[0]) && names[1] == "plain",
        "{names:?}"
    );
    (played.board, played.records) = (recovered, records);
    assert_eq!(plan(&played, &places(&[PLACE])).expect_err("nothing is left").code, RedactionCode::NothingToErase);
    // The board continues after the member was removed.
    let mut played = named();
    played.direct("writer", r#"[{"op": "remove", "path": "/notes/Ada Lovelace"}]"#);
    let records = erased(&played, &places(&[PLACE]));
    assert!(!text(&records).contains("Lovelace"), "{}", text(&records));
    assert!(sound(&records).is_exact());
    // Another member or the blueprint uses the name, or the current value is kept.
    let mut played = named();
    played.direct("writer", r#"[{"op": "add", "path": "/seen/Ada Lovelace", "value": true}]"#);
    played.give(Input::Cancel);
    let kept = Request { keep: true, ..places(&[PLACE]) };
    for (request, name) in [(places(&[PLACE]), PLACE), (places(&["/notes/plain", "/seen"]), "/notes")] {
        let records = erased(&played, &request);
        assert!(sound(&records).state().root().to_value().pointer(name).is_some(), "{}", text(&records));
    }
    let mut played = named();
    played.direct("writer", r#"[{"op": "add", "path": "/notes/Ada Lovelace", "value": {"text": "hers"}}]"#);
    let records = erased(&played, &kept);
    assert!(!text(&records).contains("1815") && text(&records).contains("hers"), "{}", text(&records));
    assert!(sound(&records).state().root().to_value().pointer(PLACE).is_some());
}

#[test]
fn a_record_that_is_erased_loses_the_names_that_it_brought() {
    let mut played = named();
    let committed = played.records.iter().find(|record| record.kind == Kind::Committed).expect("it is there").seq;
    played.direct("writer", r#"[{"op": "remove", "path": "/notes/Ada Lovelace"}]"#);
    let records = erased(&played, &Request { records: vec![committed], ..Request::default() });
    assert!(!text(&records).contains("Lovelace"), "{}", text(&records));
    sound(&records);
    // Another commit has written the value since, so the name is in use.
    let mut played = named();
    played.give(Input::Cancel);
    let records = erased(&played, &Request { records: vec![committed], ..Request::default() });
    assert!(!text(&records).contains("1815") && text(&records).contains("/notes/Ada Lovelace"), "{}", text(&records));
    sound(&records);
    // The name alone, without a value.
    let mut played = named();
    played.direct("writer", r#"[{"op": "add", "path": "/notes/Grace Hopper", "value": {}}]"#);
    played.give(Input::Cancel);
    let records = erased(&played, &places(&["/notes/Grace Hopper"]));
    assert!(!text(&records).contains("Hopper"), "{}", text(&records));
    sound(&records);
}

#[test]
fn range_starts_of_expansions_are_redacted_with_the_value_they_name() {
    let mut played = Played::new(json!({
        "state": {"schema": {}, "initial": {"people": [{"id": SECRET, "text": "x".repeat(900)}, {"id": "b", "text": "x".repeat(900)}],
            "keys": {SECRET: "x".repeat(900)}}},
        "workers": {"w": {"agent": "llm", "reads": ["/people", "/keys"], "writes": [{"path": "/note"}], "view": {"budget": 900}},
            "boss": {"agent": "script", "script": [[]], "writes": [{"path": "/people", "ops": ["replace"]}, {"path": "/keys", "ops": ["replace"]}]}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
    }));
    played.signal();
    let asked = json!({"expand": [{"at": "/people", "from": SECRET}, {"at": "/keys", "from": SECRET}]});
    assert!(matches!(played.answer(asked, None), Outcome::Expanded { .. }));
    played.answer(json!([{"op": "add", "path": "/note", "value": 1}]), None);
    let gone =
        json!([{"op": "replace", "path": "/people", "value": []}, {"op": "replace", "path": "/keys", "value": {}}]);
    assert!(matches!(played.direct("boss", &gone.to_string()), Outcome::Committed { .. }));
    let records = erased(&played, &places(&["/people/0", "/keys"]));
    assert!(!text(&records).contains(SECRET), "{}", text(&records));
    sound(&records);
}

/// Returns a board where the document has a member of this name, and a rejected patch used it in several places.
fn refused_at(name: &str) -> Played {
    let mut played = board();
    let place = |below: &str| format!("{below}/{name}");
    for patch in [
        json!([{"op": "add", "path": place("/elsewhere"), "value": 1}]),
        json!([{"op": "test", "path": place("/people"), "value": 1}]),
        json!([{"op": "move", "from": place("/people"), "path": "/people/x"}]),
        json!([{"op": "add", "path": format!("{}/deep", place("/people")), "value": {"a": 1}}]),
    ] {
        played.direct("writer", &patch.to_string());
    }
    played
}

#[test]
fn names_in_rejection_places_are_redacted_by_value_place_or_record() {
    let name = "Zaphod Quux";
    let mut played = refused_at(name);
    played.signal();
    played.answer(json!([{"op": "add", "path": "/list/-", "value": name}]), None);
    played.give(Input::Cancel);
    assert!(text(&played.records).matches(name).count() > 4, "{}", text(&played.records));
    // Redaction by a value with the same text.
    let records = erased(&played, &Request { everywhere: true, ..places(&["/list/0"]) });
    assert!(!text(&records).contains(name), "{}", text(&records));
    sound(&records);

    // Redaction by the place, and by its parent: no record contains the name any more.
    let mut played = refused_at(name);
    played.give(Input::Cancel);
    for place in [format!("/people/{name}"), "/people".to_owned()] {
        let records = erased(&played, &places(&[&place, &format!("/elsewhere/{name}")]));
        assert!(!text(&records).contains(name), "{place}: {}", text(&records));
        sound(&records);
    }
    // Redaction by record numbers.
    let refused = played.records.iter().filter(|record| record.kind == Kind::Rejected).map(|record| record.seq);
    let refused = Request { records: refused.collect(), ..Request::default() };
    let records = erased(&played, &refused);
    assert!(!text(&records).contains(name), "{}", text(&records));
    sound(&records);
}

#[test]
fn a_name_with_an_erased_text_is_reported_and_goes_everywhere() {
    let name = "Zaphod Quux";
    let mut played = board();
    let members = json!({"of Zaphod Quux": {"n": 1}, "name": "the first"});
    played.give(Input::Signal { name: "go".into(), value: json!({"about Zaphod Quux": 1}), key: None });
    played.answer(json!([{"op": "add", "path": format!("/people/{name}"), "value": members}]), None);
    played.signal();
    played.answer(json!([{"op": "replace", "path": format!("/people/{name}/name"), "value": "the second"}]), None);
    played.signal();
    played.answer(json!([{"op": "add", "path": "/list/-", "value": name}]), None);
    played.give(Input::Cancel);
    let request = places(&["/list/0"]);
    let still = plan(&played, &request).expect("something is erased").remaining;
    let mut still: Vec<&str> = still.iter().map(|still| still.place.as_str()).collect();
    still.dedup();
    let place = format!("/people/{name}");
    assert!(still.contains(&place.as_str()) && still.contains(&format!("{place}/of {name}").as_str()), "{still:?}");
    let everywhere = Request { everywhere: true, ..request };
    let planned = plan(&played, &everywhere).expect("something is erased");
    assert_eq!(planned.remaining, []);
    let records = erased(&played, &everywhere);
    assert!(!text(&records).contains(name), "{}", text(&records));
    sound(&records);
}

#[test]
fn a_name_at_two_places_goes_with_the_second() {
    let name = "Zaphod Quux";
    let mut played = board();
    for at in ["first", "second"] {
        played.signal();
        let value = json!({name: {"n": "a value"}, "other": "stays"});
        played.answer(json!([{"op": "add", "path": format!("/people/{at}"), "value": value}]), None);
    }
    played.give(Input::Cancel);
    let request = |at: &str| places(&[&format!("/people/{at}/{name}")]);
    let planned = plan(&played, &request("first")).expect("something is erased");
    assert!(
        planned.remaining.iter().any(|still| still.place == format!("/people/second/{name}")),
        "{:?}",
        planned.remaining
    );
    let records = erased(&played, &request("first"));
    sound(&records);
    let board = Board::recover(&records, &PLANS).expect("the journal is enough");
    (played.board, played.records) = (board, records);
    let records = erased(&played, &request("second"));
    assert!(!text(&records).contains(name), "{}", text(&records));
    sound(&records);
}
