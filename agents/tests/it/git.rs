//! Diffs and commits of a repository.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use patchboard_agents::config::Program;
use patchboard_kernel::files::Access;
use patchboard_runtime::tools::ROOM_MAX;
use patchboard_workshop::{Workshop, path};
use patchboard_workspace::edit_author::EditAuthor;
use patchboard_workspace::git::{self, Window};
use patchboard_workspace::session::Session;
use patchboard_workspace::tools::call;
use serde_json::{Value, json};

/// Returns an author with this access, in the seat of the first engineer.
pub(crate) fn author(shop: &Workshop, label: &str, files: &Value) -> EditAuthor {
    let access = Access::compile(&serde_json::from_value(files.clone()).expect("access")).expect("patterns");
    EditAuthor { access, name: Some(label.to_owned()), ..shop.session(0).author().clone() }
}

pub(crate) fn manager(shop: &Workshop) -> EditAuthor {
    author(shop, "manager", &json!({"run": ["git"]}))
}

/// Runs a script, which must succeed; returns its output.
pub(crate) fn sh(directory: &Path, script: &str) -> String {
    const IDENTITY: [(&str, &str); 4] = [
        ("GIT_AUTHOR_NAME", "me"),
        ("GIT_AUTHOR_EMAIL", "me@x"),
        ("GIT_COMMITTER_NAME", "me"),
        ("GIT_COMMITTER_EMAIL", "me@x"),
    ];
    let ran = Command::new("sh").args(["-ec", script]).envs(IDENTITY).current_dir(directory).output().expect("sh runs");
    assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

pub(crate) const BEGIN: &str = "git init -qb main && git add . && git commit -qm begin";

/// Rewrites a file as an engineer, numbered from 0.
async fn write(shop: &Workshop, engineer: usize, name: &str, text: &str) {
    let mut session = shop.session(engineer);
    session.call(json!({"command": "view", "path": name})).await;
    let edit = json!({"command": "create", "path": name, "file_text": text, "intent": "anew"});
    let result = session.call(edit).await;
    assert!(!result.is_error(), "{}", result.text);
}

/// Views all uncommitted changes, one part after the other.
async fn review(shop: &Workshop, caller: &EditAuthor) {
    let mut window = Window::default();
    loop {
        let diff = git::diff(&shop.workspace, caller, &[], window).await.expect("a difference");
        let note = diff.lines().last().and_then(|line| line.split_once("go on with `skip` "));
        let Some((_, next)) = note else { return };
        let next = next.split(',').next().expect("a number").parse().expect("a number");
        assert!(next > window.skip, "{diff}");
        window.skip = next;
    }
}

/// Reviews and commits all changes.
async fn commit(
    shop: &Workshop,
    caller: &EditAuthor,
    message: &str,
    author: Option<&str>,
) -> Result<Vec<git::Commit>, git::error::GitError> {
    review(shop, caller).await;
    let committed = git::commit(&shop.workspace, caller, message, author).await?;
    assert_eq!(committed.omissions.messages(), [""; 0]);
    Ok(committed.commits)
}

#[tokio::test]
async fn each_authors_files_are_committed_in_that_name_by_who_may() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.py", "a = 1\n"), ("b.py", "b = 1\n")]).await;
    let sh = |script: &str| {
        let ran = std::process::Command::new("sh").args(["-c", script]).current_dir(shop.directory.path()).output();
        String::from_utf8(ran.expect("sh runs").stdout).expect("text")
    };
    let error =
        git::diff(&shop.workspace, &manager(&shop), &[], Window::default()).await.expect_err("there is no repository");
    assert_eq!(error.code(), "no_repository");
    sh(
        "git init -q && git -c user.name=me -c user.email=me@x add . && git -c user.name=me -c user.email=me@x commit -qm begin",
    );
    for (engineer, name) in [(0, "a.py"), (1, "b.py"), (1, "new/c.py")] {
        let mut session = shop.session(engineer);
        session.call(json!({"command": "view", "path": name})).await;
        let edit = json!({"command": "create", "path": name, "file_text": "x = 2\n", "intent": "two"});
        let result = session.call(edit).await;
        assert!(!result.is_error(), "{}", result.text);
    }
    // Programs configured in the repository are not run.
    sh(
        "mkdir hooks && printf '#!/bin/sh\\ntouch ran\\n' | tee hooks/post-commit > hooks/pre-commit; chmod +x hooks/*; git config core.hooksPath hooks; git config diff.external 'touch ran'",
    );
    sh("echo hooks > .git/info/exclude");
    let diff = git::diff(&shop.workspace, &manager(&shop), &[], Window::default()).await.expect("a difference");
    assert!(diff.contains("+x = 2") && diff.contains("new/c.py"), "{diff}");
    let only =
        git::diff(&shop.workspace, &manager(&shop), &[path("a.py")], Window::default()).await.expect("a difference");
    assert!(only.contains("a.py") && !only.contains("b.py"), "{only}");
    let commits = commit(&shop, &manager(&shop), "two\n\nEverywhere.", None).await.expect("commits");
    let by_author: Vec<_> = commits.iter().map(|commit| (commit.author.as_str(), commit.files.len())).collect();
    assert_eq!(by_author, [("engineer_1", 1), ("engineer_2", 2)]);
    assert_eq!(sh("git log --format='%an %cn %s' -2"), "engineer_2 manager two\nengineer_1 manager two\n");
    assert_eq!(sh("git status --porcelain"), "", "the workspace's own directory is no part of it");
    assert!(!shop.directory.path().join("ran").exists());
    let error = commit(&shop, &manager(&shop), "again", None).await.expect_err("everything is committed");
    assert_eq!(error.code(), "nothing_to_commit");
    let error = commit(&shop, &manager(&shop), " \n", None).await.expect_err("no message");
    assert_eq!(error.code(), "empty_message");
}

