//! Authors' own working trees: edits, later attempts, and merges.

use std::collections::BTreeMap;
use std::sync::Arc;

use patchboard_agents::config::Program;
use patchboard_kernel::files::Access;
use patchboard_kernel::record::Kind;
use patchboard_runtime::tools::ROOM_MAX;
use patchboard_workshop::Workshop;
use patchboard_workspace::edit_author::EditAuthor;
use patchboard_workspace::git::{self, Window};
use patchboard_workspace::session::{CommandResult, Session};
use patchboard_workspace::tools::call;
use patchboard_workspace::worktree::{Worktree, merge};
use serde_json::{Value, json};

use crate::git::{BEGIN, PLANTED, manager, plant, sh};

/// Engineer that calls tools in its own working tree.
struct Engineer {
    session: Session,
    tree: Worktree,
    programs: BTreeMap<String, Program>,
}

impl Engineer {
    async fn sit_down(shop: &Workshop, engineer: usize) -> Self {
        let author = shop.session(engineer).author().clone();
        let files = json!({"edit": ["**"], "run": ["where"]});
        let access = Access::compile(&serde_json::from_value(files).expect("access")).expect("patterns");
        let author = EditAuthor { access, ..author };
        assert!(author.has_tree(shop.workspace.spec()));
        let tree = Worktree::open(&shop.workspace, author.clone()).await.expect("a tree");
        let program =
            vec!["sh".to_owned(), "-c".to_owned(), "pwd; cat a.py; echo made > made.txt; echo k > k.key".to_owned()];
        let programs = [("where".to_owned(), Program::new(program))].into();
        Self { session: Session::new(Arc::clone(&shop.workspace), author), tree, programs }
    }

    async fn does(&mut self, tool: &str, arguments: Value) -> CommandResult {
        let result = call(&mut self.session, Some(&self.tree), &self.programs, tool, arguments, ROOM_MAX).await;
        assert!(!result.is_error(), "{}", result.text);
        result
    }
}

fn create(name: &str, text: &str) -> Value {
    json!({"path": name, "file_text": text, "intent": "anew"})
}

#[tokio::test]
async fn programs_run_in_the_tree_of_who_runs_them_and_a_tree_serves_what_the_directory_does() {
    let spec = json!({"isolation": "worktree", "exclude": ["*.key"]});
    let shop = Workshop::open(1, &spec, &[("a.py", "a = 1\n")]).await;
    let root = shop.directory.path().canonicalize().expect("a directory");
    sh(&root, BEGIN);
    let mut ada = Engineer::sit_down(&shop, 0).await;
    ada.does("create", create("a.py", "a = 2\n")).await;
    let result = ada.does("run", json!({"program": "where"})).await;
    assert!(result.text.contains("worktrees/engineer_1\n") && result.text.contains("a = 2"), "{}", result.text);
    assert!(!root.join("made.txt").exists());
    let result =
        call(&mut ada.session, Some(&ada.tree), &ada.programs, "view", json!({"path": "k.key"}), ROOM_MAX).await;
    assert_eq!(result.code.as_deref(), Some("not_served"), "{}", result.text);
    // The next attempt starts before the previous one is gone.
    let again = Engineer::sit_down(&shop, 0).await;
    drop(ada);
    let said = merge(&shop.workspace, &manager(&shop), "engineer_1").await.expect("it is merged");
    assert!(said.contains("2 files"), "{said}");
    drop(again);
    assert_eq!(sh(&root, "cat a.py made.txt; ls *.key 2>/dev/null || true; git status --porcelain"), "a = 2\nmade\n");
    assert_eq!(shop.entry("a.py").map(|entry| entry.writer).as_deref(), Some("manager"));
    let said = merge(&shop.workspace, &manager(&shop), "engineer_1").await.expect("nothing is left");
    assert!(said.contains("not merged already"), "{said}");
}

