//! Edits and external changes reach the board and the disk despite failures in between.

use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::files::{Edit, FileRead, Hunk};
use patchboard_kernel::record::Kind;
use patchboard_kernel::rejection::Code;
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use patchboard_workshop::{Workshop, path};
use patchboard_workspace::service::{CurrentFile, EditOutcome, ProposedChange, RejectedFiles, WorkspaceError};
use patchboard_workspace::session::{CommandResult, Session, SessionAnswer, SessionRequest};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a workshop with one engineer, after an edit that is recorded but not acknowledged; then the board is closed.
async fn unheard() -> Workshop {
    let shop = Workshop::open(1, &json!({"annotate": false}), &[("a.py", "a = 1\n"), ("b.py", "b = 1\n")]).await;
    let mut ada = shop.session(0);
    ada.call(json!({"command": "view", "path": "a.py"})).await;
    shop.journal.loses_one();
    let edit = json!({"command": "create", "path": "a.py", "file_text": "a = 2\n", "intent": "two"});
    let (result, ()) = tokio::join!(ada.call(edit), async {
        shop.journal.has_lost_one().await;
        shop.runtime.close(shop.board.id()).await;
    });
    assert_eq!(result.code.as_deref(), Some("board_closed"), "{}", result.text);
    assert_eq!(shop.text("a.py").as_deref(), Some("a = 1\n"));
    // The next operation cannot know the outcome either, and discards nothing.
    let looked = shop.workspace.report_changes([&path("b.py")]).await.expect_err("the board is gone");
    assert_eq!(looked.code(), "board_closed");
    shop
}

#[tokio::test]
async fn a_recorded_unanswered_edit_is_in_place_after_the_directory_reopens() {
    let shop = unheard().await.crashed().await;
    assert_eq!(shop.text("a.py").as_deref(), Some("a = 2\n"));
    let entry = shop.entry("a.py").expect("known");
    assert_eq!((entry.version, entry.writer.as_str(), shop.found), (2, "engineer_1", 0));
    replay::replay(&shop.records(), None, &PLANS).expect("the run follows from its records");
}

#[tokio::test]
async fn an_edit_with_a_lost_answer_is_made_once() {
    let shop = Workshop::open(1, &json!({"annotate": false}), &[("a.py", "a = 1\n")]).await;
    let mut ada = shop.session(0);
    ada.call(json!({"command": "view", "path": "a.py"})).await;
    shop.journal.loses_one();
    let edit = json!({"command": "create", "path": "a.py", "file_text": "a = 2\n", "intent": "two"});
    let (result, ()) = tokio::join!(ada.call(edit), async {
        shop.journal.has_lost_one().await;
        shop.journal.mended();
    });
    assert!(!result.is_error(), "{}", result.text);
    assert_eq!(shop.text("a.py").as_deref(), Some("a = 2\n"));
    assert_eq!(shop.entry("a.py").expect("known").version, 2);
}

/// Returns an engineer's session after a keyed edit is recorded and its outcome is reported as unknown.
async fn with_unknown_outcome(edit: &SessionRequest) -> (Workshop, Session) {
    let shop = Workshop::open(1, &json!({"annotate": false}), &[("a.py", "a = 1\nb = 1\n")]).await;
    let mut ada = shop.session(0);
    ada.call(json!({"command": "view", "path": "a.py"})).await;
    shop.journal.loses_one();
    let result = answer(&mut ada, edit).await;
    assert!(matches!(result.code.as_deref(), Some("interrupted" | "journal_io")), "{}", result.text);
    shop.journal.mended();
    (shop, ada)
}

fn keyed(arguments: Value) -> SessionRequest {
    SessionRequest { key: Some("k".to_owned()), ..SessionRequest::from(arguments) }
}