#[tokio::test]
async fn unserved_files_stay_out_of_diffs_and_commits() {
    let files = [("a.py", "a = 1\n"), ("secret/k.py", "k = 1\n"), ("gone.py", "g = 1\n"), (".env", "TOKEN=begin\n")];
    let shop = Workshop::open(1, &json!({"annotate": false, "exclude": [".env", "*.key"]}), &files).await;
    let root = shop.directory.path();
    // Both excluded files are tracked by git.
    sh(root, BEGIN);
    sh(root, "echo TOKEN=hunter2 > .env; echo hunter2 > new.key; echo hunter2 > secret/k.py; rm gone.py");
    write(&shop, 0, "a.py", "a = 2\n").await;
    let blind = author(&shop, "manager", &json!({"view": ["*"], "run": ["git"]}));
    let diff = git::diff(&shop.workspace, &blind, &[], Window::default()).await.expect("a difference");
    assert!(diff.contains("+a = 2") && diff.contains("deleted file") && !diff.contains("hunter2"), "{diff}");
    for hidden in [".env", "new.key", "secret/k.py", "secret"] {
        let diff = git::diff(&shop.workspace, &blind, &[path(hidden)], Window::default()).await.expect("a difference");
        assert_eq!(diff, "", "{hidden}");
    }
    let commits = commit(&shop, &blind, "all of it", None).await.expect("commits");
    let by_author: Vec<_> = commits.iter().map(|commit| (commit.author.as_str(), &*commit.files)).collect();
    assert_eq!(by_author, [("engineer_1", &[path("a.py")][..]), ("external", &[path("gone.py")][..])]);
    assert_eq!(sh(root, "git log -p --format=%an | grep -c hunter2 || true"), "0\n");
    assert_eq!(sh(root, "git status --porcelain"), " M .env\n M secret/k.py\n?? new.key\n");
    // An author that may view a file may commit it; files excluded by the operator are never committed.
    let commits = commit(&shop, &manager(&shop), "the rest", None).await.expect("commits");
    assert_eq!(commits.len(), 1);
    assert_eq!(sh(root, "git status --porcelain"), " M .env\n?? new.key\n");
}

