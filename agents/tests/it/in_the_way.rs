//! Changes that cannot be put in place are rejected before they are recorded. If that was not known in time, other
//! agents can still work.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use patchboard_kernel::files::EXTERNAL;
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use patchboard_workshop::{Workshop, path};
use patchboard_workspace::session::{SessionAnswer, SessionRequest};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use serde_json::{Value, json};

/// Enforces permissions on this test and all threads it starts.
fn unprivileged() {
    let mut sets = capabilities(None).expect("read");
    sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    set_capabilities(None, sets).expect("fewer may always be had");
}

fn may_be_written(directory: impl AsRef<Path>, may: bool) {
    let mode = if may { 0o755 } else { 0o555 };
    fs::set_permissions(directory, fs::Permissions::from_mode(mode)).expect("permissions");
}

fn create(path: &str, text: &str) -> Value {
    json!({"command": "create", "path": path, "file_text": text, "intent": "a file"})
}

/// Returns the texts kept because they could not be put in place.
fn displaced(shop: &Workshop) -> Vec<String> {
    let kept = fs::read_dir(shop.directory.path().join(".patchboard/displaced")).expect("listed");
    kept.map(|kept| fs::read_to_string(kept.expect("an entry").path()).expect("a text")).collect()
}

#[tokio::test]
async fn a_name_that_the_file_system_does_not_take_is_not_recorded() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", "a\n")]).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    let long = "x".repeat(256);
    for path in [format!("new/{long}"), format!("new/{long}/a.txt"), long.clone(), format!("{long}/a.txt")] {
        let result = ada.call(create(&path, "new\n")).await;
        assert_eq!(result.code.as_deref(), Some("not_served"), "{}", result.text);
        assert_eq!(shop.entry(&path), None);
    }
    ada.call(json!({"command": "view", "path": "a.txt"})).await;
    let result =
        ada.call(json!({"command": "rename", "path": "a.txt", "new_path": format!("b/{long}"), "intent": "b"})).await;
    assert_eq!(result.code.as_deref(), Some("not_served"), "{}", result.text);
    assert_eq!(shop.text("a.txt").as_deref(), Some("a\n"));
    // A name of the maximum length.
    let result = ada.call(create(&format!("new/{}", &long[1..]), "new\n")).await;
    assert!(!result.is_error(), "{}", result.text);
    let result = bob.call(create("b.txt", "b\n")).await;
    assert!(!result.is_error(), "{}", result.text);
    drop((ada, bob));
    assert_eq!(shop.crashed().await.text("b.txt").as_deref(), Some("b\n"));
}

#[tokio::test]
async fn edits_in_a_read_only_directory_fail_before_they_are_recorded() {
    unprivileged();
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("own/a.txt", "a\n"), ("b.txt", "b\n")]).await;
    let own = shop.directory.path().join("own");
    may_be_written(&own, false);
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    ada.call(json!({"command": "view", "path": "own/a.txt"})).await;
    for edit in [
        create("own/a.txt", "A\n"),
        create("own/new.txt", "new\n"),
        create("own/new/new.txt", "new\n"),
        json!({"command": "delete", "path": "own/a.txt", "intent": "gone"}),
        json!({"command": "rename", "path": "own/a.txt", "new_path": "a.txt", "intent": "moved"}),
    ] {
        let result = ada.call(edit).await;
        assert_eq!(result.code.as_deref(), Some("write_forbidden"), "{}", result.text);
    }
    assert_eq!(shop.entry("own/a.txt").expect("known").version, 1);
    assert_eq!((shop.entry("own/new.txt"), shop.entry("a.txt")), (None, None));
    let result = bob.call(create("c.txt", "c\n")).await;
    assert!(!result.is_error(), "{}", result.text);
    may_be_written(own, true);
    let result = ada.call(create("own/a.txt", "A\n")).await;
    assert!(!result.is_error(), "{}", result.text);
}