async fn answer(session: &mut Session, asked: &SessionRequest) -> CommandResult {
    match session.execute(asked.clone()).await {
        SessionAnswer::New(result) => result,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_repeated_edit_returns_its_outcome_though_others_finished_it() {
    let edit = keyed(
        json!({"command": "str_replace", "path": "a.py", "old_str": "a = 1", "new_str": "a = 2", "intent": "two"}),
    );
    let (shop, mut ada) = with_unknown_outcome(&edit).await;
    // The next operation that gets a turn completes the edit. The author sees that, too.
    assert_eq!(shop.workspace.report_changes([&path("a.py")]).await.expect("it goes on"), 0);
    assert_eq!(ada.call(json!({"command": "view", "path": "a.py"})).await.code, None);
    assert_eq!(shop.text("a.py").as_deref(), Some("a = 2\nb = 1\n"));
    let other = keyed(json!({"command": "create", "path": "a.py", "file_text": "", "intent": "nothing"}));
    assert_eq!(answer(&mut ada, &other).await.code.as_deref(), Some("token_conflict"));
    let result = answer(&mut ada, &edit).await;
    assert_eq!((&result.code, &result.data["files"][0]["version"]), (&None, &json!(2)), "{}", result.text);
    assert_eq!(ada.execute(edit).await, SessionAnswer::Replayed(result));
    let read = FileRead { path: path("a.py"), version: 2, lines: None };
    assert_eq!(ada.reads().for_file(&path("a.py")), [read], "it has seen what it made");
    assert_eq!(shop.entry("a.py").expect("known").version, 2, "it was made once");
}

#[tokio::test]
async fn an_agent_that_starts_again_learns_the_outcome_of_its_edit_before_it_learns_that_reads_are_lost() {
    let edit = keyed(json!({"command": "create", "path": "n.py", "file_text": "n\n", "intent": "a new one"}));
    let (shop, ada) = with_unknown_outcome(&edit).await;
    std::fs::write(shop.directory.path().join("n.py"), "n\ntheirs\n").expect("written");
    let mut restarted = Session::with_lost_reads(Arc::clone(&shop.workspace), ada.author().clone());
    let result = answer(&mut restarted, &edit).await;
    assert_eq!((result.code, &result.data["files"][0]["version"]), (None, &json!(1)), "{}", result.text);
    assert!(
        result.text.contains("not known here any more") && result.text.contains("n.py was made"),
        "{}",
        result.text
    );
    let read = FileRead { path: path("n.py"), version: 1, lines: None };
    assert!(restarted.reads().all().contains(&read), "it knows what it wrote, and not what came after it");
    assert_eq!(
        shop.workspace.report_changes([&path("n.py")]).await.expect("told"),
        0,
        "what others wrote was put back"
    );
    assert_eq!(shop.text("n.py").as_deref(), Some("n\ntheirs\n"));
    // A request without a key is a new request.
    let other = Session::with_lost_reads(Arc::clone(&shop.workspace), ada.author().clone()).call(edit.arguments).await;
    assert_eq!(other.code.as_deref(), Some("reads_lost"), "{}", other.text);
}

#[tokio::test]
async fn external_writes_before_an_edit_is_in_place_get_a_later_version() {
    let shop = unheard().await;
    std::fs::write(shop.directory.path().join("a.py"), "theirs\n").expect("written");
    let shop = shop.crashed().await;
    assert_eq!(shop.text("a.py").as_deref(), Some("theirs\n"));
    let entry = shop.entry("a.py").expect("known");
    assert_eq!((entry.version, entry.writer.as_str()), (3, "external"), "version 2 is the engineer's");
    replay::replay(&shop.records(), None, &PLANS).expect("the run follows from its records");
}

#[tokio::test]
async fn an_edit_that_is_repeated_does_not_undo_what_others_did_since() {
    let shop = Workshop::open(1, &json!({}), &[("a.py", "a = 1\n")]).await;
    let of = Some(shop.session(0).author().attempt);
    let token = Some("once".into());
    let edit = Edit { of, token, name: None, intent: Some("new".into()), reads: Vec::new(), changes: Vec::new() };
    let again = || {
        let make = |_: &[CurrentFile]| -> Result<Vec<ProposedChange>, WorkspaceError> {
            let hunks = Some(vec![Hunk { at: 1, was: String::new(), now: "n\n".to_owned() }]);
            let after = Some("n\n".into());
            Ok(vec![ProposedChange { path: path("new.py"), before: None, after, hunks, signed: Vec::new() }])
        };
        shop.workspace.edit(edit.clone(), vec![path("new.py")], None, None, make)
    };
    assert!(matches!(again().await.expect("answered").outcome, EditOutcome::Committed(_)));
    assert_eq!(shop.text("new.py").as_deref(), Some("n\n"));
    std::fs::remove_file(shop.directory.path().join("new.py")).expect("gone");
    assert_eq!(shop.workspace.report_changes([&path("new.py")]).await.expect("told"), 1);
    assert!(matches!(again().await.expect("answered").outcome, EditOutcome::Committed(_)), "it was made before");
    assert_eq!(shop.text("new.py"), None, "others have taken it away since");
    assert_eq!(shop.entry("new.py").expect("known").version, 2);
}

#[tokio::test]
async fn external_changes_during_an_edit_are_noticed_before_its_decision() {
    let shop = Workshop::open(1, &json!({}), &[("a.py", "a = 1\n")]).await;
    let reads = vec![FileRead { path: path("a.py"), version: 1, lines: None }];
    let of = Some(shop.session(0).author().attempt);
    let edit = Edit { of, token: None, name: None, intent: Some("new".into()), reads, changes: Vec::new() };
    let beside = shop.directory.path().join("a.py");
    let make = move |_: &[CurrentFile]| -> Result<Vec<ProposedChange>, WorkspaceError> {
        std::fs::write(beside, "a = 2\n").expect("written");
        let hunks = Some(vec![Hunk { at: 1, was: String::new(), now: "n\n".to_owned() }]);
        let after = Some("n\n".into());
        Ok(vec![ProposedChange { path: path("new.py"), before: None, after, hunks, signed: Vec::new() }])
    };
    let made = shop.workspace.edit(edit, vec![path("new.py")], None, None, make).await.expect("decided");
    assert!(
        matches!(&made.outcome, EditOutcome::Rejected(refused) if refused.code == Code::StaleRead),
        "{:?}",
        made.outcome
    );
    assert_eq!(shop.text("new.py"), None);
    assert!(std::fs::read_dir(shop.directory.path().join(".patchboard/staged")).expect("listed").next().is_none());
}

#[tokio::test]
async fn a_rescan_finishes_after_its_caller_stops_waiting() {
    let shop = Workshop::open(1, &json!({}), &[("a.py", "a = 1\n")]).await;
    std::fs::write(shop.directory.path().join("b.py"), "b = 1\n").expect("written");
    // The rescan holds its turn and has started disk work.
    tokio::select! {
        biased;
        _ = shop.workspace.rescan() => panic!("the disk takes a moment"),
        // The caller stops waiting.
        () = async {} => {}
    }
    let recorded = async {
        while shop.entry("b.py").is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, recorded).await.expect("the board was told");
}

#[tokio::test]
async fn a_rejected_external_change_is_recorded_once_until_it_differs() {
    let small = json!([{"name": "small", "for": "/files/*", "expr": "self.bytes < 100"}]);
    let spec = json!({"invariants": small, "annotate": false});
    let shop = Workshop::open(1, &spec, &[("a.txt", "small\n"), ("b.txt", "b\n")]).await;
    let mut ada = shop.session(0);
    ada.call(json!({"command": "view", "path": "b.txt"})).await;
    let rejected = || shop.records().iter().filter(|record| record.kind == Kind::Rejected).count();
    let write = |text: &str| std::fs::write(shop.directory.path().join("a.txt"), text).expect("written");
    let a = path("a.txt");
    let refused = async || {
        for _ in 0..5 {
            let error = shop.workspace.report_changes([&a]).await.expect_err("it is too large");
            assert!(error.code() == "workspace_refused" && error.to_string().contains("small"), "{error}");
        }
    };
    write(&"x".repeat(200));
    refused().await;
    assert_eq!(rejected(), 1);
    // Another content is proposed once more.
    write(&"y".repeat(300));
    refused().await;
    assert_eq!(rejected(), 2);
    // A new state may make it acceptable, so it is retried, but with a pause.
    for text in ["c\n", "d\n"] {
        let result = ada.call(json!({"command": "create", "path": "b.txt", "file_text": text, "intent": "b"})).await;
        assert!(!result.is_error(), "{}", result.text);
        tokio::time::sleep(Duration::from_millis(1100)).await;
        refused().await;
    }
    assert_eq!(rejected(), 3);
    write("mended\n");
    assert_eq!(shop.workspace.report_changes([&a]).await.expect("it is right"), 1);
    assert_eq!(shop.entry("a.txt").map(|entry| entry.version), Some(2));
}

#[tokio::test]
async fn a_rejected_external_change_leaves_other_files_usable() {
    let small = json!([{"name": "small", "for": "/files/*", "expr": "self.bytes < 100"}]);
    let spec = json!({"invariants": small, "annotate": false});
    let names: Vec<String> = (0..20).map(|file| format!("{file:02}.txt")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "small\n")).collect();
    let shop = Workshop::open(2, &spec, &files).await;
    for name in &names {
        let text = if name == "13.txt" { "x".repeat(200) } else { format!("small {name}\n") };
        std::fs::write(shop.directory.path().join(name), text).expect("written");
    }
    let noticed = shop.workspace.rescan().await.expect("looked through");
    assert_eq!(noticed.found, 20);
    let [RejectedFiles { paths, rejection }] = &noticed.rejected[..] else { panic!("{noticed:?}") };
    assert_eq!(paths, &[path("13.txt")]);
    assert!(rejection.violations.iter().any(|it| it.message.contains("small")), "{rejection:?}");
    let version = |name: &str| shop.entry(name).expect("known").version;
    assert!(names.iter().all(|name| version(name) == if name == "13.txt" { 1 } else { 2 }));
    // A second rescan does not propose the rejected part again.
    let count = shop.records().len();
    assert_eq!(shop.workspace.rescan().await.expect("looked through").rejected.len(), 1);
    assert_eq!(shop.records().len(), count);

    let mut ada = shop.session(0);
    let found = ada.call(json!({"command": "search", "pattern": "small 1"})).await;
    assert!(found.text.contains("small 12.txt") && found.text.contains("small 14.txt"), "{}", found.text);
    assert!(
        found.text.contains("[13.txt: not looked through, the board does not allow what it holds]"),
        "{}",
        found.text
    );
    ada.call(json!({"command": "view", "path": "14.txt"})).await;
    let result = ada.call(json!({"command": "create", "path": "14.txt", "file_text": "a\n", "intent": "a"})).await;
    assert!(!result.is_error(), "{}", result.text);
    let result = ada.call(json!({"command": "create", "path": "13.txt", "file_text": "a\n", "intent": "a"})).await;
    assert_eq!(result.code.as_deref(), Some("workspace_refused"), "it rests on that");
    // After a crash, another engineer can still edit.
    drop(ada);
    let shop = shop.crashed().await;
    let result =
        shop.session(1).call(json!({"command": "create", "path": "n.txt", "file_text": "n\n", "intent": "n"})).await;
    assert!(!result.is_error(), "{}", result.text);
    replay::replay(&shop.records(), None, &PLANS).expect("the run follows from its records");
}

#[tokio::test]
async fn external_changes_are_reported_in_records_of_bounded_size() {
    const FILES: usize = 8;
    const MIB: usize = 1024 * 1024;
    let text = |of: char| format!("{}\n", of.to_string().repeat(59)).repeat(MIB / 60);
    let before = text('a');
    let names: Vec<String> = (0..FILES).map(|file| format!("{file}.txt")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), before.as_str())).collect();
    let shop = Workshop::open(1, &json!({}), &files).await;
    let mut ada = shop.session(0);
    for name in &names {
        ada.call(json!({"command": "view", "path": name, "view_range": [1, 3]})).await;
        shop.workspace.report_changes([&path(name)]).await.expect("told");
        std::fs::write(shop.directory.path().join(name), text('b')).expect("written");
    }
    let count = shop.records().len();
    assert_eq!(shop.workspace.rescan().await.expect("told").found, FILES);
    let records = shop.records().split_off(count);
    let sizes: Vec<usize> = records.iter().map(|record| record.payload.len()).collect();
    assert!(sizes.len() > 1 && sizes.iter().all(|size| *size < 6 * MIB), "{sizes:?}");
    assert!(sizes.iter().sum::<usize>() > FILES * MIB, "the texts are told: {sizes:?}");
    replay::replay(&shop.records(), None, &PLANS).expect("the run follows from its records");
}