#[tokio::test]
async fn user_staged_changes_stay_staged_and_out_of_commits() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.py", "a = 1\n"), ("b.py", "b = 1\n")]).await;
    let root = shop.directory.path();
    sh(root, BEGIN);
    sh(root, "echo 'b = 2' > b.py; echo mine > mine.txt; git add b.py mine.txt; echo 'b = 3' > b.py");
    let index = sh(root, "git ls-files -s");
    write(&shop, 0, "a.py", "a = 2\n").await;
    write(&shop, 0, "sub/new.py", "n = 1\n").await;
    git::diff(&shop.workspace, &manager(&shop), &[], Window::default()).await.expect("a difference");
    assert_eq!(sh(root, "git ls-files -s"), index, "looking changes nothing");
    commit(&shop, &manager(&shop), "two", Some("engineer_1")).await.expect("a commit");
    assert_eq!(sh(root, "git show --format= --name-only HEAD"), "a.py\nsub/new.py\n");
    assert_eq!(sh(root, "git status --porcelain"), "MM b.py\nA  mine.txt\n");
    assert_eq!(sh(root, "git show :b.py"), "b = 2\n", "what was staged");
    // The workspace does not complete a merge begun by the user.
    sh(
        root,
        "git stash -q; git checkout -qb side HEAD~1; echo 'a = 9' > a.py; git commit -qam side; git checkout -q main",
    );
    sh(root, "git merge -q side || true");
    let error = git::commit(&shop.workspace, &manager(&shop), "x", None).await.expect_err("a merge is under way");
    assert_eq!(error.code(), "git_refused", "{error}");
    assert!(error.to_string().contains("merge"), "{error}");
}

#[tokio::test]
async fn every_file_is_committed_however_many_there_are() {
    let shop = Workshop::open(1, &json!({"annotate": false}), &[("a.py", "a = 1\n")]).await;
    let root = shop.directory.path();
    // A repository without commits has a diff, too.
    sh(root, "git init -qb main");
    let diff = git::diff(&shop.workspace, &manager(&shop), &[], Window::default()).await.expect("a difference");
    assert!(diff.contains("new file") && diff.contains("+a = 1"), "{diff}");
    write(&shop, 0, "a.py", "a = 2\n").await;
    let first = commit(&shop, &manager(&shop), "first", None).await.expect("a commit");
    assert_eq!((first.len(), first[0].author.as_str()), (1, "engineer_1"));
    assert_eq!(sh(root, "git log --format=%s main; git status --porcelain"), "first\n");
    // Names of 200 letters, together far beyond the former limit of one git answer.
    let many = format!("mkdir many; for i in $(seq 1 400); do echo $i > many/{}-$i.txt; done", "n".repeat(190));
    sh(root, &many);
    let diff = git::diff(&shop.workspace, &manager(&shop), &[], Window::default()).await.expect("a difference");
    assert!(diff.chars().count() < 60_000, "it is bounded");
    assert!(diff.starts_with("diff --git") && diff.contains("+1\n"), "it begins with the beginning");
    let end = diff.lines().last().unwrap_or_default();
    assert!(end.contains("bytes after this are not shown") && end.contains("400 files differ"), "{end}");
    let commits = commit(&shop, &manager(&shop), "many", None).await.expect("a commit");
    assert_eq!(commits.iter().map(|commit| commit.files.len()).sum::<usize>(), 400);
    assert_eq!(sh(root, "git status --porcelain; git ls-files | wc -l").trim(), "401");
}

