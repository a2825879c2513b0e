//! The read set: exactly the lines shown count, as long as they are remembered, and their loss is reported.

use std::sync::Arc;

use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::files::{FileRead, LineRange};
use patchboard_runtime::agent::Failure;
use patchboard_workshop::{Workshop, path};
use patchboard_workspace::edit_author::EditAuthor;
use patchboard_workspace::session::{CommandResult, Session};
use patchboard_workspace::sessions::{SESSIONS_MAX, Sessions};
use serde_json::{Value, json};

/// Returns `count` different lines.
fn lines(count: u32) -> String {
    (1..=count).map(|at| format!("line {at}\n")).collect()
}

fn replace(name: &str, old: &str, new: &str) -> Value {
    json!({"command": "str_replace", "path": name, "old_str": old, "new_str": new, "intent": "another one"})
}

fn view(name: &str, first: u32, last: i64) -> Value {
    json!({"command": "view", "path": name, "view_range": [first, last]})
}

async fn does(session: &mut Session, arguments: Value) -> CommandResult {
    let result = session.call(arguments).await;
    assert!(!result.is_error(), "{}", result.text);
    result
}

async fn refused(session: &mut Session, code: &str, arguments: Value) -> CommandResult {
    let result = session.call(arguments).await;
    assert_eq!(result.code.as_deref(), Some(code), "{}", result.text);
    result
}

fn read(session: &Session, name: &str) -> Vec<Option<LineRange>> {
    session.reads().for_file(&path(name)).into_iter().map(|read: FileRead| read.lines).collect()
}

#[tokio::test]
async fn lines_cut_from_a_view_count_as_unread() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", &lines(400))]).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    let result = ada.call_within(json!({"command": "view", "path": "a.txt"}), 1_500).await;
    assert!(result.text.chars().count() <= 1_500, "{}", result.text);
    let [Some((1, last))] = read(&ada, "a.txt")[..] else { panic!("{:?}", ada.reads()) };
    assert!(
        result.text.contains(&format!("\tline {last}\n")) && !result.text.contains(&format!("line {}\n", last + 1))
    );
    assert!(result.text.contains(&format!("`view_range` [{}, 400] shows what follows", last + 1)), "{}", result.text);
    refused(&mut ada, "unseen_target", replace("a.txt", "line 300\n", "line\n")).await;
    // Searches, lists, successful edits and rejected edits keep to the room as well.
    for room in [0, 40, 300, 1_000, 3_000] {
        let mut eve = shop.session(0);
        let mut shown = 0;
        for arguments in [
            json!({"command": "search", "pattern": "line"}),
            json!({"command": "list"}),
            view("a.txt", 1, -1),
            replace("a.txt", "line 200\n", "line 200\n\n"),
            replace("a.txt", "line 777\n", ""),
            json!({"command": "view"}),
        ] {
            let result = eve.call_within(arguments, room).await;
            assert!(result.text.chars().count() <= room, "{room}: {}", result.text);
            shown += result.text.matches("line ").count();
        }
        let known: u32 = read(&eve, "a.txt").into_iter().flatten().map(|(first, last)| last - first + 1).sum();
        assert!(known as usize <= shown, "{known} of {shown}");
    }
    // A rejection without room shows nothing and adds nothing to the read set.
    does(&mut ada, view("a.txt", 1, 5)).await;
    does(&mut bob, view("a.txt", 1, 5)).await;
    does(&mut bob, replace("a.txt", "line 3\n", "three\n")).await;
    let before = read(&ada, "a.txt");
    let result = ada.call_within(replace("a.txt", "line 2\n", "two\n"), 1_000).await;
    assert_eq!(result.code.as_deref(), Some("stale_target"), "{}", result.text);
    assert!(!result.text.contains("three") && read(&ada, "a.txt") == before, "{}", result.text);
}

