//! Previous contents of externally changed files, and reads of many files at once.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use patchboard_kernel::files::{Edit, FileRead, Hunk};
use patchboard_workshop::{Workshop, path};
use patchboard_workspace::service::{CurrentFile, EditOutcome, ProposedChange, WorkspaceError};
use serde_json::json;

/// Returns a file of the maximum size, in lines.
fn large(first: char) -> String {
    let line = format!("{first}{}\n", "x".repeat(1022));
    line.repeat(1024)
}

/// Changes the last line of a file outside the workspace; returns whether the board knows that only this line changed.
async fn is_known_by_line(shop: &Workshop, name: &str) -> bool {
    let before = shop.text(name).expect("a file");
    let version = shop.entry(name).expect("known").version;
    let lines = before.lines().count();
    let kept = before.lines().take(lines - 1).fold(String::new(), |text, line| text + line + "\n");
    let changed = format!("{kept}changed at {version}\n");
    fs::write(shop.directory.path().join(name), changed).expect("written");
    assert_eq!(shop.workspace.report_changes([&path(name)]).await.expect("told"), 1);
    let entry = shop.entry(name).expect("known");
    let lines = u32::try_from(lines).expect("few");
    entry.edits[&entry.version].moves == Some(vec![(lines, 1, 1)])
}

#[tokio::test]
async fn external_changes_after_a_restart_are_reported_by_line() {
    let shop = Workshop::open(1, &json!({}), &[("a.txt", "1\n2\n3\n"), ("b.txt", "1\n2\n3\n")]).await;
    assert!(is_known_by_line(&shop, "a.txt").await);
    let shop = shop.crashed().await;
    for name in ["a.txt", "b.txt"] {
        assert!(is_known_by_line(&shop, name).await, "{name}");
    }
}

#[tokio::test]
async fn changes_of_viewed_files_are_reported_by_line_beside_many_others() {
    let names: Vec<String> = (0..34).map(|at| format!("{at:02}.txt")).collect();
    let texts: Vec<String> = ('A'..).take(names.len()).map(large).collect();
    let files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
    let shop = Workshop::open(1, &json!({}), &files).await;
    let mut ada = shop.session(0);
    for name in ["32.txt", "33.txt"] {
        ada.call(json!({"command": "view", "path": name, "view_range": [1, 2]})).await;
    }
    assert!(is_known_by_line(&shop, "32.txt").await && is_known_by_line(&shop, "33.txt").await);
    // The lines she has read are unchanged.
    let result = ada.call(json!({"command": "create", "path": "new.txt", "file_text": "n\n", "intent": "new"})).await;
    assert!(!result.is_error(), "{}", result.text);
}

#[tokio::test]
async fn a_search_sees_what_others_have_changed_and_what_is_gone() {
    let shop = Workshop::open(
        1,
        &json!({}),
        &[("a/1.txt", "one\n"), ("a/2.txt", "two\n"), ("b.txt", "b\n"), ("c.txt", "one\n")],
    )
    .await;
    let at = |name: &str| shop.directory.path().join(name);
    fs::write(at("a/2.txt"), "one two\n").expect("written");
    fs::write(at("b.txt"), b"\0binary").expect("written");
    fs::remove_file(at("c.txt")).expect("gone");
    let mut ada = shop.session(0);
    let result = ada.call(json!({"command": "search", "pattern": "one"})).await;
    assert_eq!(result.text, "a/1.txt\n     1\tone\na/2.txt\n     1\tone two\n");
    assert_eq!(shop.entry("a/2.txt").expect("known").version, 2);
    assert!(!shop.entry("c.txt").expect("known").exists());
    fs::write(at("a/1.txt"), "1\n").expect("written");
    let result = ada.call(json!({"command": "create", "path": "n.txt", "file_text": "n\n", "intent": "n"})).await;
    assert_eq!(result.code.as_deref(), Some("stale_read"), "what a search shows is read: {}", result.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_file_leaves_the_search_of_other_files_working() {
    let shop = Workshop::open(1, &json!({}), &[("busy.txt", "one 0\n"), ("calm.txt", "one\n")]).await;
    let mut ada = shop.session(0);
    let (is_over, root) = (AtomicBool::new(false), shop.directory.path().to_owned());
    let begun = std::time::Instant::now();
    let mut is_said = false;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = root.join(".patchboard/other");
            for at in 0_u64.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                fs::write(&other, format!("one {at}\n")).expect("written");
                fs::rename(&other, root.join("busy.txt")).expect("renamed");
            }
        });
        let search = async {
            while !is_said && begun.elapsed() < Duration::from_secs(20) {
                let result = ada.call(json!({"command": "search", "pattern": "one"})).await;
                if result.is_error() || !result.text.contains("calm.txt\n     1\tone\n") {
                    return Err(result.text);
                }
                is_said = result.text.contains("[busy.txt: not looked through");
            }
            Ok(())
        };
        let done = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(search));
        is_over.store(true, Ordering::Relaxed);
        done.expect("a search that others keep from nothing");
    });
    assert!(is_said, "it was never busy");
}

#[tokio::test]
async fn each_read_of_an_edit_costs_its_record_a_bounded_size() {
    let lines: String = (1..=3000).map(|line| format!("line {line}\n")).collect();
    let shop = Workshop::open(1, &json!({}), &[("src/package/module.py", &lines)]).await;
    let of = Some(shop.session(0).author().attempt);
    let mut sizes = Vec::new();
    for count in [0, 10, 100, 1000] {
        let read = |at: u32| FileRead {
            path: path("src/package/module.py"),
            version: 1,
            lines: Some((3 * at + 1, 3 * at + 2)),
        };
        let reads = (0..count).map(read).collect();
        let edit = Edit { of, token: None, name: None, intent: Some("new".into()), reads, changes: Vec::new() };
        let name = path(&format!("new_{count:04}.txt"));
        let target = name.clone();
        let make = move |_: &[CurrentFile]| -> Result<Vec<ProposedChange>, WorkspaceError> {
            let hunks = Some(vec![Hunk { at: 1, was: String::new(), now: "n\n".to_owned() }]);
            Ok(vec![ProposedChange {
                path: target,
                before: None,
                after: Some("n\n".into()),
                hunks,
                signed: Vec::new(),
            }])
        };
        let made = shop.workspace.edit(edit, vec![name], None, None, make).await.expect("decided");
        assert!(matches!(made.outcome, EditOutcome::Committed(_)), "{:?}", made.outcome);
        let records = shop.records();
        sizes.push(records.last().expect("a record").to_json().to_string().len());
    }
    println!("{sizes:?}");
    let each = (sizes[3] - sizes[0]) / 1000;
    assert!((40..100).contains(&each), "{sizes:?}");
    assert!(sizes[0] < 2_000, "{sizes:?}");
}
