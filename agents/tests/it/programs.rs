//! Programs in a directory shared by agents: taking turns, and attribution of their changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use patchboard_agents::config::Program;
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use patchboard_workshop::{Workshop, path};
use patchboard_workspace::programs::run;
use serde_json::json;

use crate::support::{is_soon_gone, pid_in};

fn program(script: &str, changes: &[&str]) -> Program {
    let mut program = Program::new(["sh", "-c", script, "sh"].map(str::to_owned).to_vec());
    program.changes = changes.iter().map(|pattern| (*pattern).to_owned()).collect();
    program.arguments = true;
    program
}

const ADA: &str = "engineer_1";

#[tokio::test]
async fn changes_by_a_program_are_attributed_to_the_worker_that_ran_it() {
    let shop = Workshop::open(2, &json!({}), &[("src/a.py", "a=1\n"), ("notes.txt", "n\n")]).await;
    let mut bob = shop.session(1);
    bob.call(json!({"command": "view", "path": "src/a.py"})).await;
    let script =
        "sed -i s/=/\\ =\\ / src/a.py; echo more >> notes.txt; echo new > \"$1\"; echo formatted; echo hm >&2; exit 3";
    let formatter = program(script, &["src/**"]);
    let ran = run(&shop.workspace, "format", &formatter, &["src/new.py".to_owned()], ADA).await.expect("it ran");
    assert_eq!((ran.exit, ran.stdout.as_str(), ran.stderr.as_str()), (Some(3), "formatted\n", "hm\n"));
    assert_eq!(ran.changed, [path("src/a.py"), path("src/new.py")]);
    assert_eq!(ran.others, [path("notes.txt")], "it may not change that, and did");
    let known = |name| shop.entry(name).map(|entry| (entry.version, entry.writer, entry.intent)).expect("known");
    assert_eq!(known("src/a.py"), (2, "engineer_1".into(), "ran format src/new.py: exit 3".into()));
    assert_eq!(known("src/new.py"), (1, "engineer_1".into(), "ran format src/new.py: exit 3".into()));
    assert_eq!(known("notes.txt"), (2, "external".into(), String::new()));
    let result = bob.call(json!({"command": "create", "path": "src/a.py", "file_text": "b\n", "intent": "b"})).await;
    assert_eq!(result.code.as_deref(), Some("stale_target"), "{}", result.text);
    replay::replay(&shop.records(), None, &PLANS).expect("the run follows from its records");
}

#[tokio::test]
async fn a_program_with_rejected_changes_still_reports_its_run() {
    let small = json!([{"name": "small", "for": "/files/*", "expr": "self.bytes < 100"}]);
    let shop = Workshop::open(1, &json!({"invariants": small}), &[("a.txt", "a\n"), ("b.txt", "b\n")]).await;
    let script = "seq 200 > a.txt; echo more >> b.txt; echo done";
    let ran = run(&shop.workspace, "write", &program(script, &["*.txt"]), &[], ADA).await.expect("it ran");
    assert_eq!((ran.exit, ran.stdout.as_str()), (Some(0), "done\n"));
    assert_eq!(ran.changed, [path("a.txt"), path("b.txt")]);
    let [untold] = &ran.unreported[..] else { panic!("{ran:?}") };
    assert!(untold.starts_with("a.txt") && untold.contains("small"), "{untold}");
    let known = |name| shop.entry(name).map(|entry| (entry.version, entry.writer)).expect("known");
    assert_eq!((known("a.txt"), known("b.txt")), ((1, "external".into()), (2, "engineer_1".into())));
    // Other programs still run, and the rejected change is reported to them as well.
    let ran = run(&shop.workspace, "look", &program("cat b.txt", &[]), &[], ADA).await.expect("it ran");
    assert_eq!((ran.stdout.as_str(), ran.unreported.len()), ("b\nmore\n", 1));
}

#[tokio::test]
async fn programs_that_change_the_same_files_run_one_after_the_other_and_edits_wait_for_them() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", "0\n"), ("b.txt", "0\n")]).await;
    // Each program reads a value and writes it back a moment later, so concurrent runs would lose one. The first
    // continues only once another file was edited, which shows that this edit does not wait for it.
    let outside = tempfile::tempdir().expect("a directory");
    let begun = outside.path().join("begun");
    let script = format!(
        "echo $$ > {}; until grep -q 1 b.txt; do sleep 0.02; done; n=$(cat a.txt); sleep 0.3; echo $((n + 1)) > a.txt",
        begun.display()
    );
    let slow = program(&script, &["a.txt"]);
    let mut bob = shop.session(1);
    bob.call(json!({"command": "view", "path": "b.txt"})).await;
    let (one, two, edited) = tokio::join!(
        run(&shop.workspace, "slow", &slow, &[], ADA),
        run(&shop.workspace, "slow", &slow, &[], "engineer_2"),
        async {
            pid_in(&begun).await;
            let result =
                bob.call(json!({"command": "create", "path": "b.txt", "file_text": "1\n", "intent": "b"})).await;
            assert!(!result.is_error(), "{}", result.text);
            bob.call(json!({"command": "view", "path": "a.txt"})).await;
            bob.call(json!({"command": "create", "path": "a.txt", "file_text": "x\n", "intent": "a"})).await
        }
    );
    one.and(two).expect("they ran");
    assert_eq!(edited.code.as_deref(), Some("stale_target"), "it changed while it was waited for: {}", edited.text);
    assert_eq!(shop.text("a.txt").as_deref(), Some("2\n"));
}