#[tokio::test]
async fn a_rejection_by_lines_counts_only_its_target_lines_as_read() {
    let shop = Workshop::open(3, &json!({"annotate": false}), &[("a.txt", &lines(200)), ("b.txt", "b\n")]).await;
    let (mut ada, mut bob, mut eve) = (shop.session(0), shop.session(1), shop.session(2));
    does(&mut ada, view("a.txt", 20, 30)).await;
    does(&mut bob, json!({"command": "view", "path": "a.txt"})).await;
    does(&mut bob, replace("a.txt", "line 25\n", "twenty-five\n")).await;
    does(&mut bob, replace("a.txt", "line 100\n", "a hundred\nand one\n")).await;
    let result = refused(&mut ada, "stale_target", replace("a.txt", "line 21\n", "twenty-one\n")).await;
    assert!(result.text.contains("+twenty-five") && !result.text.contains("hundred"), "{}", result.text);
    assert_eq!(read(&ada, "a.txt"), [Some((20, 30))]);
    // The rejection shows enough for a retry. Changes of lines outside the read set block neither agent.
    does(&mut ada, replace("a.txt", "line 21\n", "twenty-one\n")).await;
    does(&mut eve, view("a.txt", 150, 152)).await;
    does(&mut eve, replace("a.txt", "line 150\n", "a hundred and fifty\n")).await;
    does(&mut ada, replace("a.txt", "line 22\n", "twenty-two\n")).await;
    // An edit of unread lines shows those lines, not the file.
    let result = refused(&mut ada, "unseen_target", replace("a.txt", "line 180\n", "a hundred and eighty\n")).await;
    assert!(result.text.contains("line 180") && !result.text.contains("line 170"), "{}", result.text);
    does(&mut ada, replace("a.txt", "line 180\n", "a hundred and eighty\n")).await;
    assert!(read(&ada, "a.txt").len() == 2, "{:?}", ada.reads());
}

#[tokio::test]
async fn a_file_that_was_read_at_several_versions_is_reported_at_each() {
    for (name, old, code) in [("b.txt", "b", "stale_read"), ("a.txt", "line 2\n", "stale_target")] {
        let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", &lines(200)), ("b.txt", "b\n")]).await;
        let (mut ada, mut bob) = (shop.session(0), shop.session(1));
        does(&mut bob, json!({"command": "view", "path": "a.txt"})).await;
        does(&mut ada, json!({"command": "view", "path": "b.txt"})).await;
        does(&mut ada, view("a.txt", 1, 5)).await;
        does(&mut bob, replace("a.txt", "line 100\n", "a hundred\n")).await;
        does(&mut ada, view("a.txt", 50, 55)).await;
        does(&mut bob, replace("a.txt", "line 3\n", "three\n")).await;
        does(&mut bob, replace("a.txt", "line 52\n", "fifty-two\n")).await;
        let result = refused(&mut ada, code, replace(name, old, "new\n")).await;
        assert!(result.text.contains("+three") && result.text.contains("+fifty-two"), "{}", result.text);
        assert!(!result.text.contains("hundred"), "{}", result.text);
        assert_eq!(read(&ada, "a.txt"), [Some((1, 6)), Some((49, 55))]);
        does(&mut ada, replace(name, old, "new\n")).await;
    }
}

#[tokio::test]
async fn a_reserved_rejection_names_holder_and_duration_and_counts_as_no_read() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", &lines(20))]).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    for session in [&mut ada, &mut bob] {
        does(session, json!({"command": "view", "path": "a.txt"})).await;
    }
    does(&mut ada, replace("a.txt", "line 1\n", "one\n")).await;
    refused(&mut bob, "stale_target", replace("a.txt", "line 2\n", "two\n")).await;
    let before = ada.reads().all();
    let result = refused(&mut ada, "reserved", replace("a.txt", "line 3\n", "three\n")).await;
    assert!(
        result.text.contains("a.txt is kept for engineer_2 until its next edit, for 30 s at most"),
        "{}",
        result.text
    );
    assert!(!result.text.contains("line 4") && result.data.get("target").is_none(), "{}", result.text);
    assert!(result.data["rejection"]["violations"][0]["found"]["until"].is_i64(), "{}", result.data);
    assert_eq!(ada.reads().all(), before);
    does(&mut bob, replace("a.txt", "line 2\n", "two\n")).await;
    refused(&mut ada, "stale_target", replace("a.txt", "line 3\n", "three\n")).await;
    does(&mut ada, replace("a.txt", "line 3\n", "three\n")).await;
}