#[tokio::test]
async fn names_of_any_form_and_links_to_other_repositories_are_left_as_they_are() {
    let files = [("-rf", "a\n"), ("ä b\"c.txt", "a\n"), ("dir/x", "a\n")];
    let shop = Workshop::open(1, &json!({"intent": "optional", "annotate": false}), &files[..1]).await;
    let root = shop.directory.path();
    sh(root, "mkdir lib && cd lib && git init -q && echo 1 > in.txt && git add . && git commit -qm lib");
    sh(root, "git init -qb main && git -c advice.addEmbeddedRepo=false add . && git commit -qm begin");
    sh(root, "echo 2 > lib/in.txt");
    for (name, _) in &files[1..] {
        write(&shop, 0, name, "a\n").await;
    }
    let commits = commit(&shop, &manager(&shop), "names", None).await.expect("commits");
    assert_eq!(commits[0].files.len(), 2, "{commits:?}");
    assert_eq!(sh(root, "git ls-tree HEAD lib | cut -c1-6"), "160000\n");
    // A directory in the place of a file, and the other way round.
    sh(root, "rm -r dir; echo file > dir; rm -- -rf; mkdir -- -rf; echo in > ./-rf/in");
    commit(&shop, &manager(&shop), "turned around", None).await.expect("commits");
    assert_eq!(sh(root, "git ls-tree -r --name-only HEAD -- dir ./-rf"), "-rf/in\ndir\n");
}

#[tokio::test]
async fn files_that_look_like_a_repository_are_none_and_commits_come_one_after_the_other() {
    let planted = [
        ("HEAD", "ref: refs/heads/x\n"),
        ("objects/x", ""),
        ("refs/x", ""),
        ("config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch ran\n"),
    ];
    let shop = Workshop::open(1, &json!({}), &planted).await;
    let error =
        git::diff(&shop.workspace, &manager(&shop), &[], Window::default()).await.expect_err("it is no repository");
    assert_eq!(error.code(), "no_repository");
    assert!(!shop.directory.path().join("ran").exists());

    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.py", "a = 1\n"), ("b.py", "b = 1\n")]).await;
    let script = "git init -q && git -c user.name=me -c user.email=me@x add . && git -c user.name=me -c user.email=me@x commit -qm begin";
    let ran = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(shop.directory.path())
        .output()
        .expect("sh runs");
    assert!(ran.status.success());
    for (engineer, name) in [(0, "a.py"), (1, "b.py")] {
        let mut session = shop.session(engineer);
        session.call(json!({"command": "view", "path": name})).await;
        session.call(json!({"command": "create", "path": name, "file_text": "x = 2\n", "intent": "two"})).await;
    }
    let caller = manager(&shop);
    let of = |author: &'static str| commit(&shop, &caller, "two", Some(author));
    let (one, two) = tokio::join!(of("engineer_1"), of("engineer_2"));
    assert_eq!(one.expect("a commit")[0].files, [path("a.py")]);
    assert_eq!(two.expect("a commit")[0].files, [path("b.py")]);
}

#[tokio::test]
async fn nothing_is_committed_that_was_not_shown_as_it_is() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.py", "a = 1\n"), ("b.py", "b = 1\n")]).await;
    let root = shop.directory.path();
    sh(root, BEGIN);
    write(&shop, 0, "a.py", "a = 2\n").await;
    write(&shop, 1, "b.py", "b = 2\n").await;
    let caller = manager(&shop);
    let refused = async |author: Option<&'static str>| {
        let error = git::commit(&shop.workspace, &caller, "x", author).await.expect_err("it was not shown");
        assert_eq!(error.code(), "not_reviewed", "{error}");
        error.to_string()
    };
    let shown =
        async |paths: &[_], window| git::diff(&shop.workspace, &caller, paths, window).await.expect("a difference");
    let all = Window::default();
    assert!(refused(None).await.contains("a.py, b.py"));
    shown(&[path("a.py")], all).await;
    let named = refused(None).await;
    assert!(named.contains("b.py") && !named.contains("a.py"), "{named}");
    // A review counts only for its own author.
    review(&shop, &second_manager(&shop)).await;
    refused(None).await;
    review(&shop, &caller).await;
    write(&shop, 1, "b.py", "b = 3\n").await;
    assert!(refused(Some("engineer_2")).await.contains("b.py"), "it has changed since");
    // The reviewed file can be committed; the other change stays.
    git::commit(&shop.workspace, &caller, "a", Some("engineer_1")).await.expect("a commit");
    assert_eq!(sh(root, "git log -1 --format='%an %s'; git status --porcelain"), "engineer_1 a\n M b.py\n");
    review(&shop, &caller).await;
    // A review covers content and base: the user has committed another base meanwhile.
    sh(root, "echo 'b = 9' > b.py; git commit -qm mine b.py; echo 'b = 3' > b.py");
    refused(None).await;
    commit(&shop, &caller, "b", None).await.expect("a commit");

    // Truncated parts are not reviewed, nor is a file hidden by its attributes.
    let long: String = (0..600).map(|line| format!("c = {line}\n")).collect();
    write(&shop, 0, "c.py", &long).await;
    write(&shop, 0, ".gitattributes", "*.py -diff\n").await;
    let part = Window { skip: 0, room: 2_000 };
    let text = shown(&[path("c.py")], part).await;
    assert!(text.contains("+c = 1\n") && text.contains("are not shown") && text.chars().count() <= 2_000, "{text}");
    refused(None).await;
    // The last part alone is not a full review.
    shown(&[path("c.py")], Window { skip: 3_000, room: 32_000 }).await;
    assert!(refused(None).await.contains("c.py"));
    let next = text.split_once("`skip` ").and_then(|(_, rest)| rest.split(',').next()).expect("where to go on");
    let rest = shown(&[path("c.py")], Window { skip: next.parse().expect("a number"), room: 32_000 }).await;
    assert!(rest.ends_with("+c = 599\n"), "{rest}");
    assert!(refused(None).await.ends_with(": .gitattributes"));
    shown(&[path(".gitattributes")], all).await;
    git::commit(&shop.workspace, &caller, "c", None).await.expect("a commit");
    assert_eq!(sh(root, "git status --porcelain"), "");
}