#[tokio::test]
async fn a_recorded_edit_that_cannot_be_applied_is_reverted_and_reported() {
    unprivileged();
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("own/a.txt", "a\n"), ("b.txt", "b\n")]).await;
    let own = shop.directory.path().join("own");
    let mut ada = shop.session(0);
    ada.call(json!({"command": "view", "path": "own/a.txt"})).await;
    // The journal delays its answer until the directory is read-only.
    shop.journal.loses_one();
    let (result, ()) = tokio::join!(ada.call(create("own/a.txt", "A\n")), async {
        shop.journal.has_lost_one().await;
        may_be_written(&own, false);
        shop.journal.mended();
    });
    assert_eq!(result.code.as_deref(), Some("not_in_place"), "{}", result.text);
    assert!(result.text.contains("own/a.txt") && result.text.contains("displaced"), "{}", result.text);
    assert_eq!((shop.text("own/a.txt").as_deref(), displaced(&shop)), (Some("a\n"), vec!["A\n".to_owned()]));
    // The board has the edit, followed by the content on disk.
    let entry = shop.entry("own/a.txt").expect("known");
    assert_eq!((entry.version, entry.writer.as_str()), (3, EXTERNAL));
    assert_eq!((entry.edits[&2].by.as_str(), entry.lines), ("engineer_1", 1));
    // No work is left that would block others. (The attempts ended with the interrupted board.)
    fs::write(shop.directory.path().join("b.txt"), "B\n").expect("written");
    assert_eq!(shop.workspace.report_changes([&path("b.txt")]).await.expect("told"), 1);
    drop(ada);
    let shop = shop.crashed().await;
    let result = shop.session(1).call(create("c.txt", "c\n")).await;
    assert!(!result.is_error(), "{}", result.text);
    assert_eq!((shop.found, shop.entry("own/a.txt").expect("known").version), (0, 3));
    replay::replay(&shop.records(), None, &PLANS).expect("the run follows from its records");
    may_be_written(own, true);
}

#[tokio::test]
async fn a_directory_with_a_blocked_edit_can_be_reopened() {
    unprivileged();
    let shop = Workshop::open(1, &json!({"annotate": false}), &[("own/a.txt", "a\n"), ("b.txt", "b\n")]).await;
    let own = shop.directory.path().join("own");
    let mut ada = shop.session(0);
    shop.journal.loses_one();
    let (result, ()) = tokio::join!(ada.call(create("own/new/c.txt", "c\n")), async {
        shop.journal.has_lost_one().await;
        shop.runtime.close(shop.board.id()).await;
    });
    assert_eq!(result.code.as_deref(), Some("board_closed"), "{}", result.text);
    may_be_written(&own, false);
    drop(ada);
    let shop = shop.crashed().await;
    assert_eq!(displaced(&shop), ["c\n"]);
    let entry = shop.entry("own/new/c.txt").expect("known");
    assert_eq!((entry.version, entry.hash, entry.writer.as_str()), (2, None, EXTERNAL));
    let mut ada = shop.session(0);
    let result = ada.call(create("d.txt", "d\n")).await;
    assert!(!result.is_error(), "{}", result.text);
    replay::replay(&shop.records(), None, &PLANS).expect("the run follows from its records");
    may_be_written(own, true);
}

#[tokio::test]
async fn a_blocked_edit_is_decided_again_on_repetition() {
    let shop = Workshop::open(1, &json!({"annotate": false}), &[("new", "a file\n")]).await;
    let mut ada = shop.session(0);
    let asked = || SessionRequest { key: Some("one".to_owned()), ..SessionRequest::from(create("new/a.txt", "a\n")) };
    let SessionAnswer::New(result) = ada.execute(asked()).await else { panic!("it was asked for once") };
    assert_eq!(result.code.as_deref(), Some("not_served"), "{}", result.text);
    fs::remove_file(shop.directory.path().join("new")).expect("removed");
    let SessionAnswer::New(result) = ada.execute(asked()).await else { panic!("it was not decided") };
    assert!(!result.is_error(), "{}", result.text);
    assert_eq!(shop.text("new/a.txt").as_deref(), Some("a\n"));
    assert_eq!(ada.execute(asked()).await, SessionAnswer::Replayed(result), "what was decided stays");
}