#[tokio::test]
async fn a_file_with_a_long_line_can_be_viewed_and_then_deleted_renamed_and_edited() {
    let long = "0123456789".repeat(500);
    let text = format!("a\n{long}\nb\n");
    let files = [("a.js", text.as_str()), ("b.js", text.as_str()), ("c.js", text.as_str())];
    let shop = Workshop::open(1, &json!({"annotate": false}), &files).await;
    let mut ada = shop.session(0);
    for (name, edit) in [
        ("a.js", json!({"command": "delete", "path": "a.js", "intent": "not needed"})),
        ("b.js", json!({"command": "rename", "path": "b.js", "new_path": "d.js", "intent": "another name"})),
        ("c.js", replace("c.js", &format!("{}\nb", &long[4_000..]), "b")),
    ] {
        let result = does(&mut ada, json!({"command": "view", "path": name})).await;
        assert!(result.text.contains("`view_range` [2, 2] shows the line alone"), "{}", result.text);
        refused(&mut ada, "unseen_target", edit.clone()).await;
        if name == "b.js" {
            // Views parts if there is not enough room for all.
            let mut from = 1;
            while from <= 5_000 {
                let mut look = view(name, 2, 2);
                look["view_columns"] = json!([from, -1]);
                let result = ada.call_within(look, 2_000).await;
                let columns = result.text.split("[characters ").nth(1).and_then(|said| said.split([' ', '-']).nth(1));
                from = columns.and_then(|last| last.parse::<u32>().ok()).expect("a number") + 1;
            }
        } else {
            assert!(does(&mut ada, view(name, 2, 2)).await.text.contains(&long));
        }
        does(&mut ada, edit).await;
    }
    assert_eq!((shop.text("a.js"), shop.text("d.js")), (None, Some(text)));
}

#[tokio::test]
async fn edits_work_after_very_many_reads() {
    let text: String = (0..8_000).map(|at| format!("{} {at}\n", if at % 2 == 0 { "k" } else { "other" })).collect();
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", &text), ("b.txt", "b\n")]).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    for hundreds in 0..80 {
        let pattern = if hundreds == 0 { "^k [0-9]{1,2}$".to_owned() } else { format!("^k {hundreds}[0-9][0-9]$") };
        does(&mut ada, json!({"command": "search", "pattern": pattern, "regex": true, "path": "a.txt"})).await;
    }
    assert_eq!(read(&ada, "a.txt").len(), 4_000);
    does(&mut ada, json!({"command": "view", "path": "b.txt"})).await;
    does(&mut ada, replace("b.txt", "b", "c")).await;
    // Her read set still counts for her edits.
    does(&mut bob, view("a.txt", 5_001, 5_001)).await;
    does(&mut bob, replace("a.txt", "k 5000\n", "five thousand\n")).await;
    let result = refused(&mut ada, "stale_read", replace("b.txt", "c", "d")).await;
    assert!(result.text.contains("+five thousand"), "{}", result.text);
    does(&mut ada, replace("b.txt", "c", "d")).await;
    // The edited file itself has too many reads to declare; they are dropped, and the error says so.
    let result = refused(&mut ada, "reads_lost", replace("a.txt", "k 10\n", "ten\n")).await;
    assert!(result.text.contains("a.txt"), "{}", result.text);
    does(&mut ada, view("a.txt", 11, 11)).await;
    does(&mut ada, replace("a.txt", "k 10\n", "ten\n")).await;
}