fn second_manager(shop: &Workshop) -> EditAuthor {
    author(shop, "second", &json!({"run": ["git"]}))
}

#[tokio::test]
async fn everybody_who_wrote_in_a_file_is_named_and_who_formats_it_is_not() {
    let files = [("a.py", "a = 1\nb = 1\nc = 1\nd = 1\n")];
    let shop = Workshop::open(2, &json!({"annotate": false}), &files).await;
    let root = shop.directory.path();
    sh(root, BEGIN);
    let replace = async |engineer: usize, old: &str, new: &str| {
        let mut session = shop.session(engineer);
        session.call(json!({"command": "view", "path": "a.py"})).await;
        let edit = json!({"command": "str_replace", "path": "a.py", "old_str": old, "new_str": new, "intent": "x"});
        let result = session.call(edit).await;
        assert!(!result.is_error(), "{}", result.text);
    };
    replace(0, "a = 1\nb = 1\n", "a = 2\nb = 2\naa = 2\n").await;
    replace(1, "d = 1\n", "d = 2\n").await;
    let format = Program::new(vec!["sed".to_owned(), "-i".to_owned(), "s/ = /=/".to_owned(), "a.py".to_owned()]);
    let format = Program { changes: vec!["**".to_owned()], ..format };
    let formatter = author(&shop, "manager", &json!({"edit": ["**"], "run": ["git", "format"]}));
    let mut manager = Session::new(Arc::clone(&shop.workspace), formatter.clone());
    let programs = std::collections::BTreeMap::from([("format".to_owned(), format)]);
    let result = call(&mut manager, None, &programs, "run", json!({"program": "format"}), ROOM_MAX).await;
    assert!(result.text.contains("changed: a.py"), "{}", result.text);
    assert_eq!(shop.entry("a.py").map(|entry| entry.writer).as_deref(), Some("manager"));
    let result = call(&mut manager, None, &programs, "commit", json!({"message": "x"}), ROOM_MAX).await;
    assert_eq!(result.code.as_deref(), Some("not_reviewed"), "{}", result.text);
    call(&mut manager, None, &programs, "diff", json!({}), ROOM_MAX).await;
    let result = call(&mut manager, None, &programs, "commit", json!({"message": "both\n\nAll."}), ROOM_MAX).await;
    assert!(result.text.contains("by engineer_1, with engineer_2: 1 file\n"), "{}", result.text);
    assert_eq!(
        sh(root, "git log -1 --format='%an|%cn|%B'"),
        "engineer_1|manager|both\n\nAll.\n\nCo-authored-by: engineer_2 <engineer_2@workspace>\n\n"
    );
    let trailer = sh(root, "git log -1 --format='%(trailers:key=Co-authored-by,valueonly)'");
    assert_eq!(trailer.trim(), "engineer_2 <engineer_2@workspace>", "git knows it as such");
    // Committed changes no longer count for authorship, even in a new process that has read none of them.
    replace(1, "c=1\n", "c = 3\n").await;
    drop(manager);
    let shop = shop.crashed().await;
    let commits = commit(&shop, &formatter, "one", None).await.expect("a commit");
    assert_eq!((commits[0].author.as_str(), commits[0].others.len()), ("engineer_2", 0));
}