#[tokio::test]
async fn a_program_that_goes_on_for_ever_is_ended_with_all_it_started() {
    let shop = Workshop::open(1, &json!({}), &[("a.txt", "0\n")]).await;
    let mut endless = program("sleep 100 & echo begun; echo 1 > a.txt; wait", &["a.txt"]);
    endless.timeout = Some(patchboard_kernel::blueprint::Duration::from_secs(1));
    // Arguments are untrusted: several lines, and longer than an intent may be.
    let long = format!("--two\nlines\u{1b}[31m {}", "x".repeat(4000));
    let error = run(&shop.workspace, "endless", &endless, &[long], ADA).await.expect_err("it took too long");
    assert_eq!(error.code(), "took_too_long");
    let entry = shop.entry("a.txt").expect("what it did is known");
    assert_eq!(entry.writer, "engineer_1");
    assert!(entry.intent.starts_with("ran endless --two lines [31m xxx"), "{}", entry.intent);
    assert!(entry.intent.ends_with("xx…: took_too_long"), "{}", entry.intent);
    let none = run(&shop.workspace, "none", &Program::new(vec!["/nowhere/none".to_owned()]), &[], ADA).await;
    assert_eq!(none.expect_err("there is none").code(), "cannot_start");
    let refused = run(&shop.workspace, "x", &Program::new(vec!["true".to_owned()]), &["y".to_owned()], ADA).await;
    assert_eq!(refused.expect_err("it takes none").code(), "bad_program_arguments");
}

#[tokio::test]
async fn an_abandoned_program_ends_before_the_next_turn() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", "0\n")]).await;
    let mut bob = shop.session(1);
    bob.call(json!({"command": "view", "path": "a.txt"})).await;
    let (workspace, file) = (Arc::clone(&shop.workspace), shop.directory.path().join("a.txt"));
    let writes = "echo 1 > a.txt; (while :; do echo more >> a.txt; sleep 0.01; done) & wait";
    let running = tokio::spawn(async move { run(&workspace, "write", &program(writes, &["a.txt"]), &[], ADA).await });
    let begun = Instant::now();
    while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains("more")) {
        assert!(begun.elapsed() < Duration::from_secs(20), "it did not begin");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.abort();
    assert!(running.await.is_err(), "nobody waits for it");
    let result = bob.call(json!({"command": "create", "path": "a.txt", "file_text": "b\n", "intent": "b"})).await;
    assert_eq!(result.code.as_deref(), Some("stale_target"), "{}", result.text);
    let entry = shop.entry("a.txt").expect("known");
    assert_eq!((entry.version, entry.writer.as_str()), (2, "engineer_1"), "all of it is told at once, in that name");
    let result = bob.call(json!({"command": "create", "path": "a.txt", "file_text": "b\n", "intent": "b"})).await;
    assert!(!result.is_error(), "{}", result.text);
    assert_eq!(shop.text("a.txt").as_deref(), Some("b\n"));
    replay::replay(&shop.records(), None, &PLANS).expect("the run follows from its records");
}

#[tokio::test]
async fn a_program_keeps_its_exit_code_despite_background_processes() {
    let shop = Workshop::open(1, &json!({}), &[("a.txt", "0\n")]).await;
    let begun = Instant::now();
    let outside = tempfile::tempdir().expect("a directory");
    let file = outside.path().join("left");
    let script = format!("(sleep 60; echo late > a.txt) & echo $! > {}; echo done; exit 4", file.display());
    let mut leaves = program(&script, &["a.txt"]);
    leaves.timeout = Some(patchboard_kernel::blueprint::Duration::from_secs(1));
    let ran = run(&shop.workspace, "leaves", &leaves, &[], ADA).await.expect("it ended by itself");
    assert_eq!((ran.exit, ran.stdout.as_str()), (Some(4), "done\n"));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(is_soon_gone(&pid_in(&file).await).await, "it was ended with all that it started");
    assert_eq!(shop.text("a.txt").as_deref(), Some("0\n"));
}