#[tokio::test]
async fn an_agent_that_starts_again_learns_so_before_anything_is_written() {
    let files = [("a.txt", "a\n"), ("b.txt", "b\n")];
    let shop = Workshop::open(1, &json!({"annotate": false}), &files).await;
    let restarted =
        |shop: &Workshop| Session::with_lost_reads(Arc::clone(&shop.workspace), shop.session(0).author().clone());
    let create = json!({"command": "create", "path": "c.txt", "file_text": "of a and b\n", "intent": "both"});
    let mut ada = restarted(&shop);
    // An invalid command is not an edit.
    refused(&mut ada, "bad_arguments", json!({"command": "create"})).await;
    let result = refused(&mut ada, "reads_lost", create.clone()).await;
    assert!(result.text.contains("Nothing was written") && shop.text("c.txt").is_none(), "{}", result.text);
    does(&mut ada, create.clone()).await;
    let mut ada = restarted(&shop);
    let result = does(&mut ada, json!({"command": "view", "path": "a.txt"})).await;
    assert!(result.text.starts_with("What you have read before is not known here any more"), "{}", result.text);
    assert_eq!(result.data["begun_anew"], true);
    let result = does(&mut ada, json!({"command": "view", "path": "b.txt"})).await;
    assert!(result.text.starts_with("b.txt, version 1"), "{}", result.text);
    does(&mut ada, replace("b.txt", "b", "c")).await;

    // With soft isolation, lost reads reject no edit.
    let shop = Workshop::open(1, &json!({"isolation": "soft"}), &files).await;
    let result = does(&mut restarted(&shop), create).await;
    assert!(result.text.starts_with("What you have read before"), "{}", result.text);
}

#[tokio::test]
async fn a_resumed_conversation_keeps_its_read_set() {
    let files = [("a.txt", "a\n"), ("b.txt", "b\n")];
    let shop = Workshop::open(2, &json!({"annotate": false}), &files).await;
    let create = json!({"command": "create", "path": "c.txt", "file_text": "of a\n", "intent": "from a"});
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    does(&mut ada, json!({"command": "view", "path": "a.txt"})).await;
    does(&mut ada, json!({"command": "view", "path": "b.txt"})).await;
    let memory = ada.take_memory();
    assert!(ada.reads().all().is_empty(), "it is given up");
    let mut again = shop.session(0);
    again.recall(memory);
    does(&mut again, replace("b.txt", "b", "c")).await;
    does(&mut bob, view("a.txt", 1, 1)).await;
    does(&mut bob, replace("a.txt", "a", "A")).await;
    refused(&mut again, "stale_read", create.clone()).await;
    // In another workspace the recalled reads do not count.
    let other = Workshop::open(1, &json!({"annotate": false}), &files).await;
    let mut elsewhere = other.session(0);
    elsewhere.recall(again.take_memory());
    refused(&mut elsewhere, "reads_lost", create).await;
}

#[tokio::test]
async fn agents_are_forgotten_with_their_attempts_and_when_there_are_too_many_and_hear_of_it() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", "a\n")]).await;
    let mut sessions = Sessions::default();
    let seat = |engineer: usize, name: Option<&str>| {
        let mut author = shop.session(engineer).author().clone();
        author.name = name.map(str::to_owned);
        author
    };
    let look = json!({"command": "view", "path": "a.txt"});
    let ada = sessions.get_or_create(Arc::clone(&shop.workspace), seat(0, None), None);
    assert!(!ada.session().lock().await.call(look.clone()).await.text.starts_with("What you have read"));
    let again = sessions.get_or_create(Arc::clone(&shop.workspace), seat(0, None), None);
    assert!(Arc::ptr_eq(ada.session(), again.session()), "it goes on");
    for number in 0..SESSIONS_MAX {
        sessions.get_or_create(Arc::clone(&shop.workspace), seat(1, Some(&format!("agent-{number}"))), None);
    }
    assert_eq!(sessions.len(), SESSIONS_MAX);
    let restarted = sessions.get_or_create(Arc::clone(&shop.workspace), seat(0, None), None);
    assert!(!Arc::ptr_eq(ada.session(), restarted.session()));
    let result = restarted.session().lock().await.call(replace("a.txt", "a", "b")).await;
    assert_eq!(result.code.as_deref(), Some("reads_lost"), "{}", result.text);

    // Sessions of an ended attempt are dropped, and the next attempt knows that there was one.
    let mut author = seat(1, Some("agent-7"));
    let failure = Failure { code: FailureCode::Crashed, message: "it fell".to_owned(), usage: None, deferral: None };
    shop.board.fail(author.attempt.invocation, author.attempt.attempt, failure).await.expect("the board listens");
    let begun = std::time::Instant::now();
    while !shop.board.status().attempts.contains(&(author.attempt.invocation, author.attempt.attempt + 1)) {
        assert!(begun.elapsed().as_secs() < 30, "there is no other attempt");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let late = sessions.get_or_create(Arc::clone(&shop.workspace), author.clone(), None);
    assert_eq!(sessions.len(), 1, "only the one of the other engineer is left");
    drop(late);
    author.attempt.attempt += 1;
    let next = sessions.get_or_create(Arc::clone(&shop.workspace), author, None);
    assert_eq!(sessions.len(), 2);
    let result = next.session().lock().await.call(look).await;
    assert!(result.text.starts_with("What you have read before"), "{}", result.text);
}