/// Checks that a cancelled caller leaves no lock file, and no index that differs from the branch.
#[tokio::test]
async fn an_abandoned_commit_is_completed() {
    let shop = Workshop::open(1, &json!({"annotate": false}), &[("a.py", "a = 1\n")]).await;
    let root = shop.directory.path();
    sh(root, BEGIN);
    for round in 0..8_u64 {
        write(&shop, 0, "a.py", &format!("a = {round}{round}\n")).await;
        let caller = manager(&shop);
        review(&shop, &caller).await;
        let waits = std::time::Duration::from_millis(5 * round);
        let made = tokio::time::timeout(waits, git::commit(&shop.workspace, &caller, "one", None)).await;
        // The next operation waits until the commit is finished.
        let next = git::diff(&shop.workspace, &caller, &[], Window::default()).await.expect("a difference");
        assert!(made.is_err() || next.is_empty(), "{next}");
        assert!(!root.join(".git/index.lock").exists());
        assert_eq!(sh(root, "git diff --cached"), "", "index and branch say the same");
        sh(root, "git commit -qam rest || true");
    }
}

/// Configures a program everywhere git runs one; returns a check of whether any ran.
pub(crate) fn plant(root: &Path) -> impl Fn() -> bool {
    let ran = root.join(".git/ran");
    let touch = format!("touch {}; cat", ran.display());
    for key in ["filter.x.clean", "filter.x.smudge", "diff.x.textconv", "diff.x.command", "merge.x.driver"] {
        sh(root, &format!("git config {key} '{touch}'"));
    }
    // Includes programs for files without attributes.
    sh(
        root,
        &format!("git config merge.default x; git config core.fsmonitor '{touch}'; git config diff.external '{touch}'"),
    );
    move || ran.exists()
}

/// Attributes that an agent with edit access could plant.
pub(crate) const PLANTED: &str = "* filter=x merge=x diff=x working-tree-encoding=UTF-16 ident\n";