#[tokio::test]
async fn a_merge_that_fails_leaves_no_trace_and_one_that_does_not_keeps_what_is_staged() {
    let shop = Workshop::open(2, &json!({"isolation": "worktree"}), &[("a.py", "a = 1\n"), ("b.py", "b = 1\n")]).await;
    let root = shop.directory.path();
    sh(root, BEGIN);
    for (engineer, text) in [(0, "a = 2\n"), (1, "a = 3\n")] {
        Engineer::sit_down(&shop, engineer).await.does("create", create("a.py", text)).await;
    }
    sh(root, "echo mine > mine.txt; git add mine.txt");
    shop.workspace.rescan().await.expect("it is looked at");
    merge(&shop.workspace, &manager(&shop), "engineer_1").await.expect("it is merged");
    assert_eq!(sh(root, "git status --porcelain; cat a.py"), "A  mine.txt\na = 2\n");
    let (before, known) = (sh(root, "git rev-parse HEAD; git ls-files -s"), shop.records().len());
    let error = merge(&shop.workspace, &manager(&shop), "engineer_2").await.expect_err("it conflicts");
    assert_eq!(error.code(), "merge_conflict");
    assert!(error.to_string().contains("conflicts in a.py"), "{error}");
    assert_eq!(sh(root, "git rev-parse HEAD; git ls-files -s"), before);
    assert_eq!(sh(root, "git status --porcelain; cat a.py"), "A  mine.txt\na = 2\n");
    assert_eq!(shop.records().len(), known, "the board is told of nothing");

    // Uncommitted changes in the directory are not overwritten, and no part of the merge is applied.
    let mut bob = Engineer::sit_down(&shop, 1).await;
    bob.does("create", create("b.py", "b = 2\n")).await;
    bob.does("create", create("c.py", "c = 2\n")).await;
    sh(root, "echo 'b = 7' > b.py");
    shop.workspace.rescan().await.expect("it is looked at");
    let known = shop.records().len();
    let error = merge(&shop.workspace, &manager(&shop), "engineer_2").await.expect_err("it is in the way");
    assert_eq!(error.code(), "merge_conflict");
    assert!(error.to_string().contains("b.py"), "{error}");
    assert_eq!(sh(root, "cat b.py; ls"), "b = 7\na.py\nb.py\nmine.txt\n");
    assert_eq!(shop.records().len(), known);
    sh(root, "git checkout -q b.py");
    shop.workspace.rescan().await.expect("it is looked at");
    let commits = |shop: &Workshop| shop.records().iter().filter(|record| record.kind == Kind::Committed).count();
    let known = commits(&shop);
    merge(&shop.workspace, &manager(&shop), "engineer_2").await.expect("it is merged");
    assert_eq!(commits(&shop), known + 1, "one outcome");
    assert_eq!(sh(root, "cat a.py b.py c.py; git status --porcelain"), "a = 2\nb = 2\nc = 2\nA  mine.txt\n");
}

#[tokio::test]
async fn a_tree_is_brought_up_to_what_was_merged_when_its_engineer_sits_down_again() {
    let shop = Workshop::open(2, &json!({"isolation": "worktree"}), &[("a.py", "a = 1\n"), ("b.py", "b = 1\n")]).await;
    let root = shop.directory.path();
    sh(root, BEGIN);
    let caller = manager(&shop);
    Engineer::sit_down(&shop, 0).await.does("create", create("a.py", "a = 2\n")).await;
    let mut bob = Engineer::sit_down(&shop, 1).await;
    bob.does("create", create("a.py", "a = 3\n")).await;
    bob.does("create", create("c.py", "c = 3\n")).await;
    merge(&shop.workspace, &caller, "engineer_1").await.expect("it is merged");
    merge(&shop.workspace, &caller, "engineer_2").await.expect_err("it conflicts");
    drop(bob);
    // Second round: the tree has the merged changes and Bob's own that do not conflict. The conflict is reported.
    let mut bob = Engineer::sit_down(&shop, 1).await;
    let result = bob.does("view", json!({"path": "a.py"})).await;
    assert!(
        result.text.contains("What you had changed in a.py conflicts") && result.text.contains("+a = 3"),
        "{}",
        result.text
    );
    assert!(result.data["content"].as_str().is_some_and(|text| text.contains("a = 2")), "{}", result.data);
    let result = bob.does("view", json!({"path": "c.py"})).await;
    assert!(result.text.contains("c = 3") && !result.text.contains("conflicts"), "{}", result.text);
    bob.does("create", create("a.py", "a = 2\na = 3\n")).await;
    drop(bob);
    merge(&shop.workspace, &caller, "engineer_2").await.expect("it is merged");
    assert_eq!(sh(root, "cat a.py c.py; git status --porcelain"), "a = 2\na = 3\nc = 3\n");
    // A tree with merged work is updated without a notice or a commit.
    let mut ada = Engineer::sit_down(&shop, 0).await;
    let result = ada.does("view", json!({"path": "c.py"})).await;
    assert!(result.text.starts_with("c.py") && result.text.contains("c = 3"), "{}", result.text);
    assert_eq!(sh(root, "git rev-parse main"), sh(root, "git rev-parse workspace/engineer_1"));
}