#[tokio::test]
async fn intents_of_several_do_not_pile_up_above_a_line_and_one_is_not_cut() {
    let shop = Workshop::open(4, &json!({}), &[("a.py", "x = 0\n")]).await;
    for engineer in 0..4 {
        let mut session = shop.session(engineer);
        does(&mut session, json!({"command": "view", "path": "a.py"})).await;
        let mut edit = replace("a.py", &format!("x = {engineer}"), &format!("x = {}", engineer + 1));
        edit["intent"] = format!("count to {}", engineer + 1).into();
        does(&mut session, edit).await;
    }
    let expected = "# engineer_2: count to 2\n# engineer_3: count to 3\n# engineer_4: count to 4\nx = 4\n";
    assert_eq!(shop.text("a.py").as_deref(), Some(expected));
    let mut ada = shop.session(0);
    does(&mut ada, json!({"command": "view", "path": "a.py"})).await;
    // All comments above a block can be replaced together with it.
    let mut edit = replace("a.py", expected, "y = 0\n");
    edit["intent"] = "x".repeat(201).into();
    let result = refused(&mut ada, "intent_too_long", edit.clone()).await;
    assert!(result.text.contains("200"), "{}", result.text);
    edit["intent"] = "x".repeat(200).into();
    does(&mut ada, edit).await;
    assert_eq!(shop.entry("a.py").expect("known").intent.len(), 200, "the state has all of it");
    let text = shop.text("a.py").expect("a file");
    assert!(text.lines().next().is_some_and(|line| line.ends_with('…')), "the comment says that there is more: {text}");
}

#[tokio::test]
async fn a_file_that_begins_above_what_was_forgotten_is_reported_at_the_version_that_it_has() {
    let shop = Workshop::open(2, &json!({"annotate": false, "max_files": 3}), &[("a.txt", "a\n")]).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    let create = |name: &str| json!({"command": "create", "path": name, "file_text": "n\n", "intent": "new"});
    for name in ["b.txt", "c.txt"] {
        does(&mut bob, create(name)).await;
        does(&mut bob, json!({"command": "delete", "path": name, "intent": "not needed"})).await;
    }
    // The entries of deleted files make room for this one, and the next file begins at a higher version.
    does(&mut ada, create("d.txt")).await;
    let result = does(&mut ada, create("e.txt")).await;
    let version = shop.entry("e.txt").expect("known").version;
    assert!(version > 1, "something was forgotten");
    assert_eq!(result.data["files"][0]["version"], json!(version), "{}", result.text);
    does(&mut ada, replace("e.txt", "n\n", "e\n")).await;
}

#[tokio::test]
async fn a_rejection_names_every_author_that_changed_the_read_lines() {
    let shop = Workshop::open(4, &json!({"annotate": false}), &[("a.txt", &lines(100))]).await;
    let mut ada = shop.session(0);
    does(&mut ada, view("a.txt", 10, 20)).await;
    for (number, line, intent) in [(1, 12, "twelve"), (2, 15, "fifteen"), (3, 80, "eighty"), (1, 13, "thirteen")] {
        let mut other = shop.session(number);
        does(&mut other, view("a.txt", 1, -1)).await;
        let (old, new) = (format!("line {line}\n"), format!("{intent}\n"));
        let edit = json!({"command": "str_replace", "path": "a.txt", "old_str": old, "new_str": new, "intent": intent});
        does(&mut other, edit).await;
    }
    let result = refused(&mut ada, "stale_target", replace("a.txt", "line 11\n", "eleven\n")).await;
    let by = "a.txt was changed by engineer_2 and engineer_3 since you read it: version 1 was read, it has 5\n";
    assert!(result.text.contains(by), "{}", result.text);
    let each =
        "  version 5 by engineer_2: thirteen\n  version 3 by engineer_3: fifteen\n  version 2 by engineer_2: twelve\n";
    assert!(result.text.contains(each), "who changed another line is not in the way: {}", result.text);
}