#[tokio::test]
async fn git_attributes_start_no_program_and_commits_hold_the_file_contents() {
    let shop = Workshop::open(1, &json!({"annotate": false}), &[("a.py", "a = 1\n"), ("b.py", "b = 1\n")]).await;
    let root = shop.directory.path();
    sh(root, BEGIN);
    let has_run = plant(root);
    write(&shop, 0, ".gitattributes", PLANTED).await;
    write(&shop, 0, "a.py", "a = '$Id: 2 $'\n").await;
    let caller = manager(&shop);
    let diff = git::diff(&shop.workspace, &caller, &[], Window::default()).await.expect("a difference");
    assert!(diff.contains("+a = '$Id: 2 $'\n"), "{diff}");
    commit(&shop, &caller, "two", None).await.expect("commits");
    assert!(!has_run());
    assert_eq!(sh(root, "git cat-file blob HEAD:a.py"), "a = '$Id: 2 $'\n");
    // Once the attributes are committed, such files are left to the user, and the diff reports them.
    write(&shop, 0, "a.py", "a = 3\n").await;
    let is_named = |said: &str| {
        said.contains("1 file is left out, as what git would commit is not what is there") && said.contains(": a.py")
    };
    let diff = git::diff(&shop.workspace, &caller, &[], Window::default()).await.expect("a difference");
    assert!(is_named(&diff) && !diff.contains("a = 3"), "{diff}");
    let other = git::diff(&shop.workspace, &caller, &[path("b.py")], Window::default()).await.expect("a difference");
    assert_eq!(other, "", "what is not asked for is not named");
    let error = git::commit(&shop.workspace, &caller, "three", None).await.expect_err("nothing is left");
    assert_eq!(error.code(), "nothing_to_commit");
    assert!(is_named(&error.to_string()), "{error}");
    // A deletion is independent of programs, so it is shown.
    sh(root, "rm b.py");
    let diff = git::diff(&shop.workspace, &caller, &[], Window::default()).await.expect("a difference");
    assert!(diff.contains("-b = 1\n") && is_named(&diff) && diff.ends_with("]\n"), "{diff}");
    let mut manager = Session::new(Arc::clone(&shop.workspace), caller.clone());
    let programs = std::collections::BTreeMap::<String, Program>::new();
    let result = call(&mut manager, None, &programs, "commit", json!({"message": "three"}), ROOM_MAX).await;
    assert!(result.text.contains(": 1 file\n") && is_named(&result.text), "{}", result.text);
    assert_eq!(result.data["left_out"].as_array().map(Vec::len), Some(1), "{}", result.data);
    assert_eq!(sh(root, "git ls-tree -r --name-only HEAD"), ".gitattributes\na.py\n");
    assert!(!has_run());
    // However many files are left out, the answer keeps to its room, and all parts can be reached.
    sh(root, &format!("for i in $(seq 1 150); do echo $i > {}-$i.txt; done; rm a.py", "n".repeat(90)));
    let window = Window { skip: 0, room: 2_000 };
    let diff = git::diff(&shop.workspace, &caller, &[], window).await.expect("a difference");
    assert!(diff.contains("150 files are left out") && diff.contains("-a = "), "{diff}");
    assert!(diff.chars().count() <= 2_000, "{diff}");
}

#[tokio::test]
async fn files_that_the_board_rejects_are_named_where_omitted() {
    let small = json!([{"name": "small", "for": "/files/*", "expr": "self.bytes < 100"}]);
    let files = [("a.txt", "a\n"), ("b.txt", "b\n"), ("gone.txt", "g\n")];
    let shop = Workshop::open(1, &json!({"annotate": false, "invariants": small}), &files).await;
    let root = shop.directory.path();
    sh(root, BEGIN);
    sh(root, &format!("echo {} > b.txt", "b".repeat(200)));
    let caller = manager(&shop);
    let is_named =
        |said: &str| said.contains("1 file is left out, as the board does not allow") && said.contains(": b.txt");
    let diff = git::diff(&shop.workspace, &caller, &[], Window::default()).await.expect("a difference");
    assert!(diff.starts_with('[') && is_named(&diff), "{diff}");
    let error = git::commit(&shop.workspace, &caller, "all", None).await.expect_err("nothing is left");
    assert!(error.code() == "nothing_to_commit" && is_named(&error.to_string()), "{error}");
    let mut session = Session::new(Arc::clone(&shop.workspace), caller.clone());
    let result = session.call(json!({"command": "view", "path": "b.txt"})).await;
    assert!(result.text.contains("small"), "as it is said there: {}", result.text);
    sh(root, "echo a2 > a.txt; rm gone.txt");
    review(&shop, &caller).await;
    let committed = git::commit(&shop.workspace, &caller, "all", None).await.expect("the rest");
    assert!(is_named(&committed.omissions.messages().join("\n")), "{committed:?}");
    assert_eq!(sh(root, "git status --porcelain"), " M b.txt\n");
    // An author without access sees no note; once the file is fixed, there is no note to show.
    let blind = self::author(&shop, "manager", &json!({"view": ["a.txt"], "run": ["git"]}));
    assert_eq!(git::diff(&shop.workspace, &blind, &[], Window::default()).await.expect("a difference"), "");
    sh(root, "echo b > b.txt");
    assert_eq!(git::diff(&shop.workspace, &caller, &[], Window::default()).await.expect("a difference"), "");
}