#[tokio::test]
async fn no_attribute_and_no_configuration_starts_a_program_when_trees_are_made_and_merged() {
    let files = [("a.py", "a\nb\nc\nd\ne\nf\ng\n")];
    let shop = Workshop::open(2, &json!({"isolation": "worktree"}), &files).await;
    let root = shop.directory.path();
    sh(root, BEGIN);
    let has_run = plant(root);
    let (mut ada, mut bob) = (Engineer::sit_down(&shop, 0).await, Engineer::sit_down(&shop, 1).await);
    ada.does("create", create("a.py", "A\nb\nc\nd\ne\nf\ng\n")).await;
    bob.does("create", create("a.py", "a\nb\nc\nd\ne\nf\nG\n")).await;
    drop((ada, bob));
    let caller = manager(&shop);
    merge(&shop.workspace, &caller, "engineer_1").await.expect("it is merged");
    merge(&shop.workspace, &caller, "engineer_2").await.expect("it is merged, as nobody touched the same");
    assert_eq!(sh(root, "cat a.py"), "A\nb\nc\nd\ne\nf\nG\n");
    assert!(!has_run(), "by the configuration alone");
    // By attributes of a tree, and by merged and checked-out ones.
    let mut ada = Engineer::sit_down(&shop, 0).await;
    ada.does("create", create(".gitattributes", PLANTED)).await;
    ada.does("create", create("b.py", "b\n")).await;
    drop(ada);
    merge(&shop.workspace, &caller, "engineer_1").await.expect("it is merged");
    let mut bob = Engineer::sit_down(&shop, 1).await;
    let result = bob.does("view", json!({"path": "b.py"})).await;
    assert!(result.text.ends_with("1\tb\n"), "{}", result.text);
    assert_eq!(sh(root, "cat b.py"), "b\n");
    assert!(!has_run(), "by attributes");
}

#[tokio::test]
async fn a_tree_is_looked_at_as_the_directory_is() {
    let shop = Workshop::open(1, &json!({"isolation": "worktree"}), &[("d/a.py", "a = 1\n")]).await;
    sh(shop.directory.path(), BEGIN);
    let mut ada = Engineer::sit_down(&shop, 0).await;
    let mut shared = shop.session(0);
    for (tool, arguments) in [
        ("view", json!({"path": "d/a.py", "view_range": [2, 3]})),
        ("view", json!({"path": "d"})),
        ("view", json!({"path": "none"})),
        ("list", json!({"path": "none"})),
        ("list", json!({"path": "d"})),
    ] {
        let mut command = arguments.clone();
        command["command"] = tool.into();
        let there = shared.call(command).await;
        let result = call(&mut ada.session, Some(&ada.tree), &ada.programs, tool, arguments, ROOM_MAX).await;
        assert_eq!(result.code, there.code, "{tool}: {} {}", result.text, there.text);
        assert!(result.is_error() || result.text == "d/a.py\n", "{}", result.text);
    }
}

#[tokio::test]
async fn files_omitted_from_a_merge_are_named() {
    let small = json!([{"name": "small", "for": "/files/*", "expr": "self.bytes < 100"}]);
    let spec = json!({"isolation": "worktree", "invariants": small});
    let shop = Workshop::open(1, &spec, &[("a.py", "a = 1\n"), ("b.txt", "b\n")]).await;
    let root = shop.directory.path();
    sh(root, "echo '*.py filter=x' > .gitattributes");
    sh(root, BEGIN);
    let mut ada = Engineer::sit_down(&shop, 0).await;
    ada.does("create", create("a.py", "a = 2\n")).await;
    let is_named = |said: &str| {
        said.contains("1 file is left out, as what git would commit is not what is there") && said.contains(": a.py\n")
    };
    let said = merge(&shop.workspace, &manager(&shop), "engineer_1").await.expect("nothing is merged");
    assert!(said.starts_with("Nothing was merged: ") && is_named(&said), "{said}");
    ada.does("create", create("b.txt", &format!("{}\n", "b".repeat(200)))).await;
    let said = merge(&shop.workspace, &manager(&shop), "engineer_1").await.expect("the rest is merged");
    assert!(said.contains("merges the work of engineer_1: 1 file\n") && is_named(&said), "{said}");
    assert!(said.contains("b.txt changed in a way that the board does not allow: "), "{said}");
    assert_eq!(sh(root, "git show HEAD:a.py; git status --porcelain"), "a = 1\n");
    // The change stays in the tree.
    drop(ada);
    let mut ada = Engineer::sit_down(&shop, 0).await;
    assert!(ada.does("view", json!({"path": "a.py"})).await.text.contains("a = 2"));
}

#[tokio::test]
async fn files_outside_a_sparse_checkout_stay_in_a_merge() {
    let files = [("x/a", "a\n"), ("y/b", "b\n")];
    let shop = Workshop::open(1, &json!({"isolation": "worktree"}), &files).await;
    let root = shop.directory.path();
    sh(root, BEGIN);
    sh(root, "git sparse-checkout set x; test ! -e y");
    let caller = manager(&shop);
    let diff = git::diff(&shop.workspace, &caller, &[], Window::default()).await;
    assert_eq!(diff.expect("a difference"), "");
    for text in ["a2\n", "a3\n"] {
        let mut ada = Engineer::sit_down(&shop, 0).await;
        assert!(!ada.tree.path().join("y").exists(), "a tree is as sparse as the directory");
        ada.does("create", create("x/a", text)).await;
        drop(ada);
        let said = merge(&shop.workspace, &caller, "engineer_1").await.expect("it is merged");
        assert!(said.ends_with("work of engineer_1: 1 file\n"), "{said}");
        assert_eq!(sh(root, "git show HEAD:x/a HEAD:y/b; ls; git status --porcelain"), format!("{text}b\nx\n"));
    }
}