#[tokio::test]
async fn a_file_is_kept_for_an_agent_and_not_for_its_seat() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", &lines(5))]).await;
    let called = |seat: usize, name: &str| {
        let author = EditAuthor { name: Some(name.to_owned()), ..shop.session(seat).author().clone() };
        Session::new(Arc::clone(&shop.workspace), author)
    };
    let (mut ada, mut bob) = (called(0, "ada"), called(1, "bob"));
    for agent in [&mut ada, &mut bob] {
        does(agent, view("a.txt", 1, -1)).await;
    }
    does(&mut bob, replace("a.txt", "line 3\n", "three\n")).await;
    refused(&mut ada, "stale_target", replace("a.txt", "line 2\n", "two\n")).await;
    let result = refused(&mut bob, "reserved", replace("a.txt", "line 4\n", "four\n")).await;
    assert!(result.text.contains("a.txt is kept for ada until its next edit, for 30 s at most"), "{}", result.text);
    assert_eq!(result.data["rejection"]["violations"][0]["found"]["kept_for"], json!("ada"));
}

#[tokio::test]
async fn annotations_of_others_are_protected_only_in_storm_isolation() {
    for (isolation, code) in [("storm", Some("annotation_lost")), ("soft", None)] {
        let shop = Workshop::open(2, &json!({"isolation": isolation}), &[("a.py", "x = 0\n\n\ny = old(0)\n")]).await;
        let (mut ada, mut bob) = (shop.session(0), shop.session(1));
        does(&mut ada, json!({"command": "view", "path": "a.py"})).await;
        let mut edit = replace("a.py", "y = old(0)", "y = old(1)");
        edit["intent"] = "ask old for one".into();
        does(&mut ada, edit).await;
        does(&mut bob, json!({"command": "view", "path": "a.py"})).await;
        let result = bob.call(replace("a.py", "# engineer_1: ask old for one", "# engineer_1: ask new for one")).await;
        assert_eq!(result.code.as_deref(), code, "{isolation}: {}", result.text);
        assert!(code.is_none() || result.text.contains("other words"), "{}", result.text);
    }
}

fn create(name: &str, text: &str) -> Value {
    json!({"command": "create", "path": name, "file_text": text, "intent": "a new one", "version": 0})
}

#[tokio::test]
async fn version_0_is_that_of_a_file_that_is_not_there() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", "a\n"), ("b.txt", "b\n")]).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    // A file that never existed, and files that were deleted by the author and by another agent.
    does(&mut ada, create("n.txt", "one\n")).await;
    does(&mut ada, json!({"command": "delete", "path": "n.txt", "intent": "not needed"})).await;
    does(&mut ada, create("n.txt", "two\n")).await;
    does(&mut ada, json!({"command": "delete", "path": "n.txt", "intent": "not needed"})).await;
    does(&mut bob, create("n.txt", "three\n")).await;
    does(&mut ada, json!({"command": "view", "path": "n.txt"})).await;
    // An agent that has read a file must first learn that another agent deleted it.
    does(&mut ada, json!({"command": "view", "path": "b.txt"})).await;
    does(&mut bob, json!({"command": "view", "path": "b.txt"})).await;
    does(&mut bob, json!({"command": "delete", "path": "b.txt", "intent": "not needed"})).await;
    refused(&mut ada, "stale_target", create("b.txt", "new\n")).await;
    does(&mut ada, create("b.txt", "new\n")).await;
}

#[tokio::test]
async fn creating_a_known_file_is_rejected_as_existing_without_a_reservation() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", "a\n"), ("b.txt", "b\n")]).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    // The file existed from the start, viewed or not; or the agent made it; or it was made since, and viewed.
    let result = refused(&mut ada, "file_exists", create("a.txt", "new\n")).await;
    assert!(result.text.contains("there is a file a.txt already, version 1 by external"), "{}", result.text);
    assert!(result.text.contains("     1\ta\n"), "what is there is shown: {}", result.text);
    let result = refused(&mut ada, "file_exists", create("a.txt", "new\n")).await;
    assert!(result.text.contains("target: a.txt, version 1, as read"), "{}", result.text);
    refused(&mut ada, "file_exists", json!({"command": "delete", "path": "b.txt", "intent": "gone", "version": 0}))
        .await;
    does(&mut ada, create("own.txt", "own\n")).await;
    refused(&mut ada, "file_exists", create("own.txt", "again\n")).await;
    does(&mut bob, create("bobs.txt", "bob\n")).await;
    does(&mut ada, json!({"command": "view", "path": "bobs.txt"})).await;
    refused(&mut ada, "file_exists", create("bobs.txt", "ada\n")).await;
    // No file is reserved for her, because she lost no race.
    for name in ["a.txt", "b.txt", "own.txt"] {
        does(&mut bob, json!({"command": "view", "path": name})).await;
        does(
            &mut bob,
            json!({"command": "insert", "path": name, "insert_line": 0, "insert_text": "bob\n", "intent": "mine"}),
        )
        .await;
    }
    // She lost a race if the file was made after she began and she has not seen it. The file is then reserved for her.
    does(&mut bob, create("late.txt", "bob\n")).await;
    let result = refused(&mut ada, "stale_target", create("late.txt", "ada\n")).await;
    assert!(result.text.contains("late.txt was made meanwhile by"), "{}", result.text);
    does(&mut bob, json!({"command": "view", "path": "late.txt"})).await;
    refused(&mut bob, "reserved", replace("late.txt", "bob", "bob again")).await;
}

#[tokio::test]
async fn a_rejection_names_unread_lines_and_unread_files() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", &lines(60)), ("b.txt", "b\n")]).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    let result = refused(&mut ada, "unseen_target", replace("a.txt", "line 50\n", "fifty\n")).await;
    assert!(result.text.contains("\ntarget: a.txt, not read, now version 1\n"), "{}", result.text);
    does(&mut bob, view("a.txt", 1, 20)).await;
    let result = refused(&mut bob, "unseen_target", replace("a.txt", "line 30\n", "thirty\n")).await;
    assert!(result.text.contains("\ntarget: a.txt, lines 30-30 not read, now version 1\n"), "{}", result.text);
    // The rejection showed Bob some of the lines. Of the next target, only the unread rest is named and shown.
    let result = refused(&mut bob, "unseen_target", replace("a.txt", "line 33\nline 34\nline 35\n", "more\n")).await;
    assert!(result.text.contains("\ntarget: a.txt, lines 34-35 not read, now version 1\n"), "{}", result.text);
    assert_eq!(read(&bob, "a.txt"), [Some((1, 20)), Some((27, 38))]);
    does(&mut bob, replace("a.txt", "line 33\nline 34\nline 35\n", "more\n")).await;

    // A file that never existed is not a deleted one.
    does(&mut ada, json!({"command": "view", "path": "b.txt"})).await;
    does(&mut bob, json!({"command": "view", "path": "b.txt"})).await;
    let result = does(&mut bob, replace("b.txt", "b", "bob")).await;
    assert!(!result.text.contains("1 lines"), "{}", result.text);
    let result = refused(&mut ada, "stale_read", create("n.txt", "new\n")).await;
    assert!(result.text.contains("\ntarget: n.txt, not there\n"), "{}", result.text);
    assert_eq!(result.data["target"]["is_deleted"], false);
    let result = does(&mut ada, json!({"command": "list"})).await;
    assert!(result.text.contains("b.txt  (1 line, version 2"), "{}", result.text);
    let result = does(&mut ada, json!({"command": "view", "path": "b.txt"})).await;
    assert!(result.text.starts_with("b.txt, version 2, 1 line, last changed by"), "{}", result.text);
    does(&mut bob, json!({"command": "delete", "path": "b.txt", "intent": "not needed"})).await;
    let result = refused(&mut ada, "stale_target", replace("b.txt", "bob", "ada")).await;
    assert!(result.text.contains("\ntarget: b.txt, version 2 read, deleted with version 3\n"), "{}", result.text);
    assert_eq!(result.data["target"]["is_deleted"], true);
}
